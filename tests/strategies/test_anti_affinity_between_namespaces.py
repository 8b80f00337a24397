"""RemovePodsViolatingInterPodAntiAffinity between namespaces: whose pods a term can move."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import ANode, APod, a_node, a_pod, replicas
from tests.strategies.builders.finding import found_by, names_of, strategy_policy
from tests.strategies.scenarios import moves_of, planner_of, until_nothing_moves

NAME = "RemovePodsViolatingInterPodAntiAffinity"
HOST = "kubernetes.io/hostname"
POLICY = strategy_policy(NAME, guards={"minReplicas": 1})
NODES = [a_node("a"), a_node("b"), a_node("c")]
EVERYWHERE: dict[str, Any] = {"namespaceSelector": {}}


def away_from(app: str | None, **fields: Any) -> dict[str, Any]:
    """A required term; without `app` it selects every pod."""
    selector = {} if app is None else {"matchLabels": {"app": app}}
    return {"labelSelector": selector, "topologyKey": HOST, **fields}


def anti(*terms: Mapping[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return {"affinity": {"podAntiAffinity": required}}


def pod(name: str, node: str, *terms: Mapping[str, Any], **fields: Any) -> APod:
    return a_pod(name, node, **{"owner": name, "template": anti(*terms) if terms else {}, **fields})


def moved(nodes: Sequence[ANode], pods: Sequence[APod]) -> list[str]:
    return [f"{move.namespace}/{move.pod}" for move in moves_of(planner_of(nodes, pods, POLICY))]


STAYING: dict[str, dict[str, Any]] = {
    "bare": {"owner": ""},
    "of a DaemonSet": {"owner_kind": "DaemonSet"},
    "of a node": {"owner_kind": "Node"},
    "of a pod": {"owner_kind": "Pod"},
    "static": {"annotations": {"kubernetes.io/config.source": "file"}},
    "mirror": {"annotations": {"kubernetes.io/config.mirror": "x"}},
    "opted out": {"labels": {"app": "stranger", "rebalancer.dev/evict": "false"}},
    "opted out by a value that is none": {"annotations": {"rebalancer.dev/evict": "never"}},
    "vetoed": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
    "in progress": {"annotations": {"descheduler.alpha.kubernetes.io/eviction-in-progress": "x"}},
}
"""Pods that can't be evicted, by what their creator wrote."""


def stranger(node: str, *terms: Mapping[str, Any], how: str = "bare", name: str = "stranger") -> APod:
    fields = dict(STAYING[how])
    template = {**(anti(*terms) if terms else {}), "annotations": fields.pop("annotations", {})}
    labels = fields.pop("labels", {"app": "stranger"})
    return a_pod(
        name, node, namespace="evil", cpu=10, **{"owner": name, "template": template, "labels": labels, **fields}
    )


@pytest.mark.parametrize("how", sorted(STAYING))
def test_a_pod_that_can_not_be_evicted_evicts_no_pod_of_another_namespace(how: str) -> None:
    others = [pod(f"web-{at}", "a", namespace=f"team-{at}") for at in range(6)]
    assert moved(NODES, [stranger("a", away_from(None, **EVERYWHERE), how=how), *others]) == []


@pytest.mark.parametrize("how", sorted(STAYING))
def test_nor_does_it_as_the_pod_that_their_terms_select(how: str) -> None:
    victims = replicas("web", {"a": 1, "b": 1}, template=anti(away_from("stranger", **EVERYWHERE)))
    assert moved(NODES, [stranger("a", how=how), *victims]) == []


def test_wherever_the_replacements_land_it_follows_them_in_vain() -> None:
    pods = [pod(f"web-{at}", "a", namespace=f"team-{at}") for at in range(6)]
    for node in ("a", "b", "c"):
        strangers = [stranger(each, away_from(None, **EVERYWHERE), name=f"on-{each}") for each in "abc" if each <= node]
        _, _, count = until_nothing_moves(NODES, [*pods, *strangers], POLICY, random.Random(1))
        assert count == 0


def test_a_pod_that_can_be_evicted_goes_for_its_own_term() -> None:
    others = [pod(f"web-{at}", "a", namespace=f"team-{at}", age=60.0) for at in range(6)]
    holder = pod("loner", "a", away_from(None, **EVERYWHERE), namespace="evil", age=90_000)
    assert moved(NODES, [holder, *others]) == ["evil/loner"]
    # also of a single conflict, where the other pod would be cheaper
    assert moved(NODES, [holder, replace(others[0], age=9_000.0)]) == ["evil/loner"]


def test_where_the_holder_is_refused_nobody_of_another_namespace_goes_instead() -> None:
    others = [pod(f"web-{at}", "a", namespace=f"team-{at}") for at in range(6)]
    young = pod("loner", "a", away_from(None, **EVERYWHERE), namespace="evil", age=10.0)
    made = planner_of(NODES, [young, *others], POLICY)
    assert moves_of(made) == []
    assert [(each.name, str(each.code)) for each in made.outcome.refusals()] == [("loner", "TooYoung")]


def test_a_term_over_all_namespaces_still_chooses_among_its_own() -> None:
    bare = a_pod("loner", "a", owner="", template=anti(away_from("noisy", **EVERYWHERE)))
    assert moved(NODES, [bare, pod("noisy", "a"), pod("noisy", "a", namespace="other")]) == ["shop/noisy"]


