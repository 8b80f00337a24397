"""What each node is expected to need, and whether that makes it hot."""

import math
from dataclasses import dataclass

from rebalancer.forecast import Forecasts, NodeForecast, forecast
from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.model.ports import Clock, ClusterReader
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, fixed_high


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One node's forecast beside its pool's marks."""

    forecast: NodeForecast
    pool: str
    """Empty for none."""
    high: float | None
    """As a share of capacity; None where the pool has no fixed mark."""

    @property
    def hot(self) -> bool | None:
        """Whether its expected peak is over `high`; None = not known."""
        if self.high is None or math.isnan(self.forecast.peak_share):
            return None
        return self.forecast.peak_share > self.high


def pooled_forecasts(
    cluster: ClusterReader, keeper: HistoryKeeper, policy: RebalancerPolicy, *, clock: Clock
) -> tuple[list[Outlook], Forecasts]:
    """Every node's next 24 hours, highest peak first; reads missing history.

    Raises ConnectError or UnsafeDataError when the cluster can't be read.
    """
    snapshot = cluster.snapshot()
    node_pools = NodePools.of(policy.pools, snapshot.nodes)
    found = forecast(
        keeper.update(snapshot),
        snapshot,
        policy=policy.forecast,
        pool_of=node_pools.of_node,
        pools=[pool.name for pool in policy.pools],
        now=clock.now(),
    )
    out = []
    highs = {pool.name: fixed_high(pool) for pool in policy.pools}
    for node, pool in zip(found.nodes, node_pools.names, strict=True):
        out.append(Outlook(forecast=node, pool=pool, high=highs.get(pool)))
    out.sort(key=lambda each: (-_or_least(each.forecast.peak_share), each.forecast.node))
    return out, found


def _or_least(share: float) -> float:
    return -1.0 if math.isnan(share) else share
