"""kube-scheduler's filters, besides spreading and inter-pod affinity."""

from typing import Any

import pytest

from rebalancer.model.cluster.objects import NodeAffinity, NodeSelector, NodeSelectorTerm, Requirement, Taint
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.scheduler import FILTERS, SchedulerConfig, SchedulerProfile
from rebalancer.model.reason import Reason
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Engine
from tests.builders import GIB, ANode, APod, a_node, a_pod, cluster

NODES = [
    a_node("a", labels={"zone": "1", "cores": "8", "disk": "ssd"}),
    a_node("b", labels={"zone": "2", "cores": "16"}),
    a_node("c", labels={"cores": "many"}),
]


def waiting(**fields: Any) -> APod:
    """A pod that asks for nothing and is not bound yet."""
    return a_pod("waiting", **{"cpu": 0, "memory": 0, "phase": PENDING, **fields})


def feasible(nodes: list[ANode], pods: list[APod], profile: SchedulerProfile | None = None, **fields: Any) -> set[str]:
    """Where the first pod may go."""
    made = cluster(nodes, pods, **fields)
    board = Board(made)
    config = SchedulerConfig(profiles={profile.name: profile}) if profile else SchedulerConfig()
    engine, kind = Engine(board, config), board.kinds.of(0)
    mask = engine.feasible(kind)
    for node, ok in enumerate(mask.tolist()):
        assert engine.fits(kind, node) == ok
    verdict = engine.verdict(kind)
    assert verdict.feasible.tolist() == mask.tolist()
    return {name for name, ok in zip(made.nodes.names, mask, strict=True) if ok}


def words(nodes: list[ANode], pods: list[APod]) -> list[tuple[str, str] | None]:
    """Why the first pod may not go to each node."""
    board = Board(cluster(nodes, pods))
    return list(Engine(board).verdict(board.kinds.of(0)).filtered)


def fits(nodes: list[ANode], **template: Any) -> set[str]:
    """Names of the nodes that let a pod of this template in."""
    return feasible(nodes, [waiting(template=template)])


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expressions(*wanted: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in wanted]}


def test_a_pod_without_wishes_may_go_anywhere() -> None:
    assert fits(NODES) == {"a", "b", "c"}


def test_a_node_selector_must_match_in_every_pair() -> None:
    assert fits(NODES, nodeSelector={"zone": "1"}) == {"a"}
    assert fits(NODES, nodeSelector={"zone": "1", "disk": "ssd"}) == {"a"}
    assert fits(NODES, nodeSelector={"zone": "2", "disk": "ssd"}) == set()
    assert fits(NODES, nodeSelector={"kubernetes.io/hostname": "c"}) == {"c"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("zone", "In", ["1", "2"], {"a", "b"}),
        ("zone", "In", ["3"], set()),
        ("zone", "NotIn", ["1"], {"b", "c"}),
        ("zone", "Exists", [], {"a", "b"}),
        ("zone", "DoesNotExist", [], {"c"}),
        ("cores", "Gt", ["8"], {"b"}),
        ("cores", "Gt", ["7"], {"a", "b"}),
        ("cores", "Lt", ["16"], {"a"}),
        ("cores", "Gt", ["x"], set()),
        ("cores", "Gt", ["1", "2"], set()),
        ("zone", "Like", ["1"], set()),
    ],
)
def test_required_node_affinity_knows_every_operator(
    key: str, operator: str, values: list[str], expected: set[str]
) -> None:
    assert fits(NODES, affinity=required(expressions((key, operator, values)))) == expected


def test_terms_are_alternatives_and_expressions_must_all_hold() -> None:
    one, two = expressions(("zone", "In", ["1"])), expressions(("cores", "In", ["many"]))
    assert fits(NODES, affinity=required(one, two)) == {"a", "c"}
    assert fits(NODES, affinity=required(expressions(("zone", "Exists", []), ("disk", "Exists", [])))) == {"a"}


def test_an_empty_term_selects_nothing_and_so_do_no_terms() -> None:
    assert fits(NODES, affinity=required({})) == set()
    assert fits(NODES, affinity=required()) == set()
    assert fits(NODES, affinity=required({}, expressions(("zone", "In", ["2"])))) == {"b"}


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [("In", ["b"], {"b"}), ("NotIn", ["b"], {"a", "c"}), ("In", ["zzz"], set())],
)
def test_a_field_selects_by_the_nodes_name(operator: str, values: list[str], expected: set[str]) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}
    assert fits(NODES, affinity=required(term)) == expected


