"""Where kube-scheduler would put the replacement of an evicted pod: the first, simple model.

It knows what tells nodes apart by the pod's own spec and by requests: unschedulable, taints (hard and soft), node
selector, required node affinity, cpu, memory, pod count, extended resources, host ports; LeastAllocated and
BalancedAllocation. A pod whose landing depends on other pods (required inter-pod affinity or anti-affinity, hard
topology spread) or on volumes is refused: not knowing is no reason to gamble. Not in it yet: image locality, preferred
affinity, the default soft spread, anti-affinity of pods already there, sampling above 100 nodes.

Pods that ask for the same are ranked once; after each move only the two nodes that it touched are ranked again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.objects import PodShape
from rebalancer.model.plan import Landing
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import PENDING, ClusterSnapshot, Pod
from rebalancer.placement.filters import StaticFilter, placement_key
from rebalancer.placement.scores import MAX_SCORE, by_requests

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

TAINT_TOLERATION_WEIGHT = 3.0
"""Default weight of TaintToleration; source: apis/config/v1/default_plugins.go, Kubernetes v1.36."""

MOST_PENDING = 500
"""With more pods Pending no landing is predicted."""

SHOWN_LANDINGS = 8
"""Ties are kept up to this many; their shares are of all ties."""


@dataclass(slots=True)
class _Ranking:
    """All nodes for one kind of pod."""

    feasible: Bools
    score: Floats
    touched: int
    """How many of the model's touched nodes are in it."""