def test_services_of_two_namespaces_that_exclude_each_other_part() -> None:
    pods = [pod("db", "a", away_from("db", **EVERYWHERE), namespace=space) for space in ("one", "two", "six")]
    assert moved(NODES, pods) == ["one/db", "six/db"]
    pods[0] = replace(pods[0], age=10.0)
    assert moved(NODES, pods) == ["six/db", "two/db"]


def test_a_term_of_another_namespace_does_not_decide_which_pod_of_a_service_goes() -> None:
    web = replicas("web", {"a": 2}, template=anti(away_from("web")))
    web = [replace(web[0], age=90_000.0), replace(web[1], age=8_000.0)]
    holders = [
        pod(f"h{at}", "a", away_from("web", namespaces=["shop"]), namespace="evil", age=10.0, labels={"app": "h"})
        for at in range(9)
    ]
    web[0] = replace(web[0], labels={"app": "web", "old": "yes"})
    holders = [replace(each, template=anti(away_from("web", namespaces=["shop"]))) for each in holders]
    assert moved(NODES, web) == moved(NODES, [*web, *holders]) == ["shop/web-1"]


# ---- properties

APPS = ("w0", "w1", "w2")
SPACES = ("one", "two", "six")


@st.composite
def worlds(draw: st.DrawFn) -> list[APod]:
    """Services of three namespaces with terms over some namespaces or all."""
    pods: list[APod] = []
    for space in SPACES:
        for app in APPS[: draw(st.integers(1, 3))]:
            terms = [
                away_from(
                    draw(st.sampled_from([*APPS, "stranger"])),
                    **draw(st.sampled_from([{}, EVERYWHERE, {"namespaces": ["one", "two", "evil"]}])),
                )
                for _ in range(draw(st.integers(0, 2)))
            ]
            on = {node.name: draw(st.sampled_from([0, 0, 1, 2])) for node in NODES}
            kind = draw(st.sampled_from(["ReplicaSet", "ReplicaSet", "ReplicaSet", "DaemonSet"]))
            fields = {"template": anti(*terms) if terms else {}, "cpu": 100, "owner_kind": kind, "namespace": space}
            pods += replicas(app, on, **fields)
    return pods


@st.composite
def strangers(draw: st.DrawFn) -> list[APod]:
    """Pods that can't be evicted, anywhere, with any term."""
    out = []
    for at in range(draw(st.integers(1, 4))):
        terms = [away_from(draw(st.sampled_from([None, *APPS])), **EVERYWHERE) for _ in range(draw(st.integers(0, 2)))]
        how, node = draw(st.sampled_from(sorted(STAYING))), draw(st.sampled_from("abc"))
        out.append(stranger(node, *terms, how=how, name=f"stranger-{at}"))
        out[-1].labels = {**out[-1].labels, "app": draw(st.sampled_from(["stranger", *APPS]))}
    return out


def found(pods: Sequence[APod]) -> list[tuple[str, list[str], int | None]]:
    """(node, candidates, how many are to go) of each finding about pods of the three namespaces."""
    labels = {space: {} for space in (*SPACES, "evil")}
    made, snapshot = found_by(NAME, NODES, pods, namespace_labels=labels)
    space = [snapshot.namespaces[at] for at in snapshot.pods.namespace.tolist()]
    return [
        (
            snapshot.nodes.names[each.node],
            [f"{space[pod]}/{snapshot.pods.names[pod]}" for pod in each.candidates],
            each.wanted,
        )
        for each in made.findings
        if any(space[pod] != "evil" for pod in each.candidates.tolist())
    ]


@settings(deadline=None, max_examples=80)
@given(worlds(), strangers())
def test_strangers_that_can_not_be_evicted_change_no_finding(world: list[APod], evil: list[APod]) -> None:
    assert found([*world, *evil]) == found(world)


@settings(deadline=None, max_examples=80)
@given(worlds())
def test_every_candidate_holds_a_violated_term_or_is_in_conflict_in_its_own_namespace(world: list[APod]) -> None:
    def selected(term: Mapping[str, Any], holder: APod, other: APod) -> bool:
        spaces = term.get("namespaces") or (SPACES if "namespaceSelector" in term else [holder.namespace])
        return other.namespace in spaces and other.owner == term["labelSelector"]["matchLabels"]["app"]

    def holds(holder: APod, other: APod) -> bool:
        terms = holder.template.get("affinity", {}).get("podAntiAffinity", {})
        return any(
            selected(each, holder, other) for each in terms.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        )

    may_go, must_go = set(), set()
    for one in world:
        for other in world:
            if other is one or one.node != other.node or not holds(one, other):
                continue
            if one.namespace == other.namespace:
                may_go |= {(one.namespace, one.name), (other.namespace, other.name)}
                must_go.add(frozenset({(one.namespace, one.name), (other.namespace, other.name)}))
            elif {one.owner_kind, other.owner_kind} == {"ReplicaSet"}:
                may_go.add((one.namespace, one.name))
                must_go.add(frozenset({(one.namespace, one.name), (other.namespace, other.name)}))
    made, snapshot = found_by(NAME, NODES, world, namespace_labels={space: {} for space in SPACES})
    candidates = {
        (snapshot.namespaces[int(snapshot.pods.namespace[pod])], name)
        for each in made.findings
        for pod, name in zip(each.candidates.tolist(), names_of(each, snapshot), strict=True)
    }
    assert candidates <= may_go
    assert all(pair & candidates for pair in must_go)