def test_another_field_selects_nothing() -> None:
    term = {"matchFields": [{"key": "spec.providerID", "operator": "NotIn", "values": ["x"]}]}
    assert fits(NODES, affinity=required(term)) == set()


def test_fields_and_expressions_of_a_term_must_both_hold() -> None:
    term = {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}],
        **expressions(("zone", "In", ["2"])),
    }
    assert fits(NODES, affinity=required(term)) == {"b"}


def test_selector_and_affinity_must_both_hold() -> None:
    affinity = required(expressions(("zone", "Exists", [])))
    assert fits(NODES, affinity=affinity, nodeSelector={"cores": "16"}) == {"b"}


def test_preferred_affinity_forbids_nothing() -> None:
    preferred = {"weight": 1, "preference": expressions(("zone", "In", ["9"]))}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    assert fits(NODES, affinity=affinity) == {"a", "b", "c"}


# ---- taints


def tainted(effect: str, key: str = "dedicated", value: str = "db") -> list[ANode]:
    return [a_node("t", taints=(Taint(key=key, value=value, effect=effect),)), a_node("free")]


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "dedicated", "value": "db", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "", "value": "db"}, True),
        ({"key": "dedicated", "value": "web", "effect": "NoSchedule"}, False),
        ({"key": "dedicated", "effect": "NoSchedule"}, False),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "PreferNoSchedule"}, False),
        ({"key": "dedicated", "operator": "Lt", "value": "5"}, False),
    ],
)
def test_a_toleration_matches_by_key_operator_value_and_effect(toleration: dict[str, str], tolerates: bool) -> None:
    expected = {"t", "free"} if tolerates else {"free"}
    assert fits(tainted("NoSchedule"), tolerations=[toleration]) == expected


@pytest.mark.parametrize(
    ("effect", "expected"),
    [("NoSchedule", {"free"}), ("NoExecute", {"free"}), ("PreferNoSchedule", {"t", "free"})],
)
def test_hard_taints_keep_pods_out_and_soft_ones_do_not(effect: str, expected: set[str]) -> None:
    assert fits(tainted(effect)) == expected


def test_every_taint_must_be_tolerated_and_one_toleration_may_do_for_several() -> None:
    nodes = [a_node("t", taints=(Taint(key="a", effect="NoSchedule"), Taint(key="b", effect="NoExecute")))]
    assert fits(nodes, tolerations=[{"key": "a", "operator": "Exists"}]) == set()
    assert fits(nodes, tolerations=[{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]) == {"t"}
    assert fits(nodes, tolerations=[{"operator": "Exists"}]) == {"t"}


def test_a_cordoned_node_takes_only_what_tolerates_its_taint() -> None:
    nodes = [a_node("off", unschedulable=True), a_node("on")]
    assert fits(nodes) == {"on"}
    assert fits(nodes, tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]) == {"off", "on"}
    assert fits(nodes, tolerations=[{"operator": "Exists"}]) == {"off", "on"}


def test_a_node_that_is_not_ready_is_kept_out_of_by_its_taint_only() -> None:
    assert fits([a_node("down", ready=False), a_node("up")]) == {"down", "up"}


def test_the_profiles_own_affinity_must_hold_too() -> None:
    selector = NodeSelector((NodeSelectorTerm(match_expressions=(Requirement("zone", "In", ("1", "2")),)),))
    profile = SchedulerProfile(added_affinity=NodeAffinity(required=selector))
    assert feasible(NODES, [waiting()], profile) == {"a", "b"}
    assert feasible(NODES, [waiting(template={"nodeSelector": {"disk": "ssd"}})], profile) == {"a"}


def test_a_filter_that_the_profile_lacks_keeps_nothing_out() -> None:
    def but(name: str) -> SchedulerProfile:
        return SchedulerProfile(filters=frozenset(FILTERS) - {name})

    assert feasible(tainted("NoSchedule"), [waiting()], but("TaintToleration")) == {"t", "free"}
    assert feasible([a_node("small", cpu=1)], [waiting(cpu=5)], but("NodeResourcesFit")) == {"small"}
    assert feasible([a_node("off", unschedulable=True)], [waiting()], but("NodeUnschedulable")) == {"off"}


