"""The modes of pools and strategies: the strictest counts."""

from pathlib import Path

import pytest

from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.modes import acting, acts, has_dry_runs, part_in_dry_run, parts_in_dry_run
from tests.builders import a_policy
from tests.programs.cli import policy_for, rebalancer, write_policy

POOLS = [
    {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": {"high": 75, "target": 65}}
    for name in ("a", "b", "c")
]


def modes(pools: str = "", strategies: str = "") -> RebalancerPolicy:
    """A policy with these pools and strategies in dry run."""
    names = ("LowNodeUtilization", "RemoveDuplicates")
    return a_policy(
        pools=[{**each, "mode": "DryRun" if str(each["name"]) in pools else "Act"} for each in POOLS],
        strategies=[{"name": name, "mode": "DryRun" if name in strategies else "Act"} for name in names],
    )


@pytest.mark.parametrize(
    ("pools", "strategies", "shown", "any_acts"),
    [
        ("", "", "", True),
        ("a", "", "pool a", True),
        ("ab", "", "pools a and b", True),
        ("abc", "", "pools a, b and c", False),
        ("", "RemoveDuplicates", "strategy RemoveDuplicates", True),
        ("c", "RemoveDuplicates", "pool c, strategy RemoveDuplicates", True),
        ("", "LowNodeUtilization RemoveDuplicates", "strategies LowNodeUtilization and RemoveDuplicates", False),
    ],
)
def test_the_parts_in_dry_run_are_named(pools: str, strategies: str, shown: str, any_acts: bool) -> None:
    policy = modes(pools, strategies)
    assert parts_in_dry_run(policy) == shown
    assert has_dry_runs(policy) == bool(shown)
    assert acts(policy) == any_acts
    assert not has_dry_runs(acting(policy))
    assert acting(policy) == modes()


def test_the_strictest_mode_counts() -> None:
    policy = modes("a", "RemoveDuplicates")
    cools, removes = policy.strategies
    named = {(each.name, pool): part_in_dry_run(policy, each, pool) for each in (cools, removes) for pool in "ab"}
    assert named == {
        ("LowNodeUtilization", "a"): "pool a",
        ("LowNodeUtilization", "b"): "",
        ("RemoveDuplicates", "a"): "pool a",
        ("RemoveDuplicates", "b"): "strategy RemoveDuplicates",
    }


def test_one_strategy_of_a_name_in_dry_run_is_named_with_its_pools() -> None:
    policy = a_policy(
        pools=POOLS,
        strategies=[
            {"name": "LowNodeUtilization", "pools": ["a"]},
            {"name": "LowNodeUtilization", "pools": ["b", "c"], "mode": "DryRun"},
        ],
    )
    assert parts_in_dry_run(policy) == "strategy LowNodeUtilization in b and c"


def test_strategies_that_differ_by_mode_alone_are_the_same() -> None:
    with pytest.raises(ValueError, match="does the same"):
        a_policy(pools=POOLS, strategies=[{"name": "RemoveDuplicates"}, {"name": "RemoveDuplicates", "mode": "DryRun"}])


def test_validate_says_which_parts_are_in_dry_run(tmp_path: Path) -> None:
    document = policy_for("http://127.0.0.1:1", pools=[{**POOLS[0], "mode": "DryRun"}, POOLS[1]])
    result = rebalancer("policy", "validate", write_policy(tmp_path, document))
    assert result.code == 0
    assert result.err.rstrip().endswith("pools: 2, strategies: 1, dry run in pool a")
