"""Synthetic cluster from recorded CPU traces, for the backtest: pods arrive and depart on its nodes.

Each trace is one service and runs once, so no node contains another node's future. Replicas of a service differ in size
and by noise. A departed pod is followed by one with another name, of any running service: its usage is imputed from its
siblings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.membership import Members
from rebalancer.forecast.series.percentiles import P95
from rebalancer.model.measured.history import SLOTS, DayBlock, Grid
from rebalancer.model.notation.arrays import Floats

POOLS = ("small", "large")
NODES_PER_POOL = 12
PODS_PER_NODE = (6, 15)
"""By pool."""
POD_MILLICORES = 4000.0
"""Millicores at 100 % of a trace."""
SIZE_SPREAD, NOISE = 0.3, 0.05
MEAN_STAY_DAYS = 30.0
SERVICES_PER_NODE = 3
"""Services of a node, as with pools and affinity."""
SIBLINGS = 2
"""Replicas of each service outside the evaluated nodes."""
OWN_SHARE = 0.02
WEEK_DAYS = 7
BUSY_DAY, FILL = 0.5, (0.3, 0.95)
"""Quantile of the daily P95, and the range of its share of capacity: some nodes are hot on some days."""


@dataclass(frozen=True, kw_only=True)
class _Pod:
    name: str
    service: int
    node: int
    first: int
    end: int
    """Steps in [first, end)."""
    millicores: Grid
    """(steps,) over all days, NaN where the service has no sample."""


@dataclass(frozen=True, kw_only=True)
class TraceCluster:
    """The cluster, day by day."""

    days: int
    services: tuple[str, ...]
    capacity_millicores: Floats
    """(nodes,)"""
    pool: NDArray[np.int32]
    """(nodes,) index into `POOLS`"""
    actual: Grid
    """(nodes, days, 288) usage of the nodes; NaN where a trace of theirs has no sample."""
    pods: tuple[_Pod, ...]

    def block(self, day: int) -> DayBlock:
        """One day as a block of history."""
        begin, end = day * SLOTS, (day + 1) * SLOTS
        there = [pod for pod in self.pods if pod.first < end and pod.end > begin]
        values = np.full((len(there), SLOTS), np.nan, dtype=np.float32)
        for row, pod in enumerate(there):
            first, last = max(pod.first, begin), min(pod.end, end)
            values[row, first - begin : last - begin] = pod.millicores[first:last]
        return DayBlock(
            day=day,
            pods=tuple(pod.name for pod in there),
            pod_millicores=values,
            nodes=self.nodes,
            node_millicores=self.actual[:, day],
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"node-{index:02d}" for index in range(len(self.capacity_millicores)))

    def members(self, at: int) -> Members:
        """Assignment of pods to nodes at step `at`."""
        there = sorted((pod for pod in self.pods if pod.node >= 0 and pod.first <= at < pod.end), key=lambda p: p.node)
        return Members(
            nodes=self.nodes,
            capacity_millicores=self.capacity_millicores,
            factor=np.ones(len(self.nodes), dtype=np.float32),
            pools=POOLS,
            pool=self.pool,
            pods=[pod.name for pod in there],
            node=np.array([pod.node for pod in there], dtype=np.int32),
            service=np.array([pod.service for pod in there], dtype=np.int32),
            services=self.services,
            short_lived_services=np.zeros(len(self.services), dtype=np.bool_),
            short_lived=np.zeros(len(there), dtype=np.bool_),
        )


def cluster_of_traces(traces: Mapping[str, Grid], seed: int) -> TraceCluster:
    """Compose a cluster. `traces`: name -> (days, 288) percent of one machine, NaN where there is no sample.

    The cluster has as many days as the longest trace; starts of shorter traces are spread over them.
    """
    random = np.random.default_rng(seed)
    days = max(len(trace) for trace in traces.values())
    names = sorted(traces)
    begins = _begins([len(traces[name]) for name in names], days, random)
    ends = [begin + len(traces[name]) for begin, name in zip(begins, names, strict=True)]
    profiles = np.full((len(names), days, SLOTS), np.nan, dtype=np.float32)
    for index, name in enumerate(names):
        profiles[index, begins[index] : ends[index]] = traces[name] * np.float32(POD_MILLICORES / 100.0)
    flat = profiles.reshape(len(names), days * SLOTS)
    pods: list[_Pod] = []

    def start(service: int, node: int, first: int, end: int) -> None:
        size = random.lognormal(0.0, SIZE_SPREAD)
        noise = random.lognormal(0.0, NOISE, days * SLOTS)
        pods.append(
            _Pod(
                name=f"traces/s{service}-{len(pods)}",
                service=service,
                node=node,
                first=first,
                end=end,
                millicores=(flat[service] * size * noise).astype(np.float32),
            )
        )

    for service in range(len(names)):
        for _ in range(SIBLINGS):
            start(service, -1, begins[service] * SLOTS, ends[service] * SLOTS)
    pool = np.repeat(np.arange(len(POOLS), dtype=np.int32), NODES_PER_POOL)
    for node in range(len(pool)):
        local = random.permutation(len(names))[:SERVICES_PER_NODE]
        for _ in range(PODS_PER_NODE[pool[node]]):
            at = 0
            while at < days * SLOTS:
                running = [index for index in range(len(names)) if begins[index] * SLOTS <= at < ends[index] * SLOTS]
                if not running:
                    at += SLOTS
                    continue
                service = int(random.choice([index for index in running if index in local] or running))
                end = min(at + 1 + int(random.exponential(MEAN_STAY_DAYS * SLOTS)), ends[service] * SLOTS)
                start(service, node, at, end)
                at = end
    return _with_nodes(pods, names, pool, days, random)


def _begins(lengths: list[int], days: int, random: np.random.Generator) -> list[int]:
    """First day of each trace: 0 for the longest, spread over whole weeks in random order for shorter ones."""
    order = random.permutation([index for index, length in enumerate(lengths) if length < days])
    begins = [0] * len(lengths)
    for place, index in enumerate(order.tolist()):
        room = days - lengths[index]
        spread = room * place / max(len(order) - 1, 1)
        begins[index] = min(round(spread / WEEK_DAYS) * WEEK_DAYS, room // WEEK_DAYS * WEEK_DAYS)
    return begins


def _with_nodes(
    pods: list[_Pod], names: list[str], pool: NDArray[np.int32], days: int, random: np.random.Generator
) -> TraceCluster:
    """Sum the usage of the nodes, choose their capacities, and limit usage to capacity."""
    total, lost = np.zeros((len(pool), days * SLOTS)), np.zeros((len(pool), days * SLOTS), dtype=np.bool_)
    for pod in pods:
        if pod.node >= 0:
            used = pod.millicores[pod.first : pod.end]
            total[pod.node, pod.first : pod.end] += np.nan_to_num(used)
            lost[pod.node, pod.first : pod.end] |= np.isnan(used)
    daily = np.quantile(total.reshape(len(pool), days, SLOTS), P95, axis=2)
    capacity = np.maximum(np.quantile(daily, BUSY_DAY, axis=1), 100.0) / random.uniform(*FILL, len(pool))
    own = OWN_SHARE * capacity[:, None] * random.lognormal(0.0, NOISE, total.shape)
    given = np.minimum(total + own, capacity[:, None])
    held = np.divide(given - own, total, out=np.ones_like(total), where=total > 0).astype(np.float32)
    for pod in pods:
        if pod.node >= 0:
            pod.millicores[pod.first : pod.end] *= held[pod.node, pod.first : pod.end]
    return TraceCluster(
        days=days,
        services=tuple(f"traces/s{index}" for index in range(len(names))),
        capacity_millicores=capacity,
        pool=pool,
        actual=np.where(lost, np.nan, given).reshape(len(pool), days, SLOTS).astype(np.float32),
        pods=tuple(pods),
    )
