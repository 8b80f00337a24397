"""Where a pod may go by its own spec: kube-scheduler's filters that don't depend on other pods."""

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from rebalancer.model.objects import PodShape, Taint
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import PENDING
from rebalancer.placement.filters import LEAVING_TAINTS, StaticFilter, placement_key
from rebalancer.placement.landing import MOST_PENDING, LandingModel, shares
from tests.builders import GIB, ANode, APod, a_node, a_pod, cluster

NODES = [
    a_node("a", labels={"zone": "1", "cores": "8", "disk": "ssd"}),
    a_node("b", labels={"zone": "2", "cores": "16"}),
    a_node("c", labels={"cores": "many"}),
]


def fits(nodes: list[ANode], **shape: Any) -> set[str]:
    """Names of the nodes that let a pod of this shape in."""
    made = cluster(nodes, [])
    mask = StaticFilter(made.nodes).feasible(msgspec.convert(shape, PodShape))
    return {name for name, ok in zip(made.nodes.names, mask, strict=True) if ok}


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


def test_the_answer_for_one_pod_is_not_changed_by_another() -> None:
    made = cluster(NODES, [])
    static = StaticFilter(made.nodes)
    picky, easy = msgspec.convert({"nodeSelector": {"zone": "1"}}, PodShape), PodShape()
    assert static.feasible(picky).sum() == 1
    assert static.feasible(easy).sum() == 3
    assert static.feasible(picky).sum() == 1


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


def test_a_node_that_is_not_ready_takes_nothing() -> None:
    assert fits([a_node("down", ready=False), a_node("up")], tolerations=[{"operator": "Exists"}]) == {"up"}


@pytest.mark.parametrize("key", LEAVING_TAINTS)
def test_nodes_that_are_about_to_be_removed_are_known(key: str) -> None:
    made = cluster(tainted("PreferNoSchedule", key=key), [])
    assert StaticFilter(made.nodes).leaving.tolist() == [True, False]


def test_soft_taints_are_counted_when_nothing_tolerates_them() -> None:
    taints = (
        Taint(key="a", effect="PreferNoSchedule"),
        Taint(key="b", effect="PreferNoSchedule"),
        Taint(key="c", effect="NoSchedule"),
    )
    static = StaticFilter(cluster([a_node("t", taints=taints), a_node("free")], []).nodes)
    assert static.soft_taints(PodShape()).tolist() == [2, 0]
    one = msgspec.convert({"tolerations": [{"key": "a", "operator": "Exists"}]}, PodShape)
    assert static.soft_taints(one).tolist() == [1, 0]
    hard_only = msgspec.convert({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, PodShape)
    assert static.soft_taints(hard_only).tolist() == [2, 0]
    everything = msgspec.convert({"tolerations": [{"operator": "Exists"}]}, PodShape)
    assert static.soft_taints(everything).tolist() == [0, 0]


# ---- room: what depends on the pods that are there


def feasible(nodes: list[ANode], pods: list[APod], **fields: Any) -> set[str]:
    """Where the replacement of the first pod fits."""
    made = cluster(nodes, pods, **fields)
    mask = LandingModel(made).feasible(made.pod(0))
    assert isinstance(mask, np.ndarray)
    return {name for name, ok in zip(made.nodes.names, mask, strict=True) if ok}


def mover(**fields: Any) -> APod:
    return a_pod("mover", "home", owner="web", **fields)


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        (4_000, 1 * GIB, {"home", "room"}),
        (4_001, 1 * GIB, {"home"}),
        (100, 4 * GIB, {"home", "room"}),
        (100, 4 * GIB + 1, {"home"}),
    ],
)
def test_cpu_and_memory_must_fit_to_the_last_unit(cpu: float, memory: float, expected: set[str]) -> None:
    nodes = [a_node("home"), a_node("room", cpu=8_000, memory=8 * GIB)]
    there = a_pod("there", "room", owner="x", cpu=4_000, memory=4 * GIB)
    assert feasible(nodes, [mover(cpu=cpu, memory=memory), there]) == expected


def test_a_resource_that_the_pod_does_not_ask_for_cannot_stop_it() -> None:
    nodes = [a_node("home"), a_node("crowded", cpu=1_000, memory=8 * GIB)]
    there = a_pod("there", "crowded", owner="x", cpu=1_500, memory=1 * GIB)
    assert feasible(nodes, [mover(cpu=0, memory=1 * GIB), there]) == {"home", "crowded"}
    assert feasible(nodes, [mover(cpu=1, memory=0), there]) == {"home"}


