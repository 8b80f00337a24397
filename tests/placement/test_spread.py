"""PodTopologySpread: the examples of Kubernetes' documentation and the numbers of the plugin's own tests (v1.36)."""

from collections.abc import Sequence
from typing import Any

import pytest

from rebalancer.model.cluster.objects import LabelSelector, SpreadConstraint, Taint
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Engine, Verdict
from tests.builders import ANode, APod, a_node, a_pod, cluster, replicas

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
FOO = {"matchLabels": {"foo": ""}}


def constraint(key: str, skew: int = 1, *, soft: bool = False, **fields: Any) -> dict[str, Any]:
    when = "ScheduleAnyway" if soft else "DoNotSchedule"
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": FOO, **fields}


def incoming(*constraints: dict[str, Any], **template: Any) -> APod:
    return a_pod(
        "new", cpu=0, memory=0, phase=PENDING, labels={"foo": ""}, template={"topologySpread": constraints, **template}
    )


def foos(counts: dict[str, int], **fields: Any) -> list[APod]:
    return [
        a_pod(f"{node}-{index}", node, cpu=0, memory=0, labels={"foo": ""}, **fields)
        for node, count in counts.items()
        for index in range(count)
    ]


def judge(nodes: Sequence[ANode], pods: Sequence[APod], profile: SchedulerProfile | None = None) -> Verdict:
    board = Board(cluster(nodes, pods))
    config = SchedulerConfig(profiles={"default-scheduler": profile}) if profile else SchedulerConfig()
    return Engine(board, config).verdict(board.kinds.of(0))


def feasible(nodes: Sequence[ANode], pods: Sequence[APod], profile: SchedulerProfile | None = None) -> set[str]:
    mask = judge(nodes, pods, profile).feasible
    return {node.name for node, ok in zip(nodes, mask, strict=True) if ok}


def spread_scores(nodes: Sequence[ANode], pods: Sequence[APod], profile: SchedulerProfile | None = None) -> list[int]:
    verdict = judge(nodes, pods, profile)
    return [int(each) // 2 for each in verdict.weighted["PodTopologySpread"][verdict.feasible]]


def zoned(**zones: str) -> list[ANode]:
    return [a_node(name, labels={"zone": zone} if zone else {}) for name, zone in zones.items()]


# ---- hard: the documentation's examples


FOUR = zoned(node1="A", node2="A", node3="B", node4="B")


def test_one_constraint_the_documentations_example() -> None:
    # zone A has two, zone B one: only B keeps the skew at 1
    pods = [incoming(constraint("zone")), *foos({"node1": 1, "node2": 1, "node3": 1})]
    assert feasible(FOUR, pods) == {"node3", "node4"}


def test_a_larger_skew_lets_both_zones_in() -> None:
    pods = [incoming(constraint("zone", 2)), *foos({"node1": 1, "node2": 1, "node3": 1})]
    assert feasible(FOUR, pods) == {"node1", "node2", "node3", "node4"}


def test_two_constraints_the_documentations_example() -> None:
    pods = [incoming(constraint("zone"), constraint(HOSTNAME)), *foos({"node1": 1, "node2": 1, "node3": 1})]
    assert feasible(FOUR, pods) == {"node4"}


def test_two_constraints_can_contradict_each_other() -> None:
    # two zones: A with node1 (2 pods) and node2 (1), B with node3 (2): by zone B, by node only node2
    nodes = zoned(node1="A", node2="A", node3="B")
    pods = [incoming(constraint("zone"), constraint(HOSTNAME)), *foos({"node1": 2, "node2": 1, "node3": 2})]
    assert feasible(nodes, pods) == set()


def test_a_node_affinity_leaves_its_zone_out_of_account() -> None:
    # zone C is empty, but the pod may not go there: the minimum is B's
    nodes = [*FOUR, *zoned(node5="C")]
    not_c = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["C"]}]}]
                }
            }
        }
    }
    there = foos({"node1": 1, "node2": 1, "node3": 1})
    assert feasible(nodes, [incoming(constraint("zone"), **not_c), *there]) == {"node3", "node4"}
    ignoring = constraint("zone", nodeAffinityPolicy="Ignore")
    assert feasible(nodes, [incoming(ignoring, **not_c), *there]) == set()


