"""What a DeschedulerPolicy says about evictors, limits, nodes and profiles becomes guards, limits and pools of ours."""

# ruff: noqa: E501 (tables are read row by row)

from typing import Any

import pytest

from rebalancer.policy.descheduler.notes import Difference
from tests.policy.builders import NEEDED, fields, imported, profile, reported, theirs

# ---- the evictor


def guards_of(evictor: dict[str, Any]) -> tuple[dict[str, Any], tuple[Difference, ...]]:
    ours, differences = imported(theirs(("RemoveDuplicates", {}), evictor=evictor))
    return ours.model_dump(mode="json", by_alias=True, exclude_unset=True)["guards"], differences


PVC = {"persistentVolumes": True}
SELECTOR = {"matchLabels": {"app": "web"}}

# (arguments of DefaultEvictor, our guards, kinds of the fields that are listed)
EVICTOR: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({}, PVC, {}),
    ({"nodeFit": True, "minReplicas": 2}, {**PVC, "minReplicas": 2}, {}),
    ({"nodeFit": False}, PVC, {"nodeFit": "different"}),
    ({"minReplicas": 0}, {**PVC, "minReplicas": 0}, {}),
    ({"minPodAge": "50m"}, {**PVC, "minAge": "50m"}, {}),
    ({"minPodAge": "1h30m0.5s"}, {**PVC, "minAge": "1h30m1s"}, {}),
    ({"priorityThreshold": {"value": 10000}}, {**PVC, "priorityBelow": 10000}, {}),
    ({"priorityThreshold": {"name": "priorityClassName1"}}, {**PVC, "priorityClassBelow": "priorityClassName1"}, {}),
    ({"evictLocalStoragePods": True}, {"hostPath": True, "diskEmptyDir": True, **PVC}, {}),
    ({"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}}, {"hostPath": True, "diskEmptyDir": True, **PVC}, {}),
    ({"ignorePvcPods": True}, {}, {}),
    ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {}, {}),
    ({"podProtections": {"extraEnabled": ["PodsWithPVC"], "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "a"}]}}}},
     {}, {"podProtections.config.PodsWithPVC.protectedStorageClasses": "different"}),
    ({"evictSystemCriticalPods": True}, PVC, {"evictSystemCriticalPods": "not supported"}),
    ({"evictDaemonSetPods": True, "evictFailedBarePods": True}, PVC, {"evictDaemonSetPods": "not supported", "evictFailedBarePods": "not supported"}),
    ({"podProtections": {"defaultDisabled": ["SystemCriticalPods", "DaemonSetPods", "FailedBarePods"]}}, PVC,
     {f"podProtections.defaultDisabled[{index}]": "not supported" for index in range(3)}),
    ({"ignorePodsWithoutPDB": True}, {**PVC, "requireOptIn": True}, {"ignorePodsWithoutPDB": "decide"}),
    ({"podProtections": {"extraEnabled": ["PodsWithoutPDB", "PodsWithResourceClaims"]}}, {**PVC, "requireOptIn": True},
     {"podProtections.extraEnabled[0]": "decide", "podProtections.extraEnabled[1]": "decide"}),
    ({"namespaceLabelSelector": SELECTOR}, {**PVC, "requireOptIn": True}, {"namespaceLabelSelector": "decide"}),
    ({"labelSelector": SELECTOR}, {**PVC, "labels": {"include": SELECTOR}}, {}),
    ({"noEvictionPolicy": "Mandatory"}, PVC, {}),
    ({"noEvictionPolicy": "Preferred"}, PVC, {"noEvictionPolicy": "different"}),
    ({"apiVersion": "descheduler/v1alpha2", "kind": "DefaultEvictorArgs"}, PVC, {}),
]  # fmt: skip


@pytest.mark.parametrize(("evictor", "guards", "listed"), EVICTOR, ids=lambda value: str(value)[:60])
def test_what_the_evictor_protects_becomes_guards(
    evictor: dict[str, Any], guards: dict[str, Any], listed: dict[str, str]
) -> None:
    if not guards:  # nothing but defaults of ours: the section is left out
        ours, differences = imported(theirs(("RemoveDuplicates", {}), evictor=evictor))
        assert not ours.guards.persistent_volumes
    else:
        made, differences = guards_of(evictor)
        assert made == guards
    assert {each.field.rpartition(".args.")[2]: each.kind for each in differences if each.field} == listed


def test_keys_without_a_value_are_as_good_as_absent() -> None:
    evictor = {"podProtections": {"defaultDisabled": None, "extraEnabled": None, "config": {}}, "nodeFit": True}
    assert guards_of(evictor)[0] == PVC


# ---- top level, nodes and profiles


def test_numbers_of_evictions_become_limits() -> None:
    ours, differences = imported(
        theirs(
            ("LowNodeUtilization", {**NEEDED["LowNodeUtilization"], "evictionLimits": {"node": 3}}),
            maxNoOfPodsToEvictPerNode=9, maxNoOfPodsToEvictPerNamespace=7, maxNoOfPodsToEvictTotal=11, gracePeriodSeconds=60,
        )
    )  # fmt: skip
    assert ours.limits.per_cycle == 11
    assert [(rate.max, rate.per) for rate in ours.limits.node.evictions] == [(3, 300.0)]
    assert [(rate.max, rate.per) for rate in ours.limits.namespace.evictions] == [(7, 300.0)]
    assert reported(differences, "gracePeriodSeconds").kind == "not supported"
    assert reported(differences, "maxNoOfPodsToEvictPerNode").ours == "limits.node"


@pytest.mark.parametrize(
    ("selector", "ours"),
    [
        ("node=node1", {"matchLabels": {"node": "node1"}}),
        ("a==b, c!=d", {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]}),
        ("zone in (x, y),!gpu,ssd", {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}, {"key": "gpu", "operator": "DoesNotExist"}, {"key": "ssd", "operator": "Exists"}]}),
        ("zone notin (x)", {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}),
        ("node-role.kubernetes.io/worker=", {"matchLabels": {"node-role.kubernetes.io/worker": ""}}),
        ("", {}),
    ],
)  # fmt: skip
def test_a_node_selector_becomes_the_pools(selector: str, ours: dict[str, Any]) -> None:
    for policy in (theirs(("RemoveDuplicates", {}), nodeSelector=selector), theirs(("RemoveDuplicates", {}), evictor={"nodeSelector": selector})):  # fmt: skip
        made, _ = imported(policy)
        assert made.pools[0].selector.model_dump(mode="json", by_alias=True, exclude_unset=True) == ours


