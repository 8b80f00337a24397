"""`make kills`: a running daemon is killed with SIGKILL at 200 random moments on SQLite, and at 200 on PostgreSQL.

Exit code 1 when an eviction was lost or counted twice, or a limit was passed. The seed draws the moments; what the
daemon is at by then differs from run to run.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from rebalancer.store import upgrade
from tests.faults.scenarios.kills import Kills, kill_often
from tests.real.servers.postgres import postgres_server

SHOWN = 20
"""A line after so many kills."""


def show(database: str, seed: int, began: float, found: Kills) -> None:
    seconds = round(time.monotonic() - began)
    facts = {name: fact for name, fact in asdict(found).items() if name != "wrong"}
    print(json.dumps({"database": database, "seed": seed, "seconds": seconds, **facts}), flush=True)


def through(database: str, folder: Path, url: str, *, number: int, seed: int) -> list[str]:
    """All kills of one database; what is wrong."""
    began = time.monotonic()

    def each(found: Kills) -> None:
        if found.kills % SHOWN == 0:
            show(database, seed, began, found)

    found = kill_often(folder, url, number=number, seed=seed, each=each)
    show(database, seed, began, found)
    return [f"{database}: {each}" for each in found.wrong]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200, help="on each database")
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"], help="one database; default: both side by side")
    args = parser.parse_args()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rebalancer-kills-")))
        urls: dict[str, str] = {}
        if args.only != "PostgreSQL":
            urls["SQLite"] = f"sqlite:///{root / 'rebalancer.db'}"
        if args.only != "SQLite":
            try:
                urls["PostgreSQL"] = stack.enter_context(postgres_server()).create_database("kills")
            except pytest.skip.Exception:
                print("skipped: PostgreSQL is not installed")
        work: list[Callable[[], list[str]]] = []
        for database, url in urls.items():
            upgrade(url)
            (folder := root / database).mkdir()
            work.append(
                lambda database=database, folder=folder, url=url: through(  # type: ignore[misc]
                    database, folder, url, number=args.kills, seed=args.seed
                )
            )
        with ThreadPoolExecutor(max(len(work), 1)) as pool:
            wrong = [each for found in pool.map(lambda one: one(), work) for each in found]
    for each in wrong:
        print(f"WRONG: {each}")
    print(f"{len(wrong)} wrong" if wrong else "held")
    return int(bool(wrong) or not work)


if __name__ == "__main__":
    sys.exit(main())
