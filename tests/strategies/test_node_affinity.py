"""RemovePodsViolatingNodeAffinity: who stands on a node that its own rules don't want."""

from typing import Any

from rebalancer.strategies.constraints.node_affinity import PREFERRED, REQUIRED
from tests.builders import ANode, APod, a_node, a_pod, plan_all, replicas
from tests.strategies.builders.finding import found_by, names_of, pods_found, strategy_policy

NAME = "RemovePodsViolatingNodeAffinity"

BOTH = {"nodeAffinityType": [REQUIRED, PREFERRED]}


def zone(name: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}


def required(name: str) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [zone(name)]}}}}


def preferred(**weights: int) -> dict[str, Any]:
    terms = [{"weight": weight, "preference": zone(name)} for name, weight in weights.items()]
    return {"affinity": {"nodeAffinity": {PREFERRED: terms}}}


def zones(*names: str, **fields: Any) -> list[ANode]:
    return [a_node(f"in-{name}", labels={"pool": "general", "zone": name}, **fields) for name in names]


def test_a_pod_whose_required_affinity_is_broken_is_found() -> None:
    nodes = zones("a", "b")
    pods = [
        a_pod("right", "in-a", owner="web", template=required("a")),
        a_pod("wrong", "in-b", owner="web", template=required("a")),
    ]
    found, made = found_by(NAME, nodes, pods)
    assert pods_found(found, made) == ["wrong"]
    assert found.findings[0].reason == "the pod's node affinity doesn't match the node (any more)"
    assert found.findings[0].landing.only is None


def test_a_node_selector_is_a_rule_as_well() -> None:
    pods = [a_pod("wrong", "in-b", owner="web", template={"nodeSelector": {"zone": "a"}})]
    found, made = found_by(NAME, zones("a", "b"), pods)
    assert pods_found(found, made) == ["wrong"]
    assert "node selector" in found.findings[0].reason


def test_pods_without_rules_finished_and_leaving_ones_are_left_alone() -> None:
    pods = [
        a_pod("free", "in-b", owner="web"),
        a_pod("leaving", "in-b", owner="web", template=required("a"), terminating=True),
        a_pod("done", "in-b", owner="web", template=required("a"), phase=2),
    ]
    assert found_by(NAME, zones("a", "b"), pods)[0].findings == ()


def test_a_preference_counts_only_when_asked_for_and_names_its_points() -> None:
    pods = [a_pod("p", "in-b", owner="web", template=preferred(a=50, b=20))]
    assert found_by(NAME, zones("a", "b"), pods)[0].findings == ()
    found, _ = found_by(NAME, zones("a", "b", "c"), pods, BOTH)
    (finding,) = found.findings
    assert finding.reason == "20 points by its preferred node affinity, other nodes have up to 50"
    assert finding.landing.only is not None
    assert finding.landing.only.tolist() == [True, False, False]


def test_a_better_node_that_would_not_take_it_is_no_reason() -> None:
    pods = [a_pod("p", "in-b", owner="web", template=preferred(a=50))]
    for fields in ({"unschedulable": True}, {"ready": False}):
        nodes = [*zones("a", **fields), *zones("b")]
        assert found_by(NAME, nodes, pods, BOTH)[0].findings == ()


def test_required_comes_before_preferred_and_a_pod_is_found_once() -> None:
    template = {"nodeSelector": {"zone": "a"}, **preferred(a=50)}
    pods = [
        a_pod("likes", "in-c", owner="x", template=preferred(a=9)),
        a_pod("must", "in-b", owner="web", template=template),
    ]
    found, made = found_by(NAME, zones("a", "b", "c"), pods, BOTH)
    assert [names_of(each, made) for each in found.findings] == [["must"], ["likes"]]


def test_a_preferred_move_is_made_only_when_the_better_node_would_really_take_it() -> None:
    def plan(room: float) -> tuple[list[tuple[str, str, str]], dict[str, str]]:
        nodes = [*zones("a", cpu=room), *zones("b")]
        pods: list[APod] = replicas("web", {"in-b": 2}, used=100.0, template=preferred(a=100))
        outcome = plan_all(nodes, pods, strategy_policy(NAME, BOTH))
        return outcome.moves, outcome.refusals

    moves, refusals = plan(room=16_000.0)
    assert [(source, landing) for _, source, landing in moves] == [("in-b", "in-a")] * 2
    moves, refusals = plan(room=400.0)  # each asks for 500 millicores: the scheduler would put it back
    assert moves == []
    assert set(refusals) == {"web-0", "web-1"}


def test_after_the_plan_every_required_rule_holds_or_a_refusal_says_why() -> None:
    nodes = zones("a", "b")
    pods = [
        *replicas("web", {"in-b": 3}, used=100.0, template=required("a")),
        *replicas("lost", {"in-b": 2}, used=100.0, template=required("nowhere")),
    ]
    outcome = plan_all(nodes, pods, strategy_policy(NAME))
    assert {landing for _, _, landing in outcome.moves} == {"in-a"}
    assert sorted(outcome.pods) == ["web-0", "web-1", "web-2"]
    assert outcome.refusals == {"lost-0": "NoTargetNode", "lost-1": "NoTargetNode"}


def test_pods_of_one_name_in_several_namespaces_are_found_by_namespace() -> None:
    """Their templates are numbered in the order in which they were listed."""
    for cpu in (100.0, 900.0):
        pods = [
            a_pod("db-0", "in-b", namespace=space, owner="db", cpu=asked, template=required("a"))
            for space, asked in (("a", cpu), ("b", 500.0))
        ]
        found, made = found_by(NAME, zones("a", "b"), pods)
        first = [made.namespaces[made.pods.namespace[each.candidates[0]]] for each in found.findings]
        assert first == ["a", "b"]
