"""Which parts of a policy are in dry run. The strictest mode counts: of the command, the pool and the strategy."""

from collections.abc import Sequence

from rebalancer.policy.schema.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies.base import StrategyBase


def part_in_dry_run(policy: RebalancerPolicy, strategy: StrategyBase, pool: str) -> str:
    """The part by which evictions of a strategy from a pool are in dry run, such as `pool a`; empty where it acts."""
    if any(each.name == pool and each.mode == "DryRun" for each in policy.pools):
        return f"pool {pool}"
    return f"strategy {strategy.name}" if strategy.mode == "DryRun" else ""


def has_dry_runs(policy: RebalancerPolicy) -> bool:
    """Whether any part is in dry run."""
    return bool(parts_in_dry_run(policy))


def acts(policy: RebalancerPolicy) -> bool:
    """Whether any strategy acts in any of its pools."""
    return any(
        not part_in_dry_run(policy, strategy, pool)
        for strategy in policy.strategies
        for pool in strategy.pools or [each.name for each in policy.pools]
    )


def parts_in_dry_run(policy: RebalancerPolicy) -> str:
    """All of them, as a phrase: `pools a and b, strategy RemoveDuplicates`; empty for none."""
    pools = [each.name for each in policy.pools if each.mode == "DryRun"]
    acting = {each.name for each in policy.strategies if each.mode == "Act"}
    strategies: dict[str, None] = {}
    for each in policy.strategies:
        if each.mode == "DryRun":
            name = each.name if each.name not in acting else f"{each.name} in {_listed(each.pools or ())}"
            strategies[name] = None
    groups = (("pool", pools), ("strategy", [*strategies]))
    plural = {"pool": "pools", "strategy": "strategies"}
    return ", ".join(f"{kind if len(names) == 1 else plural[kind]} {_listed(names)}" for kind, names in groups if names)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def acting(policy: RebalancerPolicy) -> RebalancerPolicy:
    """The same policy with no part in dry run."""
    pools = tuple(each.model_copy(update={"mode": "Act"}) for each in policy.pools)
    strategies = tuple(each.model_copy(update={"mode": "Act"}) for each in policy.strategies)
    return policy.model_copy(update={"pools": pools, "strategies": strategies})
