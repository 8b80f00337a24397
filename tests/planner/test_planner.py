"""The planner, one rule at a time: which pod, how far, what is refused on the way, what a move says."""

import itertools
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.reason import Reason, Refusal
from tests.builders import (
    NOW,
    ANode,
    APod,
    a_budget,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    plan_all,
    planner_for,
    replicas,
    usage_of,
)
from tests.planner.builders.plans import ANY_REPLICAS, cold, heavy, hot, plan_for, planned, single

# ---- which pod


def test_the_pod_that_covers_the_excess_goes_before_smaller_ones() -> None:
    pods = [heavy("hot"), single("small", used=1_000.0), single("covers", used=3_000.0), single("half", used=1_500.0)]
    assert plan_for([hot(), cold()], pods).pods == ["covers"]


def test_of_two_pods_that_cover_the_excess_the_one_that_overshoots_less_goes() -> None:
    pods = [heavy("hot"), single("a-huge", used=6_000.0), single("b-fitting", used=3_200.0)]
    assert plan_for([hot(), cold()], pods).pods == ["b-fitting"]


def test_when_none_covers_the_excess_the_largest_goes_first() -> None:
    pods = [heavy("hot"), *(single(f"p{used}", used=float(used)) for used in (500, 2_000, 1_200))]
    assert plan_for([hot(), cold()], pods).pods == ["p2000", "p1200"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"priority": 5}, {"priority": 10}),
        ({"template": {"qos": "BestEffort"}}, {"template": {"qos": "Burstable"}}),
        ({"template": {"qos": "Burstable"}}, {"template": {"qos": "Guaranteed"}}),
        ({"age": 3_600.0}, {"age": 86_400.0}),
        ({"priority": 0, "template": {"qos": "Guaranteed"}}, {"priority": 1, "template": {"qos": "BestEffort"}}),
        ({"template": {"qos": "BestEffort"}, "age": 86_400.0}, {"template": {"qos": "Burstable"}, "age": 3_600.0}),
    ],
    ids=["priority", "QoS", "QoS above", "age", "priority before QoS", "QoS before age"],
)
def test_of_pods_that_relieve_alike_the_cheaper_goes(first: dict[str, Any], second: dict[str, Any]) -> None:
    pods = [heavy("hot"), single("a", used=3_100.0, **second), single("z", used=3_100.0, **first)]
    assert plan_for([hot(), cold()], pods).pods == ["z"]


def test_a_few_millicores_never_outweigh_priority() -> None:
    pods = [heavy("hot"), single("exact", used=3_000.0, priority=100), single("cheap", used=3_040.0)]
    assert plan_for([hot(), cold()], pods).pods == ["cheap"]


def test_a_large_difference_in_relief_outweighs_priority() -> None:
    pods = [heavy("hot"), single("dear", used=3_000.0, priority=100), single("cheap", used=1_000.0)]
    assert plan_for([hot(), cold()], pods).pods == ["dear"]


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "b", "c"])))
def test_ties_go_by_name_whatever_the_listing(order: tuple[str, ...]) -> None:
    pods = [heavy("hot"), *(single(name, used=1_500.0) for name in order)]
    assert plan_for([hot(), cold()], pods).pods == ["a", "b"]


def test_idle_pods_are_never_moved_for_nothing() -> None:
    pods = [heavy("hot"), single("idle", used=50.0), single("zero", used=0.0), single("busy", used=100.0)]
    outcome = plan_all([hot(), cold()], pods, a_policy(**ANY_REPLICAS, planner={"worth": "Aggressive"}))
    assert outcome.refusals == {"agent-hot": "DaemonSetPod", "idle": "NoRelief", "zero": "NoRelief"}
    assert outcome.pods == ["busy"]


def test_a_pod_whose_cpu_is_not_known_stays() -> None:
    outcome = plan_for([hot(), cold()], [heavy("hot"), single("unknown")])
    assert outcome.refusals["unknown"] == "NoPodUsage"
    assert outcome.moves == []


# ---- how far


def test_it_stops_at_the_target_and_says_so_of_the_rest() -> None:
    pods = [heavy("hot"), *replicas("web", {"hot": 6}, used=1_000.0)]
    outcome = plan_for([hot(), cold()], pods)
    assert len(outcome.moves) == 3
    assert [code for pod, code in outcome.refusals.items() if pod.startswith("web")] == ["GoalReached"] * 3
    assert outcome.planner.outcome.planned_load()[0, 0] == pytest.approx(10_400.0)


def test_one_millicore_over_the_target_takes_one_more_pod() -> None:
    pods = [heavy("hot", 12_000), *replicas("web", {"hot": 6}, used=1_000.0)]
    assert len(plan_for([hot(13_401.0), cold()], pods).moves) == 4


