"""One file a strategy: snapshot and usage to findings. A strategy never evicts, counts or asks about limits."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rebalancer.strategies import low_node_utilization
from rebalancer.strategies.view import Findings, StrategyView

Find = Callable[[StrategyView], Findings]

STRATEGIES: Mapping[str, Find] = MappingProxyType({"LowNodeUtilization": low_node_utilization.find})

__all__ = ["STRATEGIES", "Find", "Findings", "StrategyView"]
