"""The ledger of evictions: how many, how fast, how many at once, over every cluster that shares the database.

    reserve ──> (the eviction call) ──> outcome ──> landed
       │                                   │          └─> late, while the replacement isn't Ready in time
       └─> Denied                          └─> refunded if it did not happen

A reservation is one short transaction: lock the rows of the scopes in sorted order, read the clock, count, and write
the eviction with one entry for each scope, or nothing; on PostgreSQL in one round trip (`round_trip`). It is committed
before the call, and no transaction is open during the call. A process that dies at any step leaves a row that counts
until `reconcile_outcomes` at the next start.
"""

from rebalancer.store.ledger.outcomes import Outcomes
from rebalancer.store.ledger.reading import LedgerReading
from rebalancer.store.ledger.reconcile import Reconciliation
from rebalancer.store.ledger.reservations import Reservations
from rebalancer.store.retention import pruning
from rebalancer.store.retention.details import keep_for


class SqlLedger(Reservations, Outcomes, Reconciliation, LedgerReading):
    """The ledger of one cluster; for several threads and processes at once.

    Time is the database's clock, which all clusters share; a `clock` replaces it where time runs otherwise (the lab).
    Every method is one short transaction; all raise ConfigError, ConnectError.
    """

    def prune_at_times(self, *, keep_details: float | None = None) -> None:
        """Drop what no limit can see any more and what is too old, once an hour over all clusters. See `store.pruning`.

        `keep_details` (seconds): this cluster's detail retention; None = as stated last.
        """
        if keep_details is not None:
            keep_for(self._engine, self._cluster, keep_details)
        pruning.prune_at_times(self._engine, clock=self._clock)
