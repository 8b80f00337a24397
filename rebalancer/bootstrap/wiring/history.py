"""History of each resource, stored in folders, and outcomes of the forecasts that were made from it."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.database import kept_records
from rebalancer.forecasting.history import DAYS, HistoryKeeper
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.model.decisions.ports import Clock, Progress
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.policy import RebalancerPolicy
from rebalancer.prometheus.history.ranges import PrometheusHistory, QueryBudget
from rebalancer.prometheus.promql.queries import resource_queries
from rebalancer.store.blocks import BlockStore


@contextmanager
def history_keepers(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    progress: Progress,
    clock: Clock | None = None,
    days: int = DAYS,
    stopping: Callable[[], bool] = lambda: False,
    unlimited: bool = False,
) -> Iterator[Mapping[str, HistoryKeeper]]:
    """Resource -> keeper of its last days; older ones are deleted from the folder. CPU comes first, then memory, then
    the others that have thresholds. Raises ConfigError.

    A long reading ends when `stopping` returns true, and continues the next time. `unlimited`: the limit on queries of
    the hour doesn't apply, because the command that reads was typed and waits for all of them.
    """
    clock = clock or SystemClock()
    folder, cluster = Path(settings.history_dir), policy.cluster
    if policy.usage.source == "MetricsServer":
        yield {
            name: HistoryKeeper(
                source=None,
                blocks=BlockStore(folder, cluster=cluster, source="observed", resource=name),
                clock=clock,
                days=days,
                resource=name,
            )
            for name in (CPU, MEMORY)
        }
        return
    assert policy.usage.prometheus is not None
    per_hour = sys.maxsize if unlimited else policy.usage.prometheus.history.queries_per_hour
    budget = QueryBudget(per_hour, clock)
    wanted = (MEMORY, *policy.threshold_resources)
    with ExitStack() as stack:
        keepers = {}
        # memory that is queried as a share has no amounts that requests could be compared with
        others = [
            each
            for each in resource_queries(policy.usage)
            if each.name in wanted and (each.name != MEMORY or each.capacity is not None)
        ]
        for queries in (None, *others):
            source = PrometheusHistory(
                policy.usage, clock=clock, progress=progress, stopping=stopping, resource=queries, budget=budget
            )
            stack.callback(source.close)
            name = CPU if queries is None else queries.name
            blocks = BlockStore(folder, cluster=cluster, source=source.identity, resource=name)
            keepers[name] = HistoryKeeper(
                source=source, blocks=blocks, clock=clock, days=days, resource=name, stopping=stopping
            )
        yield keepers


@contextmanager
def kept_outcomes(policy: RebalancerPolicy, settings: Settings) -> Iterator[OutcomeKeeper | None]:
    """Outcomes of the daemon's forecasts; None where there is no database yet. Raises ConfigError, ConnectError."""
    with kept_records(policy, settings) as records:
        yield None if records is None else OutcomeKeeper(records=records.outcomes())
