"""Evictions in flight: which have landed, which are late, and which evictions that stops.

An eviction is in flight until its service has as many ready replicas as before it (or as desired now, if fewer). The
replacement is the pod of the same name for a StatefulSet, else the first new pod of the owner; after a scale-down there
is none. Past its deadline an eviction is late: no other pod of its service is evicted until the replacement is Ready,
and several late evictions open the circuit breaker of their pool or of the cluster.

The service's ready replicas count, not the evicted pod. A pod that was finished or not Ready was not among them: its
eviction has landed as soon as the pod is gone, also if its replacement crashes. A finished pod has no replacement and
no target node. A Ready pod must be replaced by a Ready one, also if it was evicted for its restarts: while the
replacement crashes, its service is left alone.

A service that is not in the snapshot was deleted if all workloads of its kind are listed: it has no replacement. Other
kinds are known by their pods only, and the last one may just have gone: such an eviction stays open until its deadline.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.eviction import Eviction
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy.schema.safety import CircuitBreaker

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionProgress:
    """State of one eviction in flight, by the snapshot."""

    eviction: Eviction
    landed: bool
    late: bool
    replacement: Replacement | None

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
    replacements: Collection[str] = (),
) -> list[EvictionProgress]:
    """Reconcile open evictions with the snapshot.

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
    for each in sorted(open_evictions, key=lambda one: (one.planned_at, one.record)):
        owner = tops.get((each.service.kind, each.namespace, each.service.name))
        comes = owner is not None and bool(each.target_node)
        replacement = _replacement(snapshot, each, owner, taken) if owner is not None and comes else None
        if replacement is not None:
            taken.add(replacement.uid)
        gone = owner is None and (each.service.kind in snapshot.listed_kinds or now > each.deadline_at)
        desired, ready = (0, 0) if owner is None else snapshot.replicas(owner)
        if owner is not None and snapshot.owners[owner].desired is None:
            desired = each.desired_before  # counted from its pods it would shrink with the missing one
        enough = owner is not None and ready >= min(each.ready_before, desired)
        # while the evicted pod is alive its service looks complete
        landed = gone or (enough and each.uid not in _alive(snapshot, owner))
        late = not landed and now > each.deadline_at
        out.append(EvictionProgress(eviction=each, landed=landed, late=late, replacement=replacement))
    return out


def _alive(snapshot: ClusterSnapshot, owner: int | None) -> set[str]:
    members = () if owner is None else snapshot.pods_of(owner)
    return {snapshot.pods.uids[index] for index in members if not snapshot.pods.terminating[index]}


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
        new = [index for index in others if pods.created[index] >= each.planned_at - CLOCK_SLACK_SECONDS]
    if not new:
        return None
    index = min(new, key=lambda one: (pods.created[one], pods.names[one]))
    node = int(pods.node[index])
    return Replacement(
        namespace=snapshot.namespaces[pods.namespace[index]],
        name=pods.names[index],
        uid=pods.uids[index],
        node=snapshot.nodes.names[node] if node >= 0 else "",
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
        breaker, of_pool = self._breaker, self._by_pool.get(pool, 0)
        if self._total >= breaker.late_in_cluster:
            detail = f"{self._total} late in the cluster, {breaker.late_in_cluster} stop it"
            return Refusal.of(Reason.CIRCUIT_BREAKER_OPEN, detail)
        if of_pool >= breaker.late_in_pool:
            detail = f"{of_pool} late in pool {pool}, {breaker.late_in_pool} stop it"
            return Refusal.of(Reason.CIRCUIT_BREAKER_OPEN, detail)
        if service in self._services:
            return Refusal.of(Reason.REPLACEMENT_LATE, service)
        return None
