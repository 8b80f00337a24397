"""RemoveDuplicates: copies of one owner that share a node while others have fewer."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import PENDING, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Finding, Goal
from tests.builders import ANode, APod, a_node, a_pod, replicas
from tests.strategies.builders.finding import found_by, names_of, pods_found, strategy_policy
from tests.strategies.scenarios import moves_of, planner_of, shuffled, until_nothing_moves

NAME = "RemoveDuplicates"

POLICY = strategy_policy(NAME, guards={"minReplicas": 1})
LEAVING = Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")


def three(**of_c: Any) -> list[ANode]:
    return [a_node("a"), a_node("b"), a_node("c", **of_c)]


def images(*names: str) -> dict[str, Any]:
    return {"images": names}


def on(found: Sequence[Finding], made: ClusterSnapshot) -> list[tuple[str, int | None]]:
    return [(made.nodes.names[each.node], each.wanted) for each in found]


def test_a_node_over_the_fair_share_gives_what_is_too_much() -> None:
    found, made = found_by(NAME, three(), replicas("web", {"a": 4, "b": 1}))
    (finding,) = found.findings
    assert (finding.node, finding.goal, finding.wanted) == (0, Goal.REMOVE, 2)
    assert names_of(finding, made) == ["web-0", "web-1", "web-2", "web-3"]
    assert finding.reason == (
        "4 pods of ReplicaSet shop/web share the node, 2 would be fair: 5 pods, 3 nodes that could take them"
    )
    even = finding.landing.even
    assert even is not None
    assert even.domain.tolist() == [0, 1, 2]
    assert even.count.tolist() == [4.0, 1.0, 0.0]
    assert found.loads is None


@pytest.mark.parametrize(
    "counts", [{"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2}, {"a": 2, "b": 1, "c": 1}, {"a": 3, "b": 3, "c": 3}]
)
def test_what_is_as_even_as_it_can_be_is_left_alone(counts: Mapping[str, int]) -> None:
    assert found_by(NAME, three(), replicas("web", counts))[0].findings == ()


def test_pods_of_different_owners_and_namespaces_and_bare_pods_are_no_duplicates() -> None:
    pods = [a_pod("x", "a", owner="x"), a_pod("y", "a", owner="y"), a_pod("p", "a"), a_pod("q", "a")]
    assert found_by(NAME, three(), pods)[0].findings == ()
    pods = [a_pod("web-0", "a", owner="web"), a_pod("web-0", "a", owner="web", namespace="other")]
    assert found_by(NAME, three(), pods)[0].findings == ()


def test_pods_with_other_images_are_no_duplicates() -> None:
    def pod(name: str, *of: str) -> APod:
        return a_pod(name, "a", owner="db", owner_kind="StatefulSet", template=images(*of))

    assert found_by(NAME, three(), [pod("old", "db:1"), pod("new", "db:2")])[0].findings == ()
    found, made = found_by(
        NAME, three(), [pod("one", "db:1", "log:1"), pod("two", "log:1", "db:1"), pod("new", "db:2")]
    )
    assert pods_found(found, made) == ["one", "two"]


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_pods_that_belong_to_a_node_are_left_alone(kind: str) -> None:
    assert found_by(NAME, three(), replicas("agent", {"a": 2}, owner_kind=kind))[0].findings == ()


def test_excluded_owner_kinds_are_left_alone() -> None:
    pods = [*replicas("batch", {"a": 3}, owner_kind="Job"), *replicas("web", {"b": 3})]
    found, made = found_by(NAME, three(), pods, {"excludeOwnerKinds": ["Job"]})
    assert on(found.findings, made) == [("b", 2)]


def test_one_place_alone_is_nothing_to_spread_over() -> None:
    assert found_by(NAME, [a_node("a")], replicas("web", {"a": 3}))[0].findings == ()


@pytest.mark.parametrize(
    "no_place",
    [
        {"unschedulable": True},
        {"ready": False},
        {"taints": (Taint(key="only", value="gpu", effect="NoSchedule"),)},
        {"taints": (Taint(key="only", value="gpu", effect="NoExecute"),)},
        {"taints": (LEAVING,)},
        {"labels": {"pool": "general", "disk": "hdd"}},
    ],
)
def test_a_node_that_could_not_take_them_is_no_place(no_place: dict[str, Any]) -> None:
    nodes = [a_node(name, labels={"pool": "general", "disk": "ssd"}) for name in "ab"]
    third = {"labels": {"pool": "general", "disk": "ssd"}, **no_place}
    template = {"nodeSelector": {"disk": "ssd"}}
    pods = replicas("web", {"a": 2, "b": 1}, template=template)
    assert found_by(NAME, [*nodes, a_node("c", **third)], pods)[0].findings == ()
    found, _ = found_by(NAME, [*nodes, a_node("c", **third)], replicas("web", {"a": 4}, template=template))
    (finding,) = found.findings
    assert finding.wanted == 2
    assert finding.landing.only is not None
    assert finding.landing.only.tolist() == [True, True, False]
    assert finding.landing.even is not None
    assert finding.landing.even.domain.tolist() == [0, 1, -1]


HARD, RATHER = Taint(key="only", value="gpu", effect="NoSchedule"), Taint(key="rather", effect="PreferNoSchedule")


@pytest.mark.parametrize(
    ("taint", "tolerations"),
    [(HARD, [{"key": "only", "operator": "Exists"}]), (HARD, [{"operator": "Exists"}]), (RATHER, [])],
    ids=["tolerated", "all tolerated", "soft"],
)
def test_a_node_whose_taint_is_tolerated_or_soft_is_a_place(taint: Taint, tolerations: list[dict[str, str]]) -> None:
    pods = replicas("web", {"a": 2, "b": 1}, template={"tolerations": tolerations})
    found, made = found_by(NAME, three(taints=(taint,)), pods)
    assert on(found.findings, made) == [("a", 1)]


def test_a_cordoned_node_still_gives_what_it_has_too_many() -> None:
    nodes = [a_node("a", unschedulable=True), a_node("b"), a_node("c")]
    found, made = found_by(NAME, nodes, replicas("web", {"a": 4, "b": 1}))
    (finding,) = found.findings
    assert on(found.findings, made) == [("a", 1)]
    assert finding.landing.even is not None
    assert finding.landing.even.domain.tolist() == [0, 1, 2]
    assert finding.landing.only is not None
    assert finding.landing.only.tolist() == [False, True, True]


def test_pods_that_wait_or_are_leaving_count_in_the_share_but_not_on_the_node() -> None:
    two = replicas("web", {"a": 2, "b": 1})
    assert on(*_found(two)) == [("a", 1)]
    waiting = a_pod("web-3", owner="web", phase=PENDING)
    assert on(*_found([*two, waiting])) == []
    leaving = a_pod("web-3", "c", owner="web", terminating=True)
    assert on(*_found([*two, leaving])) == []
    assert on(*_found([two[0], replace(two[1], terminating=True)])) == []
    assert on(*_found([*two, a_pod("web-3", "c", owner="web", phase=SUCCEEDED)])) == [("a", 1)]


def _found(pods: list[APod]) -> tuple[tuple[Finding, ...], ClusterSnapshot]:
    found, made = found_by(NAME, three(), pods)
    return found.findings, made


def test_filters_choose_what_may_go_not_what_is_counted() -> None:
    pods = [
        *replicas("web", {"a": 2}, labels={"track": "stable"}),
        replace(replicas("web", {"a": 1}, labels={"track": "canary"})[0], name="web-9"),
    ]
    found, made = found_by(NAME, three(), pods, {"labelSelector": {"matchLabels": {"track": "canary"}}})
    assert [(each.wanted, names_of(each, made)) for each in found.findings] == [(2, ["web-9"])]
    assert found_by(NAME, three(), pods, {"namespaces": {"exclude": ["sh*"]}})[0].findings == ()


def test_nodes_of_no_pool_count_but_nothing_is_found_there() -> None:
    nodes = [a_node("a"), a_node("b", labels={})]
    found, made = found_by(NAME, nodes, [*replicas("web", {"b": 4}), *replicas("api", {"a": 4})])
    assert on(found.findings, made) == [("a", 2)]


def test_cheap_pods_come_first() -> None:
    pods = [
        a_pod("old", "a", owner="web", age=9_000),
        a_pod("dear", "a", owner="web", priority=10, age=10),
        a_pod("new", "a", owner="web", age=1_000),
        a_pod("alike", "a", owner="web", age=1_000),
    ]
    found, made = found_by(NAME, three(), pods)
    assert pods_found(found, made) == ["alike", "new", "old", "dear"]


def test_most_too_many_come_first_then_by_name() -> None:
    pods = [*replicas("x", {"b": 3}), *replicas("y", {"a": 3}), *replicas("z", {"c": 6})]
    found, made = found_by(NAME, three(), pods)
    assert on(found.findings, made) == [("c", 4), ("a", 2), ("b", 2)]


@pytest.mark.parametrize("seed", range(5))
def test_moves_spread_them_and_then_nothing_moves(seed: int) -> None:
    pods, _, moved = until_nothing_moves(three(), replicas("web", {"a": 5}), POLICY, random.Random(seed))
    assert moved == 3
    assert sorted(Counter(pod.node for pod in pods).values()) == [1, 2, 2]


# ---- properties


World = tuple[list[ANode], list[APod]]


@st.composite
def clusters(draw: st.DrawFn) -> World:
    def chance(percent: int) -> bool:
        return draw(st.integers(0, 99)) >= 100 - percent

    names = [f"n{index}" for index in range(draw(st.integers(1, 5)))]
    nodes = [
        a_node(
            name,
            labels={"pool": "general", "disk": draw(st.sampled_from(["ssd", "ssd", "hdd"]))},
            unschedulable=chance(10),
            ready=not chance(5),
            pods=draw(st.sampled_from([110, 110, 6])),
        )
        for name in names
    ]
    pods: list[APod] = []
    for index in range(draw(st.integers(1, 3))):
        template = {"nodeSelector": {"disk": "ssd"}} if chance(30) else {}
        counts = {name: draw(st.integers(0, 4)) for name in names}
        pods += replicas(f"w{index}", counts, template=template, cpu=draw(st.sampled_from([100, 3000])))
    for at in range(len(pods)):
        if chance(5):
            pods[at] = replace(pods[at], template={**pods[at].template, "images": ["other"]})
    if pods and chance(30):
        at = draw(st.integers(0, len(pods) - 1))
        pods[at] = replace(pods[at], terminating=True)
    return nodes, pods


def too_many(nodes: Sequence[ANode], pods: Sequence[APod]) -> dict[tuple[str, str], list[APod]]:
    """(owner, node) -> pods there, where they are more than the fair share. Counted by hand."""
    out = {}
    for owner in {pod.owner for pod in pods}:
        for image in ("", "other"):
            mine = [pod for pod in pods if pod.owner == owner and "".join(pod.template.get("images", ())) == image]
            picky = bool(mine and mine[0].template.get("nodeSelector"))
            takes = [node for node in nodes if node.ready and not node.unschedulable]
            takes = [node for node in takes if not picky or node.labels["disk"] == "ssd"]
            for node in nodes:
                here = [pod for pod in mine if pod.node == node.name and not pod.terminating]
                if len(takes) > 1 and len(here) > math.ceil(len(mine) / len(takes)):
                    out[owner + image, node.name] = here
    return out


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_exactly_the_nodes_over_the_fair_share_are_found(made: World) -> None:
    nodes, pods = made
    found, snapshot = found_by(NAME, nodes, pods)
    by_hand = sorted((node, sorted(pod.name for pod in here)) for (_, node), here in too_many(nodes, pods).items())
    listed = sorted((nodes[each.node].name, sorted(names_of(each, snapshot))) for each in found.findings)
    assert listed == by_hand


@settings(deadline=None, max_examples=40)
@given(clusters(), st.randoms(use_true_random=False))
def test_after_the_plan_no_node_has_more_than_its_share_or_a_refusal_says_why(
    made: World, draws: random.Random
) -> None:
    nodes, pods = made
    pods, refused, _ = until_nothing_moves(nodes, pods, POLICY, draws)
    for (owner, node), here in too_many(nodes, pods).items():
        assert any(pod.name in refused for pod in here), (owner, node)


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_one_plan_takes_what_is_too_much_and_no_more(made: World) -> None:
    nodes, pods = made
    planner = planner_of(nodes, pods, POLICY)
    gone = [move.pod for move in moves_of(planner)]
    refused = {each.name for each in planner.outcome.refusals()}
    found, snapshot = found_by(NAME, nodes, pods)
    for finding in found.findings:
        names = names_of(finding, snapshot)
        assert finding.wanted is not None
        left = [name for name in names if name not in gone]
        assert len(names) - len(left) <= finding.wanted
        assert len(names) - len(left) == finding.wanted or refused >= set(left)


@settings(deadline=None, max_examples=40)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_pods_does_not_matter(made: World, draws: random.Random) -> None:
    def listed(nodes: list[ANode], pods: list[APod]) -> list[tuple[str, str, list[str]]]:
        found, snapshot = found_by(NAME, nodes, pods)
        return [(nodes[each.node].name, each.reason, names_of(each, snapshot)) for each in found.findings]

    nodes, pods = made
    assert listed(*shuffled(nodes, pods, draws)) == listed(nodes, pods)
