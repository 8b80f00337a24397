"""Nodes that are about to go, by their taints, conditions and cordons.

Sources of the built-in keys: cluster-autoscaler utils/taints, karpenter v1 (v1beta1: `karpenter.sh/disruption`),
aws-node-termination-handler pkg/node, GKE's graceful node termination, AKS node auto-drain and its scheduled events,
KEP-2268 (out-of-service), KEP-2000 (graceful shutdown), cloud-provider's node lifecycle controller, KEP-4212 (the
proposed conditions of maintenance and drain).
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import nan

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.steering import UNSCHEDULABLE, ours_cordoned
from rebalancer.policy.schema.safety import LeavingNodes

CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
"""Taint key of nodes that cluster-autoscaler may remove. One may stay a candidate for ever: in a node group at its
minimum size, or while scale-ups delay removals. Its pods count as staying; it is no target node."""

AUTOSCALERS = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption")
"""Taint keys of nodes that an autoscaler is removing."""

TAINTS = (
    *AUTOSCALERS,
    "aws-node-termination-handler/*",
    "cloud.google.com/impending-node-termination",
    "remediator.aks.microsoft.com/unschedulable",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
)
"""Patterns of the taint keys of nodes that are being removed or shut down."""

CONDITIONS = ("NodeMaintenance", "DrainInProgress", "GracefulNodeShutdown", "VMEventScheduled")
"""Conditions, when True, of nodes that are being drained or shut down."""

UNREADY_SECONDS = 600.0
"""How long the pods of a node that is not Ready count as about to move. The control plane evicts them after 5 minutes
by default; what is still there later tolerates it."""


def removed_nodes(nodes: Nodes, rules: LeavingNodes) -> dict[int, str]:
    """Index of each node that something removes, drains or shuts down -> the taint or the condition that says so."""
    taints, conditions = (*TAINTS, *rules.taints), (*CONDITIONS, *rules.conditions)
    out = {}
    for node, (of_node, types) in enumerate(zip(nodes.taints, nodes.conditions, strict=True)):
        # most nodes have neither
        if of_node and (key := next((each.key for each in of_node if _matches(each.key, taints)), "")):
            out[node] = f"taint {key}"
        elif types and (found := [each for each in types if each in conditions]):
            out[node] = f"condition {found[0]}"
    return out


def failing_nodes(nodes: Nodes, rules: LeavingNodes, *, now: float) -> dict[int, str]:
    """Index of each node that was cordoned by others or lost a short time ago -> which of both: it may be used again,
    and its pods may go any minute."""
    lost = ~nodes.ready & (nodes.unready_since > now - UNREADY_SECONDS)
    cordoned = nodes.unschedulable & ~ours_cordoned(nodes)
    out = dict.fromkeys(np.flatnonzero(lost).tolist(), "not Ready")
    for node in np.flatnonzero(cordoned).tolist():
        if _is_new(nodes.taints[node], rules.cordon, now):
            out.setdefault(node, "cordoned")
    return out


def removal_candidates(nodes: Nodes) -> list[int]:
    """Indices of the nodes that cluster-autoscaler may remove."""
    return [
        node for node, taints in enumerate(nodes.taints) if taints and any(taint.key == CANDIDATE for taint in taints)
    ]


def is_of_leaving(key: str) -> bool:
    """Whether the key is that of a built-in taint of nodes that are or may be removed."""
    return key == CANDIDATE or _matches(key, TAINTS)


@lru_cache(maxsize=4096)
def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _is_new(taints: Sequence[Taint], seconds: float, now: float) -> bool:
    """Whether a cordon is younger than this; one of unknown age is."""
    since = next((taint.added for taint in taints if taint.key == UNSCHEDULABLE.key), nan)
    return seconds > 0 and not since < now - seconds
