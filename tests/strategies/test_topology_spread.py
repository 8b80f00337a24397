"""RemovePodsViolatingTopologySpreadConstraint: domains that hold more than a pod's own constraint allows."""

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
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.reason import Reason
from rebalancer.strategies import Findings
from tests.builders import ANode, APod, a_node, a_pod, replicas
from tests.strategies.builders.finding import found_by, names_of, pods_found, strategy_policy
from tests.strategies.scenarios import moves_of, planner_of, shuffled, until_nothing_moves

NAME = "RemovePodsViolatingTopologySpreadConstraint"

HOST = "kubernetes.io/hostname"
POLICY = strategy_policy(NAME, guards={"minReplicas": 1})
SOFT = {"constraints": ["ScheduleAnyway"]}
BOTH = {"constraints": ["DoNotSchedule", "ScheduleAnyway"]}
TAINT = Taint(key="only", value="gpu", effect="NoSchedule")


def constraint(key: str = "zone", skew: int = 1, app: str = "web", **fields: Any) -> dict[str, Any]:
    return {"maxSkew": skew, "topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **fields}


def spread(*constraints: Mapping[str, Any], **template: Any) -> dict[str, Any]:
    return {"topologySpread": list(constraints or [constraint()]), **template}


def soft(**fields: Any) -> dict[str, Any]:
    return constraint(whenUnsatisfiable="ScheduleAnyway", **fields)


def zoned(**zone_of: str) -> list[ANode]:
    return [a_node(name, labels={"pool": "general", "zone": zone} if zone else {}) for name, zone in zone_of.items()]


TWO = zoned(a="1", b="2")
THREE = zoned(a="1", b="2", c="3")


def web(on: Mapping[str, int], *constraints: Mapping[str, Any], **fields: Any) -> list[APod]:
    return replicas("web", on, **{"template": spread(*constraints), **fields})


def found_in(
    nodes: Sequence[ANode], pods: Sequence[APod], args: Mapping[str, Any] | None = None
) -> tuple[Findings, ClusterSnapshot]:
    return found_by(NAME, nodes, pods, args)


def surplus(found: Findings, made: ClusterSnapshot) -> list[tuple[str, int | None]]:
    """(node, how many are to go) of each finding."""
    return [(made.nodes.names[each.node], each.wanted) for each in found.findings]


def test_a_domain_over_the_skew_gives_as_many_as_it_takes() -> None:
    found, made = found_in(TWO, web({"a": 5, "b": 1}))
    (finding,) = found.findings
    assert (finding.node, finding.goal, finding.wanted) == (0, Goal.REMOVE, 2)
    assert names_of(finding, made) == ["web-0", "web-1", "web-2", "web-3", "web-4"]
    assert finding.reason == "shop/web has 5 pods in zone=1, 1 elsewhere, maxSkew is 1"
    even = finding.landing.even
    assert even is not None
    assert (even.domain.tolist(), even.count.tolist(), even.skew) == ([0, 1], [5.0, 1.0], 1)
    assert found.skipped == {}


@pytest.mark.parametrize(
    ("counts", "skew", "wanted"),
    [
        ((1, 0), 1, []),
        ((2, 0), 1, [("a", 1)]),
        ((2, 1), 1, []),
        ((3, 1), 2, []),
        ((4, 1), 2, [("a", 1)]),
        ((9, 1), 5, [("a", 2)]),
        ((0, 0), 1, []),
    ],
)
def test_only_what_is_more_than_the_skew_has_to_go(
    counts: tuple[int, int], skew: int, wanted: list[tuple[str, int]]
) -> None:
    on = dict(zip("ab", counts, strict=True))
    assert surplus(*found_in(TWO, web(on, constraint(skew=skew)))) == wanted


def test_of_several_overfull_domains_each_gives_its_part_and_what_others_can_not() -> None:
    found, made = found_in(zoned(a="1", b="2", c="3", d="4"), web({"a": 6, "b": 6, "c": 6}))
    assert surplus(found, made) == [("a", 2), ("b", 1), ("c", 1), ("a", 4), ("b", 4), ("c", 4)]
    counted = [0 if each.among is None else len(each.among) for each in found.findings]
    assert counted == [6, 6, 6, 18, 18, 18]


def test_a_domain_that_gives_nothing_itself_is_a_substitute_for_one_that_can_not() -> None:
    pods = web({"a": 3, "b": 3, "c": 1})
    found, made = found_in(THREE, pods)
    assert surplus(found, made) == [("a", 1), ("b", 1)]
    young = [replace(each, age=10.0) if each.node == "a" else each for each in pods]
    assert [source for source, _ in moves(THREE, young)] == ["b"]
    assert [source for source, _ in moves(THREE, pods)] == ["a"]


def moves(nodes: Sequence[ANode], pods: Sequence[APod]) -> list[tuple[str, str]]:
    """(node, pod) of each move of one plan."""
    return [(move.node, move.pod) for move in moves_of(planner_of(nodes, pods, POLICY))]


def test_a_domain_without_pods_counts_and_one_that_the_pods_may_not_use_does_not() -> None:
    nodes = zoned(a="1", b="2", c="3")
    assert surplus(*found_in(nodes, web({"a": 2, "b": 2}))) == [("a", 1), ("b", 1)]
    nodes[2].labels = {**nodes[2].labels, "disk": "hdd"}
    not_on_c = {"key": "disk", "operator": "NotIn", "values": ["hdd"]}
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [not_on_c]}]}
    }
    picky = {"affinity": {"nodeAffinity": affinity}}
    assert surplus(*found_in(nodes, web({"a": 2, "b": 2}, template=spread(**picky)))) == []


