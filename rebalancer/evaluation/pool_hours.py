"""Hourly figures of each pool from the hot-node SLO's samples: hot nodes, spread of load, placement of new pods."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import HOUR_SECONDS
from rebalancer.model.measured.slo import SloSamples
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.records.effect import PoolHour
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, NodeThresholds

NOT_PLACED = ("DaemonSet", "Node")
"""Kinds of owners whose pods are bound to their node."""


def thresholds_of(samples: SloSamples, node_pools: NodePools, policy: RebalancerPolicy) -> NodeThresholds:
    """(times, nodes) what the samples are compared with: the hot-node SLO's threshold, else each pool's own high."""
    thresholds = node_pools.thresholds(samples.shares)
    if policy.effect.hot_node_slo.threshold is not None:
        thresholds.high[:] = policy.effect.hot_node_slo.threshold / 100
    return thresholds


def pool_hours(
    samples: SloSamples,
    thresholds: NodeThresholds,
    snapshot: ClusterSnapshot,
    node_pools: NodePools,
    *,
    hour: int,
    before: Mapping[str, PoolHour],
) -> list[PoolHour]:
    """One hour of each pool with samples, as far as they go.

    `before`: pool -> the hour as recorded earlier. Requests are known for now only, and new pods only while they exist:
    a past hour keeps what was recorded then.
    """
    # the last sample is the first one of the next reading
    end = min((hour + 1) * HOUR_SECONDS, float(samples.times[-1]))
    inside = (samples.times >= hour * HOUR_SECONDS) & (samples.times < end)
    fresh = snapshot.taken < (hour + 2) * HOUR_SECONDS
    new, on_warm = _new_pods(samples, thresholds, snapshot, hour)
    out = []
    for index, pool in enumerate(node_pools.pools):
        members = node_pools.members(index)
        shares = samples.shares[np.ix_(inside, members)]
        shares = shares[np.isfinite(shares).any(axis=1)]
        if not len(shares):
            continue
        known = before.get(pool.name)
        with np.errstate(invalid="ignore"):
            hot = (samples.shares > thresholds.high)[np.ix_(inside, members)].sum(axis=1)
        there = np.isin(snapshot.pods.node, members)
        out.append(
            PoolHour(
                pool=pool.name,
                hour=hour,
                nodes=len(members),
                hot_nodes=float(hot.sum() / len(shares)),
                hot_node_minutes=float(hot.sum() * _step(samples) / 60.0),
                cpu_share=_used(shares, snapshot.nodes.cpu_capacity_millicores[members]),
                requested_share=_requested(snapshot, members) if fresh else known.requested_share if known else np.nan,
                share_stddev=float(np.nanstd(shares, axis=1).mean()),
                highest_share=float(np.nanmax(shares)),
                new_pods=max(int((new & there).sum()), known.new_pods if known else 0),
                new_pods_over_target=max(int((on_warm & there).sum()), known.new_pods_over_target if known else 0),
            )
        )
    return out


def _step(samples: SloSamples) -> float:
    return float(samples.times[1] - samples.times[0]) if len(samples.times) > 1 else 0.0


def _used(shares: Floats, capacity: Floats) -> float:
    """Used share of the known nodes' capacity, mean over the samples."""
    known = np.isfinite(shares)
    used = np.where(known, shares * capacity, 0.0).sum(axis=1)
    return float((used / np.where(known, capacity, 0.0).sum(axis=1)).mean())


def _requested(snapshot: ClusterSnapshot, members: NDArray[np.intp]) -> float:
    """Requested share of allocatable, without terminating pods."""
    pods = snapshot.pods
    asked = snapshot.per_node(np.where(pods.terminating, 0.0, pods.cpu_request_millicores))[members].sum()
    room = snapshot.nodes.cpu_allocatable_millicores[members].sum()
    return float(asked / room) if room > 0 else np.nan


def _new_pods(
    samples: SloSamples, thresholds: NodeThresholds, snapshot: ClusterSnapshot, hour: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(pods,) created in the hour and placed; and those of them whose node was over its target then."""
    pods = snapshot.pods
    start, end = hour * HOUR_SECONDS, min((hour + 1) * HOUR_SECONDS, float(samples.times[-1]) + 1.0)
    new = (pods.node >= 0) & (pods.created >= start) & (pods.created < end)
    on_warm = np.zeros(len(pods), dtype=np.bool_)
    for pod in np.flatnonzero(new).tolist():
        owner = int(pods.owner[pod])
        if owner >= 0 and snapshot.owners[owner].kind in NOT_PLACED:
            new[pod] = False
            continue
        at = int(np.searchsorted(samples.times, pods.created[pod], side="right")) - 1
        node = int(pods.node[pod])
        on_warm[pod] = at >= 0 and bool(samples.shares[at, node] > thresholds.target[at, node])
    return new, on_warm
