"""Evictions of which nobody knows whether they happened: the process died around the call, or the call timed out.

The Kubernetes API can still say: an evicted pod is gone, terminating, or has given its name to another one. Until it
was asked, such a row counts as an eviction; a pod that is alive takes it back.
"""

from dataclasses import dataclass
from typing import Protocol

from rebalancer.model.plan import Outcome
from rebalancer.model.ports import ClusterReader, PodState

# How long after it was written down an eviction may still be on its way to the API server, or being worked on there.
CALL_GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """An eviction that was written down and has no certain outcome."""

    record: int
    """Its row."""
    cycle: str
    namespace: str
    pod: str
    uid: str
    node: str
    service: str
    outcome: Outcome
    """PLANNED or UNKNOWN."""
    planned_at: float
    """Seconds since the epoch."""
    lease_term: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What was found out about one of them."""

    row: Unsettled
    outcome: Outcome
    detail: str


class UnsettledRecords(Protocol):
    """The part of the records that settling needs."""

    def unsettled(self) -> list[Unsettled]: ...

    def settle(self, record: int, outcome: Outcome, detail: str) -> None: ...


def judge_unsettled(row: Unsettled, pod: PodState | None) -> tuple[Outcome, str]:
    """(outcome, why) of an eviction, from what the API server says now of the pod's name; None = there is none.

    Only for an answer of the API server: while it can't be asked, the row stays as it is.
    """
    if pod is None:
        return Outcome.EVICTED, "the pod is gone: counted as evicted"
    if pod.uid != row.uid:
        return Outcome.EVICTED, "another pod has its name now: counted as evicted"
    if pod.terminating:
        return Outcome.EVICTED, "the pod is terminating: counted as evicted"
    if row.outcome is Outcome.UNKNOWN:
        return Outcome.FAILED, "the call without an answer did not evict it: the pod is alive"
    return Outcome.FAILED, "the call was never made or was refused: the pod is alive"


def settle_unsettled(
    *, records: UnsettledRecords, reader: ClusterReader, now: float, grace_seconds: float = CALL_GRACE_SECONDS
) -> list[Settled]:
    """Ask the API server about every unsettled eviction and write what it says; call it while holding the lease.

    A pod that is alive proves nothing while the call may still be on its way, so younger rows than `grace_seconds` stay
    unsettled then. Raises ConnectError when the API server or the database can't be asked; the rows that were not
    reached stay as they are and go on being counted.
    """
    rows = records.unsettled()
    if not rows:
        return []
    states = reader.pod_states(sorted({(row.namespace, row.pod) for row in rows}))
    settled = []
    for row in rows:
        outcome, detail = judge_unsettled(row, states.get((row.namespace, row.pod)))
        if outcome is Outcome.FAILED and now - row.planned_at < grace_seconds:
            continue
        records.settle(row.record, outcome, detail)
        settled.append(Settled(row=row, outcome=outcome, detail=detail))
    return settled
