"""What keeps a node from being empty, for strategies that empty nodes."""

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.annotations import run_by_kubelet
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.strategies.selection import by_name

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]

BOUND_KINDS = ("DaemonSet", "Node")
"""Kinds of owners whose pods belong to their node: they go when it goes."""
QOS_RANK = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


def fills(snapshot: ClusterSnapshot) -> Bools:
    """(pods,) pods that keep their node from being empty: bound, not finished, and no DaemonSet's, mirror or static
    ones. Those that are leaving already are among them."""
    bound = np.array([*(owner.kind in BOUND_KINDS for owner in snapshot.owners), False], dtype=np.bool_)
    pods = snapshot.pods
    out: Bools = snapshot.active & ~bound[pods.owner]  # -1, without an owner, picks the last
    # only pods without an owner are asked: decoding every template takes long
    ownerless = np.flatnonzero(out & (pods.owner < 0))
    for template in np.unique(pods.template[ownerless]).tolist():
        if run_by_kubelet(snapshot.pod_templates[template].annotations):
            out[ownerless[pods.template[ownerless] == template]] = False
    return out


def counted(snapshot: ClusterSnapshot, chosen: Bools) -> NDArray[np.int64]:
    """(nodes,) how many of the chosen pods each node has."""
    return np.bincount(snapshot.pods.node[chosen], minlength=len(snapshot.nodes))


def cheapest_first(snapshot: ClusterSnapshot, pods: Ints) -> Ints:
    """Lowest priority first, then by QoS, then the youngest, then by name."""
    ranked, columns = by_name(snapshot, pods.astype(np.int64)), snapshot.pods
    qos = [QOS_RANK.get(snapshot.pod_templates[template].qos, 2) for template in columns.template[ranked].tolist()]
    return ranked[np.lexsort((-columns.created[ranked], np.array(qos), columns.priority[ranked]))].astype(np.int32)