# ---- room: what depends on the pods that are there


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        (4_000, 1 * GIB, {"room"}),
        (4_001, 1 * GIB, set()),
        (100, 4 * GIB, {"room"}),
        (100, 4 * GIB + 1, set()),
    ],
)
def test_cpu_and_memory_must_fit_to_the_last_unit(cpu: float, memory: float, expected: set[str]) -> None:
    there = a_pod("there", "room", owner="x", cpu=4_000, memory=4 * GIB)
    assert feasible([a_node("room", cpu=8_000, memory=8 * GIB)], [waiting(cpu=cpu, memory=memory), there]) == expected


def test_a_resource_that_the_pod_does_not_ask_for_cannot_stop_it() -> None:
    nodes = [a_node("crowded", cpu=1_000, memory=8 * GIB)]
    there = a_pod("there", "crowded", owner="x", cpu=1_500, memory=1 * GIB)
    assert feasible(nodes, [waiting(cpu=0, memory=1 * GIB), there]) == {"crowded"}
    assert feasible(nodes, [waiting(cpu=1, memory=0), there]) == set()


def test_finished_pods_hold_nothing_and_terminating_ones_still_do() -> None:
    nodes, pod = [a_node("room", cpu=1_000)], waiting(cpu=600)
    assert feasible(nodes, [pod, a_pod("done", "room", owner="x", cpu=600, phase=2)]) == {"room"}
    assert feasible(nodes, [pod, a_pod("leaving", "room", owner="x", cpu=600, terminating=True)]) == set()


def test_a_node_takes_no_more_pods_than_it_allows() -> None:
    there = a_pod("there", "room", owner="x", cpu=0, memory=0)
    assert feasible([a_node("room", pods=1)], [waiting(), there]) == set()
    assert feasible([a_node("room", pods=2)], [waiting(), there]) == {"room"}


GPU = {"extendedRequests": {"nvidia.com/gpu": 1.0}}
DISK = {"extendedRequests": {"ephemeral-storage": 1.0 * GIB}}


@pytest.mark.parametrize(
    ("template", "name", "one"), [(GPU, "nvidia.com/gpu", 1.0), (DISK, "ephemeral-storage", 1.0 * GIB)]
)
def test_other_resources_must_be_free(template: dict[str, Any], name: str, one: float) -> None:
    nodes = [a_node("full", extended={name: one}), a_node("room", extended={name: one}), a_node("none")]
    assert feasible(nodes, [waiting(template=template), a_pod("there", "full", owner="x", template=template)]) == {
        "room"
    }
    assert feasible(nodes, [waiting(), a_pod("there", "full", owner="x", template=template)]) == {
        "full",
        "room",
        "none",
    }


def test_every_extended_resource_must_be_free() -> None:
    both = {"extendedRequests": {"a": 1.0, "b": 2.0}}
    nodes = [
        a_node("room", extended={"a": 1.0, "b": 2.0}),
        a_node("short", extended={"a": 1.0, "b": 1.0}),
        a_node("other", extended={"a": 5.0}),
    ]
    assert feasible(nodes, [waiting(template=both)]) == {"room"}


def ports(*wanted: tuple[str, int, str]) -> dict[str, Any]:
    return {"hostPorts": [list(each) for each in wanted]}


@pytest.mark.parametrize(
    ("there", "free"),
    [
        (("TCP", 80, "0.0.0.0"), False),
        (("UDP", 80, "0.0.0.0"), True),
        (("TCP", 81, "0.0.0.0"), True),
        (("TCP", 80, "127.0.0.1"), False),
    ],
)
def test_a_host_port_on_every_address_needs_the_number_to_be_free(there: tuple[str, int, str], free: bool) -> None:
    pods = [waiting(template=ports(("TCP", 80, "0.0.0.0"))), a_pod("there", "n", owner="x", template=ports(there))]
    assert feasible([a_node("n")], pods) == ({"n"} if free else set())


@pytest.mark.parametrize(
    ("there", "free"),
    [
        (("TCP", 80, "127.0.0.1"), False),
        (("TCP", 80, "127.0.0.2"), True),
        (("TCP", 80, "0.0.0.0"), False),
        (("UDP", 80, "127.0.0.1"), True),
    ],
)
def test_a_host_port_on_one_address_conflicts_with_the_same_and_with_every_address(
    there: tuple[str, int, str], free: bool
) -> None:
    pods = [waiting(template=ports(("TCP", 80, "127.0.0.1"))), a_pod("there", "n", owner="x", template=ports(there))]
    assert feasible([a_node("n")], pods) == ({"n"} if free else set())


