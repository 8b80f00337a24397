"""The active policy and everything that was built for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rebalancer.cycle.context import CycleContext
from rebalancer.evaluation.loop import EvaluationLoop
from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.model.decisions.ports import UsageReader
from rebalancer.model.measured.slo import SloReader
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import SqlRecords


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


def active_of(
    policy: RebalancerPolicy,
    context: CycleContext,
    records: SqlRecords,
    *,
    keepers: Mapping[str, HistoryKeeper] | None,
    outcomes: OutcomeKeeper | None = None,
    usage: UsageReader | None = None,
    standard: SloReader | None = None,
    replayed: bool = False,
    quiet: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Active:
    """The policy with its evaluation loop and, with `keepers` of the history, its forecast loop.

    `usage`: the reader of assessments, which run beside the cycles; None = the cycles' own. `quiet`: no assessment is
    logged. A replay is quiet and evaluates no hot-node SLO.
    """
    assert context.ledger is not None
    forecasts = records.forecasts()
    evaluation = EvaluationLoop(
        policy=policy,
        cluster=context.cluster,
        usage=usage or context.usage,
        effect=records.effect(),
        forecasts=forecasts,
        ledger=context.ledger,
        standard=standard,
        clock=context.clock,
        stopping=stopping,
        quiet=quiet or replayed,
        slo=not replayed,
    )
    forecast_loop = None
    if keepers is not None:
        forecast_loop = ForecastLoop(
            policy=policy,
            keepers=keepers,
            clock=context.clock,
            ledger=context.ledger,
            records=forecasts,
            outcomes=outcomes,
            own_pod=context.own_pod,
        )
    context = replace(context, effect=evaluation.effect, feedback=lambda: evaluation.feedback)
    if forecast_loop is not None:
        context = acting_on(context, forecast_loop)
    return Active(policy=policy, context=context, forecast_loop=forecast_loop, evaluation=evaluation)


def acting_on(context: CycleContext, forecasts: ForecastLoop) -> CycleContext:
    """The context of cycles that act on `forecasts`."""
    return replace(
        context,
        forecasts=replace(
            context.forecasts,
            peaks=forecasts.peaks,
            service_day_profiles=forecasts.service_day_profiles,
            memory_leaks=forecasts.memory_leaks,
        ),
        record_usage=forecasts.record_usage,
    )
