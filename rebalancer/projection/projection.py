"""The projection: which pods of the snapshot will be there and Ready within the horizon, and which have to land again.

One for each cycle. Guards, budgets, headroom, placement and `explain` read it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rebalancer.model.cluster.replacement import is_recreated
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.model.reason import Refusal
from rebalancer.policy.schema.safety import Safety
from rebalancer.projection.disturbance import Disturbance, disturbances
from rebalancer.projection.endings import ends
from rebalancer.projection.leaving import failing_nodes, removal_candidates, removed_nodes

HORIZON_SECONDS = 600.0
"""Start-up, a grace period and a rate window: how long a move takes until it shows."""

OVERDUE_SECONDS = 120.0
"""A pod that is still there so long after its end stays: its node may not answer, or a finalizer may hold it."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """See the module."""

    snapshot: ClusterSnapshot
    removed: Mapping[int, str]
    """Index of each node that is being removed, drained or shut down -> why. A hot one needs no relief."""
    leaving: Mapping[int, str]
    """Index of each node whose pods are about to go -> why: also of those that were just cordoned or lost."""
    closed: Mapping[int, str]
    """Index of each node that is no target node because it is or may be removed -> why."""
    ends: Floats
    """(pods,) when they are known to end, seconds since the epoch; NaN where it isn't."""
    ending: Bools
    """(pods,) that end within the horizon: their load is no reason to move others."""
    disturbances: Sequence[Disturbance] = ()
    urgent: Bools | None = None
    """(nodes,) in danger: a disturbance doesn't stop their relief; None = none."""

    @classmethod
    def of(
        cls,
        snapshot: ClusterSnapshot,
        safety: Safety,
        *,
        now: float,
        pools: Sequence[str] = (),
        urgent: Bools | None = None,
    ) -> "Projection":
        """`pools` (nodes,) names, empty for none; `now` in seconds since the epoch."""
        end = ends(snapshot)
        pods = snapshot.pods
        removed = removed_nodes(snapshot.nodes, safety.leaving_nodes)
        may_go = dict.fromkeys(removal_candidates(snapshot.nodes), "cluster-autoscaler may remove it")
        return cls(
            snapshot=snapshot,
            removed=removed,
            leaving=failing_nodes(snapshot.nodes, safety.leaving_nodes, now=now) | removed,
            closed=may_go | {node: f"about to go: {why}" for node, why in removed.items()},
            ends=end,
            ending=snapshot.active
            & (((end <= now + HORIZON_SECONDS) & (end > now - OVERDUE_SECONDS)) | (pods.terminating & np.isnan(end))),
            disturbances=disturbances(snapshot, pools, share=safety.disturbance.share / 100, now=now),
            urgent=urgent,
        )

    @cached_property
    def is_closed(self) -> Bools:
        """(nodes,) of `closed`."""
        return self._mask(self.closed)

    def _mask(self, nodes: Mapping[int, str]) -> Bools:
        out = np.zeros(len(self.snapshot.nodes), dtype=np.bool_)
        out[list(nodes)] = True
        return out

    @cached_property
    def displaced(self) -> Bools:
        """(pods,) on leaving nodes, with an owner that makes a new pod for each."""
        if not self.leaving:
            return np.zeros(len(self.snapshot.pods), dtype=np.bool_)
        pods = self.snapshot.pods
        recreated = np.array([*(is_recreated(owner) for owner in self.snapshot.owners), False], dtype=np.bool_)
        found: Bools = self.snapshot.active & ~pods.terminating & ~self.ending & self._mask(self.leaving)[pods.node]
        return found & recreated[pods.owner]

    @cached_property
    def _leaving_ready(self) -> Ints:
        """(owners,) Ready pods on leaving nodes, of each top owner."""
        pods, count = self.snapshot.pods, len(self.snapshot.owners)
        rows = self.displaced & pods.ready
        return np.bincount(self.snapshot.top_owner[pods.owner[rows]], minlength=count).astype(np.int32)

    def replicas(self, pod: int) -> tuple[int, int]:
        """(desired, Ready and staying) of the service of a pod with an owner. Of a pod that is itself on a leaving node
        all Ready pods count: its move is what comes in any case."""
        owner = int(self.snapshot.pods.owner[pod])
        desired, ready = self.snapshot.replicas(owner)
        if not self.leaving or self.displaced[pod]:
            return desired, ready
        return desired, ready - int(self._leaving_ready[self.snapshot.top_owner[owner]])

    def why_missing(self, pod: int) -> str:
        """Which Ready pods of its service don't stay; empty where all do."""
        owner = int(self.snapshot.pods.owner[pod])
        missing = self.snapshot.replicas(owner)[1] - self.replicas(pod)[1]
        if not missing:
            return ""
        members = self.snapshot.pods_of(owner)
        nodes = self.snapshot.pods.node[members[self.displaced[members] & self.snapshot.pods.ready[members]]]
        node = int(nodes.min())
        return f"{missing} on leaving nodes, such as {self.snapshot.nodes.names[node]} ({self.leaving[node]})"

    def displaced_beside(self, candidates: Iterable[Ints]) -> Bools:
        """(pods,) the displaced pods that aren't among these: a plan places its candidates itself."""
        out = self.displaced.copy()
        for pods in candidates:
            out[pods] = False
        return out

    def disturbed(self, node: int) -> Refusal | None:
        """Why nothing is evicted from the node, or None."""
        if self.urgent is not None and self.urgent[node]:
            return None
        return next((each.refusal for each in self.disturbances if each.nodes[node]), None)
