"""The strategies of a policy: the function of each, and the data and permissions that they declare."""

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module

from rebalancer.policy.schema.strategies import PluginStrategy, Strategy
from rebalancer.policy.schema.strategies.base import Need
from rebalancer.strategies.external.plugins import find_safely, plugin
from rebalancer.strategies.interface.view import Findings, StrategyView

Find = Callable[[StrategyView], Findings]


def strategy_for(strategy: Strategy) -> Find:
    """The function that finds for an entry of the policy. Only the strategies of a policy are imported.

    Raises ConfigError when a plugin isn't installed; its arguments were checked when the policy was read.
    """
    if isinstance(strategy, PluginStrategy):
        plugin(strategy.name)
        return partial(find_safely, strategy)
    find: Find = import_module(f"rebalancer.strategies.{strategy.MODULE}").find
    return find


def needs(strategies: Iterable[Strategy]) -> frozenset[Need]:
    """The data that any of them needs. Raises ConfigError when a plugin isn't installed."""
    return frozenset().union(
        *(plugin(each.name).needs if isinstance(each, PluginStrategy) else each.NEEDS for each in strategies)
    )


def may_cordon(strategies: Iterable[Strategy]) -> bool:
    """Whether any of them may cordon nodes. Raises ConfigError when a plugin isn't installed."""
    return any(plugin(each.name).cordons if isinstance(each, PluginStrategy) else each.CORDONS for each in strategies)
