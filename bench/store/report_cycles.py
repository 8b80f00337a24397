"""The records of one cycle in the database, for `bench.store.report`: rows and bytes of each table."""

from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine, Table, func, select, text

from bench.store.report_year import DAY, NOW, pool_of
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.model.decisions.plan import CycleReport, Finding, NodeLine, PodRefusal, Trigger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.store import SqlRecords
from rebalancer.store.db.effect_tables import NODE_MEASUREMENTS
from rebalancer.store.db.engine import read
from rebalancer.store.db.tables import CYCLE_NODES, CYCLES, FINDINGS, FORECASTS, REFUSALS
from rebalancer.store.retention.details import MEASUREMENT_RETENTION_SECONDS
from rebalancer.store.retention.pruning import FORECASTS_SECONDS

CYCLES_A_DAY = 720
"""One in two minutes, the default."""
MEASURED_CYCLES = 50
PODS_REFUSED, CODES = 20, (Reason.TOO_YOUNG, Reason.LOCAL_VOLUME)
"""Of each hot node, dealt to so many reasons."""
SHORT, LONG = (NODE_MEASUREMENTS,), (CYCLES, CYCLE_NODES, FINDINGS, REFUSALS)
"""Tables of a cycle: thinned out after two days, and kept for as long as details are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a day of cycles adds to the database."""

    rows: float
    short_bytes: float
    long_bytes: float


def a_cycle(number: int, cluster: str, nodes: int, hot: int, dice: np.random.Generator) -> CycleReport:
    """A finished cycle that evicted nothing: `hot` of the nodes are found, and their pods refused."""
    shares = dice.normal(0.6, 0.1, nodes).round(6)
    names = [f"node-{node:05d}" for node in range(nodes)]
    found = [int(node) for node in dice.choice(nodes, hot, replace=False)]
    at = NOW - DAY + number * DAY / CYCLES_A_DAY
    return CycleReport(
        id=f"cycle-{number:026d}",
        cluster=cluster,
        trigger=Trigger.PERIODIC,
        dry_run=False,
        started_at=at,
        finished_at=at + 5,
        nodes=[
            NodeLine(name=name, pool=pool_of(node), cpu_before=share, cpu_planned=share, hot=node in found, high=0.8)
            for node, (name, share) in enumerate(zip(names, shares.tolist(), strict=True))
        ],
        findings=[(a_finding(node), names[node]) for node in found],
        refusals=[a_refusal(names[node], pod) for node in found for pod in range(PODS_REFUSED)],
    )


def a_finding(node: int) -> Finding:
    """Of one hot node."""
    return Finding(
        strategy="LowNodeUtilization",
        node=node,
        pool=pool_of(node),
        reason="91 % of CPU used, above 80 %",
        cpu_share=0.91,
        high=0.8,
        target=0.7,
        candidates=np.arange(2, dtype=np.int32),
    )


def a_refusal(node: str, pod: int) -> PodRefusal:
    """Of one of its pods."""
    code = CODES[pod % len(CODES)]
    message = Refusal.of(code, "it would be admitted 4m later").message
    name = f"service-{pod}-5d8f9c7b6-abcde"
    return PodRefusal(node=node, namespace="shop", name=name, code=code, message=message, cpu_millicores=500.0)


def growth(engine: Engine, cluster: str, nodes: int, hot: int) -> Growth:
    """Write some cycles into a PostgreSQL database as the daemon does; what a day of them adds."""
    records, dice = SqlRecords(engine=engine, cluster=cluster, clock=SystemClock()), np.random.default_rng(7)
    tables = SHORT + LONG
    before = {table: size(engine, table) for table in tables}
    counts = [select(func.count()).select_from(table) for table in tables]

    def rows() -> int:
        return sum(read(engine, lambda connection: [connection.execute(each).scalar_one() for each in counts]))

    rows_before = rows()
    for number in range(MEASURED_CYCLES):
        report = a_cycle(number, cluster, nodes, hot, dice)
        records.begin(report)
        records.finish(report)
    a_day = CYCLES_A_DAY / MEASURED_CYCLES
    grown = {table: (size(engine, table) - before[table]) * a_day for table in tables}
    return Growth(
        rows=(rows() - rows_before) * a_day,
        short_bytes=sum(grown[table] for table in SHORT),
        long_bytes=sum(grown[table] for table in LONG),
    )


def size(engine: Engine, table: Table) -> int:
    """Bytes of a table with its indexes, on PostgreSQL."""
    query = text("SELECT pg_total_relation_size(cast(:name AS regclass))")
    return int(read(engine, lambda connection: connection.execute(query, {"name": table.name}).scalar_one()))


def bytes_of_a_year(engine: Engine, a_day: Growth, *, detail_days: int, forecast_days: int) -> float:
    """Of a PostgreSQL database filled with a year: with the cycles' records that are kept, and all kept forecasts.

    `detail_days`, `forecast_days`: how many days of cycles are kept, and of forecasts are in the database.
    """
    query = text("SELECT pg_database_size(current_database())")
    filled = int(read(engine, lambda connection: connection.execute(query).scalar_one()))
    forecasts = size(engine, FORECASTS) * (FORECASTS_SECONDS / DAY / forecast_days - 1)
    measurements = a_day.short_bytes * MEASUREMENT_RETENTION_SECONDS / DAY
    return filled + forecasts + measurements + a_day.long_bytes * detail_days
