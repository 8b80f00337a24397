"""What is due next, as the overview lists it."""

from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.types import format_duration
from rebalancer.policy.triggers import periodic
from rebalancer.web.pages.overview import Due


def periodic_cycles(policy: RebalancerPolicy) -> list[Due]:
    """A line for each periodic strategy; one that says so where none is."""
    out = []
    for strategy in periodic(policy):
        pools = ", ".join(strategy.pools or [pool.name for pool in policy.pools])
        every = format_duration(strategy.interval)
        out.append(Due(at=None, what=f"{strategy.name} evaluates {pools} every {every}"))
    return out or [Due(at=None, what="no strategy is periodic: cycles start by alert, forecast or command")]
