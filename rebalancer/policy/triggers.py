"""What starts the strategies of a policy by itself: the timer, alerts, predicted peaks."""

from collections.abc import Iterable

from rebalancer.policy.schema.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies.base import StrategyBase


def periodic(policy: RebalancerPolicy) -> list[StrategyBase]:
    """The strategies that the timer starts."""
    return [each for each in policy.strategies if "Periodic" in each.triggers]


def shortest_interval(strategies: Iterable[StrategyBase]) -> float | None:
    """Seconds from one periodic cycle of these strategies to the next, at most; None where none is periodic, so that no
    cycle is ever due."""
    return min((each.interval for each in strategies if "Periodic" in each.triggers), default=None)