def test_one_port_of_several_in_conflict_is_enough() -> None:
    wanted = ports(("TCP", 80, "0.0.0.0"), ("TCP", 81, "0.0.0.0"))
    pods = [waiting(template=wanted), a_pod("there", "n", owner="x", template=ports(("TCP", 81, "0.0.0.0")))]
    assert feasible([a_node("n"), a_node("m")], pods) == {"m"}


# ---- volumes


def claim(name: str) -> dict[str, Any]:
    return {"volumes": [{"persistentVolumeClaim": {"claimName": name}}]}


ZONE_1 = NodeSelector((NodeSelectorTerm(match_expressions=(Requirement("zone", "In", ("1",)),)),))


def test_a_pod_follows_its_volume_to_where_it_can_be_used() -> None:
    known = {"volume_nodes": {("shop", "data"): ZONE_1, ("other", "data"): NodeSelector()}}
    assert feasible(NODES, [waiting(template=claim("data"))], **known) == {"a"}
    assert feasible(NODES, [waiting(template=claim("anywhere"))], **known) == {"a", "b", "c"}


def test_a_claim_for_one_pod_at_a_time_lets_no_second_pod_in_anywhere() -> None:
    exclusive = {"exclusive_claims": frozenset({("shop", "data")})}
    user = a_pod("there", "a", owner="x", template=claim("data"))
    assert feasible(NODES, [waiting(template=claim("data"))], **exclusive) == {"a", "b", "c"}
    assert feasible(NODES, [waiting(template=claim("data")), user], **exclusive) == set()
    assert feasible(NODES, [waiting(template=claim("data")), user]) == {"a", "b", "c"}
    elsewhere = a_pod("there", "a", owner="x", template=claim("data"), namespace="other")
    assert feasible(NODES, [waiting(template=claim("data")), elsewhere], **exclusive) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("template", "fields", "known"),
    [
        ({}, {}, True),
        (claim("data"), {}, True),
        (claim("data"), {"claims_known": False}, False),
        ({}, {"claims_known": False}, True),
        ({"volumes": [{"ephemeral": {}}]}, {}, False),
        ({"volumes": [{"emptyDir": {}}, {"hostPath": {}}]}, {}, True),
        ({"schedulerName": "mine"}, {}, False),
    ],
)
def test_what_is_not_modelled_is_said(template: dict[str, Any], fields: dict[str, Any], known: bool) -> None:
    board = Board(cluster(NODES, [waiting(template=template)], **fields))
    refusal = Engine(board).knows(board.kinds.of(0))
    assert (refusal is None) == known
    assert refusal is None or refusal.code is Reason.PLACEMENT_NOT_MODELLED


def test_a_profile_of_its_own_makes_a_scheduler_known() -> None:
    board = Board(cluster(NODES, [waiting(template={"schedulerName": "mine"})]))
    config = SchedulerConfig(profiles={"mine": SchedulerProfile(name="mine")})
    assert Engine(board, config).knows(board.kinds.of(0)) is None


# ---- words


def test_the_first_filter_that_refuses_is_named_in_the_schedulers_words() -> None:
    nodes = [
        a_node("off", unschedulable=True, taints=(Taint(key="a", effect="NoSchedule"),)),
        a_node("tainted", taints=(Taint(key="a", effect="NoSchedule"),)),
        a_node("unlike", labels={}),
        a_node("busy", pods=1),
        a_node("small", cpu=100, memory=100),
        a_node("good"),
    ]
    wanted = {"nodeSelector": {"pool": "general"}, **ports(("TCP", 80, "0.0.0.0"))}
    pods = [
        waiting(cpu=500, memory=200, template=wanted),
        a_pod("there", "busy", cpu=0, memory=0, template=ports(("TCP", 80, "0.0.0.0"))),
        a_pod("other", "small", cpu=0, memory=0),
    ]
    assert words(nodes, pods) == [
        ("NodeUnschedulable", "node(s) were unschedulable"),
        ("TaintToleration", "node(s) had untolerated taint(s)"),
        ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
        ("NodePorts", "node(s) didn't have free ports for the requested pod ports"),
        ("NodeResourcesFit", "Insufficient cpu, Insufficient memory"),
        None,
    ]