def test_two_node_selectors_hold_together() -> None:
    made, _ = imported(theirs(("RemoveDuplicates", {}), evictor={"nodeSelector": "a=1,b=2"}, nodeSelector="a=1,b=3,!c"))
    selector = made.pools[0].selector.compiled()
    assert dict(selector.match_labels) == {"a": "1", "b": "3"}
    assert [(each.key, each.operator, each.values) for each in selector.match_expressions] == [
        ("c", "DoesNotExist", ()), ("b", "In", ("2",)),
    ]  # fmt: skip


def test_profiles_of_other_nodes_become_pools_of_their_own() -> None:
    policy = theirs(("PodLifeTime", NEEDED["PodLifeTime"]), evictor={"nodeSelector": "pool=a"})
    policy["profiles"].append(profile(("PodLifeTime", NEEDED["PodLifeTime"]), evictor={"nodeSelector": "pool=b"}))
    ours, _ = imported(policy)
    assert [pool.name for pool in ours.pools] == ["nodes", "nodes-2"]
    assert [each.pools for each in ours.strategies] == [("nodes",), ("nodes-2",)]


def test_of_several_profiles_the_strictest_guards_hold_and_labels_go_to_the_strategies() -> None:
    first = profile(("RemoveFailedPods", {}), evictor={"evictLocalStoragePods": True, "minReplicas": 3, "minPodAge": "1h", "priorityThreshold": {"value": 50}, "labelSelector": {"matchLabels": {"a": "1"}}})  # fmt: skip
    second = profile(("RemovePodsHavingTooManyRestarts", {"podRestartThreshold": 5, "labelSelector": {"matchLabels": {"x": "y"}}}), evictor={"ignorePvcPods": True, "minReplicas": 5, "priorityThreshold": {"value": 20}, "labelSelector": {"matchLabels": {"a": "2"}}})  # fmt: skip
    ours, differences = imported({**theirs(("RemoveDuplicates", {})), "profiles": [first, second]})
    guards = ours.guards
    assert (guards.host_path, guards.persistent_volumes, guards.min_replicas) == (False, False, 5)
    assert (guards.min_age, guards.priority_below) == (3600, 20)
    failed, restarts = ours.strategies
    assert failed.args.label_selector.match_labels == {"a": "1"}  # type: ignore[union-attr]
    assert restarts.args.label_selector.match_labels == {"a": "2", "x": "y"}  # type: ignore[union-attr]
    assert any("the strictest of each" in each.why for each in differences)


