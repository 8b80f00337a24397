"""Differences between SQLite and PostgreSQL: upserts and the database's clock."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Dialect, func, select, type_coerce
from sqlalchemy.dialects import postgresql, sqlite

from rebalancer.model.decisions.ports import Clock
from rebalancer.store.db.tables import Instant


def upsert(connection: Connection) -> Any:
    """The dialect's INSERT with `ON CONFLICT`."""
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert


def read_clock(connection: Connection, clock: Clock | None) -> float:
    """Now, in seconds since the epoch to the microsecond: by `clock`, or by the database where there is none."""
    if clock is not None:
        return round(clock.now(), 6)
    return as_seconds(connection.execute(select(database_now(connection.dialect))).scalar_one())


def as_seconds(value: float | str) -> float:
    """The value of `database_now`: a time on PostgreSQL, text on SQLite (UTC, to the millisecond)."""
    return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() if isinstance(value, str) else value


def database_now(dialect: Dialect | str) -> ColumnElement[Any]:
    """The time of the statement, by the database: see `as_seconds`."""
    name = dialect if isinstance(dialect, str) else dialect.name
    if name == "postgresql":
        # not now(), which is when the transaction began: before it waited for its locks
        return type_coerce(func.clock_timestamp(), Instant)
    return func.strftime("%Y-%m-%d %H:%M:%f", "now")
