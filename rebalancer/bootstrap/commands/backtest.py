"""Backtest of the predictors on this cluster's last days."""

import math

from rebalancer.bootstrap.commands.contexts import read_cluster
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.forecast.backtest.backtest import Backtest
from rebalancer.forecast.backtest.own_days import replay
from rebalancer.forecasting.history import DAYS
from rebalancer.forecasting.resources import resource_of
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, fixed_high


def backtest_history(
    policy: RebalancerPolicy, settings: Settings, *, days: int, progress: Progress, resource: str = CPU
) -> Backtest:
    """Read the missing ones of the last `days` closed days of a resource, and compare the predictors on them.

    Raises ConfigError, ConnectError, and UnsafeDataError with too little data.
    """
    clock = SystemClock()
    snapshot = read_cluster(settings, progress=progress)
    with history_keepers(policy, settings, progress=progress, clock=clock, days=max(days, DAYS)) as keepers:
        of = resource_of(resource, policy, {})
        if of is None or resource not in keepers:
            raise ConfigError(f"--resource {resource}: expected cpu, memory, or a share that has thresholds in a pool")
        history = keepers[resource].update(snapshot)
        return replay(
            history,
            snapshot,
            policy=policy.forecast,
            pool_of=NodePools.of(policy.pools, snapshot.nodes).of_node,
            highs={
                pool.name: math.inf if (high := fixed_high(pool, resource)) is None else high for pool in policy.pools
            },
            now=clock.now(),
            days=days,
            resource=of,
            step=lambda done, total: progress.step("Forecasting days", done, total),
        )
