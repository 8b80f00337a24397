"""`make fuzz`: 100,000 odd objects, each valid for an API server, come to a running daemon, change and go.

Exit code 1 when the daemon ended, a cycle did not, a watch was lost, the log has a traceback, or a pod of another
tenant was evicted. The seed draws the objects.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.faults.scenarios.fuzz import BATCH, Fuzzed, fuzz

SHOWN_SECONDS = 20.0
"""Interval of the lines meanwhile."""


def show(seed: int, began: float, found: Fuzzed) -> None:
    facts = {name: fact for name, fact in asdict(found).items() if name != "wrong"}
    print(json.dumps({"seed": seed, "seconds": round(time.monotonic() - began), **facts}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=BATCH, help="objects that come at once")
    parser.add_argument("--keep", type=Path, help="folder for the daemon's log and database; default: not kept")
    args = parser.parse_args()
    began = shown = time.monotonic()

    def each(found: Fuzzed) -> None:
        nonlocal shown
        if time.monotonic() - shown >= SHOWN_SECONDS:
            shown = time.monotonic()
            show(args.seed, began, found)

    with tempfile.TemporaryDirectory(prefix="rebalancer-fuzz-") as made:
        folder = args.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        found = fuzz(folder, objects=args.objects, seed=args.seed, batch=args.batch, each=each)
    show(args.seed, began, found)
    for wrong in found.wrong:
        print(f"WRONG: {wrong}")
    print(f"{len(found.wrong)} wrong" if found.wrong else "held")
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
