"""The planner, one rule at a time: several strategies and several resources."""

from typing import Any

import pytest

from tests.builders import GIB, a_node, a_pod, a_policy, plan_all, replicas
from tests.planner.builders.plans import ANY_REPLICAS, TWO_POOLS, cold, heavy, hot, single

CPU_AND_REQUESTS = {
    "pools": [
        {**TWO_POOLS[0], "requestThresholds": {"high": {"cpu": 60}, "target": {"cpu": 50}, "low": {"cpu": 40}}},
    ],
    "strategies": [
        {"name": "LowNodeUtilization", "args": {"source": "CPU"}},
        {"name": "LowNodeUtilization", "args": {"source": "Requests"}},
    ],
}

# ---- two strategies


def test_moves_of_one_strategy_count_for_the_other() -> None:
    # by real CPU three of six pods must go; by requests (50% of 16,000 are 8,000) that is just enough
    nodes = [hot(), cold()]
    pods = [heavy("hot", 5_900), *replicas("web", {"hot": 6}, used=1_000.0, cpu=700)]
    outcome = plan_all(nodes, pods, a_policy(**CPU_AND_REQUESTS, **ANY_REPLICAS))
    assert len(outcome.moves) == 3
    assert outcome.planner.outcome.planned_load(0)[0, 0] == pytest.approx(10_400.0)
    assert outcome.planner.outcome.planned_load(1)[0, 0] == pytest.approx(8_000)


def test_a_node_that_another_strategy_cooled_has_reached_its_goal() -> None:
    pods = [heavy("hot", 5_000), *replicas("web", {"hot": 2}, used=3_000.0, cpu=2_500)]
    outcome = plan_all([hot(), cold()], pods, a_policy(**CPU_AND_REQUESTS, **ANY_REPLICAS))
    assert {code for pod, code in outcome.refusals.items() if pod.startswith("web")} == {"GoalReached"}


def test_a_landing_keeps_the_target_of_every_strategy() -> None:
    # the cold node is under low by real CPU, but its requests stand at 45% and the pod brings 10% more
    nodes = [hot(), cold()]
    pods = [heavy("hot", 9_000), a_pod("x", "cold", owner="x", cpu=7_200), single("a", used=3_000.0, cpu=1_600)]
    outcome = plan_all(nodes, pods, a_policy(**CPU_AND_REQUESTS, **ANY_REPLICAS))
    assert outcome.planner.outcome.planned_load(1)[1, 0] <= 8_000


def test_findings_of_different_pools_are_worked_on_by_turns() -> None:
    nodes = [hot(), a_node("hot2", used=15_000.0, labels={"pool": "other"}), cold(used=0.0)]
    pods = [heavy("hot"), heavy("hot2"), single("a", used=3_000.0), single("b", "hot2", used=6_200.0)]
    assert plan_all(nodes, pods, a_policy(pools=TWO_POOLS, **ANY_REPLICAS)).pods == ["b", "a"]


# ---- by requests


def requests_policy(*pools: tuple[str, dict[str, float]], **fields: Any) -> Any:
    """Pools whose nodes are hot over the mark + 10%, and low under the mark - 10%."""
    return a_policy(
        pools=[
            {
                "name": name,
                "selector": {"matchLabels": {"pool": name}},
                "requestThresholds": {
                    "high": {key: mark + 10 for key, mark in marks.items()},
                    "target": marks,
                    "low": {key: mark - 10 for key, mark in marks.items()},
                },
            }
            for name, marks in pools
        ],
        strategies=[{"name": "LowNodeUtilization", "args": {"source": "Requests"}}],
        **ANY_REPLICAS,
        **fields,
    )


def test_by_requests_a_node_is_cooled_in_every_resource_that_has_a_mark() -> None:
    nodes = [a_node("hot", cpu=4_000, memory=10 * GIB), a_node("cold", cpu=40_000, memory=100 * GIB)]
    pods = replicas("web", {"hot": 8}, cpu=100, memory=1 * GIB)
    outcome = plan_all(nodes, pods, requests_policy(("general", {"cpu": 50, "memory": 50})))
    assert len(outcome.moves) == 3
    assert outcome.planner.outcome.planned_load()[0, 1] == 5 * GIB


def test_pools_may_judge_different_resources() -> None:
    nodes = [a_node("hot", cpu=4_000, labels={"pool": "a"}), a_node("cold", cpu=16_000, labels={"pool": "a"})]
    pods = replicas("web", {"hot": 6}, cpu=500)
    policy = requests_policy(("a", {"cpu": 50}), ("b", {"cpu": 50, "memory": 50}))
    assert len(plan_all(nodes, pods, policy).moves) == 2


def test_it_stops_at_the_target_although_another_pool_judges_one_resource_more() -> None:
    nodes = [a_node("hot", cpu=4_000, labels={"pool": "a"}), a_node("cold", cpu=16_000, labels={"pool": "b"})]
    pods = replicas("web", {"hot": 7}, cpu=500)
    policy = requests_policy(("a", {"cpu": 50}), ("b", {"cpu": 50, "memory": 50}))
    assert len(plan_all(nodes, pods, policy).moves) == 3