def test_by_node_affinity_policy_ignore_all_nodes_count() -> None:
    nodes = zoned(a="1", b="2", c="3")
    for node in nodes[:2]:
        node.labels = {**node.labels, "disk": "ssd"}
    for policy, count in (("Honor", 0), ("Ignore", 1)):
        template = spread(constraint(skew=2, nodeAffinityPolicy=policy), nodeSelector={"disk": "ssd"})
        found, _ = found_in(nodes, web({"a": 4, "b": 2}, template=template))
        assert len(found.findings) + len(found.skipped) == count


def test_by_node_taints_policy_honor_a_tainted_node_does_not_count() -> None:
    nodes = [*zoned(a="1", b="2"), a_node("c", labels={"pool": "general", "zone": "3"}, taints=(TAINT,))]
    for policy, count in (("Honor", 0), ("Ignore", 1)):
        found, _ = found_in(nodes, web({"a": 2, "b": 1}, constraint(nodeTaintsPolicy=policy)))
        assert len(found.findings) + len(found.skipped) == count
    tolerant = spread(constraint(nodeTaintsPolicy="Honor"), tolerations=[{"key": "only", "operator": "Exists"}])
    assert surplus(*found_in(nodes, web({"a": 2, "b": 1}, template=tolerant))) == [("a", 1)]


def test_all_matching_pods_count_even_those_that_may_not_move() -> None:
    bare = [a_pod(f"bare-{index}", "b", labels={"app": "web"}) for index in range(3)]
    agents = replicas("agent", {"b": 1}, owner_kind="DaemonSet", labels={"app": "web"})
    assert surplus(*found_in(TWO, web({"a": 5}))) == [("a", 2)]
    assert surplus(*found_in(TWO, [*web({"a": 5}), *bare])) == [("a", 1)]
    assert surplus(*found_in(TWO, [*web({"a": 5}), *bare, *agents])) == []
    # and they make a domain too full, but only those that carry the constraint are to go
    found, made = found_in(TWO, [*web({"b": 1}), *bare])
    assert pods_found(found, made) == ["web-0"]


def test_a_domain_gives_no_more_than_carries_the_constraint_and_then_the_next_one_gives() -> None:
    bare = [a_pod(f"bare-{index}", "a", labels={"app": "web"}) for index in range(8)]
    found, made = found_in(THREE, [*web({"a": 1, "b": 4}), *bare])
    assert surplus(found, made) == [("a", 1), ("b", 1), ("b", 2)]
    assert names_of(found.findings[0], made) == ["web-0"]
    assert surplus(*found_in(TWO, [*web({"a": 1}), *bare])) == [("a", 1)]


@pytest.mark.parametrize(
    "gone", [{"terminating": True}, {"phase": SUCCEEDED}, {"namespace": "other"}, {"labels": {"app": "api"}}]
)
def test_terminating_finished_and_foreign_pods_do_not_count(gone: dict[str, Any]) -> None:
    pods = web({"a": 2})
    assert surplus(*found_in(TWO, pods)) == [("a", 1)]
    pods[1] = replace(pods[1], **gone)
    assert surplus(*found_in(TWO, pods)) == []


