"""CPU history, stored in a folder, and outcomes of the forecasts that were made from it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rebalancer.bootstrap.database import kept_records
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import SystemClock
from rebalancer.forecasting.history import DAYS, HistoryKeeper
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.model.ports import Clock, Progress
from rebalancer.policy import RebalancerPolicy
from rebalancer.prometheus.ranges import PrometheusHistory
from rebalancer.store import BlockStore


@contextmanager
def history_keeper(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    progress: Progress,
    clock: Clock | None = None,
    days: int = DAYS,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[HistoryKeeper]:
    """A keeper of the last days of CPU: those that forecasts need, or `days` if that is more. Raises ConfigError.

    A long reading ends when `stopping` returns true, and continues the next time.
    """
    days = max(days, DAYS)
    clock = clock or SystemClock()
    folder = Path(settings.history_dir)
    if policy.usage.source == "MetricsServer":
        blocks = BlockStore(folder, cluster=policy.cluster, source="observed")
        yield HistoryKeeper(source=None, blocks=blocks, clock=clock, days=days)
        return
    source = PrometheusHistory(policy.usage, clock=clock, progress=progress, stopping=stopping)
    try:
        blocks = BlockStore(folder, cluster=policy.cluster, source=source.identity)
        yield HistoryKeeper(source=source, blocks=blocks, clock=clock, days=days, stopping=stopping)
    finally:
        source.close()


@contextmanager
def kept_outcomes(policy: RebalancerPolicy, settings: Settings) -> Iterator[OutcomeKeeper | None]:
    """Outcomes of the daemon's forecasts; None where there is no database yet. Raises ConfigError, ConnectError."""
    with kept_records(policy, settings) as records:
        yield None if records is None else OutcomeKeeper(records=records.outcomes())