def test_a_tainted_nodes_zone_counts_unless_taints_are_honoured() -> None:
    nodes = [*FOUR, a_node("node5", labels={"zone": "C"}, taints=(Taint(key="k", effect="NoSchedule"),))]
    there = foos({"node1": 1, "node3": 1})
    assert feasible(nodes, [incoming(constraint("zone")), *there]) == set()
    honouring = constraint("zone", nodeTaintsPolicy="Honor")
    assert feasible(nodes, [incoming(honouring), *there]) == {"node1", "node2", "node3", "node4"}


@pytest.mark.parametrize(("domains", "expected"), [(None, {"node3", "node4"}), (2, {"node3", "node4"}), (3, set())])
def test_with_too_few_domains_the_minimum_is_nothing(domains: int | None, expected: set[str]) -> None:
    fields = {} if domains is None else {"minDomains": domains}
    pods = [incoming(constraint("zone", **fields)), *foos({"node1": 2, "node3": 1})]
    assert feasible(FOUR, pods) == expected


def test_nodes_without_the_label_are_not_feasible_and_not_counted() -> None:
    nodes = zoned(a="A", b="", c="C")
    pods = [incoming(constraint("zone")), *foos({"a": 1, "b": 9})]
    assert feasible(nodes, pods) == {"c"}
    assert judge(nodes, pods).filtered[1] == (
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    )
    assert judge(nodes, pods).filtered[0] == (
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints",
    )


def test_a_pod_that_its_own_selector_does_not_select_adds_nothing() -> None:
    pods = [incoming(constraint("zone")), *foos({"node1": 1})]
    assert feasible(FOUR, pods) == {"node3", "node4"}
    pods[0].labels = {}
    assert feasible(FOUR, pods) == {"node1", "node2", "node3", "node4"}


def test_terminating_pods_and_other_namespaces_are_not_counted() -> None:
    there = [*foos({"node1": 1}, terminating=True), *foos({"node3": 1}, namespace="other")]
    assert feasible(FOUR, [incoming(constraint("zone")), *there]) == {"node1", "node2", "node3", "node4"}


def test_match_label_keys_narrow_the_selector_to_the_pods_own_revision() -> None:
    keyed = constraint("zone", matchLabelKeys=["revision", "absent"])
    pods = [incoming(keyed), *foos({"node1": 1})]
    pods[0].labels, pods[1].labels = {"foo": "", "revision": "2"}, {"foo": "", "revision": "1"}
    assert feasible(FOUR, pods) == {"node1", "node2", "node3", "node4"}
    pods[1].labels = {"foo": "", "revision": "2"}
    assert feasible(FOUR, pods) == {"node3", "node4"}


@pytest.mark.parametrize("selector", [None, {}])
def test_no_selector_and_an_empty_one_count_nobody(selector: Any) -> None:
    pods = [incoming(constraint("zone", labelSelector=selector)), *foos({"node1": 5})]
    assert feasible(FOUR, pods) == {"node1", "node2", "node3", "node4"}


# ---- soft: numbers of scoring_test.go


ABCD = [a_node(name) for name in ("a", "b", "c", "d")]


@pytest.mark.parametrize(
    ("skew", "counts", "expected"),
    [
        (1, {}, [100, 100, 100, 100]),
        (1, {"a": 1, "b": 1, "c": 1, "d": 1}, [100, 100, 100, 100]),
        (1, {"a": 2, "b": 1, "d": 3}, [20, 60, 100, 0]),
        (2, {"a": 2, "b": 1, "d": 3}, [33, 66, 100, 16]),
        (3, {"a": 4, "b": 3, "c": 2, "d": 1}, [44, 66, 77, 100]),
    ],
)
def test_soft_spreading_over_nodes(skew: int, counts: dict[str, int], expected: list[int]) -> None:
    pods = [incoming(constraint(HOSTNAME, skew, soft=True)), *foos(counts)]
    assert spread_scores(ABCD, pods) == expected


