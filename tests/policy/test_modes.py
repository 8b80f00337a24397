"""The modes of the policy, its pools and its strategies: the strictest counts."""

from pathlib import Path

import pytest

from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.modes import acting, held_pools, mode_of, modes, part_held, parts_in
from rebalancer.policy.schema.types import MODES, Mode
from tests.builders import a_policy
from tests.programs.cli import policy_for, rebalancer, write_policy

POOLS = [
    {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": {"high": 75, "target": 65}}
    for name in ("a", "b", "c")
]


def with_modes(pools: str = "", strategies: str = "", mode: Mode = "DryRun") -> RebalancerPolicy:
    """A policy with these pools and strategies in a mode, and the others in Act."""
    names = ("LowNodeUtilization", "RemoveDuplicates")
    return a_policy(
        pools=[{**each, "mode": mode if str(each["name"]) in pools else "Act"} for each in POOLS],
        strategies=[{"name": name, "mode": mode if name in strategies else "Act"} for name in names],
    )


@pytest.mark.parametrize("mode", ["DryRun", "Approve"])
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
def test_the_parts_in_a_mode_are_named(mode: Mode, pools: str, strategies: str, shown: str, any_acts: bool) -> None:
    policy = with_modes(pools, strategies, mode)
    assert parts_in(policy, mode) == shown
    assert parts_in(policy, "Approve" if mode == "DryRun" else "DryRun") == ""
    assert ("Act" in modes(policy)) == any_acts
    assert (mode in modes(policy)) == bool(shown)
    assert held_pools(policy) == list(pools)
    assert modes(acting(policy)) == {"Act"}
    assert acting(policy) == with_modes()


def test_the_strictest_mode_counts_and_its_part_is_named() -> None:
    policy = with_modes("a", "RemoveDuplicates")
    cools, removes = policy.strategies
    named = {(each.name, pool): part_held(policy, each, pool) for each in (cools, removes) for pool in "ab"}
    assert named == {
        ("LowNodeUtilization", "a"): "dry run of pool a",
        ("LowNodeUtilization", "b"): "",
        ("RemoveDuplicates", "a"): "dry run of pool a",
        ("RemoveDuplicates", "b"): "dry run of strategy RemoveDuplicates",
    }


@pytest.mark.parametrize("whole", MODES)
@pytest.mark.parametrize("pool", MODES)
@pytest.mark.parametrize("strategy", MODES)
def test_of_policy_pool_and_strategy_the_strictest_counts(whole: Mode, pool: Mode, strategy: Mode) -> None:
    policy = a_policy(
        mode=whole, pools=[{**POOLS[0], "mode": pool}], strategies=[{"name": "LowNodeUtilization", "mode": strategy}]
    )
    [only] = policy.strategies
    assert mode_of(policy, only, "a") == min((whole, pool, strategy), key=MODES.index)
    assert modes(acting(policy)) == {"Act"}
    assert held_pools(policy) == ([] if (whole, pool) == ("Act", "Act") else ["a"])


def test_the_mode_of_the_policy_is_that_of_all_its_parts() -> None:
    policy = a_policy(mode="Approve")
    assert parts_in(policy, "Approve") == "all parts"
    assert modes(policy) == {"Approve"}


def test_one_strategy_of_a_name_in_dry_run_is_named_with_its_pools() -> None:
    policy = a_policy(
        pools=POOLS,
        strategies=[
            {"name": "LowNodeUtilization", "pools": ["a"]},
            {"name": "LowNodeUtilization", "pools": ["b", "c"], "mode": "DryRun"},
        ],
    )
    assert parts_in(policy, "DryRun") == "strategy LowNodeUtilization in b and c"


def test_strategies_that_differ_by_mode_alone_are_the_same() -> None:
    with pytest.raises(ValueError, match="does the same"):
        a_policy(pools=POOLS, strategies=[{"name": "RemoveDuplicates"}, {"name": "RemoveDuplicates", "mode": "DryRun"}])


@pytest.mark.parametrize(
    ("first", "shown"),
    [("DryRun", "dry run in pool a"), ("Approve", "approval needed in pool a")],
)
def test_validate_says_which_parts_do_not_act(first: Mode, shown: str, tmp_path: Path) -> None:
    document = policy_for("http://127.0.0.1:1", pools=[{**POOLS[0], "mode": first}, POOLS[1]])
    result = rebalancer("policy", "validate", write_policy(tmp_path, document))
    assert result.code == 0
    assert result.err.rstrip().endswith(f"pools: 2, strategies: 1, {shown}")
