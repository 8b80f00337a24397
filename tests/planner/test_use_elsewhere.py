"""Landings are checked with what a pod will use there, not with what it shows here (issue 16, 8 and 9)."""

from collections.abc import Sequence
from typing import Any

from rebalancer.policy import RebalancerPolicy
from tests.builders import (
    CORDONED_LONG_AGO,
    ANode,
    APod,
    Outcome,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    planner_for,
    replicas,
    usage_of,
    view_of,
)


def planned(nodes: Sequence[ANode], pods: Sequence[APod], policy: RebalancerPolicy | None = None) -> Outcome:
    """The plan as a cycle makes it: with the loads that every landing is checked against."""
    policy, snapshot = policy or a_policy(), cluster(nodes, pods)
    usage = usage_of(snapshot, nodes, pods)
    base = view_of(snapshot, usage, policy).base
    return carry_out(planner_for(snapshot, usage, policy, base=base), snapshot)


# ---- 8: saturated nodes


def saturated(siblings: float, **fields: Any) -> Outcome:
    """A node of 4 cores at its capacity, with three pods of `web` that show 1,300m each, and a node of 4 cores for
    them. Their sibling on a third node, which takes nothing more, uses `siblings`."""
    nodes = [
        a_node("full", cpu=4_000, used=4_000.0),
        a_node("empty", cpu=4_000, used=0.0),
        a_node("other", cpu=4_000, used=2_900.0, **CORDONED_LONG_AGO),
    ]
    pods = [
        *(a_pod(f"web-{number}", "full", owner="web", used=1_300.0, **fields) for number in range(3)),
        a_pod("web-3", "other", owner="web", used=siblings, **fields),
    ]
    return planned(nodes, pods)


def test_a_pod_of_a_saturated_node_lands_with_what_its_siblings_use_elsewhere() -> None:
    # 2,600m is the target of the empty node: two would use 4,000m there, not the 2,600m that they show
    assert saturated(2_000.0).moves == [("web-0", "full", "empty")]


def test_siblings_that_use_no_more_change_nothing() -> None:
    assert len(saturated(1_300.0).moves) == 2


def test_without_siblings_on_rested_nodes_it_lands_with_its_request() -> None:
    nodes = [a_node("full", cpu=4_000, used=4_000.0), a_node("empty", cpu=4_000, used=0.0)]
    pods = replicas("web", {"full": 3}, used=1_300.0, cpu=1_400.0)
    assert len(planned(nodes, pods).moves) == 1


# ---- 9: machines of different speed, terminating pods


OTHER = a_node("other", used=2_500.0, **CORDONED_LONG_AGO, labels={"pool": "general", "type": "new"})
"""Where a sibling is."""


def one_to_move(on: str) -> list[APod]:
    """A pod of `web` on that node, which has little room by requests, and its sibling."""
    asks = a_pod("asks", on, cpu=12_000.0)
    return [*replicas("web", {on: 1, "other": 1}, used=2_500.0), asks]


def test_the_same_work_is_more_cpu_on_a_slower_machine() -> None:
    fast = a_node("fast", used=12_800.0, labels={"pool": "general", "type": "new"})
    slow = a_node("slow", used=6_000.0, labels={"pool": "general", "type": "old"})
    generation = {"label": "type", "factors": {"new": 2.0, "old": 1.0}}
    outcome = planned([fast, slow, OTHER], one_to_move("fast"), a_policy(forecast={"generation": generation}))
    # 2,500m of the fast machine are 5,000m of the slow one: 69%, over the target of 65%
    assert (outcome.moves, outcome.refusals["web-0"]) == ([], "NoNodeWithHeadroom")
    assert planned([fast, slow, OTHER], one_to_move("fast")).moves == [("web-0", "fast", "slow")]


def test_the_cpu_of_a_terminating_pod_is_no_free_room() -> None:
    nodes = [a_node("hot", used=12_800.0), a_node("target", used=9_000.0), OTHER]
    leaving = a_pod("leaving", "target", owner="other", used=4_000.0, terminating=True)
    assert planned(nodes, [*one_to_move("hot"), leaving]).refusals["web-0"] == "NoNodeWithHeadroom"
    nodes[1].used = 5_000.0
    assert planned(nodes, one_to_move("hot")).moves == [("web-0", "hot", "target")]


# ---- 9: requests of the replacement


def resized(kind: str, newest: float) -> Outcome:
    """A pod of a service on a hot node that requests 500m. `newest` is what its newest sibling requests. The other
    node has 1,000m free."""
    nodes = [a_node("hot", used=14_000.0), a_node("target", used=4_000.0), OTHER]
    pods = [
        a_pod("web-0", "hot", owner="web", owner_kind=kind, used=4_000.0, cpu=500.0),
        a_pod("web-1", "other", owner="web", owner_kind=kind, used=1_000.0, cpu=newest, age=600.0),
        a_pod("asks", "hot", cpu=15_500.0),
        a_pod("fills", "target", cpu=15_000.0),
    ]
    return planned(nodes, pods)


def test_a_replacement_requests_what_the_newest_sibling_does() -> None:
    assert resized("ReplicaSet", 500.0).moves == [("web-0", "hot", "target")]
    assert resized("ReplicaSet", 1_000.0).moves == [("web-0", "hot", "target")]
    assert resized("ReplicaSet", 1_001.0).refusals["web-0"] == "NoTargetNode"


def test_a_pod_of_a_stateful_set_that_was_resized_is_not_promised_a_landing() -> None:
    assert resized("StatefulSet", 500.0).moves == [("web-0", "hot", "target")]
    assert resized("StatefulSet", 600.0).refusals["web-0"] == "PlacementNotModelled"
