"""Small plans for tests of the planner.

By default a node has 16,000 millicores: hot over 12,000, cooled to 10,400, a landing of choice under 8,000.
"""

from dataclasses import dataclass, field
from typing import Any

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.reason import Reason, Refusal
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


@dataclass(frozen=True)
class Carried:
    """A plan carried to its end, with its waits."""

    moves: list[Eviction] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    """Pods."""
    taints: dict[str, str] = field(default_factory=dict)
    """Node -> value of the soft taints that the moves need."""

    @property
    def pods(self) -> list[str]:
        return [move.pod for move in self.moves]


def carried(planner: Planner, *, reject_at: int | None = None, code: Reason = Reason.SERVER_BUDGET) -> Carried:
    """`reject_at`: after so many moves the next is refused by the API server, with that code."""
    out, in_flight = Carried(), list[Eviction]()
    while (move := planner.next_move()) is not None or planner.waits:
        if move is None:
            planner.resume(in_flight)
            in_flight = []
            continue
        out.taints.update(planner.taints_of(move))
        assert planner.admission.reserve(move) is None
        if len(out.moves) == reject_at and not out.rejected:
            planner.admission.cancel_reservation(move)
            planner.reject(move, Refusal.of(code))
            out.rejected.append(move.pod)
        else:
            planner.accept(move)
            out.moves.append(move)
            in_flight.append(move)
    return out


def codes_of(planner: Planner) -> dict[str, Reason]:
    """Pod -> why it stays."""
    return {each.name: each.code for each in planner.outcome.refusals()}


def plan_for(nodes: list[ANode], pods: list[APod], **fields: Any) -> Outcome:
    return plan_all(nodes, pods, a_policy(**ANY_REPLICAS), **fields)


def planned(nodes: list[ANode], pods: list[APod], **limits: int) -> tuple[Planner, Any]:
    policy = a_policy(**ANY_REPLICAS)
    snapshot = cluster(nodes, pods)
    limited = policy.model_copy(update={"limits": Limits.model_validate(some_limits(**limits))})
    return planner_for(snapshot, usage_of(snapshot, nodes, pods), limited), snapshot
