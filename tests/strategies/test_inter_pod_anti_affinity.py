"""RemovePodsViolatingInterPodAntiAffinity: pods in one domain that must not be there together."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import PENDING, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.reason import Reason
from rebalancer.strategies import Findings
from rebalancer.strategies.constraints.inter_pod_anti_affinity import SUBSTITUTES_AT_MOST
from tests.builders import ANode, APod, a_node, a_pod, replicas
from tests.strategies.builders.finding import found_by, names_of, strategy_policy
from tests.strategies.scenarios import moves_of, planner_of, shuffled, until_nothing_moves

NAME = "RemovePodsViolatingInterPodAntiAffinity"

HOST = "kubernetes.io/hostname"
POLICY = strategy_policy(NAME, guards={"minReplicas": 1})


def away_from(app: str, key: str = HOST, **fields: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **fields}


def anti(*terms: Mapping[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return {"affinity": {"podAntiAffinity": required}}


def pod(name: str, node: str, *terms: Mapping[str, Any], **fields: Any) -> APod:
    """A pod of its own service, with anti-affinity."""
    return a_pod(name, node, **{"owner": name, "template": anti(*terms) if terms else {}, **fields})


def zoned(**zone_of: str) -> list[ANode]:
    return [a_node(name, labels={"pool": "general", "zone": zone} if zone else {}) for name, zone in zone_of.items()]


NODES = [a_node("a"), a_node("b"), a_node("c")]
ZONES = zoned(a1="1", a2="1", b1="2")

Listed = list[tuple[str, int | None, list[str]]]


def found_in(nodes: Sequence[ANode], pods: Sequence[APod], **fields: Any) -> tuple[Findings, ClusterSnapshot]:
    return found_by(NAME, nodes, pods, **fields)


def listed(found: Findings, made: ClusterSnapshot) -> Listed:
    """(node, how many are to go, candidates) of each finding."""
    return [(made.nodes.names[each.node], each.wanted, names_of(each, made)) for each in found.findings]


def moves(nodes: Sequence[ANode], pods: Sequence[APod], policy: Any = POLICY) -> list[str]:
    """What one plan moves."""
    return [move.pod for move in moves_of(planner_of(nodes, pods, policy))]


def test_of_two_pods_that_must_not_share_a_node_either_may_go() -> None:
    found, made = found_in(NODES, [pod("loner", "a", away_from("noisy"), age=9_000), pod("noisy", "a")])
    (finding,) = found.findings
    assert finding.goal is Goal.REMOVE
    assert listed(found, made) == [("a", 1, ["loner", "noisy"])]
    assert finding.reason == (
        "shop/loner shares kubernetes.io/hostname=a with shop/noisy, which required anti-affinity forbids"
    )
    assert (finding.landing.even, finding.landing.only, finding.landing.elsewhere) == (None, None, True)


def test_cheap_pods_come_first() -> None:
    loner, noisy = pod("loner", "a", away_from("noisy")), pod("noisy", "a")
    for change in ({"age": 60.0}, {"priority": -5}):
        found, made = found_in(NODES, [loner, replace(noisy, **change)])
        assert listed(found, made) == [("a", 1, ["noisy", "loner"])]


def test_a_pod_is_in_no_conflict_with_itself_or_with_pods_of_another_domain() -> None:
    pods = [pod("loner", "a", away_from("noisy")), pod("noisy", "b"), pod("other", "a")]
    assert found_in(NODES, pods)[0].findings == ()
    assert found_in(NODES, [pod("only", "a", away_from("only"))])[0].findings == ()


def test_of_a_service_that_excludes_itself_all_but_one_go() -> None:
    found, made = found_in(NODES, replicas("db", {"a": 3, "b": 1}, template=anti(away_from("db"))))
    assert listed(found, made) == [("a", 2, ["db-0", "db-1", "db-2"])]
    assert found.findings[0].reason == (
        "3 pods share kubernetes.io/hostname=a, though by required anti-affinity each excludes the others"
    )


def test_a_pod_with_most_conflicts_goes_before_several_that_have_one_each() -> None:
    pods = [pod("loner", "a", away_from("web"), age=90_000), *replicas("web", {"a": 3})]
    found, made = found_in(NODES, pods)
    assert listed(found, made) == [("a", 1, ["loner"]), ("a", 1, ["web-0", "web-1", "web-2"])]
    assert moves(NODES, pods) == ["loner"]


def test_where_that_one_can_not_move_the_others_go() -> None:
    pods = [pod("loner", "a", away_from("web"), owner_kind="DaemonSet"), *replicas("web", {"a": 3})]
    assert moves(NODES, pods) == ["web-0", "web-1", "web-2"]
    bare = [pod("loner", "a", away_from("noisy"), owner=""), pod("noisy", "a", age=90_000)]
    assert moves(NODES, bare) == ["noisy"]


def test_a_chain_is_solved_by_its_middle_or_else_by_its_ends() -> None:
    chain = [pod("p", "a", away_from("q")), pod("q", "a", away_from("r"), age=90_000), pod("r", "a")]
    assert moves(NODES, chain) == ["q"]
    chain[1] = replace(chain[1], age=10.0)
    assert moves(NODES, chain) == ["p", "r"]


def test_each_conflict_is_listed_once_with_the_pod_that_is_to_solve_it() -> None:
    chain = [pod("p", "a", away_from("q")), pod("q", "a", away_from("r")), pod("r", "a", away_from("s")), pod("s", "a")]
    found, made = found_in(NODES, chain)
    assert listed(found, made) == [("a", 1, ["q"]), ("a", 1, ["p", "r"]), ("a", 1, ["r", "s"])]
    assert ["with 2 pods" in each.reason for each in found.findings] == [True, True, False]


def test_who_has_most_conflicts_stays_where_all_those_that_it_excludes_must_go_anyway() -> None:
    hub = pod("hub", "a", away_from("x", "zone"), away_from("y", "zone"), away_from("z", "zone"))
    ends = [pod(f"{app}-end", f"{app}n", away_from(app)) for app in "xyz"]
    more = [pod(f"{app}-more", f"{app}n", away_from(app)) for app in "xyz"]
    pods = [hub, *ends, *more, *(pod(app, f"{app}n", age=90_000) for app in "xyz")]
    nodes = zoned(a="1", xn="1", yn="1", zn="1", b="2")
    assert moves(nodes, pods) == ["x", "y", "z"]


def test_one_eviction_solves_what_two_terms_forbid() -> None:
    pods = [pod("p", "a", away_from("q"), away_from("q", "zone")), pod("q", "a", away_from("p"))]
    assert moves(zoned(a="1", b="2"), pods) == ["p"]


@pytest.mark.parametrize("key", ["zone", HOST])
def test_any_topology_key_counts(key: str) -> None:
    pods = [pod("p", "a1", away_from("q", key)), pod("q", "a2")]
    found, made = found_in(ZONES, pods)
    if key == HOST:
        assert found.findings == ()
        return
    assert listed(found, made) == [("a1", 1, ["p"]), ("a2", 1, ["q"])]
    assert "shares zone=1 with shop/q" in found.findings[0].reason
    assert moves(ZONES, pods) == ["p"]
    assert moves(ZONES, [replace(pods[0], age=10.0), pods[1]]) == ["q"]


def test_over_several_nodes_of_a_domain_all_but_one_go_too() -> None:
    pods = replicas("db", {"a1": 2, "a2": 2}, template=anti(away_from("db", "zone")))
    nodes = [*ZONES, *zoned(c1="3", d1="4")]
    assert moves(nodes, pods) == ["db-0", "db-1", "db-2"]
    pods[0] = replace(pods[0], age=10.0)
    assert moves(nodes, pods) == ["db-1", "db-2", "db-3"]


def test_nodes_without_the_label_share_no_domain() -> None:
    nodes = zoned(a="", b="")
    assert found_in(nodes, [pod("p", "a", away_from("q", "zone")), pod("q", "b")])[0].findings == ()


@pytest.mark.parametrize("gone", [{"terminating": True}, {"phase": SUCCEEDED}, {"node": "", "phase": PENDING}])
def test_pods_that_are_leaving_finished_or_waiting_are_in_no_conflict(gone: dict[str, Any]) -> None:
    pods = [pod("p", "a", away_from("q")), pod("q", "a")]
    assert found_in(NODES, [pods[0], replace(pods[1], **gone)])[0].findings == ()
    assert found_in(NODES, [replace(pods[0], **gone), pods[1]])[0].findings == ()


def test_a_term_looks_at_its_own_namespace_unless_it_names_others() -> None:
    def conflicts(**namespaces: Any) -> int:
        pods = [pod("p", "a", away_from("q", **namespaces)), pod("q", "a", namespace="test")]
        labels = {"test": {"env": "test"}, "shop": {"env": "live"}}
        return len(found_in(NODES, pods, namespace_labels=labels)[0].findings)

    assert conflicts() == 0
    assert conflicts(namespaces=["test"]) == 1
    assert conflicts(namespaces=["shop"]) == 0
    assert conflicts(namespaceSelector={"matchLabels": {"env": "test"}}) == 1
    assert conflicts(namespaceSelector={"matchLabels": {"env": "live"}}) == 0
    assert conflicts(namespaceSelector={}) == 1


def test_preferred_terms_and_affinity_are_no_conflict() -> None:
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": away_from("q")}]
    }
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [away_from("q")]}
    for affinity in ({"podAntiAffinity": preferred}, {"podAffinity": near}):
        pods = [pod("p", "a", template={"affinity": affinity}), pod("q", "a")]
        assert found_in(NODES, pods)[0].findings == ()


def test_filters_choose_what_may_go_not_what_is_in_conflict() -> None:
    pods = [pod("p", "a", away_from("q")), pod("q", "a", labels={"app": "q", "may": "go"})]
    only = {"labelSelector": {"matchLabels": {"may": "go"}}}
    found, made = found_by(NAME, NODES, pods, only)
    assert listed(found, made) == [("a", 1, ["q"])]
    assert found_by(NAME, NODES, pods, {"namespaces": {"exclude": ["shop"]}})[0].findings == ()


def test_nodes_of_no_pool_count_but_nothing_is_found_there() -> None:
    nodes = [a_node("a1", labels={"zone": "1"}), *zoned(a2="1", b1="2")]
    found, made = found_in(nodes, [pod("p", "a1", away_from("q", "zone")), pod("q", "a2")])
    assert listed(found, made) == [("a2", 1, ["q"])]


@pytest.mark.parametrize(
    "here", [{"unschedulable": True}, {"taints": (Taint(key="only", value="gpu", effect="NoSchedule"),)}]
)
def test_conflicts_on_a_cordoned_or_tainted_node_are_solved_and_such_a_node_takes_none(here: dict[str, Any]) -> None:
    nodes = [a_node("a", **here), a_node("b")]
    assert moves(nodes, [pod("p", "a", away_from("q")), pod("q", "a")]) == ["p"]
    assert moves(nodes, [pod("p", "b", away_from("q")), pod("q", "b")]) == []


def test_where_one_pod_stays_only_so_many_go_for_it_at_a_time() -> None:
    crowd = replicas("web", {"a": SUBSTITUTES_AT_MOST + 5}, cpu=10)
    found, made = found_in(NODES, [pod("loner", "a", away_from("web")), *crowd])
    assert [(wanted, len(names)) for _, wanted, names in listed(found, made)] == [(1, 1), (1, SUBSTITUTES_AT_MOST)]


# ---- properties

World = tuple[list[ANode], list[APod]]
APPS = ("w0", "w1", "w2", "w3")


@st.composite
def clusters(draw: st.DrawFn) -> World:
    def chance(percent: int) -> bool:
        return draw(st.integers(0, 99)) >= 100 - percent

    nodes = [
        a_node(
            f"n{index}",
            labels={"pool": "general", **({"zone": draw(st.sampled_from("123"))} if not chance(10) else {})},
            unschedulable=chance(5),
            pods=draw(st.sampled_from([110, 110, 5])),
        )
        for index in range(draw(st.integers(2, 6)))
    ]
    pods: list[APod] = []
    for app in APPS[: draw(st.integers(1, 4))]:
        terms = [
            away_from(draw(st.sampled_from(APPS)), draw(st.sampled_from([HOST, HOST, "zone"])))
            for _ in range(draw(st.sampled_from([0, 1, 1, 2])))
        ]
        on = {node.name: draw(st.sampled_from([0, 0, 1, 1, 2])) for node in nodes}
        kind = "DaemonSet" if chance(10) else "ReplicaSet"
        pods += replicas(app, on, template=anti(*terms) if terms else {}, cpu=100, owner_kind=kind)
    for at in range(len(pods)):
        if chance(8):
            pods[at] = replace(pods[at], age=10.0)
    if pods and chance(20):
        at = draw(st.integers(0, len(pods) - 1))
        pods[at] = replace(pods[at], terminating=True)
    return nodes, pods


def pairs(nodes: Sequence[ANode], pods: Sequence[APod]) -> set[frozenset[str]]:
    """Names of the pods of each conflict. Looked for by hand."""
    labels = {node.name: {HOST: node.name, **node.labels} for node in nodes}
    out = set()
    for one in pods:
        required = one.template.get("affinity", {}).get("podAntiAffinity", {})
        for term in required.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            key, app = term["topologyKey"], term["labelSelector"]["matchLabels"]["app"]
            for other in pods:
                if other is one or one.terminating or other.terminating or other.owner != app:
                    continue
                if key in labels[one.node] and labels[one.node][key] == labels[other.node].get(key):
                    out.add(frozenset((one.name, other.name)))
    return out


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_every_conflict_is_found_and_nothing_else(made: World) -> None:
    nodes, pods = made
    found, snapshot = found_in(nodes, pods)
    wrong = pairs(nodes, pods)
    candidates = {name for each in found.findings for name in names_of(each, snapshot)}
    assert candidates == {name for pair in wrong for name in pair}


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_one_plan_solves_every_conflict_or_says_why_and_evicts_none_in_vain(made: World) -> None:
    nodes, pods = made
    planner = planner_of(nodes, pods, POLICY)
    gone = [move.pod for move in moves_of(planner)]
    refusals = planner.outcome.refusals()
    refused = {each.name for each in refusals}
    wrong = pairs(nodes, pods)
    for pair in wrong:
        assert pair & set(gone) or pair <= refused
    for name in gone:
        assert any(name in pair for pair in wrong)
    found, snapshot = found_in(nodes, pods)
    substitutes = {
        snapshot.pods.names[pod]
        for each in found.findings
        for pod in set(each.candidates.tolist()) - set((each.candidates if each.among is None else each.among).tolist())
    }
    if all(each.code == Reason.ENOUGH_EVICTED for each in refusals) and substitutes.isdisjoint(gone):
        # without anyone of them a pair would stay; who had to stand in for another may have gone for nothing, when that
        # other could go later in the same plan
        for name in gone:
            assert any(pair & set(gone) == {name} for pair in wrong if name in pair)


@settings(deadline=None, max_examples=40)
@given(clusters(), st.randoms(use_true_random=False))
def test_after_the_plans_no_pair_is_in_conflict_or_a_refusal_says_why(made: World, draws: random.Random) -> None:
    nodes, pods = made
    before = len(pairs(nodes, pods))
    after, refused, moved = until_nothing_moves(nodes, pods, POLICY, draws)
    assert moved <= before
    for pair in pairs(nodes, after):
        assert pair <= refused.keys()


@settings(deadline=None, max_examples=40)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_pods_does_not_matter(made: World, draws: random.Random) -> None:
    def everything(nodes: list[ANode], pods: list[APod]) -> list[tuple[str, int | None, list[str], str]]:
        found, snapshot = found_in(nodes, pods)
        reasons = [each.reason for each in found.findings]
        return [(*each, reason) for each, reason in zip(listed(found, snapshot), reasons, strict=True)]

    nodes, pods = made
    assert everything(*shuffled(nodes, pods, draws)) == everything(nodes, pods)