class LandingModel:
    """The scheduler's view of a snapshot, with this plan's moves counted in."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        nodes, pods = snapshot.nodes, snapshot.pods
        self._snapshot = snapshot
        self._filter = StaticFilter(nodes)
        self._allocatable = np.column_stack([nodes.cpu_allocatable_millicores, nodes.memory_allocatable_bytes])
        self._requested = np.column_stack(
            [snapshot.per_node(pods.cpu_request_millicores), snapshot.per_node(pods.memory_request_bytes)]
        )
        self._scored = np.column_stack(
            [snapshot.per_node(pods.cpu_scored_millicores), snapshot.per_node(pods.memory_scored_bytes)]
        )
        self._count = snapshot.per_node(np.ones(len(pods)))
        # ties are shown by name, so that the order in which nodes are listed changes nothing
        self._name_rank = np.argsort(np.argsort(np.array(nodes.names)))
        self._extended_room: dict[str, Floats] = {}
        self._ports: dict[tuple[str, int, str], Floats] = {}
        self._rankings: dict[object, _Ranking] = {}
        self._touched: list[int] = []
        self._crowd = self._place_pending()

    @property
    def leaving(self) -> Bools:
        """(nodes,) nodes that an autoscaler is about to remove: never a landing."""
        return self._filter.leaving

    # ---- questions

    def feasible(self, pod: Pod) -> Bools | Refusal:
        """(nodes,) where the replacement fits by every filter, or why that isn't known."""
        refusal = self._crowd or _not_modelled(pod.shape)
        if refusal is not None:
            return refusal
        ranking = self._ranking(pod)
        return ranking.feasible if _overlaps(pod) else self._without(pod, ranking).feasible

    def best(self, pod: Pod) -> Rows:
        """Indices of the feasible nodes with the top score, by name; each is equally likely."""
        overlaps = _overlaps(pod) if pod.node >= 0 else True
        with_pod = self._ranking(pod)
        if overlaps:
            return self._by_name(self._top(pod, with_pod))
        rankings = [with_pod] if overlaps else [self._without(pod, with_pod)]
        if overlaps is None:
            rankings.append(with_pod)
        return self._by_name(np.unique(np.concatenate([self._top(pod, ranking) for ranking in rankings])))

    def _by_name(self, ties: Rows) -> Rows:
        sorted_ties: Rows = ties[np.argsort(self._name_rank[ties])] if len(ties) > 1 else ties
        return sorted_ties

    def _top(self, pod: Pod, ranking: _Ranking) -> Rows:
        if not ranking.feasible.any():
            return np.empty(0, dtype=np.int64)
        score = ranking.score
        # TaintToleration scores relative to the worst feasible node
        soft = self._filter.soft_taints(pod.shape)
        if (most := soft[ranking.feasible].max()) > 0:
            score = score + TAINT_TOLERATION_WEIGHT * (MAX_SCORE - np.floor(MAX_SCORE * soft / most))
        return np.flatnonzero(score >= score.max())

    def landings(self, pod: Pod) -> tuple[Landing, ...]:
        """The distribution over nodes, likeliest first; empty when nothing is feasible.

        At most SHOWN_LANDINGS ties are made into objects, but every tie counts in the shares.
        """
        ties = self.best(pod)
        return tuple(Landing(node=int(node), share=1.0 / len(ties)) for node in ties[:SHOWN_LANDINGS])

    # ---- this plan's moves

    def commit(self, pod: Pod, node: int) -> None:
        """Count one eviction and its replacement on `node`: later landings see both."""
        self._shift(pod.shape, pod.node, -1.0)
        self._shift(pod.shape, node, 1.0)
        self._touched += [pod.node, node]

    def _shift(self, shape: PodShape, node: int, by: float) -> None:
        self._requested[node] += by * _requested(shape)
        self._scored[node] += by * _scored(shape)
        self._count[node] += by
        for name, amount in shape.extended_requests.items():
            self._room_for(name)[node] -= by * amount
        for port in shape.host_ports:
            self._taken(port)[node] += by

    def _place_pending(self) -> Refusal | None:
        """Pods that already wait take their room first, by priority and age, as the scheduler's queue would.

        Where too many wait, nobody knows what room they will grab.
        """
        pods = self._snapshot.pods
        waiting = np.flatnonzero((pods.node < 0) & (pods.phase == PENDING) & ~pods.terminating)
        if len(waiting) > MOST_PENDING:
            return Refusal.of(Reason.LANDING_NOT_MODELLED, f"{len(waiting)} pods are Pending")
        names = pods.names
        for index in sorted(waiting.tolist(), key=lambda at: (-pods.priority[at], pods.created[at], names[at])):
            pod = self._snapshot.pod(index)
            best = self.best(pod)
            if len(best):
                self._shift(pod.shape, int(best[0]), 1.0)
                self._touched.append(int(best[0]))
        return None

    # ---- ranking

    def _ranking(self, pod: Pod) -> _Ranking:
        shape = pod.shape
        key = (
            placement_key(shape),
            shape.cpu_request_millicores,
            shape.memory_request_bytes,
            shape.cpu_scored_millicores,
            shape.memory_scored_bytes,
            tuple(sorted(shape.extended_requests.items())),
            shape.host_ports,
        )
        ranking = self._rankings.get(key)
        if ranking is None:
            feasible, score = self._rank(shape, np.arange(len(self._snapshot.nodes)))
            ranking = self._rankings[key] = _Ranking(feasible, score, len(self._touched))
        elif ranking.touched < len(self._touched):
            rows = np.unique(self._touched[ranking.touched :])
            ranking.feasible[rows], ranking.score[rows] = self._rank(shape, rows)
            ranking.touched = len(self._touched)
        return ranking

    def _without(self, pod: Pod, ranking: _Ranking) -> _Ranking:
        """The same with the pod's own requests off its node."""
        self._shift(pod.shape, pod.node, -1.0)
        row = np.array([pod.node])
        alone = _Ranking(ranking.feasible.copy(), ranking.score.copy(), ranking.touched)
        alone.feasible[row], alone.score[row] = self._rank(pod.shape, row)
        self._shift(pod.shape, pod.node, 1.0)
        return alone

    def _rank(self, shape: PodShape, rows: Rows) -> tuple[Bools, Floats]:
        """(rows,) feasibility and score by requests, -inf where not feasible."""
        wanted, allocatable = _requested(shape), self._allocatable[rows]
        # like the scheduler, a resource that the pod doesn't ask for can't stop it
        fits: Bools = ((self._requested[rows] + wanted <= allocatable) | (wanted == 0)).all(axis=1)
        fits &= self._count[rows] + 1 <= self._snapshot.nodes.pods_allocatable[rows]
        fits &= self._filter.feasible(shape)[rows]
        for name, amount in shape.extended_requests.items():
            fits &= self._room_for(name)[rows] >= amount
        for port in shape.host_ports:
            fits &= self._taken(port)[rows] <= 0
        score = by_requests(
            scored=self._scored[rows],
            requested=self._requested[rows],
            pod_scored=_scored(shape),
            pod_requested=wanted,
            allocatable=allocatable,
        )
        return fits, np.where(fits, score, -np.inf)

    def _room_for(self, name: str) -> Floats:
        """(nodes,) what is free of an extended resource."""
        room = self._extended_room.get(name)
        if room is None:
            nodes = self._snapshot.nodes
            held = np.fromiter((each.get(name, 0.0) for each in nodes.extended), float, len(nodes))
            used = self._per_shape([shape.extended_requests.get(name, 0.0) for shape in self._shapes()])
            room = self._extended_room[name] = held - used
        return room

    def _taken(self, port: tuple[str, int, str]) -> Floats:
        """(nodes,) how many pods hold a host port."""
        taken = self._ports.get(port)
        if taken is None:
            taken = self._ports[port] = self._per_shape([float(port in shape.host_ports) for shape in self._shapes()])
        return taken

    def _shapes(self) -> list[PodShape]:
        return [self._snapshot.shapes[index] for index in range(len(self._snapshot.shapes))]

    def _per_shape(self, values: list[float]) -> Floats:
        return self._snapshot.per_node(np.array(values)[self._snapshot.pods.shape])


