"""How long a report over a year takes: `python -m bench.report [--nodes N] [--evictions N]`.

A database is filled with what a year of 5,000 nodes in 10 pools and 200 evictions a day leaves behind: a day's counts,
hours and evictions of 400 days, episodes and assessments of the last 30, forecasts of the last 35 (older ones are not
asked for). Then a report over 365 days is read and made, as JSON too; three times, the middle one counts. On SQLite
and, where it is installed, on a real PostgreSQL. Prints one JSON object a line; exit code 1 when an aim is missed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine

from bench.report_year import CLUSTER, DAY, DETAIL_DAYS, NOW, fill
from rebalancer.cli.output.report_document import json_text
from rebalancer.cycle.context import SystemClock
from rebalancer.evaluation.reporting import Source, gather
from rebalancer.model.document import DIMENSIONS
from rebalancer.model.effect import EffectRecords
from rebalancer.model.forecasts import ForecastRecords
from rebalancer.store import SqlRecords, open_engine, upgrade
from tests.real.servers.postgres import postgres_server

NODES, EVICTIONS_A_DAY = 5_000, 200
REPORT_DAYS = 365
AIM_SECONDS = 5.0
TURNS = 3


class Timed:
    """Records whose every question is timed."""

    def __init__(self, records: object, took: Counter[str]) -> None:
        self._records = records
        self._took = took

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._records, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return asked(*arguments, **named)
            finally:
                self._took[f"reading {name}"] += time.perf_counter() - began

        return timed


def a_report(engine: Engine) -> Counter[str]:
    """A year's report as the command makes it; seconds by stage, without a rest."""
    took: Counter[str] = Counter()
    records = SqlRecords(engine=engine, cluster=CLUSTER, clock=SystemClock())
    source = Source(
        cluster=CLUSTER,
        effect=cast(EffectRecords, Timed(records.effect(), took)),
        forecasts=cast(ForecastRecords, Timed(records.forecasts(), took)),
        keep_details=DETAIL_DAYS * DAY,
    )
    began = time.perf_counter()
    report = gather([source], since=NOW - REPORT_DAYS * DAY, until=NOW, by=DIMENSIONS, now=NOW)
    took["making it"] = time.perf_counter() - began - sum(took.values())
    if not (report.total and report.hottest and report.services and report.accuracy and report.comparison):
        raise RuntimeError("the report is not of all that there is")
    began = time.perf_counter()
    json_text(report, ["bench"])
    took["JSON"] = time.perf_counter() - began
    return took


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """Name -> URL of an empty database; PostgreSQL only where it is installed."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="report-bench-"))
        urls = {"SQLite": f"sqlite:///{Path(folder) / 'report.db'}"}
        try:
            urls["PostgreSQL"] = stack.enter_context(postgres_server()).create_database("bench")
        except pytest.skip.Exception as missing:
            print(missing, file=sys.stderr)
        yield urls


def tell(figure: str, value: float, aim: float | None = None) -> bool:
    """Print one line; whether the aim is missed."""
    missed = aim is not None and value > aim
    line = {"bench": "report", "figure": figure, "value": round(value, 3), "unit": "s", "aim": aim}
    print(json.dumps(line | {"holds": not missed}), flush=True)
    return missed


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--evictions", type=int, default=EVICTIONS_A_DAY, help="a day")
    arguments = parser.parse_args()
    missed = False
    with databases() as urls:
        for name, url in urls.items():
            upgrade(url)
            engine = open_engine(url)
            began = time.perf_counter()
            fill(engine, arguments.nodes, arguments.evictions)
            tell(f"filling, {name}", time.perf_counter() - began)
            turns = [a_report(engine) for _ in range(TURNS)]
            engine.dispose()
            middle = sorted(turns, key=lambda took: sum(took.values()))[TURNS // 2]
            for stage in middle:
                tell(f"{stage}, {name}", statistics.median(took[stage] for took in turns))
            missed |= tell(f"a year's report, {name}", sum(middle.values()), AIM_SECONDS)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