def test_finished_pods_hold_nothing_and_terminating_ones_still_do() -> None:
    nodes = [a_node("home"), a_node("room", cpu=1_000)]
    pod = mover(cpu=600)
    assert feasible(nodes, [pod, a_pod("done", "room", owner="x", cpu=600, phase=2)]) == {"home", "room"}
    assert feasible(nodes, [pod, a_pod("leaving", "room", owner="x", cpu=600, terminating=True)]) == {"home"}


def test_a_node_takes_no_more_pods_than_it_allows() -> None:
    there = a_pod("there", "room", owner="x")
    assert feasible([a_node("home"), a_node("room", pods=1)], [mover(), there]) == {"home"}
    assert feasible([a_node("home"), a_node("room", pods=2)], [mover(), there]) == {"home", "room"}


def test_the_old_pod_counts_on_its_own_node_except_for_a_stateful_set() -> None:
    nodes = [a_node("home", pods=1), a_node("room")]
    assert feasible(nodes, [mover()]) == {"room"}
    assert feasible(nodes, [mover(owner_kind="StatefulSet")]) == {"home", "room"}


GPU = {"extendedRequests": {"nvidia.com/gpu": 1.0}}


def test_extended_resources_must_be_free() -> None:
    nodes = [
        a_node("home", extended={"nvidia.com/gpu": 2.0}),
        a_node("full", extended={"nvidia.com/gpu": 1.0}),
        a_node("room", extended={"nvidia.com/gpu": 1.0}),
        a_node("none"),
    ]
    pods = [mover(shape=GPU), a_pod("there", "full", owner="x", shape=GPU)]
    assert feasible(nodes, pods) == {"home", "room"}


def test_every_extended_resource_must_be_free() -> None:
    both = {"extendedRequests": {"a": 1.0, "b": 2.0}}
    nodes = [
        a_node("home"),
        a_node("room", extended={"a": 1.0, "b": 2.0}),
        a_node("short", extended={"a": 1.0, "b": 1.0}),
        a_node("other", extended={"a": 5.0}),
    ]
    assert feasible(nodes, [mover(shape=both)]) == {"room"}


PORT = {"hostPorts": [["TCP", 80, "0.0.0.0"]]}


def test_a_host_port_must_be_free_by_protocol_and_number() -> None:
    nodes = [a_node("home"), a_node("same"), a_node("udp"), a_node("other")]
    pods = [
        mover(shape=PORT),
        a_pod("same", "same", owner="x", shape=PORT),
        a_pod("udp", "udp", owner="x", shape={"hostPorts": [["UDP", 80, "0.0.0.0"]]}),
        a_pod("other", "other", owner="x", shape={"hostPorts": [["TCP", 81, "0.0.0.0"]]}),
    ]
    assert feasible(nodes, pods) == {"udp", "other"}


def test_the_extended_resources_of_a_stateful_sets_old_pod_are_free_again() -> None:
    nodes = [a_node("home", extended={"nvidia.com/gpu": 1.0}), a_node("room", extended={"nvidia.com/gpu": 1.0})]
    assert feasible(nodes, [mover(owner_kind="StatefulSet", shape=GPU)]) == {"home", "room"}


def test_the_host_port_of_a_stateful_sets_old_pod_is_free_again() -> None:
    nodes = [a_node("home"), a_node("room")]
    assert feasible(nodes, [mover(owner_kind="StatefulSet", shape=PORT)]) == {"home", "room"}


# ---- moves of this plan


def says(model: LandingModel, pod: Any) -> tuple[list[bool], list[int]]:
    mask = model.feasible(pod)
    assert isinstance(mask, np.ndarray)
    return mask.tolist(), model.best(pod).tolist()


def test_a_committed_move_takes_its_room() -> None:
    nodes = [
        a_node("home", extended={"nvidia.com/gpu": 2.0}),
        a_node("room", cpu=1_000, extended={"nvidia.com/gpu": 1.0}),
    ]
    pods = [mover(cpu=600, shape={**GPU, **PORT}), a_pod("second", "home", owner="web", cpu=600, shape=GPU)]
    made = cluster(nodes, pods)
    model = LandingModel(made)
    assert says(model, made.pod(1))[0][1]
    model.commit(made.pod(0), 1)
    assert not says(model, made.pod(1))[0][1]
    assert not says(model, made.pod(0))[0][1]


