"""Evictions in flight: which have landed, which are late, and which evictions that stops.

An eviction has landed when its replacement is Ready or has finished, whatever the service's other pods do. The
replacement is the pod of the same name for a StatefulSet, else the first new pod of the owner. It has also landed when
none is wanted any more:

- The service has as many ready replicas as before the eviction, or as desired now. A pod that was finished or not Ready
  was not among them: its eviction has landed as soon as the pod is gone, also if its replacement crashes. A finished
  pod has no replacement and no target node.
- No replacement was made, and the service has as many pods as are desired now (of a StatefulSet those of lower
  ordinals): it was scaled down.
- Its Job has finished, or the service was deleted. Workloads of a kind that isn't listed are known by their pods only:
  without a replacement such an eviction stays open until its deadline, then it is closed.

An eviction in the background has landed when the evicted pod is gone or has finished. It is closed at its deadline, or
where its replacement comes first when that was undone.

Past its deadline an eviction is late: no other pod of its service is evicted until the replacement is Ready, and
several late evictions open the circuit breaker of their pool or of the cluster. One that is late for too long is
closed: it stops nothing any more, and is reported.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.surges import NO_FAULT
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.safety import CircuitBreaker
from rebalancer.policy.schema.types import format_duration

CLOCK_SLACK_SECONDS = 5.0
"""Greatest difference between the API server's clock and the ledger's, rounding to whole seconds included."""

MIN_START_UPS = 3
START_UP_PERCENTILE = 90.0


def typical_start_up(measured: Sequence[float], *, otherwise: float) -> float:
    """Usual start-up time of a service's pods in seconds: a high percentile of its last replacements' times.

    With fewer than MIN_START_UPS times it is `otherwise`.
    """
    if len(measured) < MIN_START_UPS:
        return otherwise
    return max(float(np.percentile(measured, START_UP_PERCENTILE)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The pod created in place of an evicted one."""

    namespace: str
    name: str
    uid: str
    node: str
    """Empty while it is not bound."""
    landed: bool
    """It is Ready, or has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionProgress:
    """State of one eviction in flight, by the snapshot."""

    eviction: Eviction
    landed: bool
    late: bool
    replacement: Replacement | None
    closed: str = ""
    """Why it is no longer waited for although it has not landed; empty = it has landed, or is waited for."""
    no_fault: bool = False
    """It was closed for a reason that says nothing about its service."""

    @property
    def open(self) -> bool:
        """Whether it is still in flight."""
        return not self.landed and not self.closed

    @property
    def came_back(self) -> bool:
        """Whether the replacement landed on the node that its predecessor left, unless that is the target node."""
        node = self.eviction.node
        return self.replacement is not None and self.replacement.node == node != self.eviction.target_node


def follow(
    snapshot: ClusterSnapshot,
    open_evictions: Sequence[Eviction],
    *,
    now: float,
    max_late_seconds: float,
    replacements: Collection[str] = (),
    surges: Mapping[int, str] | None = None,
) -> list[EvictionProgress]:
    """Reconcile open evictions with the snapshot. One that is late for `max_late_seconds` is closed. `surges` as in
    `Ledger.surges`.

    A pod replaces one evicted pod only: of several of one owner, the oldest eviction gets the oldest new pod.
    `replacements` are UIDs of pods that are replacements already.
    """
    taken = set(replacements)
    tops = {
        (record.kind, record.namespace, record.name): index
        for index, record in enumerate(snapshot.owners)
        if record.parent < 0
    }
    out = []
    for each in sorted(open_evictions, key=lambda one: (one.reserved.planned_at, one.reserved.record)):
        owner = tops.get((each.service.kind, each.namespace, each.service.name))
        comes = owner is not None and bool(each.target_node)
        replacement = _replacement(snapshot, each, owner, taken) if owner is not None and comes else None
        if replacement is not None:
            taken.add(replacement.uid)
        landed = _left(snapshot, each, owner) and (
            each.answered.in_background
            or (replacement is not None and replacement.landed)
            or _complete(snapshot, each, owner)
            or (replacement is None and not _wanted(snapshot, each, owner))
        )
        late = not landed and now > each.reserved.deadline_at
        undone = None if surges is None else surges.get(each.reserved.record or 0)
        if undone is not None:
            # while its surge is open it is waited for, unless that can't be undone
            closed = "" if landed or not undone else f"replacement first was undone: {undone}"
            if late and not undone and now > each.reserved.deadline_at + max_late_seconds:
                closed = "replacement first could not be undone"
        else:
            closed = _closed(snapshot, each, owner, replacement, now, max_late_seconds) if late else ""
        out.append(
            EvictionProgress(
                eviction=each,
                landed=landed,
                late=late and not closed,
                replacement=replacement,
                closed=closed,
                no_fault=undone in NO_FAULT,
            )
        )
    return out


def _left(snapshot: ClusterSnapshot, each: Eviction, owner: int | None) -> bool:
    """Whether the evicted pod is gone or terminating; of a pod with a replacement also whether it has finished.

    While the evicted pod is alive its service looks complete.
    """
    pods, members = snapshot.pods, () if owner is None else snapshot.pods_of(owner)
    index = next((index for index in members if pods.uids[index] == each.uid), None)
    if index is None or pods.terminating[index]:
        return True
    return bool(each.target_node) and pods.phase[index] in (SUCCEEDED, FAILED)


def _complete(snapshot: ClusterSnapshot, each: Eviction, owner: int | None) -> bool:
    """Whether the service has as many ready replicas as before the eviction, or as desired now."""
    if owner is None:
        return False
    desired, ready = snapshot.replicas(owner)
    if snapshot.owners[owner].desired is None:
        desired = each.reserved.desired_before  # counted from its pods it would shrink with the missing one
    return ready >= min(each.reserved.ready_before, desired)


def _wanted(snapshot: ClusterSnapshot, each: Eviction, owner: int | None) -> bool:
    """Whether the owner is going to make a replacement that is not there yet, as far as that is known."""
    if owner is None:
        return each.service.kind not in snapshot.listed_kinds
    record, members, pods = snapshot.owners[owner], snapshot.pods_of(owner), snapshot.pods
    if record.desired is not None:
        there = ~pods.terminating[members] & (pods.phase[members] != SUCCEEDED) & (pods.phase[members] != FAILED)
        others = members[there]
        if each.service.kind == "StatefulSet":
            # it removes the highest ordinals first
            others = [index for index in others if _ordinal(pods.names[index]) < _ordinal(each.pod)]
        return len(others) < record.desired
    # a Job, or the Jobs of a CronJob that have pods
    jobs = {int(index) for index in pods.owner[members]}
    return not all(snapshot.owners[job].finished for job in jobs)


def _ordinal(pod: str) -> int:
    digits = pod.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _closed(
    snapshot: ClusterSnapshot,
    each: Eviction,
    owner: int | None,
    replacement: Replacement | None,
    now: float,
    max_late_seconds: float,
) -> str:
    """Why a late eviction is no longer waited for; empty while it is."""
    if each.answered.in_background:
        return "its eviction in the background did not move it in time"
    listed = owner is not None and snapshot.owners[owner].desired is not None
    if replacement is None and not listed and _left(snapshot, each, owner):
        kind = each.service.kind
        return f"no replacement was made by its deadline, and how many pods its {kind} wants is not known"
    if now > each.reserved.deadline_at + max_late_seconds:
        return f"its replacement was not Ready {format_duration(max_late_seconds)} after the deadline"
    return ""


def _replacement(snapshot: ClusterSnapshot, each: Eviction, owner: int, taken: set[str]) -> Replacement | None:
    pods = snapshot.pods
    others = [
        int(index)
        for index in snapshot.pods_of(owner)
        if pods.uids[index] != each.uid and pods.uids[index] not in taken
    ]
    if each.service.kind == "StatefulSet":
        # two pods of one name never exist at the same time, so no clock is compared
        new = [index for index in others if pods.names[index] == each.pod]
    else:
        new = [index for index in others if pods.created[index] >= each.reserved.planned_at - CLOCK_SLACK_SECONDS]
    if not new:
        return None
    index = min(new, key=lambda one: (pods.created[one], pods.names[one]))
    node = int(pods.node[index])
    return Replacement(
        namespace=snapshot.namespaces[pods.namespace[index]],
        name=pods.names[index],
        uid=pods.uids[index],
        node=snapshot.nodes.names[node] if node >= 0 else "",
        landed=bool(pods.phase[index] == SUCCEEDED or (pods.ready[index] and not pods.terminating[index])),
    )


class LateEvictions:
    """Refusals while evictions are late."""

    def __init__(self, late: Sequence[Eviction], breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._services = {each.service_identity for each in late}
        self._total = len(late)
        self._by_pool: dict[str, int] = {}
        for each in late:
            self._by_pool[each.pool] = self._by_pool.get(each.pool, 0) + 1

    def refuses(self, *, pool: str, service: str) -> Refusal | None:
        """Why nothing of this service, pool or cluster may be evicted now."""
        if (refusal := self._of_cluster() or self._of_pool(pool)) is not None:
            return refusal
        if service in self._services:
            return Refusal.of(Reason.REPLACEMENT_LATE, service)
        return None

    def open_breakers(self) -> dict[str, Refusal]:
        """Scope (`the cluster`, `pool NAME`) -> the refusal of its circuit breaker, for each that is open."""
        scopes = {"the cluster": self._of_cluster(), **{f"pool {pool}": self._of_pool(pool) for pool in self._by_pool}}
        return {scope: refusal for scope, refusal in scopes.items() if refusal is not None}

    def _of_cluster(self) -> Refusal | None:
        if self._total < self._breaker.late_in_cluster:
            return None
        detail = f"{self._total} late in the cluster, {self._breaker.late_in_cluster} stop it"
        return Refusal.of(Reason.CIRCUIT_BREAKER_OPEN, detail)

    def _of_pool(self, pool: str) -> Refusal | None:
        late = self._by_pool.get(pool, 0)
        if late < self._breaker.late_in_pool:
            return None
        detail = f"{late} late in pool {pool}, {self._breaker.late_in_pool} stop it"
        return Refusal.of(Reason.CIRCUIT_BREAKER_OPEN, detail)
