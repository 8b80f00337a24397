"""Strategies one by one: one that fails unexpectedly finds nothing, and the others go on.

Its cordons stay as in a cycle that is stopped: that a strategy failed is no reason to lift them.
"""

from rebalancer.cycle.observe.plugin_limit import find_within
from rebalancer.model.cluster.steering import MAINTENANCE
from rebalancer.model.errors import RebalancerError
from rebalancer.model.parts import FailedPart, FailedParts
from rebalancer.policy.schema.strategies import PluginStrategy
from rebalancer.strategies import Findings, StrategyView, strategy_for
from rebalancer.strategies.registry import may_cordon

PART = "strategy "
"""Before a strategy's name, in that of its part."""


def findings_of(view: StrategyView, parts: FailedParts, *, drained_seconds: float) -> Findings:
    """The findings of the view's strategy, none with a note while it fails. Raises ConfigError for a plugin that isn't
    installed. Cordons of a drain stay for `drained_seconds`."""
    strategy = view.strategy
    name = f"{PART}{strategy.name}"
    if (waiting := parts.waiting(name)) is not None:
        return _nothing(view, waiting, drained_seconds)
    search = strategy_for(strategy)
    try:
        found = find_within(search, view) if isinstance(strategy, PluginStrategy) else search(view)
    except RebalancerError:
        raise
    except Exception as error:  # noqa: BLE001 - noted by its part
        return _nothing(view, parts.failed(name, error), drained_seconds)
    if found.failed:
        return _nothing(view, parts.failed(name, found.failed), drained_seconds)
    parts.worked(name)
    return found


def _nothing(view: StrategyView, part: FailedPart, drained_seconds: float) -> Findings:
    cordons: dict[int, str] = {}
    if may_cordon([view.strategy]):
        cordons = {
            node: value
            for node, (value, since) in view.cordons.items()
            if value == MAINTENANCE or view.now - since <= drained_seconds
        }
    return Findings(
        findings=(),
        cordons=cordons,
        maintenance_nodes=frozenset(node for node, value in cordons.items() if value == MAINTENANCE),
        notes=(part.note,),
        failed=part.cause,
    )
