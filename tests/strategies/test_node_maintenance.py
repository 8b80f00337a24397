"""What NodeMaintenance finds."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.model.cluster.pods import SUCCEEDED
from rebalancer.model.cluster.steering import DRAINING, MAINTENANCE
from rebalancer.model.decisions.plan import Goal
from tests.builders import ANode, APod, a_budget, a_node, a_pod, replicas
from tests.strategies.builders.emptied import Found, Plan, found_in_view
from tests.strategies.builders.finding import strategy_policy

NAME = "NodeMaintenance"
ZONE = "topology.kubernetes.io/zone"
CHOSEN = {"nodeSelector": {"matchLabels": {"kernel": "old"}}}


def old(name: str, zone: str | None = None, **fields: Any) -> ANode:
    """A node that is chosen."""
    labels = {"pool": "general", "kernel": "old"} | ({} if zone is None else {ZONE: zone})
    return a_node(name, labels=labels | fields.pop("labels", {}), **fields)


def new(name: str = "new", **fields: Any) -> ANode:
    return a_node(name, **fields)


def on(*nodes: str, count: int = 1) -> list[APod]:
    return [pod for node in nodes for pod in replicas(f"on-{node}", {node: count}, used=100.0)]


def found(nodes: list[ANode], pods: list[APod], *, ours: tuple[str, ...] = (), **fields: Any) -> Found:
    """With `ours` cordoned by us already."""
    args = {**CHOSEN, **fields.pop("args", {})}
    cordons = dict.fromkeys(ours, (MAINTENANCE, 600.0)) | fields.pop("cordons", {})
    for node in nodes:
        node.unschedulable |= node.name in cordons
    return found_in_view(NAME, nodes, pods, args, cordons=cordons, **fields)


# ---- which nodes


def test_a_chosen_node_is_emptied_of_all_its_pods_cheapest_first() -> None:
    pods = [
        a_pod("vip", "n", owner="w", priority=7),
        a_pod("safe", "n", owner="w", template={"qos": "Guaranteed"}),
        a_pod("old", "n", owner="w", age=9e6),
        a_pod("young", "n", owner="w", age=9e4),
        a_pod("bare", "n", age=9e5),
        a_pod("agent", "n", owner="agent", owner_kind="DaemonSet"),
        a_pod("done", "n", owner="j", phase=SUCCEEDED),
        a_pod("going", "n", owner="w", terminating=True),
        *on("new"),
    ]
    seen = found([old("n", "a"), new()], pods)
    (finding,) = seen.findings.findings
    assert (finding.strategy, finding.pool, finding.goal, finding.wanted) == (NAME, "general", Goal.REMOVE, None)
    assert finding.reason == "chosen for maintenance, wave 1 of 1 (zone a): pods to leave it: 5"
    assert seen.pods("n") == ["young", "bare", "old", "safe", "vip"]
    assert seen.landings("n") == ["new"]
    assert seen.findings.loads is None
    assert seen.cordons == {"n": MAINTENANCE}


@pytest.mark.parametrize(
    ("args", "nodes"),
    [
        ({"nodeSelector": {"matchLabels": {"kernel": "old"}}}, ["label"]),
        ({"annotation": "example.com/reboot"}, ["note", "other-note"]),
        ({"annotation": "example.com/reboot=now"}, ["note"]),
        ({"annotation": "example.com/reboot="}, []),
        ({"nodes": ["named", "other-note"]}, ["named", "other-note"]),
        ({"nodes": ["named"], "annotation": "example.com/reboot=now", **CHOSEN}, ["label", "named", "note"]),
    ],
)
def test_a_node_is_chosen_by_label_annotation_or_name(args: dict[str, Any], nodes: list[str]) -> None:
    made = [
        old("label"),
        new("named"),
        new("note", annotations={"example.com/reboot": "now"}),
        new("other-note", annotations={"example.com/reboot": "later"}),
        new("plain"),
    ]
    pods = on(*(node.name for node in made))
    assert found_in_view(NAME, made, pods, {**args, "maxConcurrentNodes": 9}).nodes == nodes


def test_nodes_of_other_pools_are_not_touched_and_those_named_in_vain_are_noted() -> None:
    nodes = [old("n"), old("elsewhere", labels={"pool": "other"}), new()]
    args = {"nodes": ["gone", "elsewhere"]}
    seen = found(nodes, on("n", "elsewhere", "new"), args=args)
    assert seen.nodes == ["n"]
    assert seen.landings("n") == ["elsewhere", "new"]
    assert seen.findings.notes == (
        "maintenance: there is no node gone",
        "maintenance: node elsewhere is in none of its pools",
        "maintenance: wave 1 of 1 (no zone): 0 of 1 nodes are drained, 1 draining",
    )


def test_no_node_chosen_is_noted() -> None:
    seen = found([new()], on("new"))
    assert (seen.nodes, seen.cordons, seen.findings.notes) == ([], {}, ("maintenance: no node is chosen",))


# ---- waves


def waves(**fields: Any) -> tuple[list[ANode], list[APod]]:
    """Two waves and nodes without a zone, each with pods."""
    nodes = [old("z"), old("b1", "b"), old("b2", "b"), old("a1", "a"), old("a2", "a"), old("a3", "a"), new()]
    return nodes, on("z", "b1", "b2", "a1", "a2", "a3", "new", **fields)


def without(pods: list[APod], *nodes: str) -> list[APod]:
    return [pod for pod in pods if pod.node not in nodes]


def test_the_first_wave_is_worked_on_so_many_nodes_at_once() -> None:
    nodes, pods = waves()
    seen = found(nodes, pods)
    assert seen.nodes == ["a1", "a2"]
    assert seen.landings("a1") == ["new"]
    assert seen.cordons == {"a1": MAINTENANCE, "a2": MAINTENANCE}
    assert seen.findings.notes == ("maintenance: wave 1 of 3 (zone a): 0 of 3 nodes are drained, 2 draining",)


def test_what_is_begun_is_gone_on_with_and_what_is_empty_stays_cordoned() -> None:
    nodes, pods = waves()
    seen = found(nodes, without(pods, "a2"), ours=("a2", "a3"))
    assert seen.nodes == ["a3", "a1"]
    assert seen.cordons == {"a1": MAINTENANCE, "a2": MAINTENANCE, "a3": MAINTENANCE}
    assert seen.findings.notes == ("maintenance: wave 1 of 3 (zone a): 1 of 3 nodes are drained, 2 draining",)


def test_the_next_wave_begins_when_every_node_of_it_is_empty() -> None:
    nodes, pods = waves()
    pods = [*without(pods, "a1", "a2"), a_pod("agent", "a1", owner="agent", owner_kind="DaemonSet")]
    first = ("a1", "a2", "a3")
    assert found(nodes, pods, ours=first).nodes == ["a3"]
    seen = found(nodes, without(pods, "a3"), ours=first)
    assert seen.nodes == ["b1", "b2"]
    assert sorted(seen.cordons) == ["a1", "a2", "a3", "b1", "b2"]
    seen = found(nodes, without(pods, "a3", "b1", "b2"), ours=(*first, "b1", "b2"))
    assert seen.nodes == ["z"]
    assert seen.findings.notes == ("maintenance: wave 3 of 3 (no zone): 0 of 1 nodes are drained, 1 draining",)


def test_a_pod_that_is_still_leaving_keeps_the_next_wave_waiting() -> None:
    nodes, pods = waves()
    pods = [*without(pods, "a1", "a2", "a3"), a_pod("going", "a3", owner="w", terminating=True)]
    seen = found(nodes, pods, ours=("a1", "a2", "a3"))
    assert seen.nodes == []
    assert sorted(seen.cordons) == ["a1", "a2", "a3"]
    assert seen.findings.notes == ("maintenance: wave 1 of 3 (zone a): 2 of 3 nodes are drained, 1 draining",)


def test_when_all_are_empty_they_stay_cordoned_until_they_are_no_longer_chosen() -> None:
    nodes, _ = waves()
    ours = ("a1", "a2", "a3", "b1", "b2", "z")
    seen = found(nodes, on("new"), ours=ours)
    assert (seen.nodes, sorted(seen.cordons)) == ([], sorted(ours))
    assert seen.findings.notes == ("maintenance: all 6 nodes are drained",)
    nodes[3] = a_node("a1", unschedulable=True)
    assert sorted(found(nodes, on("new"), ours=ours).cordons) == sorted(set(ours) - {"a1"})


def test_a_chosen_node_that_is_empty_is_kept_empty_once_its_wave_is_there() -> None:
    nodes, pods = waves()
    assert sorted(found(nodes, without(pods, "a3", "b1"), args={"maxConcurrentNodes": 1}).cordons) == ["a1", "a3"]


def test_without_a_label_all_nodes_are_one_wave_and_any_label_may_divide_them() -> None:
    nodes, pods = waves()
    seen = found(nodes, pods, args={"waveLabel": None, "maxConcurrentNodes": 4})
    assert seen.nodes == ["a1", "a2", "a3", "b1"]
    assert seen.findings.findings[0].reason == "chosen for maintenance: pods to leave it: 1"
    assert seen.findings.notes == ("maintenance: 0 of 6 nodes are drained, 4 draining",)
    nodes = [old("n2", labels={"rack": "r2"}), old("n1", labels={"rack": "r1"}), new()]
    seen = found(nodes, on("n1", "n2", "new"), args={"waveLabel": "rack"})
    assert seen.nodes == ["n1"]
    assert seen.findings.notes == ("maintenance: wave 1 of 2 (rack r1): 0 of 1 nodes are drained, 1 draining",)


# ---- whose cordon it is


def test_a_node_that_people_cordoned_is_emptied_and_never_marked() -> None:
    nodes = [old("n", unschedulable=True), old("e", unschedulable=True), new()]
    seen = found(nodes, on("n", "new"))
    assert (seen.nodes, seen.cordons) == (["n"], {})


def test_a_node_that_is_being_drained_goes_over_to_maintenance() -> None:
    seen = found(
        [old("a"), old("x"), new()], on("a", "x", "new"), args={"maxConcurrentNodes": 1}, cordons={"x": (DRAINING, 9.0)}
    )
    assert (seen.nodes, seen.cordons) == (["x"], {"x": MAINTENANCE})


def test_cordons_and_progress_are_noted_when_others_are_looked_at_too() -> None:
    nodes, pods = waves()
    seen = found(nodes, pods, only=["a2", "new"])
    assert seen.nodes == ["a2"]
    assert sorted(seen.cordons) == ["a1", "a2"]
    assert seen.findings.notes == ("maintenance: wave 1 of 3 (zone a): 0 of 3 nodes are drained, 2 draining",)


def test_a_pool_of_which_every_node_is_chosen_is_noted() -> None:
    seen = found([old("a"), old("b"), new(unschedulable=True)], on("a", "b"))
    assert seen.findings.notes[-1] == "maintenance: pool general has no node that isn't chosen and could take pods"
    assert seen.landings("a") == ["new"]


# ---- properties


@given(st.data())
def test_never_two_waves_at_work_and_never_more_nodes_than_allowed(data: st.DataObject) -> None:
    """A walk from the first cycle to the last: pods leave the nodes at work, some of them, in any order."""
    draw = data.draw
    zones = {f"n{index}": draw(st.sampled_from(["a", "b", None])) for index in range(draw(st.integers(1, 6)))}
    at_once = draw(st.integers(1, 3))
    pods = [pod for name in zones for pod in on(name, count=draw(st.integers(0, 2)))]
    ours: tuple[str, ...] = ()
    worked: list[str | None] = []
    for _ in range(2 * len(pods) + 2):
        nodes = [*(old(name, zone) for name, zone in zones.items()), new()]
        random.Random(draw(st.integers(0, 9))).shuffle(nodes)
        seen = found(nodes, [*pods, *on("new")], ours=ours, args={"maxConcurrentNodes": at_once})
        filled = {pod.node for pod in pods}
        assert set(seen.nodes) <= filled & set(seen.cordons)
        assert len(seen.nodes) <= at_once
        assert set(seen.nodes) >= set(ours) & filled  # what is begun is ended first
        assert set(seen.cordons) >= set(ours)  # nothing that is chosen is let go
        at_work = {zones[name] for name in seen.nodes}
        assert len(at_work) <= 1
        assert all(seen.landings(name) == ["new"] for name in seen.nodes)
        worked += sorted(at_work - set(worked[-1:]), key=str)
        ours = tuple(seen.cordons)
        if not pods:
            break
        leaving = draw(st.sampled_from([pod for pod in pods if pod.node in seen.nodes]))
        pods.remove(leaving)
    assert not pods
    assert set(ours) == set(zones)
    assert worked == sorted(set(worked), key=lambda zone: (zone is None, zone))


# ---- plans


def plan_of(nodes: list[ANode], pods: list[APod], *, steered_at_most: int = 1, **fields: Any) -> Plan:
    policy = strategy_policy(NAME, CHOSEN | fields.pop("args", {}), guards={"minReplicas": 1})
    return Plan(nodes, pods, policy, steered_at_most=steered_at_most, **fields)


def test_pods_leave_as_far_as_their_budget_goes_and_land_on_no_chosen_node() -> None:
    """By requests the chosen nodes are the emptier ones."""
    nodes = [old("a1", "a"), old("b1", "b"), new()]
    pods = [*replicas("web", {"a1": 3, "b1": 1}, used=100.0), *on("new", count=6)]
    plan = plan_of(nodes, pods, steered_at_most=2, budgets=[a_budget("web", "web", 2)])
    assert plan.moves == [("web-0", "a1", "new"), ("web-1", "a1", "new")]
    assert plan.outcome.refusals == {"web-2": "BudgetExhausted"}


def test_a_pod_that_may_not_go_does_not_keep_the_others() -> None:
    plan = plan_of([old("a1", "a"), new()], [*on("a1", count=2), a_pod("bare", "a1"), *on("new")])
    assert plan.pods == ["on-a1-0", "on-a1-1"]
    assert plan.outcome.refusals == {"bare": "BarePod"}


def test_where_every_node_is_chosen_nothing_moves() -> None:
    plan = plan_of([old("a1", "a"), old("b1", "b")], on("a1", "b1"))
    assert plan.moves == []
    assert plan.outcome.refusals == {"on-a1-0": "NoBetterNode"}
