"""What starts the strategies of a policy by itself: the timer, alerts, predicted peaks."""

from rebalancer.policy.schema.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies.base import StrategyBase


def periodic(policy: RebalancerPolicy) -> list[StrategyBase]:
    """The strategies that the timer starts."""
    return [each for each in policy.strategies if "Periodic" in each.triggers]