def test_a_committed_move_frees_the_port_that_it_leaves() -> None:
    nodes = [a_node("home"), a_node("room"), a_node("third")]
    pods = [mover(shape=PORT), a_pod("second", "third", owner="web", shape=PORT)]
    made = cluster(nodes, pods)
    model = LandingModel(made)
    assert says(model, made.pod(1))[0] == [False, True, False]
    model.commit(made.pod(0), 1)
    assert says(model, made.pod(1))[0] == [True, False, False]


def _pods_of_all_kinds(draw: random.Random, nodes: list[ANode]) -> list[APod]:
    return [
        a_pod(
            f"p{index}",
            draw.choice(nodes).name,
            owner=f"o{index % 5}",
            owner_kind="StatefulSet" if index % 5 == 0 else "ReplicaSet",
            cpu=draw.choice([0, 100, 500, 2_000]),
            memory=draw.choice([0, 1, 4]) * GIB,
            shape=draw.choice(
                [{}, {}, GPU, PORT, {"nodeSelector": {"zone": "1"}}, {"tolerations": [{"operator": "Exists"}]}]
            ),
        )
        for index in range(24)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_model_that_has_seen_moves_says_what_a_new_one_would_say(seed: int) -> None:
    draw = random.Random(seed)
    soft = Taint(key="rather-not", effect="PreferNoSchedule")
    nodes = [
        a_node(
            f"n{index}",
            cpu=draw.choice([4_000.0, 8_000.0]),
            memory=16 * GIB,
            pods=draw.choice([6, 12]),
            labels={"zone": str(index % 2)},
            taints=(soft,) if draw.random() < 0.3 else (),
            extended={"nvidia.com/gpu": 2.0},
        )
        for index in range(6)
    ]
    pods = _pods_of_all_kinds(draw, nodes)
    made = cluster(nodes, pods)
    model = LandingModel(made)
    for index in draw.sample(range(len(pods)), 8):
        for other in draw.sample(range(len(pods)), 6):
            says(model, made.pod(other))  # asked at some time before, or not
        target = draw.randrange(len(nodes))
        model.commit(made.pod(index), target)
        pods[index].node = nodes[target].name
        moved = cluster(nodes, pods)
        fresh = LandingModel(moved)
        for other in range(len(pods)):
            # a moved pod is not asked about again
            if moved.pod(other).node == made.pod(other).node:
                assert says(model, made.pod(other)) == says(fresh, moved.pod(other))


def test_pods_that_the_filters_cannot_tell_apart_share_a_key() -> None:
    plain = PodShape(cpu_request_millicores=5.0, labels={"app": "a"})
    assert placement_key(plain) == placement_key(PodShape())
    for fields in (
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"affinity": required(expressions(("zone", "Exists", [])))},
    ):
        assert placement_key(msgspec.convert(fields, PodShape)) != placement_key(PodShape())


def test_landings_of_nothing_feasible_are_none() -> None:
    made = cluster([a_node("home", unschedulable=True)], [mover()])
    assert LandingModel(made).landings(made.pod(0)) == ()


def test_landings_are_shown_by_name_and_share() -> None:
    made = cluster([a_node("home"), a_node("y"), a_node("x")], [mover(cpu=8_000)])
    model = LandingModel(made)
    assert shares(model.landings(made.pod(0)), made.nodes.names) == (("x", 0.5), ("y", 0.5))


def test_pods_that_already_wait_take_their_room_first() -> None:
    waiting = [a_pod(f"waiting-{index}", owner="batch", phase=PENDING, ready=False, cpu=4_000) for index in range(3)]
    made = cluster([a_node("home"), a_node("cold")], [a_pod("web-0", "home", owner="web", cpu=8_000), *waiting])
    model = LandingModel(made)
    # three of 4,000 go to the empty node of 16,000 (or fill up home): 8,000 more fit on neither
    assert not model.feasible(made.pod(0))[1]
    alone = cluster([a_node("home"), a_node("cold")], [a_pod("web-0", "home", owner="web", cpu=8_000)])
    assert LandingModel(alone).feasible(alone.pod(0))[1]


def test_where_a_crowd_waits_no_landing_is_predicted() -> None:
    waiting = [
        a_pod(f"waiting-{index}", owner="batch", phase=PENDING, ready=False) for index in range(MOST_PENDING + 1)
    ]
    made = cluster([a_node("home"), a_node("cold")], [a_pod("web-0", "home", owner="web"), *waiting])
    answer = LandingModel(made).feasible(made.pod(0))
    assert isinstance(answer, Refusal)
    assert answer.code is Reason.LANDING_NOT_MODELLED
