"""Surges of one cluster: the adapter behind `model.decisions.surges.SurgeRecords`. A Deployment has one at a time."""

from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, insert, select, update
from sqlalchemy.exc import IntegrityError

from rebalancer.model.decisions.ports import Clock
from rebalancer.model.decisions.surges import OVER, Surge, SurgeState
from rebalancer.store.db.dialect import read_clock
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import ENTRIES, PAUSES, SURGES
from rebalancer.store.ledger.counting import in_force

_ROWS = SURGES.c


class SqlSurges:
    """See the module. Every method is one short transaction; all raise ConfigError, ConnectError."""

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock | None = None) -> None:
        """Times are by the database's clock unless a `clock` replaces it. The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster
        self._clock = clock

    def now(self) -> float:
        """Seconds since the epoch."""
        return read(self._engine, lambda connection: read_clock(connection, self._clock))

    def begin(self, surge: Surge) -> Surge | None:
        """See `SurgeRecords`."""
        values = {name: getattr(surge, name) for name in _FIELDS if name != "id"}

        def work(connection: Connection) -> int | None:
            mine = (_ROWS.cluster == self._cluster, _ROWS.deployment_uid == surge.deployment_uid)
            if connection.execute(select(_ROWS.id).where(*mine, _ROWS.ended_at.is_(None))).first() is not None:
                return None
            row = {**values, "cluster": self._cluster, "started_at": read_clock(connection, self._clock)}
            try:
                with connection.begin_nested():
                    return int(connection.execute(insert(SURGES).values(row).returning(_ROWS.id)).scalar_one())
            except IntegrityError:
                return None  # another call of this moment was first

        id_ = write(self._engine, work)
        return None if id_ is None else self.get(id_)

    def open(self) -> list[Surge]:
        """See `SurgeRecords`."""
        query = select(SURGES).where(_ROWS.cluster == self._cluster, _ROWS.ended_at.is_(None)).order_by(_ROWS.id)
        return read(self._engine, lambda connection: [_surge(row) for row in connection.execute(query)])

    def get(self, id_: int) -> Surge:
        """See `SurgeRecords`."""
        query = select(SURGES).where(_ROWS.cluster == self._cluster, _ROWS.id == id_)
        return read(self._engine, lambda connection: _surge(connection.execute(query).one()))

    def change(self, surge: Surge, to: Surge) -> bool:
        """See `SurgeRecords`."""
        mine = (_ROWS.cluster == self._cluster, _ROWS.id == surge.id)
        these = (*mine, _ROWS.state == surge.state, _ROWS.quiet_at == surge.quiet_at)

        def work(connection: Connection) -> bool:
            values: dict[str, Any] = {"state": to.state, "reason": to.reason, "quiet_at": to.quiet_at}
            if to.state in OVER:
                values["ended_at"] = read_clock(connection, self._clock)
            return connection.execute(update(SURGES).where(*these).values(values)).rowcount == 1

        return write(self._engine, work)

    def paused(self, surge: Surge) -> bool:
        """See `SurgeRecords`."""
        scopes = and_(PAUSES.c.kind == ENTRIES.c.kind, PAUSES.c.key == ENTRIES.c.key)
        query = select(PAUSES.c.id).join(ENTRIES, scopes).where(ENTRIES.c.eviction == surge.eviction).limit(1)

        def look(connection: Connection) -> bool:
            now = read_clock(connection, self._clock)
            return connection.execute(query.where(in_force(now))).first() is not None

        return read(self._engine, look)


_FIELDS = tuple(Surge.__dataclass_fields__)


def _surge(row: Row[Any]) -> Surge:
    values = {name: getattr(row, name) for name in _FIELDS}
    return Surge(**{**values, "state": SurgeState(values["state"])})