def test_pods_on_nodes_without_the_keys_of_all_hard_constraints_do_not_count() -> None:
    assert surplus(*found_in(zoned(a="1", b="2", c=""), web({"a": 1, "c": 5}))) == []
    nodes = [*zoned(a="1", b="2"), a_node("c", labels={"pool": "general", "zone": "3", "rack": "r"})]
    assert surplus(*found_in(nodes, web({"a": 5, "b": 1}, constraint(), constraint("rack")))) == []


def test_each_namespace_is_spread_by_itself() -> None:
    pods = [*web({"a": 3, "b": 1}), *web({"b": 3, "a": 1}, namespace="test")]
    assert surplus(*found_in(TWO, pods)) == [("a", 1), ("b", 1)]


def test_without_min_domains_empty_ones_count_and_with_it_unmet_the_least_is_none() -> None:
    met = constraint(minDomains=2)
    assert surplus(*found_in(TWO, web({"a": 3, "b": 1}, met))) == [("a", 1)]
    unmet = constraint(minDomains=3)
    found, _ = found_in(TWO, web({"a": 3, "b": 2}, unmet))
    assert found.findings == ()
    assert {node: each.code for node, each in found.skipped.items()} == dict.fromkeys((0, 1), Reason.NO_TARGET_NODE)
    assert "3 pods in zone=1, 2 of minDomains 3 exist, maxSkew is 1" in found.skipped[0].message


@pytest.mark.parametrize(("count", "wanted"), [(2, [("a", 1)]), (4, [("a", 1)]), (1, [])])
def test_with_min_domains_unmet_an_empty_domain_still_takes_what_the_skew_allows(count: int, wanted: list[Any]) -> None:
    assert surplus(*found_in(TWO, web({"a": count}, constraint(minDomains=3)))) == wanted


def test_match_label_keys_spread_each_revision_by_itself() -> None:
    by_hash = constraint(matchLabelKeys=["hash"])
    old = web({"a": 1, "b": 3}, by_hash, labels={"hash": "old"})
    new = [replace(each, name=f"new-{each.name}") for each in web({"a": 3, "b": 1}, by_hash, labels={"hash": "new"})]
    assert surplus(*found_in(TWO, [*old, *new])) == [("a", 1), ("b", 1)]
    without = [replace(each, template=spread()) for each in [*old, *new]]
    assert surplus(*found_in(TWO, without)) == []


@pytest.mark.parametrize("selector", [{}, None])
def test_a_selector_that_is_empty_selects_nothing(selector: dict[str, Any] | None) -> None:
    nothing = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector}
    assert surplus(*found_in(TWO, web({"a": 5}, nothing))) == []


def test_pods_that_no_constraint_of_their_own_selects_are_left_alone() -> None:
    pods = [*web({"a": 3, "b": 1}, constraint(app="api")), *replicas("api", {"a": 4})]
    assert surplus(*found_in(TWO, pods)) == []
    assert surplus(*found_in(TWO, replicas("web", {"a": 9}), BOTH)) == []


def test_soft_constraints_count_only_when_asked_for() -> None:
    pods = web({"a": 3, "b": 1}, soft())
    assert surplus(*found_in(TWO, pods)) == []
    assert surplus(*found_in(TWO, pods, SOFT)) == [("a", 1)]
    assert surplus(*found_in(TWO, pods, BOTH)) == [("a", 1)]
    assert surplus(*found_in(TWO, web({"a": 3, "b": 1}), SOFT)) == []


def test_in_a_domain_the_node_with_most_of_them_comes_first_and_they_share_what_is_wanted() -> None:
    nodes = zoned(a="1", b="1", c="2")
    found, made = found_in(nodes, web({"a": 1, "b": 4, "c": 1}))
    assert surplus(found, made) == [("b", 2), ("a", 2)]
    among = [found.findings[0].among, found.findings[1].among]
    assert all(each is not None and len(each) == 5 for each in among)
    assert found.findings[0].landing.even is found.findings[1].landing.even


def test_filters_choose_what_may_go_not_what_is_counted() -> None:
    pods = web({"a": 4, "b": 1})
    pods[0] = replace(pods[0], labels={"canary": "yes"})
    only = {"labelSelector": {"matchLabels": {"canary": "yes"}}}
    found, made = found_in(TWO, pods, only)
    assert surplus(found, made) == [("a", 1)]
    assert pods_found(found, made) == ["web-0"]
    assert surplus(*found_in(TWO, pods, {"namespaces": {"exclude": ["shop"]}})) == []


