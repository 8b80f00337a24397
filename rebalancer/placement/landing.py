"""Where kube-scheduler would put the replacement of an evicted pod: the first, simple model.

It knows what tells nodes apart by the pod's own spec and by requests: unschedulable, taints (hard and soft), node
selector, required node affinity, cpu, memory, pod count, extended resources, host ports; LeastAllocated and
BalancedAllocation. A pod whose landing depends on other pods (required inter-pod affinity or anti-affinity, hard
topology spread) is refused: not knowing is no reason to gamble. Image locality, preferred affinity and sampling above
100 nodes are not in it yet.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.plan import Landing
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot, Pod
from rebalancer.placement.filters import StaticFilter, extended_fit
from rebalancer.placement.scores import MAX_SCORE, by_requests

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

TAINT_TOLERATION_WEIGHT = 3.0
"""Default weight of TaintToleration; source: apis/config/v1/default_plugins.go, Kubernetes v1.36."""

SHOWN_LANDINGS = 8
"""Ties are kept up to this many; their shares are of all ties."""


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
        self._extended: dict[str, Floats] = {}
        self._ports: dict[tuple[str, int], Bools] = {}

    @property
    def leaving(self) -> Bools:
        """(nodes,) nodes that an autoscaler is about to remove: never a landing."""
        return self._filter.leaving

    def feasible(self, pod: Pod) -> Bools | Refusal:
        """(nodes,) where the replacement fits by every filter, or why that isn't known."""
        shape = pod.shape
        affinity = shape.affinity
        if affinity is not None and (
            (affinity.pod_affinity is not None and affinity.pod_affinity.required)
            or (affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required)
        ):
            return Refusal.of(Reason.LANDING_NOT_MODELLED, "required inter-pod affinity or anti-affinity")
        if shape.topology_spread:
            return Refusal.of(
                Reason.LANDING_NOT_MODELLED, f"hard topology spread over {', '.join(shape.topology_spread)}"
            )
        if shape.scheduler_name != "default-scheduler":
            return Refusal.of(Reason.LANDING_NOT_MODELLED, f"schedulerName {shape.scheduler_name}")
        wanted = np.array([shape.cpu_request_millicores, shape.memory_request_bytes])
        requested, count = self._requested, self._count
        if not self._overlaps(pod):
            requested, count = requested.copy(), count.copy()
            requested[pod.node] -= wanted
            count[pod.node] -= 1
        # like the scheduler, a resource that the pod doesn't ask for can't stop it
        fits: Bools = ((requested + wanted <= self._allocatable) | (wanted == 0)).all(axis=1)
        fits &= count + 1 <= self._snapshot.nodes.pods_allocatable
        fits &= self._filter.feasible(shape)
        extended = extended_fit(shape.extended_requests, self._snapshot.nodes.extended, self._extended_used(pod))
        if extended is not None:
            fits &= extended
        for port in shape.host_ports:
            fits &= ~self._port_taken(port)
        return fits

    def landings(self, pod: Pod, feasible: Bools) -> tuple[Landing, ...]:
        """The distribution over nodes: the best score's ties, each equally likely; empty when nothing is feasible.

        `feasible` is what `feasible(pod)` answered. At most SHOWN_LANDINGS are made into objects, but every tie
        counts in the shares; `best` gives all of them.
        """
        ties = self.best(pod, feasible)
        return tuple(Landing(node=int(node), share=1.0 / len(ties)) for node in ties[:SHOWN_LANDINGS])

    def best(self, pod: Pod, feasible: Bools) -> NDArray[np.int64]:
        """Indices of the feasible nodes with the top score, by name."""
        shape = pod.shape
        if not feasible.any():
            return np.empty(0, dtype=np.int64)
        pod_scored = np.array([shape.cpu_scored_millicores, shape.memory_scored_bytes])
        pod_requested = np.array([shape.cpu_request_millicores, shape.memory_request_bytes])
        nodes = np.flatnonzero(feasible)
        scored, requested = self._scored[nodes], self._requested[nodes]
        if not self._overlaps(pod):
            scored[nodes == pod.node] -= pod_scored
            requested[nodes == pod.node] -= pod_requested
        score = by_requests(
            scored=scored,
            requested=requested,
            pod_scored=pod_scored,
            pod_requested=pod_requested,
            allocatable=self._allocatable[nodes],
        )
        soft = self._filter.soft_taints(shape)[nodes]
        if (most := soft.max()) > 0:
            score = score + TAINT_TOLERATION_WEIGHT * np.floor(MAX_SCORE - MAX_SCORE * soft / most)
        ties = nodes[score >= score.max()]
        by_name: NDArray[np.int64] = ties[np.argsort(self._name_rank[ties])]
        return by_name

    def commit(self, pod: Pod, node: int) -> None:
        """Count one eviction and its replacement on `node`: later landings see both."""
        self._shift(pod, pod.node, -1.0)
        self._shift(pod, node, 1.0)

    def undo(self, pod: Pod, node: int) -> None:
        """Uncount it."""
        self._shift(pod, node, -1.0)
        self._shift(pod, pod.node, 1.0)

    def _shift(self, pod: Pod, node: int, by: float) -> None:
        shape = pod.shape
        self._requested[node] += by * np.array([shape.cpu_request_millicores, shape.memory_request_bytes])
        self._scored[node] += by * np.array([shape.cpu_scored_millicores, shape.memory_scored_bytes])
        self._count[node] += by
        for name, amount in shape.extended_requests.items():
            if name in self._extended:
                self._extended[name][node] += by * amount
        for port in shape.host_ports:
            if port in self._ports:
                self._ports[port][node] = by > 0

    @staticmethod
    def _overlaps(pod: Pod) -> bool:
        """Whether the replacement is scheduled while the old pod still holds its requests.

        A ReplicaSet's replacement is made at once, while the old pod terminates; a StatefulSet's only afterwards.
        """
        return pod.owner is None or pod.owner.kind != "StatefulSet"

    def _extended_used(self, pod: Pod) -> dict[str, Floats]:
        for name in pod.shape.extended_requests:
            if name not in self._extended:
                self._extended[name] = self._sum_over_shapes(name)
        return self._extended

    def _sum_over_shapes(self, name: str) -> Floats:
        snapshot = self._snapshot
        per_shape = np.fromiter(
            (snapshot.shapes[index].extended_requests.get(name, 0.0) for index in range(len(snapshot.shapes))),
            float,
            len(snapshot.shapes),
        )
        return snapshot.per_node(per_shape[snapshot.pods.shape])

    def _port_taken(self, port: tuple[str, int]) -> Bools:
        taken = self._ports.get(port)
        if taken is None:
            snapshot = self._snapshot
            holds = np.fromiter(
                (port in snapshot.shapes[index].host_ports for index in range(len(snapshot.shapes))),
                float,
                len(snapshot.shapes),
            )
            taken = self._ports[port] = snapshot.per_node(holds[snapshot.pods.shape]) > 0
        return taken


def shares(landings: Sequence[Landing], names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """(node name, share) of each landing."""
    return tuple((names[each.node], each.share) for each in landings)
