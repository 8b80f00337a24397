"""The planner, one rule at a time: which landings are taken."""

from typing import Any

import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.owners import Owner
from tests.builders import GIB, a_node, a_pod, a_policy, plan_all, replicas
from tests.planner.builders.plans import ANY_REPLICAS, TWO_POOLS, carried, cold, heavy, hot, plan_for, planned, single


def test_a_pool_without_a_low_node_is_full() -> None:
    outcome = plan_for([hot(), cold(used=8_000.0)], [heavy("hot"), single("a", used=1_000.0)])
    assert outcome.refusals["a"] == "PoolFull"
    assert plan_for([hot(), cold(used=7_999.0)], [heavy("hot"), single("a", used=1_500.0)]).pods == ["a"]


def test_a_landing_may_be_in_another_pool_and_keeps_that_pools_target() -> None:
    # 55% of 16,000 are 8,800
    for used, moves in ((5_800.0, [("a", "hot", "far")]), (5_801.0, [])):
        nodes = [hot(), cold("far", used=used, labels={"pool": "other"})]
        outcome = plan_all(nodes, [heavy("hot"), single("a", used=3_000.0)], a_policy(pools=TWO_POOLS, **ANY_REPLICAS))
        assert outcome.moves == moves


def test_a_node_in_no_pool_is_no_landing() -> None:
    nodes = [hot(), cold("out", labels={}), cold("near", used=7_000.0)]
    pods = [heavy("hot"), heavy("near", 4_000), single("a", used=3_000.0)]
    assert plan_for(nodes, pods).refusals["a"] == "TargetNodeWithoutHeadroom"


def test_no_node_that_takes_the_pod_is_no_landing() -> None:
    picky = {"nodeSelector": {"disk": "ssd"}}
    outcome = plan_for(
        [hot(labels={"pool": "general", "disk": "ssd"}), cold()],
        [heavy("hot"), single("a", used=3_000.0, template=picky)],
    )
    assert outcome.refusals["a"] == "NoTargetNode"


def test_no_room_by_requests_is_no_landing() -> None:
    outcome = plan_for([hot(), cold(memory=4 * GIB)], [heavy("hot"), single("a", used=3_000.0, memory=5 * GIB)])
    assert outcome.refusals["a"] == "NoTargetNode"


def test_nodes_that_fit_by_requests_only_have_no_room_in_targets() -> None:
    outcome = plan_for([hot(), cold(used=7_500.0)], [heavy("hot"), single("a", used=3_000.0)])
    assert outcome.refusals["a"] == "NoNodeWithHeadroom"


def test_a_node_may_be_filled_to_exactly_its_target() -> None:
    assert plan_for([hot(), cold(used=7_400.0)], [heavy("hot"), single("a", used=3_000.0)]).pods == ["a"]


def test_a_landing_that_the_scheduler_prefers_but_is_too_warm_stops_the_move() -> None:
    # by requests the warm node is empty, and the cold one is nearly full
    nodes = [hot(), a_node("warm", used=10_000.0), cold()]
    pods = [heavy("hot"), heavy("cold"), single("a", used=3_000.0)]
    outcome = plan_for(nodes, pods)
    assert outcome.refusals["a"] == "TargetNodeWithoutHeadroom"
    messages = {each.name: each.message for each in outcome.planner.outcome.refusals()}
    assert messages["a"].endswith(": warm, with a probability of 100%")


def test_one_tie_that_is_too_warm_stops_the_move() -> None:
    nodes = [hot(), cold("a-cold"), a_node("b-warm", used=8_000.0)]
    outcome = plan_for(nodes, [heavy("hot"), single("a", used=3_000.0)])
    assert outcome.refusals["a"] == "TargetNodeWithoutHeadroom"
    assert "50%" in outcome.planner.outcome.refusals()[0].message


def test_ties_are_all_landings_with_equal_shares_in_order_of_name() -> None:
    nodes = [hot(), cold("c"), cold("a"), cold("b")]
    planner, _ = planned(nodes, [heavy("hot"), single("a", used=3_000.0)])
    move = planner.next_move()
    assert move is not None
    assert [each.node for each in move.target_nodes] == ["a", "b", "c"]
    assert [each.probability for each in move.target_nodes] == pytest.approx([1 / 3] * 3)


def test_a_pod_that_would_come_back_stays() -> None:
    # nothing tells the nodes apart by requests but the pod itself, and it prefers the empty node: the hot one
    pods = [heavy("cold"), single("a", used=3_000.0)]
    assert plan_for([hot(), cold()], pods).refusals["a"] == "WouldReturnToNode"


def test_the_old_pod_of_a_replica_set_still_fills_its_node_and_that_of_a_stateful_set_does_not() -> None:
    # a memory that fits once on each node
    fields: dict[str, Any] = {"used": 3_000.0, "memory": 40 * GIB, "cpu": 1_000}
    nodes, other = [hot(), cold()], a_pod("other", "cold", owner="other", cpu=6_000)
    replica = [a_pod("a", "hot", owner="web", **fields), other]
    assert plan_for(nodes, replica).moves == [("a", "hot", "cold")]
    stateful = [a_pod("a", "hot", owner="web", owner_kind="StatefulSet", **fields), other]
    assert plan_for(nodes, stateful).refusals["a"] == "WouldReturnToNode"


