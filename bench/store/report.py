"""Seconds of a report, size of its database: `python -m bench.store.report [--nodes N] [--evictions N] [--hot N]`.

A database is filled with what a year of 5,000 nodes in 10 pools and 200 evictions a day leaves behind: a day's counts,
hours and evictions of 400 days, episodes and assessments of the last 30, forecasts of the last 35 (older ones are not
asked for). Then a report over 365 days is read and made, as JSON too, and one over 90; three times, the middle one
counts. On SQLite and, where it is installed, on a real PostgreSQL. There, cycles of the same cluster are written as the
daemon writes them, some hot nodes in each: rows and bytes that a day of them adds, and from these the size of a
database after a year, with what retention keeps. Prints one JSON object a line; exit code 1 when an aim is missed.
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
from unittest import SkipTest

from sqlalchemy import Engine

from bench.store.report_cycles import bytes_of_a_year, growth
from bench.store.report_year import CLUSTER, DAY, DETAIL_DAYS, FORECAST_DAYS, NOW, fill
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.cli.output.report_document import json_text
from rebalancer.evaluation.reporting import Source, gather
from rebalancer.model.notation.document import DIMENSIONS
from rebalancer.model.records.effect import EffectRecords
from rebalancer.model.records.forecasts import ForecastRecords
from rebalancer.store import SqlRecords, open_engine, upgrade
from tests.real.servers.postgres import postgres_server

NODES, EVICTIONS_A_DAY, HOT_NODES = 5_000, 200, 25
DAYS, AIM_SECONDS = (
    {"a year's report": 365, "report --since 90d": 90},
    {"a year's report": 5.0, "report --since 90d": 2.0},
)
AIM_GIB = 10.0
MIB, GIB = 2.0**20, 2.0**30
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


def a_report(engine: Engine, days: int) -> Counter[str]:
    """A report over so many days as the command makes it; seconds by stage, without a rest."""
    took: Counter[str] = Counter()
    records = SqlRecords(engine=engine, cluster=CLUSTER, clock=SystemClock())
    source = Source(
        cluster=CLUSTER,
        effect=cast(EffectRecords, Timed(records.effect(), took)),
        forecasts=cast(ForecastRecords, Timed(records.forecasts(), took)),
        keep_details=DETAIL_DAYS * DAY,
    )
    began = time.perf_counter()
    report = gather([source], since=NOW - days * DAY, until=NOW, by=DIMENSIONS, now=NOW)
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
        except SkipTest as missing:
            print(missing, file=sys.stderr)
        yield urls


def tell(figure: str, value: float, aim: float | None = None, unit: str = "s") -> bool:
    """Print one line; whether the aim is missed."""
    missed = aim is not None and value > aim
    line = {"bench": "report", "figure": figure, "value": round(value, 3), "unit": unit, "aim": aim}
    print(json.dumps(line | {"holds": not missed}), flush=True)
    return missed


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--evictions", type=int, default=EVICTIONS_A_DAY, help="a day")
    parser.add_argument("--hot", type=int, default=HOT_NODES, help="nodes in each cycle")
    parser.add_argument("--turns", type=int, default=TURNS, help="reports of each kind; the middle one counts")
    arguments = parser.parse_args()
    missed = False
    with databases() as urls:
        for name, url in urls.items():
            upgrade(url)
            engine = open_engine(url)
            began = time.perf_counter()
            fill(engine, arguments.nodes, arguments.evictions)
            tell(f"filling, {name}", time.perf_counter() - began)
            for report, days in DAYS.items():
                turns = [a_report(engine, days) for _ in range(arguments.turns)]
                middle = sorted(turns, key=lambda took: sum(took.values()))[len(turns) // 2]
                for stage in middle:
                    tell(f"{stage}, {report}, {name}", statistics.median(took[stage] for took in turns))
                missed |= tell(f"{report}, {name}", sum(middle.values()), AIM_SECONDS[report])
            if engine.dialect.name == "postgresql":
                missed |= sizes(engine, arguments.nodes, arguments.hot)
            engine.dispose()
    return int(missed)


def sizes(engine: Engine, nodes: int, hot: int) -> bool:
    """Print what cycles add to the database and what it is after a year; whether the aim is missed."""
    a_day = growth(engine, CLUSTER, nodes, hot)
    of = f"{nodes} nodes, {hot} hot in each cycle"
    tell(f"rows of a day's cycles, {of}", a_day.rows, unit="1/d")
    tell(f"a day's cycles, kept for {DETAIL_DAYS} days, {of}", a_day.long_bytes / MIB, unit="MiB/d")
    tell(f"a day's measurements of nodes, kept for 2 days, {of}", a_day.short_bytes / MIB, unit="MiB/d")
    year = bytes_of_a_year(engine, a_day, detail_days=DETAIL_DAYS, forecast_days=FORECAST_DAYS)
    return tell(f"a year's database, PostgreSQL, {of}", year / GIB, AIM_GIB, "GiB")


if __name__ == "__main__":
    sys.exit(main())
