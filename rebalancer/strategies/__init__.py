"""One file a strategy: snapshot and usage to findings. A strategy never evicts, counts or checks limits."""

from rebalancer.strategies.interface.view import Findings, StrategyView
from rebalancer.strategies.registry import may_cordon, needs, strategy_for

__all__ = ["Findings", "StrategyView", "may_cordon", "needs", "strategy_for"]
