"""How well the predictors would have forecast this cluster's last days."""

import math

from rebalancer.bootstrap.contexts import read_cluster
from rebalancer.bootstrap.history import history_keeper
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import SystemClock
from rebalancer.forecast.backtest.backtest import Backtest
from rebalancer.forecast.backtest.own_days import replay
from rebalancer.model.ports import Progress
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import assign_pools
from rebalancer.policy.schema.policy import Pool


def backtest_history(policy: RebalancerPolicy, settings: Settings, *, days: int, progress: Progress) -> Backtest:
    """Read what is missing of the last `days` closed days, and compare the predictors on them.

    Raises ConfigError, ConnectError, and UnsafeDataError when too little is known.
    """
    clock = SystemClock()
    snapshot = read_cluster(settings, progress=progress)
    with history_keeper(policy, settings, progress=progress, clock=clock, days=days) as keeper:
        history = keeper.update(snapshot)
        return replay(
            history,
            snapshot,
            policy=policy.forecast,
            pool_of=assign_pools(policy.pools, snapshot.nodes.names, snapshot.nodes.labels),
            highs={pool.name: _high(pool) for pool in policy.pools},
            now=clock.now(),
            days=days,
            step=lambda done, total: progress.step("Forecasting days", done, total),
        )


def _high(pool: Pool) -> float:
    """As a share of capacity; infinite where the pool has no fixed mark."""
    marks = pool.thresholds
    return marks.high / 100.0 if marks is not None and not marks.relative_to_mean else math.inf
