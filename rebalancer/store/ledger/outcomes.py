"""Outcomes of reserved evictions, from the call's answer to their landing."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, delete, select

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction, Outcome
from rebalancer.model.decisions.limits import EVERY_NODE
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import RebalancerError
from rebalancer.store.db.engine import write
from rebalancer.store.db.tables import EVICTION_BACKOFFS, EVICTIONS
from rebalancer.store.ledger.part import LedgerPart
from rebalancer.store.ledger.rows import answered, change_eviction


class Outcomes(LedgerPart):
    """Writes outcomes, replacements and their delays."""

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock | None = None) -> None:
        super().__init__(engine=engine, cluster=cluster, clock=clock)
        self._unwritten: deque[Eviction] = deque()

    def outcome(self, eviction: Eviction) -> None:
        """Write the outcome of the call into the row `eviction.record`.

        REFUSED and FAILED are refunded with it; EVICTED and UNKNOWN stay counted, and in flight, and count again where
        the answer came after a refund. EVICTED ends the service's backoff on every node: the webhook that had refused
        it admits it again. Raises UnsafeDataError when the row is not there (any more). What can't be written and may
        have happened is kept for `write_unwritten`.
        """
        self.outcomes([eviction])

    def outcomes(self, evictions: Sequence[Eviction]) -> None:
        """`outcome` of several evictions, in one transaction."""
        if any(each.reserved.record is None for each in evictions):
            raise ValueError("an outcome without its reservation")

        def work(connection: Connection) -> None:
            now = self._now(connection)
            # in one order, so that two processes which answer the same ones cannot deadlock
            for each in sorted(evictions, key=lambda each: each.reserved.record or 0):
                change_eviction(connection, each.reserved.record or 0, cluster=self._cluster, **answered(each, at=now))
            ended = sorted({each.service_identity for each in evictions if each.answered.outcome is Outcome.EVICTED})
            self._end_backoffs(connection, ended)

        try:
            write(self._engine, work)
        except RebalancerError:
            self._unwritten.extend(each for each in evictions if each.answered.outcome in MAY_HAVE_HAPPENED)
            raise

    @property
    def unwritten(self) -> tuple[Eviction, ...]:
        """Evictions that may have happened and whose outcome could not be written, oldest first."""
        return tuple(self._unwritten)

    def write_unwritten(self) -> None:
        """Write the outcomes that could not be written, also without the lease; nothing is sent where there are none.

        Only this process has these answers: where it was stopped with a call under way, the next leader may have
        refunded the eviction before it happened, and nothing else would count it again. A row that is EVICTED by now,
        or that a restored database doesn't have, stays as it is. Used by one thread. Raises ConfigError, ConnectError;
        the rest is kept.
        """
        while self._unwritten:
            eviction = self._unwritten[0]
            record = eviction.reserved.record or 0

            def work(connection: Connection, eviction: Eviction = eviction, record: int = record) -> None:
                ours = (EVICTIONS.c.id == record, EVICTIONS.c.cluster == self._cluster, EVICTIONS.c.uid == eviction.uid)
                now_is = connection.execute(select(EVICTIONS.c.outcome).where(*ours).with_for_update()).scalar()
                if now_is not in (None, Outcome.EVICTED, eviction.answered.outcome):
                    values = answered(eviction, at=self._now(connection))
                    change_eviction(connection, record, cluster=self._cluster, **values)

            write(self._engine, work)
            self._unwritten.popleft()

    def cancel_reservation(self, record: int, *, detail: str = "not carried out") -> None:
        """Refund a reservation: the eviction did not happen. Idempotent.

        The row's outcome becomes FAILED. Raises UnsafeDataError when the row is not there (any more).
        """

        def work(connection: Connection) -> None:
            outcome = connection.execute(select(EVICTIONS.c.outcome).where(EVICTIONS.c.id == record)).scalar()
            # the API server's answer stays
            kept = outcome is not None and outcome not in MAY_HAVE_HAPPENED
            values = {"outcome": outcome} if kept else {"outcome": Outcome.FAILED.value, "detail": detail}
            change_eviction(connection, record, cluster=self._cluster, **values)

        write(self._engine, work)

    def landed(self, record: int, *, at: float, pod: str = "", uid: str = "", node: str = "") -> None:
        """Write that the eviction has landed at `at` (seconds since the epoch), and its replacement.

        The replacement's fields are empty without one (after a scale-down). `late` stays. Raises UnsafeDataError when
        the row is not there (any more).
        """
        values: dict[str, Any] = {
            "replaced_at": at,
            "replacement_pod": pod or None,
            "replacement_uid": uid or None,
            "replacement_node": node or None,
        }
        write(self._engine, lambda connection: change_eviction(connection, record, cluster=self._cluster, **values))

    def late(self, record: int) -> None:
        """Mark the eviction as late; it stays in flight. Raises UnsafeDataError as above."""
        write(self._engine, lambda connection: change_eviction(connection, record, cluster=self._cluster, late=True))

    def close(self, record: int, *, by: str, reason: str) -> None:
        """Close an eviction whose replacement was not seen Ready: it is no longer in flight, and stays counted.

        `by` is the user, or `rebalancer`. Raises UnsafeDataError as above.
        """

        def work(connection: Connection) -> None:
            values = {"closed_at": self._now(connection), "closed_by": by, "closed_reason": reason}
            change_eviction(connection, record, cluster=self._cluster, **values)

        write(self._engine, work)

    def _end_backoffs(self, connection: Connection, service_identities: Sequence[str]) -> None:
        """Those of these services on every node."""
        rows = EVICTION_BACKOFFS.c
        these = (rows.cluster == self._cluster, rows.service_identity.in_(service_identities), rows.node == EVERY_NODE)
        if service_identities:
            connection.execute(delete(EVICTION_BACKOFFS).where(*these))
