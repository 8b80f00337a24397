"""Backtest of the predictors on this cluster's last days."""

import math

from rebalancer.bootstrap.contexts import read_cluster
from rebalancer.bootstrap.history import history_keepers
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import SystemClock
from rebalancer.forecast.backtest.backtest import Backtest
from rebalancer.forecast.backtest.own_days import replay
from rebalancer.model.ports import Progress
from rebalancer.model.usage import CPU
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, fixed_high


def backtest_history(policy: RebalancerPolicy, settings: Settings, *, days: int, progress: Progress) -> Backtest:
    """Read the missing ones of the last `days` closed days, and compare the predictors on them.

    Raises ConfigError, ConnectError, and UnsafeDataError with too little data.
    """
    clock = SystemClock()
    snapshot = read_cluster(settings, progress=progress)
    with history_keepers(policy, settings, progress=progress, clock=clock, days=days) as keepers:
        history = keepers[CPU].update(snapshot)
        return replay(
            history,
            snapshot,
            policy=policy.forecast,
            pool_of=NodePools.of(policy.pools, snapshot.nodes).of_node,
            highs={pool.name: math.inf if (high := fixed_high(pool)) is None else high for pool in policy.pools},
            now=clock.now(),
            days=days,
            step=lambda done, total: progress.step("Forecasting days", done, total),
        )
