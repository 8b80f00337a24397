"""Outcomes of reserved evictions, from the call's answer to their landing."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction, Outcome
from rebalancer.model.decisions.limits import EVERY_NODE
from rebalancer.store.db.engine import write
from rebalancer.store.db.tables import EVICTION_BACKOFFS, EVICTIONS
from rebalancer.store.ledger.part import LedgerPart
from rebalancer.store.ledger.rows import answered, change_eviction


class Outcomes(LedgerPart):
    """Writes outcomes, replacements and their delays."""

    def outcome(self, eviction: Eviction) -> None:
        """Write the outcome of the call into the row `eviction.record`.

        REFUSED and FAILED are refunded with it; EVICTED and UNKNOWN stay counted, and in flight, and count again where
        the answer came after a refund. EVICTED ends the service's backoff on every node: the webhook that had refused
        it admits it again. Raises UnsafeDataError when the row is not there (any more).
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

        write(self._engine, work)

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
