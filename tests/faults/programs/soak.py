"""`make soak`: eight simulated hours with a fault in each of three clusters every minute, then 1,000 failovers, then
plans whose calls are in flight together. Exit code 1 when an eviction was lost or counted twice, a limit was passed, or
a term evicted that was over."""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import structlog

from rebalancer.store import upgrade
from tests.faults.scenarios.fleet import Fleet, a_fleet
from tests.faults.scenarios.soak import Verdict, failovers, soak
from tests.faults.scenarios.together import calls_together
from tests.real.servers.postgres import postgres_server

FLAT_MIB = 64.0
"""By how much memory may grow from the end of the first hour to the last."""


@contextmanager
def fleet_of(clusters: int, *, seed: int, quick: bool) -> Iterator[Fleet]:
    """On a PostgreSQL of its own where there is one, else on SQLite."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rebalancer-soak-")))
        try:
            url, real = stack.enter_context(postgres_server()).create_database("soak"), True
        except pytest.skip.Exception:
            url, real = f"sqlite:///{folder / 'rebalancer.db'}", False
        upgrade(url)
        database = "PostgreSQL" if real else "SQLite"
        print(f"clusters: {clusters}, with two replicas each, on {database}, seed {seed}", flush=True)
        yield stack.enter_context(a_fleet(folder, url, clusters=clusters, seed=seed, quick=quick, through_proxy=real))


def show(verdict: Verdict, began: float) -> None:
    memory = [round(each) for each in verdict.memory_mib]
    print(json.dumps({**verdict.counts, "memory MiB": memory, "seconds": round(time.monotonic() - began)}), flush=True)
    for each in verdict.wrong:
        print(f"WRONG: {each}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=int, default=8)
    parser.add_argument("--clusters", type=int, default=3)
    parser.add_argument("--failovers", type=int, default=1000)
    parser.add_argument("--together", type=int, default=20, help="seeds of plans whose calls go together")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    wrong: list[str] = []
    if args.hours:
        began = time.monotonic()
        with fleet_of(args.clusters, seed=args.seed, quick=False) as fleet:
            verdict = soak(
                fleet, minutes=60 * args.hours, seed=args.seed, each_hour=lambda verdict: show(verdict, began)
            )
        show(verdict, began)
        wrong += verdict.wrong
        if verdict.memory_mib[-1] - verdict.memory_mib[0] > FLAT_MIB:
            wrong.append(f"memory grew from {verdict.memory_mib[0]:.0f} to {verdict.memory_mib[-1]:.0f} MiB")
    if args.failovers:
        began = time.monotonic()
        with fleet_of(1, seed=args.seed, quick=True) as fleet:
            verdict = failovers(
                fleet,
                number=args.failovers,
                seed=args.seed,
                each_hundred=lambda done: print(f"{done} failovers", flush=True),
            )
        show(verdict, began)
        wrong += verdict.wrong
    for seed in range(args.seed, args.seed + args.together):
        with tempfile.TemporaryDirectory(prefix="rebalancer-soak-") as folder:
            faults = calls_together(Path(folder), seed=seed)
        print(json.dumps({"together, seed": seed, **faults.counts}), flush=True)
        wrong += faults.wrong
    print(f"{len(wrong)} wrong" if wrong else "held")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
