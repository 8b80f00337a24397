"""The soft taint on nodes that kube-scheduler should avoid: it knows requests, not CPU usage."""

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.notation.arrays import Bools

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The control plane's taint of a cordoned node; a pod that tolerates it passes NodeUnschedulable too."""

SOFT_TAINT = "rebalancer.dev/steer"
"""Key of the taint; its effect is PreferNoSchedule, its value is the cause."""

HOT = "hot"
PREDICTED_HOT = "predicted-hot"
NO_ROOM = "no-room"
"""Not hot, but a likely target node without headroom in CPU usage."""
ROOM = "room"
"""Room was made here for a pending pod, until it is bound."""
CHOSEN = "chosen"
"""Chosen by an administrator to be emptied later."""

DRAINING = "draining"
"""Cordoned by the rebalancer while the node is emptied, and afterwards until it is removed or released."""
MAINTENANCE = "maintenance"
"""Cordoned by the rebalancer for as long as the node is chosen for maintenance."""

CORDONS = (DRAINING, MAINTENANCE)
"""Values of the taint on nodes that the rebalancer has cordoned: only these are ever uncordoned by it."""


def ours_soft_tainted(nodes: Nodes) -> Bools:
    """(nodes,) with our soft taint."""
    return np.array([any(each.key == SOFT_TAINT for each in taints) for taints in nodes.taints], dtype=np.bool_)


def ours_cordoned(nodes: Nodes) -> Bools:
    """(nodes,) cordoned by us."""
    ours = np.zeros(len(nodes), dtype=np.bool_)
    for node in np.flatnonzero(nodes.unschedulable).tolist():
        ours[node] = any(each.key == SOFT_TAINT and each.value in CORDONS for each in nodes.taints[node])
    return ours
