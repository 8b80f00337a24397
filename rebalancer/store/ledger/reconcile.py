"""What the API server's state says about an eviction whose outcome is not known.

The process died around the call, or the call timed out. An evicted pod is gone, terminating, or another pod has its
name. Until it is reconciled such an eviction counts; a pod that is alive refunds it.
"""

from dataclasses import replace

from sqlalchemy import Connection, select

from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.ports import ClusterReader, PodState
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import EVICTIONS, SURGES
from rebalancer.store.ledger.part import LedgerPart
from rebalancer.store.ledger.rows import UNRECONCILED, change_eviction, eviction_row, read_evictions

CALL_GRACE_SECONDS = 100.0
"""An eviction call may be in progress for so long after it was recorded: up to 20 s until the record is committed
(`db.bounded_connection`), 20 s until the call is sent (`kube.actions.evict`), and 60 s for which the API server works
on it (its `--request-timeout`)."""


def reconciled_outcome(eviction: Eviction, pod: PodState | None, *, surges: bool = False) -> tuple[Outcome, str]:
    """(outcome, detail) from the API server's state of the pod's name; None = there is no such pod. `surges`: its
    replacement comes first, and it is waited for."""
    if pod is None:
        return Outcome.EVICTED, "the pod is gone: counted as evicted"
    if pod.uid != eviction.uid:
        return Outcome.EVICTED, "another pod has its name now: counted as evicted"
    if pod.terminating:
        return Outcome.EVICTED, "the pod is terminating: counted as evicted"
    if pod.eviction_in_progress:
        return Outcome.EVICTED, "its eviction is in progress in the background: counted as evicted"
    if surges:
        return Outcome.EVICTED, "its replacement comes first: counted as evicted"
    if eviction.answered.outcome is Outcome.UNKNOWN:
        return Outcome.FAILED, "the call without an answer did not evict it: the pod is alive"
    return Outcome.FAILED, "the call was never made or was refused: the pod is alive"


class Reconciliation(LedgerPart):
    """Reconciles evictions without an outcome."""

    def unreconciled(self) -> list[Eviction]:
        """Evictions of this cluster whose outcome is not known, oldest first."""
        rows = EVICTIONS.c
        query = select(EVICTIONS).where(rows.cluster == self._cluster, UNRECONCILED).order_by(rows.id)
        return read_evictions(self._engine, query)

    def reconcile_outcomes(self, reader: ClusterReader) -> list[Eviction]:
        """Reconcile evictions without an outcome with the API server's state now; those whose outcome is known now.

        Hold the lease: another process's call in progress looks like one of a process that died. A pod that is alive
        proves nothing for CALL_GRACE_SECONDS after the record. An outcome that another process has written meanwhile
        stays: this one may have been stopped, and lost the lease. One small query while there is nothing to reconcile.
        Raises ConnectError also for the API server; evictions that were not reached stay as they are, and counted.
        """
        found = self.unreconciled()
        if not found:
            return []
        now = self.now()  # before the pods are read: a process may be stopped in between
        surging = self._surging()
        states = reader.pod_states(sorted({(each.namespace, each.pod) for each in found}))
        out = []
        for each in found:
            pod = states.get((each.namespace, each.pod))
            surges = each.reserved.record in surging
            outcome, detail = reconciled_outcome(each, pod, surges=surges)
            if outcome is Outcome.FAILED and now - each.reserved.planned_at < CALL_GRACE_SECONDS:
                continue
            was = each.answered.outcome
            in_background = pod is not None and pod.uid == each.uid and (pod.eviction_in_progress or surges)
            each.answered = replace(each.answered, outcome=outcome, detail=detail, in_background=in_background)
            if self._reconcile(each, was=was):
                out.append(each)
        return out

    def _surging(self) -> set[int]:
        """Rows of the evictions with a surge that isn't over."""
        query = select(SURGES.c.eviction).where(SURGES.c.cluster == self._cluster, SURGES.c.ended_at.is_(None))
        return set(read(self._engine, lambda connection: connection.execute(query).scalars().all()))

    def _reconcile(self, eviction: Eviction, *, was: Outcome) -> bool:
        """Whether the row had this outcome until now."""
        record = eviction.reserved.record
        assert record is not None

        def work(connection: Connection) -> bool:
            row = select(EVICTIONS.c.outcome).where(EVICTIONS.c.id == record).with_for_update()
            if connection.execute(row).scalar() != was.value:
                return False
            eviction.answered = replace(eviction.answered, reconciled_at=self._now(connection))
            known = eviction_row(eviction)
            values = {column: known[column] for column in ("outcome", "detail", "reconciled_at", "in_background")}
            change_eviction(connection, record, cluster=self._cluster, **values)
            return True

        return write(self._engine, work)