def test_a_node_between_target_and_high_is_left_alone() -> None:
    outcome = plan_for([hot(12_000.0), cold()], [heavy("hot"), *replicas("web", {"hot": 6}, used=1_000.0)])
    assert outcome.moves == []
    assert outcome.refusals == {}


def test_the_hottest_node_is_relieved_first_by_its_share_not_by_millicores() -> None:
    nodes = [a_node("big", cpu=32_000, used=25_000.0), a_node("small", cpu=4_000, used=3_700.0), cold()]
    pods = [
        heavy("big", 20_000),
        heavy("small", 3_500),
        single("b", "big", used=4_300.0),
        single("s", "small", used=1_200.0),
    ]
    assert plan_for(nodes, pods).pods == ["s", "b"]


def test_of_equally_hot_nodes_the_first_by_name_is_relieved_first() -> None:
    nodes = [a_node("z", used=13_400.0), a_node("a", used=13_400.0), cold()]
    pods = [heavy("z"), heavy("a"), single("pz", "z", used=3_000.0), single("pa", "a", used=3_000.0)]
    assert plan_for(nodes, pods).pods == ["pa", "pz"]


def test_an_idle_cluster_gives_an_empty_plan() -> None:
    assert plan_for([cold("a"), cold("b")], replicas("web", {"a": 3}, used=500.0)).moves == []


# ---- refused on the way


def test_after_a_refusal_it_goes_on_with_the_next_best() -> None:
    pods = [heavy("hot"), *(single(name, used=3_000.0) for name in "abc")]
    planner, snapshot = planned([hot(), cold()], pods)
    first = planner.next_move()
    assert first is not None
    assert first.pod == "a"
    planner.reject(first, Refusal.of(Reason.SERVER_BUDGET, "pdb"))
    outcome = carry_out(planner, snapshot)
    assert outcome.pods == ["b"]
    assert outcome.refusals == {"agent-hot": "DaemonSetPod", "a": "ServerBudget", "c": "GoalReached"}


def test_a_move_that_is_not_accepted_counts_for_nothing() -> None:
    planner, _ = planned([hot(), cold()], [heavy("hot"), single("a", used=3_000.0)])
    first, again = planner.next_move(), planner.next_move()
    assert first == again
    assert planner.outcome.planned_load()[0, 0] == 13_400.0


def test_a_rejected_move_leaves_its_room_to_others() -> None:
    # the cold node takes just one of the two
    planner, snapshot = planned([hot(), cold(used=7_400.0)], [heavy("hot"), *(single(n, used=3_000.0) for n in "ab")])
    first = planner.next_move()
    assert first is not None
    planner.reject(first, Refusal.of(Reason.SERVER_ERROR))
    assert carry_out(planner, snapshot).moves == [("b", "hot", "cold")]


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"cycle": 1}, "LimitCycle"), ({"node": 1}, "LimitNode"), ({"service": 1}, "LimitService")],
)
def test_a_limit_that_is_reached_is_the_reason(limits: dict[str, int], code: str) -> None:
    planner, snapshot = planned([hot(), cold()], [heavy("hot"), *replicas("web", {"hot": 3}, used=1_000.0)], **limits)
    outcome = carry_out(planner, snapshot)
    assert len(outcome.moves) == 1
    assert {outcome.refusals["web-1"], outcome.refusals["web-2"]} == {code}


def test_a_service_at_its_limit_lets_another_service_go() -> None:
    pods = [heavy("hot"), *replicas("web", {"hot": 2}, used=1_500.0), *replicas("api", {"hot": 2}, used=1_400.0)]
    planner, snapshot = planned([hot(), cold()], pods, service=1)
    outcome = carry_out(planner, snapshot)
    assert {name[:3] for name in outcome.pods} == {"web", "api"}
    assert len(outcome.moves) == 2


def test_a_limit_of_zero_moves_nothing() -> None:
    planner, snapshot = planned([hot(), cold()], [heavy("hot"), *replicas("web", {"hot": 3}, used=1_000.0)], cycle=0)
    assert carry_out(planner, snapshot).moves == []


