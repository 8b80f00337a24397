"""InterPodAffinity: what the documentation promises, case by case (the oracle's tests cover the rest)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Engine, Verdict
from tests.builders import ANode, APod, a_node, a_pod, cluster

HOSTNAME = "kubernetes.io/hostname"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
NODES = [
    a_node("a1", labels={"zone": "a"}),
    a_node("a2", labels={"zone": "a"}),
    a_node("b1", labels={"zone": "b"}),
    a_node("none", labels={}),
]


def term(app: str, key: str = "zone", **fields: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **fields}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def away(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def liking(weight: int, one: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": one}]}}}


def disliking(weight: int, one: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": one}]}}}


def pod(name: str, app: str, node: str = "", **fields: Any) -> APod:
    phase = {} if node else {"phase": PENDING}
    return a_pod(name, node, cpu=0, memory=0, labels={"app": app}, **phase, **fields)


def judge(pods: Sequence[APod], profile: SchedulerProfile | None = None, nodes: Sequence[ANode] = NODES) -> Verdict:
    spaces = {"shop": {"team": "x"}, "other": {"team": "y"}}
    board = Board(cluster(nodes, pods, namespace_labels=spaces))
    config = SchedulerConfig(profiles={"default-scheduler": profile}) if profile else SchedulerConfig()
    return Engine(board, config).verdict(board.kinds.of(0))


def feasible(*pods: APod) -> set[str]:
    return {node.name for node, ok in zip(NODES, judge(pods).feasible, strict=True) if ok}


def points(*pods: APod, profile: SchedulerProfile | None = None) -> list[float]:
    verdict = judge(pods, profile)
    return [float(each) / 2 for each in verdict.weighted["InterPodAffinity"]]


def test_affinity_leads_into_the_topology_of_a_matching_pod() -> None:
    db = pod("db", "db", "a1")
    assert feasible(pod("new", "web", template=near(term("db"))), db) == {"a1", "a2"}
    assert feasible(pod("new", "web", template=near(term("db", HOSTNAME))), db) == {"a1"}
    assert feasible(pod("new", "web", template=near(term("cache"))), db) == set()


def test_all_affinity_terms_must_be_met_by_the_same_pods() -> None:
    one, two = term("db"), {"labelSelector": {"matchLabels": {"tier": "1"}}, "topologyKey": "zone"}
    new = pod("new", "web", template=near(one, two))
    apart = [pod("db", "db", "a1"), a_pod("other", "a2", labels={"tier": "1"})]
    assert feasible(new, *apart) == set()
    assert feasible(new, a_pod("both", "b1", labels={"app": "db", "tier": "1"})) == {"b1"}


def test_the_first_of_a_series_that_is_near_itself_may_go_to_any_node_with_the_label() -> None:
    new = pod("new", "web", template=near(term("web")))
    assert feasible(new) == {"a1", "a2", "b1"}
    assert feasible(new, pod("second", "web", "b1")) == {"b1"}
    # one on a node without the label counts nowhere
    assert feasible(new, pod("second", "web", "none")) == {"a1", "a2", "b1"}


def test_anti_affinity_keeps_out_of_the_topology_of_a_matching_pod() -> None:
    db = pod("db", "db", "a1")
    assert feasible(pod("new", "web", template=away(term("db"))), db) == {"b1", "none"}
    assert feasible(pod("new", "web", template=away(term("db", HOSTNAME))), db) == {"a2", "b1", "none"}


def test_anti_affinity_of_a_pod_that_is_there_counts_too() -> None:
    holder = pod("db", "db", "a1", template=away(term("web")))
    assert feasible(pod("new", "web"), holder) == {"b1", "none"}
    assert feasible(pod("new", "mail"), holder) == {"a1", "a2", "b1", "none"}
    assert feasible(pod("new", "web"), pod("done", "db", "a1", phase=2, template=away(term("web")))) == {
        "a1",
        "a2",
        "b1",
        "none",
    }


@pytest.mark.parametrize(
    ("fields", "sees_own", "sees_other"),
    [
        ({}, True, False),
        ({"namespaces": ["other"]}, False, True),
        ({"namespaces": ["other", "shop"]}, True, True),
        ({"namespaceSelector": {}}, True, True),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, False, True),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": ["shop"]}, True, True),
        ({"namespaceSelector": {"matchLabels": {"team": "z"}}}, False, False),
    ],
)
def test_a_term_looks_at_its_namespaces(fields: dict[str, Any], sees_own: bool, sees_other: bool) -> None:
    rule = away(term("db", **fields))
    new = pod("new", "web", template=rule)
    assert ("a1" not in feasible(new, pod("db", "db", "a1"))) == sees_own
    assert ("a1" not in feasible(new, pod("db", "db", "a1", namespace="other"))) == sees_other
    # and the same the other way round
    holder = pod("holder", "x", "a1", template=rule)
    assert ("a1" not in feasible(pod("new", "db"), holder)) == sees_own
    assert ("a1" not in feasible(pod("new", "db", namespace="other"), holder)) == sees_other


@pytest.mark.parametrize("rule", [away, near, lambda term: liking(5, term), lambda term: disliking(5, term)])
def test_a_selector_that_1_36_takes_for_all_namespaces_is_not_modelled(rule: Any) -> None:
    """`Matches(pod, nil)` of its own terms: `NotIn` and `DoesNotExist` select a namespace without labels."""

    def is_known(minor: int, **selector: Any) -> bool:
        new = pod("new", "web", template=rule(term("db", namespaceSelector=selector)))
        board = Board(replace(cluster(NODES, [new]), minor=minor))
        return Engine(board).knows(board.kinds.of(0)) is None

    without = {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}
    assert not is_known(36, **without)
    assert is_known(37, **without)
    assert is_known(36)
    assert is_known(36, matchLabels={"team": "y"})


def test_refusals_are_told_in_the_schedulers_words() -> None:
    db = pod("db", "db", "a1", template=away(term("mail")))
    assert judge([pod("new", "web", template=near(term("db"))), db]).filtered[2] == (
        "InterPodAffinity",
        "node(s) didn't match pod affinity rules",
    )
    assert judge([pod("new", "web", template=away(term("db"))), db]).filtered[0] == (
        "InterPodAffinity",
        "node(s) didn't match pod anti-affinity rules",
    )
    assert judge([pod("new", "mail"), db]).filtered[0] == (
        "InterPodAffinity",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    )


def test_what_a_pod_prefers_is_scored_between_the_least_and_the_most() -> None:
    there = [pod("1", "db", "a1"), pod("2", "db", "a1"), pod("3", "db", "b1")]
    assert points(pod("new", "web", template=liking(5, term("db"))), *there) == [100, 100, 50, 0]
    assert points(pod("new", "web", template=disliking(5, term("db"))), *there) == [0, 0, 50, 100]


def test_what_pods_that_are_there_prefer_counts_too() -> None:
    assert points(pod("new", "web"), pod("fan", "x", "a1", template=liking(5, term("web")))) == [100, 100, 0, 0]
    assert points(pod("new", "web"), pod("foe", "x", "a1", template=disliking(5, term("web", HOSTNAME)))) == [
        0,
        100,
        100,
        100,
    ]


def test_required_affinity_of_pods_that_are_there_counts_with_the_hard_weight() -> None:
    fan = pod("fan", "x", "a1", template=near(term("web")))
    one = pod("mild", "x", "b1", template=liking(2, term("web")))
    assert points(pod("new", "web"), fan, one) == [50, 50, 100, 0]
    assert points(pod("new", "web"), fan, one, profile=SchedulerProfile(hard_pod_affinity_weight=8)) == [
        100,
        100,
        25,
        0,
    ]
    off = SchedulerProfile(hard_pod_affinity_weight=0)
    assert points(pod("new", "web"), fan, one, profile=off) == [0, 0, 100, 0]


def test_a_profile_can_ignore_what_others_prefer_unless_the_pod_itself_prefers_something() -> None:
    ignoring = SchedulerProfile(ignore_preferred_terms_of_existing_pods=True)
    fan = pod("fan", "x", "a1", template=liking(5, term("web")))
    assert "InterPodAffinity" not in judge([pod("new", "web"), fan], ignoring).weighted
    choosy = pod("new", "web", template=liking(5, term("x")))
    assert points(choosy, fan, pod("other", "x", "b1"), profile=ignoring) == [100, 100, 50, 0]


def test_a_pod_that_nobody_likes_or_dislikes_is_not_scored() -> None:
    assert "InterPodAffinity" not in judge([pod("new", "web"), pod("there", "db", "a1")]).weighted