def test_pods_that_wait_are_counted_where_there_are_fewest() -> None:
    waiting = [a_pod(f"wait-{index}", owner="web", phase=PENDING, template=spread()) for index in range(2)]
    assert surplus(*found_in(TWO, [*web({"a": 4, "b": 1}), waiting[0]])) == [("a", 1)]
    assert surplus(*found_in(TWO, [*web({"a": 4, "b": 1}), *waiting])) == []
    gated = [replace(each, gated=True) for each in waiting]
    assert surplus(*found_in(TWO, [*web({"a": 4, "b": 1}), *gated])) == [("a", 1)]


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"ready": False}, {"taints": (TAINT,)}])
def test_when_the_emptiest_domain_takes_nothing_the_nodes_are_skipped_with_a_reason(closed: dict[str, Any]) -> None:
    nodes = [*zoned(a="1"), a_node("b", labels={"pool": "general", "zone": "2"}, **closed)]
    found, _ = found_in(nodes, web({"a": 3}))
    assert found.findings == ()
    assert {node: each.code for node, each in found.skipped.items()} == {0: Reason.NO_TARGET_NODE}


def test_a_cordoned_domain_that_is_too_full_still_gives() -> None:
    nodes = [a_node("a", labels={"pool": "general", "zone": "1"}, unschedulable=True), *zoned(b="2")]
    assert surplus(*found_in(nodes, web({"a": 3, "b": 1}))) == [("a", 1)]


def test_a_soft_constraint_evens_out_what_it_can_beside_a_closed_domain() -> None:
    nodes = [*zoned(a="1", b="2"), a_node("c", labels={"pool": "general", "zone": "3"}, unschedulable=True)]
    assert surplus(*found_in(nodes, web({"a": 5, "b": 1}, soft()), SOFT)) == [("a", 2)]
    found, _ = found_in(nodes, web({"a": 5, "b": 1}))
    assert (found.findings, sorted(found.skipped)) == ((), [0])


def test_nodes_of_no_pool_count_but_nothing_is_found_there() -> None:
    nodes = [a_node("a", labels={"zone": "1"}), *zoned(b="2")]
    assert surplus(*found_in(nodes, web({"a": 4}))) == []
    assert surplus(*found_in(nodes, web({"b": 4}))) == [("b", 2)]


@pytest.mark.parametrize("seed", range(4))
def test_moves_repair_zones_and_hosts_and_then_nothing_moves(seed: int) -> None:
    nodes = zoned(a="1", b="1", c="2", d="2")
    pods = web({"a": 6, "c": 2}, constraint(), constraint(HOST, skew=2))
    after, _, moved = until_nothing_moves(nodes, pods, POLICY, random.Random(seed))
    assert Counter(pod.node for pod in after) == {"a": 3, "b": 1, "c": 2, "d": 2}
    assert moved == 3


def test_a_domain_whose_first_node_may_give_nothing_gives_from_the_next() -> None:
    nodes = zoned(a="1", b="1", c="2")
    pods = web({"a": 3, "b": 2, "c": 1})
    pods = [replace(each, age=10.0) if each.node == "a" else each for each in pods]
    assert [source for source, _ in moves(nodes, pods)] == ["b", "b"]


def test_two_domains_that_are_too_full_do_not_give_more_than_it_takes() -> None:
    pods = web({"a": 6, "b": 6, "c": 6})
    gone = Counter(source for source, _ in moves(zoned(a="1", b="2", c="3", d="4"), pods))
    assert gone == {"a": 2, "b": 1, "c": 1}


# ---- properties

World = tuple[list[ANode], list[APod]]