def test_nodes_that_are_not_feasible_are_not_scored_but_their_pods_count_for_their_zone() -> None:
    nodes = [*zoned(a="zone1", b="zone1", x="zone2"), a_node("y", labels={"zone": "zone2"}, unschedulable=True)]
    there = foos({"a": 4, "b": 2, "x": 1, "y": 3})
    assert spread_scores(nodes, [incoming(constraint("zone", soft=True)), *there]) == [75, 75, 100]
    assert spread_scores(nodes, [incoming(constraint(HOSTNAME, soft=True)), *there]) == [33, 83, 100]


def test_a_node_that_lacks_a_soft_constraints_label_scores_nothing() -> None:
    nodes = zoned(a="1", b="", x="2")
    pods = [incoming(constraint("zone", soft=True)), *foos({"a": 1})]
    assert spread_scores(nodes, pods) == [0, 0, 100]


def test_terminating_pods_and_other_namespaces_do_not_count_for_scores_either() -> None:
    there = [*foos({"a": 3}, terminating=True), *foos({"b": 3}, namespace="other"), *foos({"c": 1})]
    assert spread_scores(ABCD, [incoming(constraint(HOSTNAME, soft=True)), *there]) == [100, 100, 0, 100]


# ---- defaults


def test_pods_of_a_replica_set_are_spread_by_default() -> None:
    # scoring_test.go, "system defaulting, nodes don't have zone": as one constraint with skew 3 over nodes
    pods = [
        a_pod("new", cpu=0, memory=0, phase=PENDING, owner="web"),
        *replicas("web", {"a": 4, "b": 3, "c": 2, "d": 1}, cpu=0, memory=0),
    ]
    assert spread_scores(ABCD, pods) == [44, 66, 77, 100]


@pytest.mark.parametrize(
    ("kind", "spread"),
    [("ReplicaSet", True), ("StatefulSet", True), ("ReplicationController", True), ("Job", False), ("Rollout", False)],
)
def test_only_some_owners_spread_by_default(kind: str, spread: bool) -> None:
    new = a_pod("new", cpu=0, memory=0, phase=PENDING, owner="web", owner_kind=kind)
    assert ("PodTopologySpread" in judge(ABCD, [new]).weighted) == spread


def test_a_bare_pod_and_one_with_constraints_of_its_own_are_not_spread_by_default() -> None:
    assert "PodTopologySpread" not in judge(ABCD, [a_pod("new", phase=PENDING)]).weighted
    hard_only = a_pod("new", phase=PENDING, owner="web", template={"topologySpread": [constraint(HOSTNAME, 9)]})
    assert "PodTopologySpread" not in judge(ABCD, [hard_only]).weighted


def test_default_spreading_counts_pods_of_the_same_owner_only() -> None:
    new = a_pod("new", cpu=0, memory=0, phase=PENDING, owner="web")
    there = [*replicas("web", {"a": 1}, cpu=0), *replicas("web-old", {"b": 5}, cpu=0, labels={"app": "web"})]
    assert spread_scores(ABCD, [new, *there])[1:] == [100, 100, 100]
    assert spread_scores(ABCD, [new, *there])[0] < 100


def test_a_profiles_own_defaults_replace_the_systems_and_need_their_labels() -> None:
    rule = SpreadConstraint(topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=LabelSelector())
    profile = SchedulerProfile(default_constraints=(rule,))
    pods = [a_pod("new", cpu=0, memory=0, phase=PENDING, owner="web"), *replicas("web", {"node1": 1}, cpu=0, memory=0)]
    assert feasible([*FOUR, a_node("nowhere", labels={})], pods, profile) == {"node3", "node4"}
    assert "PodTopologySpread" not in judge(FOUR, pods, profile).weighted
    assert "PodTopologySpread" not in judge(FOUR, pods, SchedulerProfile(default_constraints=())).weighted
