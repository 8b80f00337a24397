"""Forecasts of nodes with the thresholds of their pools."""

import math
from dataclasses import dataclass, replace

from rebalancer.forecast import Forecasts, NodeForecast, forecast
from rebalancer.forecast.peaks.trajectories import planned_peak
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.forecasting.evicted import evicted_pods
from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock, Ledger
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, fixed_high


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledForecast:
    """Forecast of one node with the threshold of its pool."""

    forecast: NodeForecast
    pool: str
    """Empty for none."""
    high: float | None
    """Share of capacity; None without a fixed threshold."""
    planned_share: float
    """The peak that plans count, as a share of capacity: of CPU without its margin. NaN where unknown."""

    @property
    def hot(self) -> bool | None:
        """Whether the predicted peak is over `high`; None if unknown."""
        if self.high is None or math.isnan(self.forecast.peak_share):
            return None
        return self.forecast.peak_share > self.high

    @property
    def hot_in_plans(self) -> bool:
        """Whether it is over `high` also as plans count it."""
        return self.high is not None and self.planned_share > self.high


def pooled_forecasts(
    snapshot: ClusterSnapshot,
    keeper: HistoryKeeper,
    policy: RebalancerPolicy,
    *,
    clock: Clock,
    ledger: Ledger | None = None,
    outcomes: OutcomeKeeper | None = None,
    resource: ForecastResource = OF_CPU,
) -> tuple[list[PooledForecast], Forecasts]:
    """Forecasts of all nodes, highest peak first; reads missing history.

    `ledger`: what was evicted within the last day is no longer part of its node. `outcomes`: of the daemon's forecasts,
    which these learn from.
    """
    node_pools = NodePools.of(policy.pools, snapshot.nodes)
    now = clock.now()
    known, notes = outcomes.known(now) if outcomes is not None else ((), ())
    found = forecast(
        keeper.update(snapshot),
        snapshot,
        policy=policy.forecast,
        pool_of=node_pools.of_node,
        pools=[pool.name for pool in policy.pools],
        now=now,
        evicted=evicted_pods(ledger, now),
        outcomes=known,
        resource=resource,
    )
    out = []
    highs = {pool.name: fixed_high(pool, resource.name) for pool in policy.pools}
    for node, pool in zip(found.nodes, node_pools.names, strict=True):
        out.append(
            PooledForecast(forecast=node, pool=pool, high=highs.get(pool), planned_share=_planned(node, resource))
        )
    out.sort(key=lambda each: (-_or_least(each.forecast.peak_share), each.forecast.node))
    return out, replace(found, notes=(*found.notes, *notes))


def _planned(one: NodeForecast, resource: ForecastResource) -> float:
    if not one.peak_millicores:
        return one.peak_share
    left = planned_peak(one, resource) / one.peak_millicores
    return one.peak_share * left


def _or_least(share: float) -> float:
    return -1.0 if math.isnan(share) else share
