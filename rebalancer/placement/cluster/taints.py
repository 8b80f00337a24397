"""Taints and cordons of nodes as the scheduler sees them in a plan."""

from collections.abc import Sequence

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import SOFT_TAINT, UNSCHEDULABLE, ours_cordoned
from rebalancer.model.notation.arrays import Bools

MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
"""Taint of nodes with the condition MemoryPressure, which the node lifecycle controller keeps in step."""


def seen_taints(
    snapshot: ClusterSnapshot, soft_tainted: Bools | None, cordoned: Bools | None, ours: Taint
) -> tuple[tuple[Taint, ...], ...]:
    """(nodes,) with our taint on exactly the nodes of `soft_tainted`; None = as in the snapshot."""
    seen = tuple(tuple(taints) for taints in snapshot.nodes.taints)
    if cordoned is not None:
        before = ours_cordoned(snapshot.nodes)
        seen = tuple(
            _with_cordon(taints, cordon) if cordon != was else taints
            for taints, cordon, was in zip(seen, cordoned.tolist(), before.tolist(), strict=True)
        )
    if soft_tainted is None:
        return seen
    return tuple(
        (*(each for each in taints if each.key != SOFT_TAINT), *((ours,) if steer else ()))
        for taints, steer in zip(seen, soft_tainted.tolist(), strict=True)
    )


def _with_cordon(taints: tuple[Taint, ...], cordon: bool) -> tuple[Taint, ...]:
    """The control plane's taint follows `spec.unschedulable`."""
    others = tuple(each for each in taints if each.key != UNSCHEDULABLE.key)
    return (*others, UNSCHEDULABLE) if cordon else others


def seen_cordons(snapshot: ClusterSnapshot, cordoned: Bools | None) -> Bools:
    """(nodes,) unschedulable, with `cordoned` instead of our cordons in the snapshot."""
    if cordoned is None:
        return snapshot.nodes.unschedulable
    seen: Bools = (snapshot.nodes.unschedulable & ~ours_cordoned(snapshot.nodes)) | cordoned
    return seen


def hard_taints(taints: Sequence[tuple[Taint, ...]]) -> tuple[tuple[Taint, ...], ...]:
    """(nodes,) the taints that filters go by."""
    return tuple(tuple(each for each in of_node if each.effect != "PreferNoSchedule") for of_node in taints)


def under_memory_pressure(nodes: Nodes) -> Bools:
    """(nodes,) nodes where the kubelet reports memory pressure, and may evict pods. Only BestEffort pods are kept away
    by its taint: all others tolerate it."""
    # most nodes have no taint
    marked = (bool(taints) and any(taint.key == MEMORY_PRESSURE for taint in taints) for taints in nodes.taints)
    return np.fromiter(marked, bool, len(nodes))
