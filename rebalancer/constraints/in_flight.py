"""Evictions whose replacement is not Ready yet: which have landed, which are late, and what that stops.

An eviction is in flight until its service has as many ready replicas as it had before (or as it wants now, if that is
fewer). The replacement is the pod of the same name for a StatefulSet, else the first new pod of the owner; after a
scale-down there is none. Past its deadline an eviction is late: its service stays where it is until the replacement
is Ready, and several late ones brake their pool or the cluster.

What counts is what the service had, not what the pod was. A pod that had finished, or was not Ready, was not among the
ready ones: its eviction is settled as soon as it is gone, whether its replacement crashes as it did or not, and where
it had finished nothing comes in its place (it has no landing). A pod that was Ready must be replaced by a Ready one,
also where it was evicted because it restarts too often: if the next one crashes too, its service is left alone.

A service that isn't in the snapshot was deleted if all workloads of its kind were listed: nothing will come. Of other
kinds only those that own a pod are known; there its last pod may just be gone, so it is waited for until the deadline.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.eviction import Eviction
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy.schema.safety import CircuitBreaker

CLOCK_SLACK_SECONDS = 5.0
"""The API server's clock and the ledger's may differ by so much; API times are whole seconds besides."""

MIN_START_UPS = 3
START_UP_PERCENTILE = 90.0


def typical_start_up(measured: Sequence[float], *, otherwise: float) -> float:
    """How long a service's pods usually take until they are Ready, in seconds, from what its last ones took.

    Fewer than MIN_START_UPS tell nothing: then it is `otherwise`.
    """
    if len(measured) < MIN_START_UPS:
        return otherwise
    return max(float(np.percentile(measured, START_UP_PERCENTILE)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The pod that took an evicted one's place."""

    namespace: str
    name: str
    uid: str
    node: str
    """Empty while it is not bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionProgress:
    """What became of one eviction in flight."""

    eviction: Eviction
    landed: bool
    late: bool
    replacement: Replacement | None

    @property
    def came_back(self) -> bool:
        """Whether the replacement landed on the node that its predecessor had left, and was not expected there."""
        node = self.eviction.node
        return self.replacement is not None and self.replacement.node == node != self.eviction.target_node


def follow(
    snapshot: ClusterSnapshot,
    open_evictions: Sequence[Eviction],
    *,
    now: float,
    replacements: Collection[str] = (),
) -> list[EvictionProgress]:
    """Hold every open eviction against the cluster as it is now.

    A pod takes the place of one eviction only: of several of one owner, the oldest eviction gets the oldest new pod.
    `replacements` are the uids of pods that took an earlier one's place.
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
            desired = each.desired_before  # counted from the pods it would shrink with the one that is missing
        enough = owner is not None and ready >= min(each.ready_before, desired)
        # while the evicted pod is still alive its service looks complete although nothing has landed
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
        # two pods of one name are never there at the same time: no clock has to say which is the newer
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
    """What late evictions stop."""

    def __init__(self, late: Sequence[Eviction], brake: CircuitBreaker) -> None:
        self._brake = brake
        self._services = {each.service_identity for each in late}
        self._total = len(late)
        self._by_pool: dict[str, int] = {}
        for each in late:
            self._by_pool[each.pool] = self._by_pool.get(each.pool, 0) + 1

    def refuses(self, *, pool: str, service: str) -> Refusal | None:
        """Why nothing of this service, pool or cluster may be evicted now."""
        if self._total >= self._brake.late_in_cluster:
            return Refusal.of(
                Reason.CIRCUIT_BREAKER_OPEN, f"{self._total} late in the cluster, {self._brake.late_in_cluster} stop it"
            )
        if self._by_pool.get(pool, 0) >= self._brake.late_in_pool:
            count = self._by_pool[pool]
            return Refusal.of(
                Reason.CIRCUIT_BREAKER_OPEN, f"{count} late in pool {pool}, {self._brake.late_in_pool} stop it"
            )
        if service in self._services:
            return Refusal.of(Reason.REPLACEMENT_LATE, service)
        return None
