"""The faults that a running daemon is put through, with the measured recovery of each: `make faults` runs them.

By hand: `python -m tests.faults.programs.recovery [--only REGEX] [--real]`. Exit code 1 when one fell.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from rebalancer.store import upgrade
from tests.faults.scenarios.live import RECOVERY_SECONDS, Outcome, lanes
from tests.real.servers.postgres import postgres_server

LANES_AT_ONCE = 6


def fell(outcome: Outcome) -> bool:
    return bool(outcome.wrong) or outcome.recovery_seconds > RECOVERY_SECONDS


def show(outcome: Outcome) -> None:
    verdict = "FELL" if fell(outcome) else "held"
    restarts = f", {outcome.restarts} restarts" if outcome.restarts else ""
    print(f"  {verdict}  {outcome.recovery_seconds:5.1f} s  {outcome.name}{restarts}", flush=True)
    for each in outcome.wrong:
        print(f"        {each}", flush=True)


def run(*, real: bool, only: str = "") -> list[Outcome]:
    """All lanes side by side; prints each verdict. Skips where what it needs is missing."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rebalancer-faults-")))
        url = ""
        if not real:
            try:
                url = stack.enter_context(postgres_server()).create_database("faults")
                upgrade(url)
            except pytest.skip.Exception:
                print("  skipped  faults of the database: needs PostgreSQL")
        print(f"\nRecovery after the fault's end, {'real' if real else 'practice'} API server")
        todo = lanes(real=real, postgres_url=url, only=re.compile(only))
        outcomes: list[Outcome] = []

        def through(lane: Callable[[Path], Iterator[Outcome]], path: Path) -> None:
            try:
                for each in lane(path):
                    show(each)
                    outcomes.append(each)
            except AssertionError as error:
                outcomes.append(Outcome(name=f"{path.name} ended", recovery_seconds=0.0, wrong=(str(error),)))
                show(outcomes[-1])

        with ThreadPoolExecutor(LANES_AT_ONCE) as pool:
            running = [pool.submit(through, lane, folder / f"lane{at}") for at, lane in enumerate(todo)]
            for each in running:
                each.result()
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    wrong = sum(map(fell, outcomes))
    slowest = max(outcomes, key=lambda each: each.recovery_seconds)
    return (
        f"{len(outcomes) - wrong} held, {wrong} fell; the slowest recovery took {slowest.recovery_seconds:.1f} s: "
        f"{slowest.name}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.programs.recovery", description=__doc__)
    parser.add_argument("--only", default="", help="regular expression over the names of faults")
    parser.add_argument("--real", action="store_true", help="with the API server of KUBEBUILDER_ASSETS")
    args = parser.parse_args()
    outcomes = run(real=args.real, only=args.only)
    print(summary(outcomes))
    return int(any(map(fell, outcomes)))


if __name__ == "__main__":
    sys.exit(main())
