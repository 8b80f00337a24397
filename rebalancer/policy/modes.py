"""The modes of the parts of a policy. The strictest counts: of the command, the policy, the pool and the strategy."""

from collections.abc import Sequence

from rebalancer.policy.schema.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies.base import StrategyBase
from rebalancer.policy.schema.types import MODES, Mode


def mode_of(policy: RebalancerPolicy, strategy: StrategyBase, pool: str) -> Mode:
    """The mode of a strategy's evictions from a pool."""
    return _strictest(policy, strategy, pool)[0]


def part_held(policy: RebalancerPolicy, strategy: StrategyBase, pool: str) -> str:
    """The part by which a strategy's evictions from a pool are not made at once, such as `dry run of pool a`; empty
    where it acts."""
    mode, part = _strictest(policy, strategy, pool)
    return {"DryRun": f"dry run of {part}", "Approve": f"approval needed: {part}", "Act": ""}[mode]


def _strictest(policy: RebalancerPolicy, strategy: StrategyBase, pool: str) -> tuple[Mode, str]:
    """The mode that counts, and the first part that has it."""
    of_pool: list[tuple[Mode, str]] = [(each.mode, f"pool {pool}") for each in policy.pools if each.name == pool]
    parts: list[tuple[Mode, str]] = [
        (policy.mode, "the policy"),
        *of_pool,
        (strategy.mode, f"strategy {strategy.name}"),
    ]
    return min(parts, key=lambda part: MODES.index(part[0]))


def modes(policy: RebalancerPolicy) -> set[Mode]:
    """The modes of all strategies in all their pools."""
    return {
        mode_of(policy, strategy, pool)
        for strategy in policy.strategies
        for pool in strategy.pools or [each.name for each in policy.pools]
    }


def acts(policy: RebalancerPolicy) -> bool:
    """Whether any strategy acts in any of its pools."""
    return "Act" in modes(policy)


def parts_in(policy: RebalancerPolicy, mode: Mode) -> str:
    """The parts with this mode, as a phrase: `pools a and b, strategy RemoveDuplicates`; empty for none."""
    if policy.mode == mode:
        return "all parts"
    pools = [each.name for each in policy.pools if each.mode == mode]
    others = {each.name for each in policy.strategies if each.mode != mode}
    strategies: dict[str, None] = {}
    for each in policy.strategies:
        if each.mode == mode:
            name = each.name if each.name not in others else f"{each.name} in {_listed(each.pools or ())}"
            strategies[name] = None
    groups = (("pool", pools), ("strategy", [*strategies]))
    plural = {"pool": "pools", "strategy": "strategies"}
    return ", ".join(f"{kind if len(names) == 1 else plural[kind]} {_listed(names)}" for kind, names in groups if names)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def acting(policy: RebalancerPolicy) -> RebalancerPolicy:
    """The same policy with all parts in `mode: Act`."""
    pools = tuple(each.model_copy(update={"mode": "Act"}) for each in policy.pools)
    strategies = tuple(each.model_copy(update={"mode": "Act"}) for each in policy.strategies)
    return policy.model_copy(update={"mode": "Act", "pools": pools, "strategies": strategies})


def acting_in(policy: RebalancerPolicy, pool: str) -> RebalancerPolicy:
    """The same policy with one pool in `mode: Act`, and no other one in a less strict mode than before."""
    pools = tuple(
        each.model_copy(update={"mode": "Act" if each.name == pool else min(each.mode, policy.mode, key=MODES.index)})
        for each in policy.pools
    )
    return policy.model_copy(update={"mode": "Act", "pools": pools})


def held_pools(policy: RebalancerPolicy) -> list[str]:
    """The pools of whose nodes no eviction is made at once."""
    return [each.name for each in policy.pools if (policy.mode, each.mode) != ("Act", "Act")]
