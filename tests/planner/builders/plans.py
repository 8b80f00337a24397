"""Small plans for tests of the planner.

By default a node has 16,000 millicores: hot over 12,000, cooled to 10,400, a landing of choice under 8,000.
"""

from typing import Any

from rebalancer.planner import Planner
from rebalancer.policy.schema.limits import Limits
from tests.builders import (
    ANode,
    APod,
    Outcome,
    a_node,
    a_pod,
    a_policy,
    cluster,
    plan_all,
    planner_for,
    some_limits,
    usage_of,
)

ANY_REPLICAS = {"guards": {"minReplicas": 1}}

TWO_POOLS = [
    {
        "name": name,
        "selector": {"matchLabels": {"pool": name}},
        "thresholds": {"high": 75, "target": target, "low": 50},
    }
    for name, target in (("general", 65), ("other", 55))
]


def heavy(node: str, cpu: float = 8_000) -> APod:
    """A DaemonSet's pod whose requests make a node unattractive to the scheduler."""
    return a_pod(f"agent-{node}", node, owner="agent", owner_kind="DaemonSet", cpu=cpu)


def single(name: str, node: str = "hot", **fields: Any) -> APod:
    """A pod that is its service's only one; use it with ANY_REPLICAS."""
    return a_pod(name, node, owner=f"own-{name}", **fields)


def hot(used: float = 13_400.0, **fields: Any) -> ANode:
    """3,000 millicores over its target."""
    return a_node("hot", used=used, **fields)


def cold(name: str = "cold", used: float = 2_000.0, **fields: Any) -> ANode:
    return a_node(name, used=used, **fields)


def plan_for(nodes: list[ANode], pods: list[APod], **fields: Any) -> Outcome:
    return plan_all(nodes, pods, a_policy(**ANY_REPLICAS), **fields)


def planned(nodes: list[ANode], pods: list[APod], **limits: int) -> tuple[Planner, Any]:
    policy = a_policy(**ANY_REPLICAS)
    snapshot = cluster(nodes, pods)
    limited = policy.model_copy(update={"limits": Limits.model_validate(some_limits(**limits))})
    return planner_for(snapshot, usage_of(snapshot, nodes, pods), limited), snapshot
