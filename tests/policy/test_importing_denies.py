"""A restriction that the import doesn't know turns its strategy off: the result restricts more, never less."""

from typing import Any

import pytest

from rebalancer.policy.descheduler.notes import UNSUPPORTED
from tests.policy.builders import NEEDED, imported, profile, refused, reported, theirs

LIFE = ("PodLifeTime", {"maxPodLifeTimeSeconds": 86400})
RESTARTS = ("RemovePodsHavingTooManyRestarts", NEEDED["RemovePodsHavingTooManyRestarts"])


@pytest.mark.parametrize("point", ["filter", "preevictionfilter", "preEvictionFilter"])
def test_a_filter_that_is_not_known_turns_the_strategies_of_its_profile_off(point: str) -> None:
    policy = theirs(LIFE)
    policy["profiles"][0]["plugins"][point] = {"enabled": ["DefaultEvictor", "KubevirtMigrationAware"]}
    (line,) = refused(policy)
    assert "no strategy can be converted" in line
    assert "KubevirtMigrationAware may protect pods that nothing here would protect, so it is not enabled" in line
    both = {**policy, "profiles": [*policy["profiles"], {**profile(RESTARTS), "name": "other"}]}
    ours, differences = imported(both)
    assert [each.name for each in ours.strategies] == ["RemovePodsHavingTooManyRestarts"]
    assert reported(differences, "deschedule.enabled[0]").kind == UNSUPPORTED


@pytest.mark.parametrize(
    ("name", "point", "own"),
    [("RemoveDuplicates", "deschedule", "balance"), ("RemovePodsViolatingNodeTaints", "balance", "deschedule")],
)
def test_a_strategy_at_the_other_extension_point_is_not_enabled(name: str, point: str, own: str) -> None:
    policy = theirs(LIFE)
    policy["profiles"][0]["plugins"].setdefault(point, {"enabled": []})["enabled"].append(name)
    ours, differences = imported(policy)
    assert [each.name for each in ours.strategies] == ["PodLifeTime"]
    (line,) = [each for each in differences if name in each.why]
    assert line.kind == UNSUPPORTED
    assert line.why == f"{name} is a strategy of {own}: with it here the descheduler does not start"


@pytest.mark.parametrize(
    ("point", "name"), [("deschedule", "RemovePodsViolatingNodeTaints"), ("balance", "LowNodeUtilization")]
)
def test_a_strategy_without_an_entry_in_plugin_config_is_not_enabled(point: str, name: str) -> None:
    policy = theirs(LIFE)
    policy["profiles"][0]["plugins"].setdefault(point, {"enabled": []})["enabled"].append(name)
    ours, differences = imported(policy)
    assert [each.name for each in ours.strategies] == ["PodLifeTime"]
    line = reported(differences, f"{point}.enabled[{int(point == 'deschedule')}]")
    assert line.kind == UNSUPPORTED
    assert line.why == f"{name} has no entry in pluginConfig: without one the descheduler does not start"


@pytest.mark.parametrize("point", ["sort", "presort"])
def test_an_order_that_is_not_known_turns_nothing_off(point: str) -> None:
    policy = theirs(LIFE)
    policy["profiles"][0]["plugins"][point] = {"enabled": ["Oldest"]}
    assert [each.name for each in imported(policy)[0].strategies] == ["PodLifeTime"]


def test_a_total_of_a_run_holds_for_the_time_of_a_run() -> None:
    ours, differences = imported(theirs(LIFE, maxNoOfPodsToEvictTotal=5))
    assert ours.limits.per_cycle == 5
    assert [(rate.max, rate.per) for rate in ours.limits.cluster.evictions] == [(5, 300.0)]
    assert "sliding window of 5m" in reported(differences, "maxNoOfPodsToEvictTotal").why


@pytest.mark.parametrize("states", [["Succeeded"], ["Running"], []])
def test_conditions_of_pods_are_no_age(states: list[str]) -> None:
    """A pod may be old and have finished just now."""
    since = {"reason": "PodCompleted", "status": "True", "minTimeSinceLastTransitionSeconds": 14400}
    (line,) = refused(theirs(("PodLifeTime", {"states": states, "conditions": [since]})))
    assert "args.conditions: without it more pods would be evicted, so PodLifeTime is not enabled" in line


@pytest.mark.parametrize("strategy", [LIFE, RESTARTS])
@pytest.mark.parametrize("fits", [True, False])
def test_node_fit_asks_for_another_node(strategy: tuple[str, dict[str, Any]], fits: bool) -> None:
    (made,) = imported(theirs(strategy, evictor={"nodeFit": fits}))[0].strategies
    assert made.args.other_node is fits


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("instance:node_cpu:rate:sum", True),
        ("avg by (instance) (rate(node_pressure_cpu_waiting_seconds_total[1m]))", False),
        ("1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes", False),
        ("sum by (instance) (rate(container_cpu_cfs_throttled_periods_total[5m]))", False),
    ],
)
def test_a_query_of_another_unit_is_not_taken_for_a_share_of_cpu(query: str, kept: bool) -> None:
    args = {
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": query}},
        "thresholds": {"MetricResource": 20},
        "targetThresholds": {"MetricResource": 50},
    }
    provider = [{"source": "Prometheus", "prometheus": {"url": "http://p:9090"}}]
    policy = theirs(("LowNodeUtilization", args), LIFE, metricsProviders=provider)
    ours, _ = imported(policy)
    assert ("LowNodeUtilization" in [each.name for each in ours.strategies]) is kept
