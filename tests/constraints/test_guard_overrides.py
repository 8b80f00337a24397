"""Guards per strategy and pool (issue 16, 6)."""

from typing import Any

import pytest
from pydantic import ValidationError

from rebalancer.policy import RebalancerPolicy
from tests.builders import a_door, a_node, a_policy, carry_out, cluster, planner_for, replicas, usage_of

STRATEGIES = [{"name": "LowNodeUtilization"}, {"name": "RemoveDuplicates"}]
THRESHOLDS = {"high": 75, "target": 65, "low": 50}
POOLS = [
    {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": THRESHOLDS} for name in ("general", "big")
]


def with_overrides(*overrides: dict[str, Any], **guards: Any) -> RebalancerPolicy:
    return a_policy(strategies=STRATEGIES, pools=POOLS, guards={**guards, "overrides": list(overrides)})


def code(policy: RebalancerPolicy, *, strategy: str = "", pool: str = "general") -> str | None:
    """Why the only replica of a service, five minutes old, stays."""
    snapshot = cluster([a_node("n1")], replicas("web", {"n1": 1}, age=600.0))
    refusal = a_door(snapshot, policy).stays(snapshot.pod(0), pool=pool, strategy=strategy)
    return None if refusal is None else str(refusal.code)


def test_a_strategy_may_move_what_the_others_leave_alone() -> None:
    policy = with_overrides({"strategies": ["RemoveDuplicates"], "minReplicas": 1})
    assert code(policy, strategy="RemoveDuplicates") is None
    assert code(policy, strategy="LowNodeUtilization") == code(policy) == "MinReplicas"


def test_a_pool_may_be_stricter_or_laxer() -> None:
    policy = with_overrides({"pools": ["big"], "minReplicas": 1}, {"pools": ["general"], "minAge": "1h"}, minReplicas=2)
    assert code(policy, pool="big") is None
    assert code(policy, pool="general") == "TooYoung"


def test_the_last_override_that_holds_wins() -> None:
    policy = with_overrides(
        {"pools": ["general"], "minReplicas": 1, "requireOptIn": True},
        {"strategies": ["RemoveDuplicates"], "pools": ["general"], "requireOptIn": False},
    )
    assert code(policy, strategy="RemoveDuplicates") is None
    assert code(policy, strategy="LowNodeUtilization") == "NotOptedIn"


def test_the_plan_of_a_strategy_has_its_own_guards() -> None:
    nodes = [a_node("hot", used=13_000.0), a_node("a", used=0.0)]
    snapshot = cluster(nodes, pods := replicas("web", {"hot": 1}, used=3_000.0, cpu=15_000.0))
    usage = usage_of(snapshot, nodes, pods)

    def moved(*overrides: dict[str, Any]) -> list[str]:
        return carry_out(planner_for(snapshot, usage, with_overrides(*overrides)), snapshot).pods

    assert moved() == moved({"strategies": ["RemoveDuplicates"], "minReplicas": 1}) == []
    assert moved({"strategies": ["LowNodeUtilization"], "minReplicas": 1}) == ["web-0"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"minReplicas": 1}, "expected strategies or pools"),
        ({"pools": ["other"], "minReplicas": 1}, "expected names of big, general, got 'other'"),
        ({"strategies": ["NodeMaintenance"]}, "expected names of LowNodeUtilization, RemoveDuplicates"),
        ({"pools": ["big"], "ours": {}}, "unknown|Extra inputs"),
    ],
)
def test_a_mistake_is_named(override: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        with_overrides(override)
