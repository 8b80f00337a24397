"""What the parts of the ledger share: the connections of one cluster and the clock."""

from sqlalchemy import ColumnElement, Connection, Engine, func, or_

from rebalancer.model.decisions.limits import SCOPE_KINDS
from rebalancer.model.decisions.ports import Clock
from rebalancer.store.db.dialect import read_clock
from rebalancer.store.db.engine import read


class LedgerPart:
    """A part of one cluster's ledger in the shared database. Each method is one transaction; all raise ConfigError,
    ConnectError. Times are seconds since the epoch, by the database's clock unless a `clock` replaces it.
    """

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock | None = None) -> None:
        """The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster
        self._clock = clock

    def now(self) -> float:
        """The ledger's clock: seconds since the epoch."""
        return read(self._engine, self._now)

    def _now(self, connection: Connection) -> float:
        return read_clock(connection, self._clock)

    def _ours(self, kind: ColumnElement[str], key: ColumnElement[str]) -> ColumnElement[bool]:
        """Scopes of this cluster, and those that all clusters share."""
        shared, prefix = [each for each, facts in SCOPE_KINDS.items() if not facts.in_cluster], f"{self._cluster}/"
        return or_(kind.in_(shared), key == self._cluster, func.substr(key, 1, len(prefix)) == prefix)