def test_a_job_pod_with_a_pod_failure_policy_is_replaced_only_after_it_is_gone() -> None:
    job = Owner(kind="Job", namespace="shop", name="calc", uid="j", spares_disruptions=True)
    pods = [
        a_pod("a", "hot", owner="calc", owner_kind="Job", used=3_000.0, memory=40 * GIB, cpu=1_000),
        a_pod("other", "cold", owner="other", cpu=6_000),
    ]
    policy = a_policy(guards={"minReplicas": 1, "jobPods": True})
    assert plan_all([hot(), cold()], pods, policy, owners=[job]).refusals["a"] == "WouldReturnToNode"


def test_one_eviction_with_a_warmer_landing_is_better_than_two_to_a_node_under_low() -> None:
    # "best" covers the excess and may go to the warm node only; the others go to the cold one
    nodes = [hot(12_400.0), a_node("warm", used=8_000.0, labels={"pool": "general", "disk": "ssd"}), cold(used=1_000.0)]
    pods = [
        heavy("hot"),
        single("best", used=2_000.0, template={"nodeSelector": {"disk": "ssd"}}),
        single("second", used=1_500.0),
        single("third", used=1_500.0),
    ]
    pods.append(heavy("warm", 1_000))
    outcome = plan_for(nodes, pods)
    assert outcome.moves == [("best", "hot", "warm")]
    assert set(outcome.refusals.values()) == {"DaemonSetPod", "GoalReached"}


def test_a_warmer_landing_is_taken_where_there_is_no_other() -> None:
    nodes = [hot(), a_node("warm", used=8_000.0, labels={"pool": "general", "disk": "ssd"}), cold()]
    pods = [heavy("hot"), single("only", used=2_000.0, template={"nodeSelector": {"disk": "ssd"}})]
    assert plan_for(nodes, pods).moves == [("only", "hot", "warm")]


def test_every_move_is_reserved_for_the_next() -> None:
    # each cold node takes two of 1,500 under its target of 10,400
    nodes = [hot(15_800.0)]
    pods = [heavy("hot", 12_000)]
    for disk in ("hdd", "ssd"):
        nodes.append(cold(disk, used=7_000.0, labels={"pool": "general", "disk": disk}))
        pods += [single(f"{disk}{n}", used=1_500.0, template={"nodeSelector": {"disk": disk}}) for n in range(3)]
    outcome = plan_for(nodes, pods)
    assert sorted(to for _, _, to in outcome.moves) == ["hdd", "hdd", "ssd", "ssd"]
    assert [outcome.refusals[name] for name in ("hdd2", "ssd2")] == ["NoNodeWithHeadroom", "GoalReached"]


def test_pods_of_one_service_take_turns_on_equal_nodes() -> None:
    # each of two cold nodes takes two of 1,500 under its target; whichever the first takes, the next takes the other
    nodes = [hot(15_800.0), cold("a", used=7_000.0), cold("b", used=7_000.0)]
    planner, _ = planned(nodes, [heavy("hot", 12_000), *replicas("web", {"hot": 6}, used=1_500.0, cpu=600)])
    landings = [[(each.node, each.probability) for each in move.target_nodes] for move in carried(planner).moves]
    assert landings == [[("a", 0.5), ("b", 0.5)]] * 4


def test_requests_of_earlier_moves_count_too() -> None:
    nodes = [hot(), cold(pods=1)]
    outcome = plan_for(nodes, [heavy("hot"), *replicas("web", {"hot": 3}, used=1_000.0)])
    assert len(outcome.moves) == 1
    assert outcome.refusals["web-1"] == "NoTargetNode"


@pytest.mark.parametrize(
    "fields",
    [
        {"unschedulable": True},
        {"taints": (Taint(key="dedicated", effect="NoSchedule"),)},
        {"taints": (Taint(key="dedicated", effect="NoExecute"),)},
    ],
)
def test_nodes_that_let_nothing_in_are_no_landing(fields: dict[str, Any]) -> None:
    outcome = plan_for(
        [hot(), cold(**fields), cold("full", used=7_999.0, memory=1.0)], [heavy("hot"), single("a", used=3_000.0)]
    )
    assert outcome.refusals["a"] == "NoTargetNode"


@pytest.mark.parametrize("fields", [{"ready": False}, {"age": 200.0}])
def test_a_node_that_the_scheduler_may_take_but_nobody_should_is_no_landing(fields: dict[str, Any]) -> None:
    # the scheduler goes by taints, and this one has none
    policy = a_policy(**ANY_REPLICAS, safety={"cooldowns": {"poolAfterScaleUp": "0s"}})
    nodes, pods = [hot(), cold(**fields), cold("other")], [heavy("hot"), single("a", used=3_000.0)]
    outcome = plan_all(nodes, pods, policy)
    assert outcome.refusals["a"] == "TargetNodeUnavailable"
    assert outcome.moves == []


