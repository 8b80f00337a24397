"""Reads a ledger's rows without any of our code, and does its own arithmetic on them."""

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from sqlalchemy import Connection, func, select

from rebalancer.store import SqlRecords
from rebalancer.store.db.engine import read
from rebalancer.store.db.tables import CYCLE_NODES, CYCLES, EVICTIONS, FINDINGS, REFUSALS

MICRO = 1_000_000
RawConnection = sqlite3.Connection | psycopg.Connection


@dataclass(frozen=True)
class Row:
    """One entry: an eviction as one scope counts it."""

    eviction: int
    cluster: str
    scope: tuple[str, str]
    at_us: int
    """Microseconds since the epoch, so that nothing is rounded."""
    counted: bool
    in_flight: bool
    outcome: str
    pull_bytes: float


@contextmanager
def raw_connection(url: str) -> Iterator[RawConnection]:
    """A connection of the driver, which commits each statement by itself."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    else:
        connection = psycopg.connect(url, autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


def read_rows(source: str | RawConnection) -> list[Row]:
    """Every entry there is, oldest first; `source` is a URL or a connection."""
    if isinstance(source, str):
        with raw_connection(source) as connection:
            return read_rows(connection)
    found = source.execute(
        "SELECT e.eviction, v.cluster, e.kind, e.key, e.at, e.counted, e.in_flight, v.outcome, v.pull_bytes "
        "FROM entries e JOIN evictions v ON v.id = e.eviction"
    ).fetchall()
    rows = [
        Row(eviction, cluster, (kind, key), _microseconds(at), bool(counted), bool(in_flight), outcome, pulled or 0.0)
        for eviction, cluster, kind, key, at, counted, in_flight, outcome, pulled in found
    ]
    return sorted(rows, key=lambda row: (row.at_us, row.eviction))


def _microseconds(at: str | datetime) -> int:
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * MICRO + since.microseconds


def counted_times(rows: Sequence[Row]) -> dict[tuple[str, str], list[int]]:
    """Scope -> the times of what counts in it, ascending, in microseconds."""
    times: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        if row.counted:
            times[row.scope].append(row.at_us)
    return {scope: sorted(each) for scope, each in times.items()}


def fullest_window(times_us: Sequence[int], per_seconds: float) -> int:
    """The most that any window (t - per, t] holds; it is enough to look at those that end at an entry."""
    per_us = round(per_seconds * MICRO)
    return max((index + 1 - bisect_right(times_us, at - per_us) for index, at in enumerate(times_us)), default=0)


def in_flight_now(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Scope -> how many are in flight in it."""
    out: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        out[row.scope] += row.in_flight
    return dict(out)


def being_pulled(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Pool's scope -> bytes that those in flight towards it have to pull."""
    out: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if row.in_flight and row.scope[0] == "pulls":
            out[row.scope] += row.pull_bytes
    return dict(out)


def cycles(records: SqlRecords, limit: int) -> list[dict[str, Any]]:
    """The newest cycles of the records' cluster, newest first, each with `outcomes`: outcome -> evictions."""
    query = select(CYCLES).where(CYCLES.c.cluster == records._cluster).order_by(CYCLES.c.started_at.desc())
    counted = select(EVICTIONS.c.cycle, EVICTIONS.c.outcome, func.count()).group_by(
        EVICTIONS.c.cycle, EVICTIONS.c.outcome
    )

    def work(connection: Connection) -> list[dict[str, Any]]:
        counts = connection.execute(counted).all()
        return [
            {**row, "outcomes": {outcome: count for cycle, outcome, count in counts if cycle == row["id"]}}
            for row in connection.execute(query.limit(limit)).mappings()
        ]

    return read(records._engine, work)


def cycle_report(records: SqlRecords, cycle: str) -> dict[str, Any] | None:
    """`cycle`, `nodes`, `findings`, `evictions` and `refusals` of one cycle of any cluster; None if there is none."""

    def work(connection: Connection) -> dict[str, Any] | None:
        found = connection.execute(select(CYCLES).where(CYCLES.c.id == cycle)).mappings().one_or_none()
        parts = {"nodes": CYCLE_NODES, "findings": FINDINGS, "evictions": EVICTIONS, "refusals": REFUSALS}
        rows = {
            name: [
                dict(row)
                for row in connection.execute(
                    select(table).where(table.c.cycle == cycle).order_by(*table.primary_key.columns)
                ).mappings()
            ]
            for name, table in parts.items()
        }
        return None if found is None else {"cycle": dict(found), **rows}

    return read(records._engine, work)
