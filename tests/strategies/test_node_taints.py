"""RemovePodsViolatingNodeTaints: who stands on a node with a taint that it doesn't tolerate."""

from typing import Any

import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.decisions.plan import Goal
from rebalancer.strategies import Findings
from tests.builders import a_node, a_pod, plan_all, replicas
from tests.strategies.builders.finding import found_by, names_of, pods_found, strategy_policy

NAME = "RemovePodsViolatingNodeTaints"

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")
SPOT = Taint(key="spot", effect="PreferNoSchedule")
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def find(taint: Taint, template: dict[str, Any] | None = None, **args: Any) -> Findings:
    nodes = [a_node("tainted", taints=(taint,)), a_node("free")]
    pods = [a_pod(name, node, owner="web", template=template or {}) for name, node in (("a", "tainted"), ("b", "free"))]
    return found_by(NAME, nodes, pods, args)[0]


def test_a_pod_that_does_not_tolerate_a_taint_is_found_with_the_taint_named() -> None:
    (finding,) = find(GPU).findings
    assert (finding.node, finding.candidates.tolist(), finding.goal) == (0, [0], Goal.REMOVE)
    assert finding.reason == "the node has a taint that a pod doesn't tolerate: gpu=yes:NoSchedule"
    assert (finding.strategy, finding.pool, finding.broken) == (NAME, "general", False)


@pytest.mark.parametrize(
    ("toleration", "count"),
    [
        ({"key": "gpu", "operator": "Exists"}, 0),
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, 0),
        ({"operator": "Exists"}, 0),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, 1),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, 1),
    ],
)
def test_a_pod_stays_only_with_a_toleration_of_that_value_and_effect(toleration: dict[str, str], count: int) -> None:
    assert len(find(GPU, {"tolerations": [toleration]}).findings) == count


def test_of_several_taints_one_that_is_not_tolerated_is_enough() -> None:
    nodes = [a_node("n", taints=(GPU, Taint(key="team", value="ml", effect="NoSchedule")))]
    pods = [a_pod("a", "n", owner="web", template={"tolerations": [{"key": "gpu", "operator": "Exists"}]})]
    found, _ = found_by(NAME, nodes, pods)
    assert "team=ml:NoSchedule" in found.findings[0].reason


@pytest.mark.parametrize(("asked", "count"), [(False, 0), (True, 1)])
def test_soft_taints_count_when_asked_for(asked: bool, count: int) -> None:
    assert len(find(SPOT, includePreferNoSchedule=asked).findings) == count


def test_what_a_soft_taint_moves_lands_only_where_there_is_none_and_a_hard_one_is_left_to_the_scheduler() -> None:
    (finding,) = find(SPOT, includePreferNoSchedule=True).findings
    assert finding.landing.only is not None
    assert finding.landing.only.tolist() == [False, True]
    assert find(GPU, includePreferNoSchedule=True).findings[0].landing.only is None


@pytest.mark.parametrize(
    "taint",
    [
        Taint(key=SOFT_TAINT, value="hot", effect="PreferNoSchedule"),
        CORDON,
        Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule"),
        Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule"),
        Taint(key="gpu", effect="NoExecute"),
    ],
)
def test_our_own_taint_a_cordon_pressure_and_what_others_act_on_are_left_alone(taint: Taint) -> None:
    assert find(taint, includePreferNoSchedule=True).findings == ()


@pytest.mark.parametrize(
    ("taint", "args", "count"),
    [
        (GPU, {"excludedTaints": ["gpu"]}, 0),
        (GPU, {"excludedTaints": ["gpu=yes"]}, 0),
        (GPU, {"excludedTaints": ["gpu=no"]}, 1),
        (GPU, {"includedTaints": ["gpu"]}, 1),
        (GPU, {"includedTaints": ["gpu=yes"]}, 1),
        (GPU, {"includedTaints": ["spot"]}, 0),
        (GPU, {"includedTaints": ["gpu"], "excludedTaints": ["gpu=yes"]}, 0),
        (CORDON, {"includedTaints": [CORDON.key]}, 1),
    ],
)
def test_taints_are_chosen_by_key_or_by_key_and_value(taint: Taint, args: dict[str, Any], count: int) -> None:
    assert len(find(taint, **args).findings) == count


def test_pods_of_several_templates_are_one_finding_unless_a_soft_taint_lets_them_land_elsewhere() -> None:
    tolerant = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
    other = {"tolerations": [{"key": "other", "operator": "Exists"}]}
    pods = [
        a_pod("a", "n", owner="web"),
        a_pod("b", "n", owner="api", template=other),
        a_pod("c", "n", owner="job", template=tolerant),
    ]
    for taint, count in ((GPU, 1), (SPOT, 2)):
        found, made = found_by(NAME, [a_node("n", taints=(taint,))], pods, {"includePreferNoSchedule": True})
        assert len(found.findings) == count
        assert sorted(pods_found(found, made)) == (["a", "b", "c"] if taint is GPU else ["a", "b"])


def test_pods_are_chosen_by_namespace_and_label_and_the_cheapest_comes_first() -> None:
    nodes = [a_node("n", taints=(GPU,))]
    pods = [
        a_pod("dear", "n", owner="web", priority=10),
        a_pod("young", "n", owner="web", age=100.0),
        a_pod("old", "n", owner="web", age=9_000.0),
        a_pod("leaving", "n", owner="web", terminating=True),
        a_pod("other", "n", owner="db", namespace="data"),
    ]
    found, made = found_by(NAME, nodes, pods, {"namespaces": {"exclude": ["da*"]}})
    assert [names_of(each, made) for each in found.findings] == [["young", "old", "dear"]]
    found, made = found_by(NAME, nodes, pods, {"labelSelector": {"matchLabels": {"app": "db"}}})
    assert pods_found(found, made) == ["other"]


def test_after_the_plan_no_pod_stays_where_it_does_not_tolerate_a_taint_or_a_refusal_says_why() -> None:
    nodes = [a_node("tainted", taints=(GPU,)), a_node("free")]
    pods = [*replicas("web", {"tainted": 3, "free": 1}, used=100.0), a_pod("bare", "tainted", used=100.0)]
    outcome = plan_all(nodes, pods, strategy_policy(NAME))
    assert sorted(outcome.pods) == ["web-0", "web-1", "web-2"]
    assert {landing for _, _, landing in outcome.moves} == {"free"}
    assert outcome.refusals == {"bare": "BarePod"}


def test_pods_of_one_name_in_several_namespaces_are_found_by_namespace() -> None:
    """Their templates are numbered in the order in which they were listed."""
    for cpu in (100.0, 900.0):
        asked = {"a": cpu, "b": 500.0}
        pods = [a_pod("db-0", "tainted", namespace=space, owner="db", cpu=each) for space, each in asked.items()]
        found, made = found_by(NAME, [a_node("tainted", taints=(GPU,)), a_node("free")], pods)
        (finding,) = found.findings
        assert [made.namespaces[made.pods.namespace[pod]] for pod in finding.candidates.tolist()] == ["a", "b"]