def test_a_strategy_that_cannot_tell_pods_apart_is_left_out_where_profiles_choose_by_label() -> None:
    first = profile(("RemoveFailedPods", {}), evictor={"labelSelector": {"matchLabels": {"a": "1"}}})
    second = profile(("LowNodeUtilization", NEEDED["LowNodeUtilization"]), evictor={"labelSelector": {"matchLabels": {"a": "2"}}})  # fmt: skip
    ours, differences = imported({**theirs(("RemoveDuplicates", {})), "profiles": [first, second]})
    assert [each.name for each in ours.strategies] == ["RemoveFailedPods"]
    assert reported(differences, "profiles[1].plugins.balance.enabled[0]").kind == "not supported"


def test_what_two_profiles_do_alike_is_switched_on_once() -> None:
    policy = theirs(("RemoveDuplicates", {}), ("LowNodeUtilization", NEEDED["LowNodeUtilization"]))
    policy["profiles"].append(policy["profiles"][0])
    ours, differences = imported(policy)
    assert [each.name for each in ours.strategies] == ["RemoveDuplicates", "LowNodeUtilization"]
    assert reported(differences, "profiles[1].plugins.balance.enabled[0]").why.endswith(
        "already enabled for these nodes"
    )


def test_of_two_configurations_of_a_plugin_the_first_counts() -> None:
    policy = theirs(("PodLifeTime", {"maxPodLifeTimeSeconds": 600}))
    policy["profiles"][0]["pluginConfig"] += [{"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}}]
    ours, differences = imported(policy)
    (made,) = ours.strategies
    assert made.args.max_pod_life_time == 600
    assert reported(differences, "pluginConfig[1]").why == (
        "the first configuration of PodLifeTime counts, as in the descheduler"
    )


def test_what_is_configured_and_not_enabled_stays_off_and_is_listed() -> None:
    policy = theirs(("RemoveDuplicates", {}))
    policy["profiles"][0]["pluginConfig"] += [{"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 5}}, {"name": "Mine", "args": {"x": 1}}]  # fmt: skip
    policy["profiles"][0]["plugins"] |= {"sort": {"enabled": ["Other"]}, "filter": {"enabled": ["DefaultEvictor"], "disabled": ["*"]}}  # fmt: skip
    policy["profiles"][0]["plugins"]["balance"] |= {"enabled": ["RemoveDuplicates", "Mine"], "disabled": ["PodLifeTime"]}  # fmt: skip
    ours, differences = imported(policy)
    assert [each.name for each in ours.strategies] == ["RemoveDuplicates"]
    assert {field.removeprefix("profiles[0].") for field in fields(differences)} == {
        "pluginConfig[1]", "pluginConfig[2]", "plugins.sort.enabled", "plugins.filter.disabled",
        "plugins.balance.enabled[1]", "plugins.balance.disabled",
    }  # fmt: skip


@pytest.mark.parametrize("args", [{"conditions": [{"type": "Ready", "status": "False"}]}, {"ownerKinds": {"include": ["Job"]}}, {"ownerKinds": {"exclude": ["Job"]}}, {"exitCodes": [1]}])  # fmt: skip
def test_a_filter_that_cannot_be_kept_leaves_the_strategy_off_rather_than_evict_more(args: dict[str, Any]) -> None:
    ours, differences = imported(theirs(("RemoveDuplicates", {}), ("PodLifeTime", {"maxPodLifeTimeSeconds": 600, **args})))  # fmt: skip
    assert [each.name for each in ours.strategies] == ["RemoveDuplicates"]
    assert "PodLifeTime is not enabled" in reported(differences, f"args.{next(iter(args))}").why


def test_namespaces_of_a_utilization_strategy_become_guards_besides_those_of_ours() -> None:
    args = {**NEEDED["LowNodeUtilization"], "evictableNamespaces": {"exclude": ["b", "a"]}}
    ours, _ = imported(theirs(("LowNodeUtilization", args)))
    assert ours.guards.namespaces.exclude == ("a", "b", "kube-system")
