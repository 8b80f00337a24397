"""How nodes look while a plan runs: our taints and cordons as they will be, all others as the snapshot shows them."""

import numpy as np

from rebalancer.model.objects import Taint
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.steering import CORDONS, SOFT_TAINT
from rebalancer.placement.arrays import Bools

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What the control plane puts on a cordoned node; whoever tolerates it passes NodeUnschedulable, too."""


def seen_taints(
    snapshot: ClusterSnapshot, steered: Bools | None, cordoned: Bools | None, ours: Taint
) -> tuple[tuple[Taint, ...], ...]:
    """(nodes,) with our taint on the steered nodes and only there; None = as the snapshot shows."""
    seen = tuple(tuple(taints) for taints in snapshot.nodes.taints)
    if cordoned is not None:
        before = ours_cordoned(snapshot)
        seen = tuple(
            _with_cordon(taints, cordon) if cordon != was else taints
            for taints, cordon, was in zip(seen, cordoned.tolist(), before.tolist(), strict=True)
        )
    if steered is None:
        return seen
    return tuple(
        (*(each for each in taints if each.key != SOFT_TAINT), *((ours,) if steer else ()))
        for taints, steer in zip(seen, steered.tolist(), strict=True)
    )


def _with_cordon(taints: tuple[Taint, ...], cordon: bool) -> tuple[Taint, ...]:
    """The control plane's taint follows `spec.unschedulable`."""
    others = tuple(each for each in taints if each.key != UNSCHEDULABLE.key)
    return (*others, UNSCHEDULABLE) if cordon else others


def seen_cordons(snapshot: ClusterSnapshot, cordoned: Bools | None) -> Bools:
    """(nodes,) unschedulable ones; `cordoned` instead of the cordons of ours that the snapshot shows."""
    if cordoned is None:
        return snapshot.nodes.unschedulable
    seen: Bools = (snapshot.nodes.unschedulable & ~ours_cordoned(snapshot)) | cordoned
    return seen


def ours_cordoned(snapshot: ClusterSnapshot) -> Bools:
    """(nodes,) nodes that are cordoned, by us."""
    nodes = snapshot.nodes
    marked = (any(each.key == SOFT_TAINT and each.value in CORDONS for each in taints) for taints in nodes.taints)
    ours: Bools = np.fromiter(marked, np.bool_, len(nodes)) & nodes.unschedulable
    return ours