@pytest.mark.parametrize(("allowed", "moves"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_what_the_plan_itself_takes_counts_against_a_budget(allowed: int, moves: int) -> None:
    pods = [heavy("hot", 12_000), *replicas("web", {"hot": 6}, used=1_000.0)]
    outcome = plan_for([hot(), cold()], pods, budgets=[a_budget("pdb", "web", allowed)])
    assert len(outcome.moves) == moves
    if moves < 3:
        assert set(outcome.refusals.values()) == {"DaemonSetPod", "BudgetExhausted"}


def test_a_refused_move_gives_its_budget_back() -> None:
    nodes, pods = [hot(), cold()], [heavy("hot"), *replicas("web", {"hot": 2}, used=3_000.0)]
    snapshot = cluster(nodes, pods, budgets=[a_budget("pdb", "web", 1)])
    planner = planner_for(snapshot, usage_of(snapshot, nodes, pods), a_policy(**ANY_REPLICAS))
    first = planner.next_move()
    assert first is not None
    planner.reject(first, Refusal.of(Reason.SERVER_GONE))
    assert len(carry_out(planner, snapshot).moves) == 1


def test_a_plan_that_is_broken_off_has_a_reason_for_every_candidate() -> None:
    planner, _ = planned([hot(), cold()], [heavy("hot"), *(single(name, used=1_000.0) for name in "abc")])
    first = planner.next_move()
    assert first is not None
    throttled = Refusal.of(Reason.SERVER_THROTTLED)
    planner.reject(first, throttled)
    planner.stop(throttled)
    assert planner.next_move() is None
    assert {each.name for each in planner.outcome.refusals()} == {"agent-hot", "a", "b", "c"}


# ---- what a move says


def first_move(nodes: list[ANode], pods: list[APod]) -> Eviction:
    move = planned(nodes, pods)[0].next_move()
    assert move is not None
    return move


def test_a_move_names_what_where_and_why() -> None:
    move = first_move([hot(), cold()], [heavy("hot"), a_pod("web-1", "hot", owner="web", used=3_200.0)])
    assert (move.namespace, move.pod, move.uid, move.node, move.pool) == (
        "shop",
        "web-1",
        "uid-shop-web-1",
        "hot",
        "general",
    )
    assert str(move.service) == "shop/web"
    assert move.strategy == "LowNodeUtilization"
    assert move.cpu_millicores == 3_200.0
    assert (
        move.reason == "real CPU 83.8% is over high 75%, to be cooled to 65%; relieves the node of 20% cpu; price 2.05"
    )


def test_the_service_is_the_top_owner() -> None:
    nodes, pods = [hot(), cold()], [heavy("hot"), *replicas("web-5d9", {"hot": 2}, used=3_000.0)]
    deployment = Owner(kind="Deployment", namespace="shop", name="web", uid="d", desired=2)
    replica_set = Owner(kind="ReplicaSet", namespace="shop", name="web-5d9", uid="r", parent=0)
    snapshot = cluster(nodes, pods, owners=[deployment, replica_set])
    move = planner_for(snapshot, usage_of(snapshot, nodes, pods), a_policy()).next_move()
    assert move is not None
    assert (move.service.kind, str(move.service)) == ("Deployment", "shop/web")


def test_refusals_are_listed_by_node_and_name_with_their_sentences() -> None:
    nodes = [a_node("n2", used=13_000.0), a_node("n1", used=13_000.0), cold(used=9_000.0)]
    pods = [single("b", "n2", used=2_000.0), single("a", "n2", used=2_000.0), single("c", "n1", used=2_000.0)]
    refusals = plan_for(nodes, pods).planner.outcome.refusals()
    assert [(each.node, each.name) for each in refusals] == [("n1", "c"), ("n2", "a"), ("n2", "b")]
    assert all(each.code is Reason.POOL_FULL and each.message == Reason.POOL_FULL.sentence for each in refusals)


# ---- the same plan in any order


def test_the_mean_of_a_pool_does_not_depend_on_the_order_of_its_nodes() -> None:
    nodes = [
        a_node("hot", cpu=4_000, used=2_800.0),
        a_node("n0", cpu=4_000, used=1_120.0),
        a_node("n1", cpu=4_000, used=1_480.0),
    ]
    pods = [
        heavy("hot", 2_000),
        *replicas("web", {"hot": 1, "n0": 1}, used=600.0, cpu=100),
        *replicas("api", {"hot": 1, "n1": 1}, used=650.0, cpu=100, age=100_000.0),
    ]
    policy = a_policy(
        pools=[
            {
                "name": "general",
                "selector": {},
                "thresholds": {"high": 20, "target": 10, "low": 5, "relativeToMean": True, "floor": 10},
            }
        ]
    )
    plans = {tuple(plan_all(list(order), pods, policy).pods) for order in itertools.permutations(nodes)}
    assert len(plans) == 1


def test_no_clock_is_read_the_time_is_an_argument() -> None:
    nodes, pods = [hot(), cold()], [heavy("hot"), single("a", used=3_000.0, age=60.0)]
    snapshot = cluster(nodes, pods)
    assert snapshot.taken == NOW
    assert np.isclose(snapshot.pods.started[1], NOW - 60.0)
    assert plan_for(nodes, pods).refusals["a"] == "TooYoung"