@pytest.mark.parametrize(
    "key", ["ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted"]
)
def test_a_node_that_an_autoscaler_is_about_to_remove_is_no_landing(key: str) -> None:
    nodes = [hot(), cold(taints=(Taint(key=key, effect="PreferNoSchedule"),))]
    assert plan_for(nodes, [heavy("hot"), single("a", used=3_000.0)]).refusals["a"] == "PoolFull"


def test_a_node_without_usage_is_no_landing() -> None:
    outcome = plan_for([hot(), cold("blind", used=float("nan")), cold("seen", used=7_999.0)], [
        heavy("hot"), heavy("seen", 4_000), single("a", used=2_000.0),
    ])  # fmt: skip
    assert outcome.refusals["a"] == "TargetNodeWithoutHeadroom"


def test_a_hot_node_is_no_landing_for_another_hot_node() -> None:
    nodes = [a_node("h1", used=13_400.0), a_node("h2", used=12_400.0)]
    pods = [heavy("h1"), heavy("h2"), single("a", "h1", used=500.0), single("b", "h2", used=500.0)]
    assert set(plan_for(nodes, pods).refusals.values()) == {"DaemonSetPod", "PoolFull"}


@pytest.mark.parametrize("template", [{"schedulerName": "mine"}, {"volumes": [{"ephemeral": {}}]}])
def test_a_pod_whose_landing_is_not_modelled_stays(template: dict[str, Any]) -> None:
    policy = a_policy(guards={"minReplicas": 1, "persistentVolumes": True})
    outcome = plan_all([hot(), cold()], [heavy("hot"), single("a", used=3_000.0, template=template)], policy)
    assert outcome.refusals["a"] == "PlacementNotModelled"
    assert outcome.moves == []


BESIDE_X = {"labelSelector": {"matchLabels": {"app": "own-x"}}, "topologyKey": "kubernetes.io/hostname"}
EITHER_WAY = [heavy("hot"), single("x", "with-x", cpu=100), heavy("without", 100)]
"""Nothing but x tells the two cold nodes apart."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("template", "lands"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [BESIDE_X]}}}, "with-x"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [BESIDE_X]}}}, "without"),
        ({"topologySpread": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **BESIDE_X}]}, "without"),
    ],
    ids=["affinity", "anti-affinity", "spreading"],
)
def test_a_pods_own_rules_about_other_pods_decide_where_it_lands(template: dict[str, Any], lands: str) -> None:
    labels = {"app": "own-x"} if "topologySpread" in template else {}  # else it doesn't select the pod itself
    pods = [*EITHER_WAY, single("a", used=3_000.0, template=template, labels=labels)]
    assert plan_for([hot(), cold("with-x"), cold("without")], pods).moves == [("a", "hot", lands)]


def test_without_such_rules_it_may_land_on_either() -> None:
    move = planned([hot(), cold("with-x"), cold("without")], [*EITHER_WAY, single("a", used=3_000.0)])[0].next_move()
    assert move is not None
    assert len(move.target_nodes) == 2


# ---- issue 16, A5: `low` is asked of the nodes to which the pod can go, and PoolFull says what is true


def test_a_low_node_of_another_pool_to_which_the_pod_cannot_go_does_not_count() -> None:
    """The warm node is under its target, and would take the pod if a low node were not asked for."""
    nodes = [hot(), cold("warm", used=8_500.0), cold("far", labels={"pool": "other"})]
    policy = a_policy(pools=TWO_POOLS, **ANY_REPLICAS)
    stays_here = {"nodeSelector": {"pool": "general"}}
    bound = plan_all(nodes, [heavy("hot"), single("a", used=1_500.0, template=stays_here)], policy)
    assert (bound.moves, bound.refusals["a"]) == ([], "PoolFull")
    free = plan_all(nodes, [heavy("hot"), heavy("warm"), single("a", used=1_500.0)], policy)
    assert free.moves == [("a", "hot", "far")]


@pytest.mark.parametrize(
    ("closed", "says"),
    [
        ({"age": 60.0}, "cold and 1 more are, but closed (joined 60s ago)"),
        ({"ready": False}, "cold and 1 more are, but closed (not Ready)"),
        ({"unschedulable": True}, "cold and 1 more are, but closed (cordoned)"),
        (
            {"taints": (Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),)},
            "cold and 1 more are, but closed (about to go: taint karpenter.sh/disrupted)",
        ),
        (
            {"taints": (Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),)},
            "cold and 1 more are, but closed (cluster-autoscaler may remove it)",
        ),
    ],
    ids=["young", "not Ready", "cordoned", "leaving", "candidate"],
)
def test_a_full_pool_names_the_low_nodes_that_are_closed(closed: dict[str, Any], says: str) -> None:
    nodes = [hot(), cold("cold", **closed), cold("cool", **closed)]
    refusal, _ = plan_for(nodes, [heavy("hot"), single("a", used=3_000.0)]).planner.outcome.refusals()
    assert (refusal.name, refusal.message) == ("a", f"no target node is under its low: {says}")