def _not_modelled(shape: PodShape) -> Refusal | None:
    affinity = shape.affinity
    if affinity is not None and (
        (affinity.pod_affinity is not None and affinity.pod_affinity.required)
        or (affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required)
    ):
        return Refusal.of(Reason.LANDING_NOT_MODELLED, "required inter-pod affinity or anti-affinity")
    hard = [each.topology_key for each in shape.topology_spread if each.when_unsatisfiable == "DoNotSchedule"]
    if hard:
        return Refusal.of(Reason.LANDING_NOT_MODELLED, f"hard topology spread over {', '.join(hard)}")
    if any(volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in shape.volumes):
        return Refusal.of(Reason.LANDING_NOT_MODELLED, "volumes may tie it to a zone or node")
    if shape.scheduler_name != "default-scheduler":
        return Refusal.of(Reason.LANDING_NOT_MODELLED, f"schedulerName {shape.scheduler_name}")
    return None


def _overlaps(pod: Pod) -> bool | None:
    """Whether the replacement is scheduled while the old pod still holds its requests; None where nobody knows.

    A ReplicaSet's replacement is made at once, while the old pod terminates; a StatefulSet's only afterwards, and so is
    a Job's with a podFailurePolicy (its podReplacementPolicy can only be Failed).
    """
    kind = pod.owner.kind if pod.owner is not None else ""
    if kind in ("ReplicaSet", "ReplicationController"):
        return True
    return False if kind in ("StatefulSet", "Job") else None


def _requested(shape: PodShape) -> Floats:
    return np.array([shape.cpu_request_millicores, shape.memory_request_bytes])


def _scored(shape: PodShape) -> Floats:
    return np.array([shape.cpu_scored_millicores, shape.memory_scored_bytes])


def shares(landings: Sequence[Landing], names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """(node name, share) of each landing."""
    return tuple((names[each.node], each.share) for each in landings)
