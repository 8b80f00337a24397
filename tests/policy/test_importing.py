"""A DeschedulerPolicy becomes a policy of ours: its strategies with their arguments."""

# ruff: noqa: E501 (tables are read row by row)

from typing import Any

import pytest
import yaml

from rebalancer.policy.descheduler.importer import import_policy
from tests.policy.builders import NEEDED, fields, imported, of_strategy, refused, reported, theirs

# ---- the arguments of each strategy, with the contents of every published example

PODS = {"namespaces": {"include": ["a", "b"]}, "labelSelector": {"matchLabels": {"tier": "cache"}, "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["dev"]}]}}  # fmt: skip

# (strategy, their arguments, ours, fields that are listed)
ARGUMENTS: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("RemoveFailedPods", {"reasons": ["OutOfcpu", "CreateContainerConfigError"], "includingInitContainers": True, "excludeOwnerKinds": ["Job"], "minPodLifetimeSeconds": 3600},
     {"reasons": ["OutOfcpu", "CreateContainerConfigError"], "includingInitContainers": True, "excludeOwnerKinds": ["Job"], "minPodLifetime": "1h"}, []),
    ("RemoveFailedPods", {"reasons": ["NodeAffinity"], "exitCodes": [1], **PODS}, {"reasons": ["NodeAffinity"], "exitCodes": [1], **PODS}, []),
    ("RemoveFailedPods", {}, {}, []),
    ("HighNodeUtilization", {"thresholds": {"memory": 20}}, {"source": "Requests", "drainWhenAllLow": False}, ["args", "args.thresholds"]),
    ("HighNodeUtilization", {"thresholds": {"cpu": 20, "memory": 20, "pods": 20}, "evictableNamespaces": {"exclude": ["kube-system", "namespace1"]}},
     {"source": "Requests", "drainWhenAllLow": False}, ["args", "args.evictableNamespaces.exclude", "args.thresholds"]),
    ("LowNodeUtilization", {"thresholds": {"memory": 20}, "targetThresholds": {"memory": 70}}, {"source": "Requests"}, ["args.targetThresholds"]),
    ("LowNodeUtilization", {"thresholds": {"cpu": 20, "memory": 20, "pods": 20}, "targetThresholds": {"cpu": 50, "memory": 50, "pods": 50}, "evictionLimits": {"node": 5}},
     {"source": "Requests"}, ["args.evictionLimits.node", "args.targetThresholds"]),
    ("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}, {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}, []),
    ("PodLifeTime", {"maxPodLifeTimeSeconds": 604800, "states": ["Pending", "PodInitializing"]}, {"maxPodLifeTime": "7d", "states": ["Pending", "PodInitializing"]}, []),
    ("PodLifeTime", {"maxPodLifeTimeSeconds": 86400, **PODS}, {"maxPodLifeTime": "1d", **PODS}, []),
    ("PodLifeTime", {"maxPodLifeTimeSeconds": 86400, "namespaces": {"exclude": ["a"]}, "includingInitContainers": True}, {"maxPodLifeTime": "1d", "namespaces": {"exclude": ["a"]}, "includingInitContainers": True}, []),
    ("PodLifeTime", {"states": ["CrashLoopBackOff", "ImagePullBackOff"]}, {"maxPodLifeTime": "1m", "states": ["CrashLoopBackOff", "ImagePullBackOff"]}, ["args"]),
    ("RemovePodsHavingTooManyRestarts", {"podRestartThreshold": 100, "includingInitContainers": True, "states": ["CrashLoopBackOff"], **PODS},
     {"podRestartThreshold": 100, "includingInitContainers": True, "states": ["CrashLoopBackOff"], **PODS}, []),
    ("RemovePodsViolatingTopologySpreadConstraint", {"constraints": ["DoNotSchedule", "ScheduleAnyway"]}, {"constraints": ["DoNotSchedule", "ScheduleAnyway"]}, []),
    ("RemovePodsViolatingTopologySpreadConstraint", {"topologyBalanceNodeFit": False}, {}, ["args.topologyBalanceNodeFit"]),
    ("RemoveDuplicates", {"excludeOwnerKinds": ["ReplicaSet"], "namespaces": {"exclude": ["x"]}}, {"excludeOwnerKinds": ["ReplicaSet"], "namespaces": {"exclude": ["x"]}}, []),
    ("RemovePodsViolatingInterPodAntiAffinity", PODS, PODS, []),
    ("RemovePodsViolatingNodeTaints", {"excludedTaints": ["dedicated=special-user", "reserved"]}, {"excludedTaints": ["dedicated=special-user", "reserved"]}, []),
    ("RemovePodsViolatingNodeTaints", {"includedTaints": ["decommissioned=end-of-life", "reserved"], "includePreferNoSchedule": True, **PODS},
     {"includedTaints": ["decommissioned=end-of-life", "reserved"], "includePreferNoSchedule": True, **PODS}, []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "ours", "listed"), ARGUMENTS, ids=[f"{a[0]}-{i}" for i, a in enumerate(ARGUMENTS)])  # fmt: skip
def test_a_strategy_keeps_its_arguments_and_what_differs_is_listed(
    name: str, args: dict[str, Any], ours: dict[str, Any], listed: list[str]
) -> None:
    made, _, differences = of_strategy(name, args)
    assert made == ours
    assert sorted(field.partition("pluginConfig[0].")[2] for field in fields(differences)) == listed


def test_the_published_example_of_several_strategies_keeps_all_of_them_in_order() -> None:
    shares = {"cpu": 20, "memory": 20, "pods": 20}
    ours, differences = imported(
        theirs(
            ("RemoveDuplicates", {}),
            ("RemovePodsViolatingInterPodAntiAffinity", {}),
            ("LowNodeUtilization", {"thresholds": shares, "targetThresholds": dict.fromkeys(shares, 50)}),
            ("RemovePodsHavingTooManyRestarts", {"podRestartThreshold": 100, "includingInitContainers": True}),
            ("RemovePodsViolatingTopologySpreadConstraint", {"constraints": ["DoNotSchedule", "ScheduleAnyway"]}),
        )
    )
    assert [each.name for each in ours.strategies] == [
        "RemovePodsViolatingInterPodAntiAffinity", "RemovePodsHavingTooManyRestarts", "RemoveDuplicates",
        "LowNodeUtilization", "RemovePodsViolatingTopologySpreadConstraint",
    ]  # fmt: skip
    assert fields(differences) == ["profiles[0].pluginConfig[2].args.targetThresholds"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(20, 50, (50, 45, 20)), (48, 50, (50, 48, 48)), (50, 50, (50, 49, 49)), (0, 50, (50, 45, 1)), (0, 0, (2, 1, 1)), (20.5, 99.5, (99.5, 94.5, 20.5)), (100, 100, (100, 99, 99))],
)  # fmt: skip
def test_marks_are_kept_with_a_target_a_little_under_high(low: float, high: float, expected: tuple[float, ...]) -> None:
    _, pool, differences = of_strategy("LowNodeUtilization", {"thresholds": {"cpu": low}, "targetThresholds": {"cpu": high}})  # fmt: skip
    marks = pool["requestThresholds"]
    assert (marks["high"]["cpu"], marks["target"]["cpu"], marks["low"]["cpu"]) == expected
    assert "cooled to 5 points below" in reported(differences, "args.targetThresholds").why
    assert bool([each for each in differences if each.field.endswith("args.thresholds")]) == (
        (expected[0], expected[2]) != (high, low)
    )


def test_high_node_utilization_keeps_its_mark_and_fills_no_node_to_the_brim() -> None:
    _, pool, differences = of_strategy("HighNodeUtilization", {"thresholds": {"cpu": 20}})
    assert pool["requestThresholds"] == {"high": {"cpu": 100.0}, "target": {"cpu": 95.0}, "low": {"cpu": 20.0}}
    assert "wholeNodes" in reported(differences, "args").why


def test_both_utilization_strategies_with_other_marks_on_the_same_nodes_leave_the_second_out() -> None:
    ours, differences = imported(
        theirs(
            ("LowNodeUtilization", NEEDED["LowNodeUtilization"]), ("HighNodeUtilization", {"thresholds": {"cpu": 9}})
        )
    )
    assert [each.name for each in ours.strategies] == ["LowNodeUtilization"]
    assert reported(differences, "pluginConfig[1].args.thresholds").kind == "not supported"


def test_thresholds_of_extended_resources_are_taken_over() -> None:
    args = {"thresholds": {"cpu": 20, "nvidia.com/gpu": 20}, "targetThresholds": {"cpu": 50, "nvidia.com/gpu": 50}}
    _, pool, differences = of_strategy("LowNodeUtilization", args)
    assert pool["requestThresholds"] == {
        "high": {"cpu": 50.0, "nvidia.com/gpu": 50.0},
        "target": {"cpu": 45.0, "nvidia.com/gpu": 45.0},
        "low": {"cpu": 20.0, "nvidia.com/gpu": 20.0},
    }
    assert not [each for each in differences if "gpu" in str(each)]
    _, pool, _ = of_strategy("HighNodeUtilization", {"thresholds": {"nvidia.com/gpu": 20}})
    assert pool["requestThresholds"]["low"] == {"nvidia.com/gpu": 20.0}


def test_names_that_no_pod_can_request_are_left_out_and_listed() -> None:
    assert refused(theirs(("HighNodeUtilization", {"thresholds": {"gpu": 20}}))) == [
        "d.yaml: no strategy can be converted: profiles[0].pluginConfig[0].args.thresholds.gpu: "
        "no resource that pods can request"
    ]


# ---- real usage

BY_METRICS = {"thresholds": {"cpu": 20, "memory": 30}, "targetThresholds": {"cpu": 50, "memory": 60}}


@pytest.mark.parametrize("how", [{"metricsServer": True}, {"source": "KubernetesMetrics"}])
@pytest.mark.parametrize("top", [{"metricsCollector": {"enabled": True}}, {"metricsProviders": [{"source": "KubernetesMetrics"}]}])  # fmt: skip
def test_usage_of_the_metrics_server_becomes_real_cpu(how: dict[str, Any], top: dict[str, Any]) -> None:
    ours, _ = imported(theirs(("LowNodeUtilization", {**BY_METRICS, "metricsUtilization": how}), **top))
    assert ours.usage.source == "MetricsServer"
    assert ours.strategies[0].by_cpu
    marks = ours.pools[0].thresholds
    assert marks is not None
    assert (marks.high, marks.target, marks.low) == (50, 45, 20)
    assert {name: (each.high, each.target, each.low) for name, each in marks.resources.items()} == {
        "memory": (60, 55, 30)
    }


def test_thresholds_of_memory_alone_are_taken_over() -> None:
    """CPU has thresholds too in our format: those by which no node is hot."""
    args = {"thresholds": {"memory": 30}, "targetThresholds": {"memory": 60}}
    metrics = {"metricsUtilization": {"source": "KubernetesMetrics"}}
    policy = theirs(("LowNodeUtilization", args | metrics), metricsCollector={"enabled": True})
    ours, differences = imported(policy)
    marks = ours.pools[0].thresholds
    assert marks is not None
    assert marks.high == 100
    assert marks.resources["memory"].high == 60
    assert reported(differences, "args.thresholds").kind == "different"


def test_deviation_of_memory_is_a_difference() -> None:
    how = {"metricsUtilization": {"source": "KubernetesMetrics"}, "useDeviationThresholds": True}
    policy = theirs(("LowNodeUtilization", {**BY_METRICS, **how}), metricsCollector={"enabled": True})
    ours, differences = imported(policy)
    assert ours.pools[0].thresholds is not None
    assert ours.pools[0].thresholds.resources == {}
    assert "only CPU and memory are balanced" in reported(differences, "targetThresholds.memory").why


@pytest.mark.parametrize(("share", "kind"), [(30, "decide"), (100, "not supported")])
def test_a_threshold_that_kept_nodes_from_being_targets_is_for_a_person_to_decide(share: int, kind: str) -> None:
    args = {"thresholds": {"cpu": 30, "pods": share}, "targetThresholds": {"cpu": 60, "pods": 100}}
    metrics = {"metricsUtilization": {"source": "KubernetesMetrics"}}
    policy = theirs(("LowNodeUtilization", args | metrics), metricsProviders=[{"source": "KubernetesMetrics"}])
    _, differences = imported(policy)
    low = reported(differences, ".thresholds.pods")
    assert (low.kind, "a node above it in pods may be a target" in low.why) == (kind, kind == "decide")
    assert reported(differences, ".targetThresholds.pods").kind == "not supported"


def test_a_prometheus_query_is_taken_over_and_its_freshness_is_for_a_person_to_decide() -> None:
    args = {
        "thresholds": {"MetricResource": 20}, "targetThresholds": {"MetricResource": 50},
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "instance:node_cpu:rate:sum"}},
    }  # fmt: skip
    provider = {"source": "Prometheus", "prometheus": {"url": "http://prom.example.svc:9090", "authToken": {"secretReference": {"namespace": "kube-system", "name": "authtoken"}}}}  # fmt: skip
    policy = theirs(("LowNodeUtilization", args), metricsProviders=[provider])
    ours, differences = imported(policy)
    prometheus = ours.usage.prometheus
    assert prometheus is not None
    assert prometheus.url == "http://prom.example.svc:9090"
    assert prometheus.node_cpu.query == "instance:node_cpu:rate:sum"
    assert (prometheus.node_cpu.unit, prometheus.node_cpu.label) == ("share", "instance")
    assert prometheus.bearer_token_file is not None
    assert reported(differences, "authToken").kind == "decide"
    text = import_policy(yaml.safe_dump(policy).encode(), source="d.yaml").text
    assert "# DECIDE: `freshness`" in text
    assert "--prometheus-url" not in text


