"""The database's state for `rebalancer db status`: schema revision, rows, last cycle, unreconciled evictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, inspect, select

from rebalancer.store.cycles.reading import outcomes_of
from rebalancer.store.db.engine import open_engine, read, shown_url
from rebalancer.store.db.migrate import newest_revision, schema_revision
from rebalancer.store.db.tables import CYCLES, EVICTIONS, METADATA
from rebalancer.store.ledger.rows import UNRECONCILED


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseStatus:
    """See the module."""

    url_shown: str
    """Without the password."""
    revision: str | None
    """Of the database; None where nothing was migrated yet."""
    head: str
    """The newest revision that this version of rebalancer knows."""
    rows: Mapping[str, int]
    """Table -> rows, of the tables that are there."""
    last_cycle: Mapping[str, Any] | None
    """Columns of `cycles`, and `outcomes`: outcome -> evictions; of any cluster. None: none, or the schema
    is not at head."""
    unreconciled: int
    """Evictions, of any cluster, without a known outcome."""

    @property
    def current(self) -> bool:
        """Whether the schema is the one that this version works with."""
        return self.revision == self.head


def status(url: str, *, scripts: Path | None = None) -> DatabaseStatus:
    """Read the database's state; changes nothing and creates nothing. Raises ConfigError, ConnectError."""
    engine = open_engine(url)
    head = newest_revision(scripts)
    try:
        return read(engine, lambda connection: _status(connection, url_shown=shown_url(url), head=head))
    finally:
        engine.dispose()


def _status(connection: Connection, *, url_shown: str, head: str) -> DatabaseStatus:
    revision = schema_revision(connection)
    there = set(inspect(connection).get_table_names())
    rows = {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in METADATA.sorted_tables
        if table.name in there
    }
    unreconciled = select(func.count()).select_from(EVICTIONS).where(UNRECONCILED)
    return DatabaseStatus(
        url_shown=url_shown,
        revision=revision,
        head=head,
        rows=rows,
        last_cycle=_last_cycle(connection) if revision == head else None,
        unreconciled=connection.execute(unreconciled).scalar_one() if revision == head else 0,
    )


def _last_cycle(connection: Connection) -> Mapping[str, Any] | None:
    newest = select(CYCLES).order_by(CYCLES.c.started_at.desc(), CYCLES.c.id.desc()).limit(1)
    found = connection.execute(newest).mappings().one_or_none()
    return None if found is None else {**found, "outcomes": outcomes_of(connection, [found["id"]])[found["id"]]}
