"""Which nodes a pod may go to by its spec alone: kube-scheduler's filters that don't depend on other pods.

Source: Kubernetes v1.36, plugins NodeUnschedulable, TaintToleration and NodeAffinity.
"""

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.match import labels_match, node_selector_matches, untolerated_taint
from rebalancer.model.objects import PodShape, Taint, Toleration
from rebalancer.model.snapshot import Nodes

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")

LEAVING_TAINTS = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted")
"""Taint keys of nodes that an autoscaler is about to remove. Sources: cluster-autoscaler utils/taints, karpenter v1."""


class StaticFilter:
    """Feasibility by node attributes, one mask for each distinct combination of a pod's placement rules."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._tainted: dict[tuple[Taint, ...], list[int]] = {}
        for index, taints in enumerate(nodes.taints):
            held = (*taints, UNSCHEDULABLE) if nodes.unschedulable[index] else tuple(taints)
            self._tainted.setdefault(held, []).append(index)
        self._masks: dict[tuple[object, ...], Bools] = {}
        self._soft: dict[tuple[Toleration, ...], Floats] = {}
        self.leaving: Bools = np.fromiter(
            (any(taint.key in LEAVING_TAINTS for taint in taints) for taints in nodes.taints), bool, len(nodes)
        )

    def feasible(self, shape: PodShape) -> Bools:
        """(nodes,) whether taints, node selector and required node affinity let the pod in.

        A node that is not Ready lets nothing in.
        """
        key = placement_key(shape)
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = self._compute(shape)
        return mask

    def _compute(self, shape: PodShape) -> Bools:
        mask = self._nodes.ready.copy()
        for taints, members in self._tainted.items():
            if untolerated_taint(shape.tolerations, taints) is not None:
                mask[members] = False
        required = shape.affinity.node_affinity.required if shape.affinity and shape.affinity.node_affinity else None
        if shape.node_selector or required is not None:
            for index in np.flatnonzero(mask):
                labels, name = self._nodes.labels[index], self._nodes.names[index]
                mask[index] = labels_match(shape.node_selector, labels) and (
                    required is None or node_selector_matches(required, labels, name)
                )
        return mask

    def soft_taints(self, shape: PodShape) -> Floats:
        """(nodes,) number of PreferNoSchedule taints that the pod doesn't tolerate."""
        counts = self._soft.get(shape.tolerations)
        if counts is None:
            counts = self._soft[shape.tolerations] = np.zeros(len(self._nodes))
            for taints, members in self._tainted.items():
                counts[members] = sum(
                    untolerated_taint(shape.tolerations, (taint,), ("PreferNoSchedule",)) is not None
                    for taint in taints
                )
        return counts


def placement_key(shape: PodShape) -> tuple[object, ...]:
    """The same for pods that the filters here can't tell apart."""
    affinity = shape.affinity.node_affinity if shape.affinity is not None else None
    # structs that hold dicts can't be hashed; their text can
    required = None if affinity is None else repr(affinity.required)
    return tuple(sorted(shape.node_selector.items())), required, shape.tolerations