def test_deviation_thresholds_of_requests_become_those_of_real_cpu_with_a_note() -> None:
    args = {"useDeviationThresholds": True, "thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 15}}
    made, pool, differences = of_strategy("LowNodeUtilization", args)
    assert made == {"source": "CPU"}
    assert pool["thresholds"] == {"high": 15.0, "target": 10.0, "low": 10.0, "relativeToMean": True, "floor": 30.0}
    whys = [each.why for each in differences if each.field.endswith("useDeviationThresholds")]
    assert any("real CPU instead" in why for why in whys)
    assert any("is never hot" in why for why in whys)


@pytest.mark.parametrize(
    ("name", "args", "evictor", "field"),
    [
        ("HighNodeUtilization", {"thresholds": {"cpu": 20}, "evictionModes": ["OnlyThresholdingResources"]}, None, "evictionModes"),
        ("HighNodeUtilization", {"thresholds": {"cpu": 20}, "numberOfNodes": 3}, None, "numberOfNodes"),
        ("LowNodeUtilization", {**NEEDED["LowNodeUtilization"], "numberOfNodes": 3}, None, "numberOfNodes"),
        ("RemoveFailedPods", {}, {"nodeFit": True}, "enabled[0]"),
        ("PodLifeTime", {"maxPodLifeTimeSeconds": 86400, "states": ["Succeeded"]}, {"nodeFit": True}, "enabled[0]"),
    ],
)  # fmt: skip
def test_what_would_evict_more_than_the_original_is_not_enabled(
    name: str, args: dict[str, Any], evictor: dict[str, Any] | None, field: str
) -> None:
    why = f"without it more pods would be evicted, so {name} is not enabled"
    [alone] = refused(theirs((name, args), evictor=evictor))
    assert why in alone
    # beside another strategy, whose import goes on
    ours, differences = imported(theirs((name, args), ("RemoveDuplicates", {}), evictor=evictor))
    assert [each.name for each in ours.strategies] == ["RemoveDuplicates"]
    [listed] = [each for each in differences if why in each.why]
    assert (listed.kind, listed.field.endswith(field)) == ("not supported", True)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("RemoveFailedPods", {"reasons": ["NodeAffinity"], "includingInitContainers": True, "exitCodes": [1]}),
        ("PodLifeTime", {"ownerKinds": {"exclude": ["Job"]}, "states": ["Running"], "conditions": [{"type": "Ready"}]}),
    ],
)
def test_arguments_of_a_strategy_that_is_left_off_are_not_listed_beside_it(name: str, args: dict[str, Any]) -> None:
    """They have an equivalent: the strategy is off for another reason."""
    _, differences = imported(theirs((name, args), ("RemoveDuplicates", {}), evictor={"nodeFit": True}))
    assert [each.why for each in differences if f"{name} is not enabled" in each.why]
    assert not [each.field for each in differences if each.why == "no equivalent"]


def test_without_node_fit_or_for_running_pods_nothing_is_lost() -> None:
    failed, _ = imported(theirs(("RemoveFailedPods", {}), evictor={"nodeFit": False}))
    old, _ = imported(theirs(("PodLifeTime", NEEDED["PodLifeTime"]), evictor={"nodeFit": True}))
    assert [each.name for each in (*failed.strategies, *old.strategies)] == ["RemoveFailedPods", "PodLifeTime"]


def test_what_differs_is_noted() -> None:
    _, differences = imported(
        theirs(
            ("LowNodeUtilization", NEEDED["LowNodeUtilization"]),
            ("RemovePodsViolatingTopologySpreadConstraint", {}),
        )
    )
    noted = [each.why for each in differences]
    assert "a node that is at its low threshold is not low; in the descheduler it is" in noted
    assert "only pods that carry a topology spread constraint are evicted, not others that its selector counts" in noted
    assert any("descheduler.alpha.kubernetes.io/evict lifts no protection" in each for each in noted)
