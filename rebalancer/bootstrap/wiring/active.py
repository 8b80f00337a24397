"""The active policy and everything that was built for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rebalancer.cycle.context import CycleContext
from rebalancer.evaluation.loop import EvaluationLoop
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.model.decisions.ports import UsageReader
from rebalancer.policy import RebalancerPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """One policy and its adapters; replaced as a whole when the policy file changes."""

    policy: RebalancerPolicy
    context: CycleContext
    forecast_loop: ForecastLoop | None = None
    """None where forecast.mode is Off."""
    instant_usage: UsageReader | None = None
    """Reads the current CPU for the dashboard, without the stabilization window; None = `context.usage`."""
    evaluation: EvaluationLoop | None = None
    """Assessments and feedback; None in tests that need neither."""
    close: Callable[[], None] = lambda: None
    """Closes the adapters of this policy."""


def with_loops(
    context: CycleContext, *, evaluation: EvaluationLoop | None = None, forecasts: ForecastLoop | None = None
) -> CycleContext:
    """The context of cycles that learn from the assessments of `evaluation` and act on `forecasts`."""
    if evaluation is not None:
        context = replace(context, effect=evaluation.effect, feedback=lambda: evaluation.feedback)
    if forecasts is not None:
        context = replace(
            context,
            peaks=forecasts.peaks,
            service_day_profiles=forecasts.service_day_profiles,
            memory_leaks=forecasts.memory_leaks,
            record_usage=forecasts.record_usage,
        )
    return context