@st.composite
def clusters(draw: st.DrawFn) -> World:
    """One or two services that carry one constraint, or two; pods that don't, and nodes of all sorts."""

    def chance(percent: int) -> bool:
        return draw(st.integers(0, 99)) >= 100 - percent

    names = [f"n{index}" for index in range(draw(st.integers(2, 6)))]
    nodes = [
        a_node(
            name,
            labels={"pool": "general", **({"zone": draw(st.sampled_from("123"))} if not chance(10) else {})},
            unschedulable=chance(8),
            ready=not chance(4),
            taints=(TAINT,) if chance(8) else (),
            pods=draw(st.sampled_from([110, 110, 7])),
        )
        for name in names
    ]
    pods: list[APod] = []
    for app in ["web", "api"][: draw(st.integers(1, 2))]:
        skew, unmet = draw(st.sampled_from([1, 1, 2, 3])), {"minDomains": 3} if chance(20) else {}
        rules = [constraint(skew=skew, app=app, **unmet)]
        if chance(25):
            rules.append(constraint(HOST, app=app, skew=draw(st.integers(1, 3))))
        pods += replicas(app, {name: draw(st.integers(0, 4)) for name in names}, template=spread(*rules), cpu=100)
        if chance(30):
            pods += [a_pod(f"{app}-bare-{name}", name, cpu=0, labels={"app": app}) for name in names if chance(50)]
    if pods and chance(30):
        at = draw(st.integers(0, len(pods) - 1))
        pods[at] = replace(pods[at], terminating=True)
    return nodes, pods


def violations(nodes: Sequence[ANode], pods: Sequence[APod]) -> list[tuple[str, str, str]]:
    """(app, key, value) of each domain with more than its skew allows. Counted by hand."""
    out = []
    for app in ("web", "api"):
        carriers = [pod for pod in pods if pod.owner == app]
        for rule in carriers[0].template["topologySpread"] if carriers else ():
            keys = [each["topologyKey"] for each in carriers[0].template["topologySpread"]]
            known = {node.name: {HOST: node.name, **node.labels} for node in nodes}
            known = {name: labels for name, labels in known.items() if all(key in labels for key in keys)}
            counts = Counter({labels[rule["topologyKey"]]: 0 for labels in known.values()})
            for pod in pods:
                if (pod.owner or pod.labels.get("app")) == app and pod.node in known and not pod.terminating:
                    counts[known[pod.node][rule["topologyKey"]]] += 1
            least = min(counts.values(), default=0) if len(counts) >= rule.get("minDomains", 1) else 0
            out += [(app, rule["topologyKey"], at) for at, count in counts.items() if count - least > rule["maxSkew"]]
    return out


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_what_is_found_is_a_violation_and_every_violation_is_found_or_skipped(made: World) -> None:
    nodes, pods = made
    found, snapshot = found_in(nodes, pods)
    wrong = violations(nodes, pods)
    by_name = {node.name: {HOST: node.name, **node.labels} for node in nodes}
    for finding in found.findings:
        app = snapshot.pods.names[finding.candidates[0]].split("-")[0]
        assert any((app, key, value) in wrong for key, value in by_name[nodes[finding.node].name].items())
    if any(app in {pod.owner for pod in pods if not pod.terminating} for app, _, _ in wrong):
        carried = [
            (app, key, value)
            for app, key, value in wrong
            for pod in pods
            if pod.owner == app and not pod.terminating and by_name[pod.node].get(key) == value
        ]
        assert found.findings or found.skipped or not carried


@settings(deadline=None, max_examples=40)
@given(clusters(), st.randoms(use_true_random=False))
def test_after_the_plan_the_skew_is_kept_or_a_refusal_says_why(made: World, draws: random.Random) -> None:
    nodes, pods = made
    after, refused, _ = until_nothing_moves(nodes, pods, POLICY, draws)
    found, _ = found_in(nodes, after)
    by_name = {node.name: {HOST: node.name, **node.labels} for node in nodes}
    for app, key, value in violations(nodes, after):
        inside = [pod for pod in after if by_name[pod.node].get(key) == value]
        movable = [pod for pod in inside if pod.owner == app and not pod.terminating]
        refusals = [pod.name for pod in movable if pod.name in refused]
        skipped = [node for node in found.skipped if by_name[nodes[node].name].get(key) == value]
        assert refusals or skipped or not movable, (app, key, value)


@settings(deadline=None, max_examples=40)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_pods_does_not_matter(made: World, draws: random.Random) -> None:
    def everything(nodes: list[ANode], pods: list[APod]) -> tuple[list[Any], dict[str, str]]:
        found, snapshot = found_in(nodes, pods)
        findings = [(nodes[each.node].name, each.reason, names_of(each, snapshot)) for each in found.findings]
        return findings, {nodes[node].name: each.message for node, each in found.skipped.items()}

    nodes, pods = made
    assert everything(*shuffled(nodes, pods, draws)) == everything(nodes, pods)
