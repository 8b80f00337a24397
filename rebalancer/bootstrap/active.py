"""The policy in force, with everything that was built for it."""

from collections.abc import Callable
from dataclasses import dataclass

from rebalancer.cycle.context import World
from rebalancer.evaluation.loop import Aftermath
from rebalancer.forecasting.loop import Lookout
from rebalancer.model.ports import UsageReader
from rebalancer.policy import RebalancerPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """One policy and what it alone needs; replaced as a whole when the policy file changes."""

    policy: RebalancerPolicy
    world: World
    lookout: Lookout | None = None
    """None where the policy makes no forecasts."""
    glance: UsageReader | None = None
    """Reads the current CPU for the dashboard, without the stabilization window; None = `world.usage`."""
    aftermath: Aftermath | None = None
    """Assessments and feedback; None in tests that need neither."""
    close: Callable[[], None] = lambda: None
    """Releases what only this policy needed."""
