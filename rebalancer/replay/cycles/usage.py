"""The usage of the simulated cluster, as Prometheus would have it at that time."""

import math
from typing import TYPE_CHECKING

import numpy as np

from rebalancer.model.snapshot import ClusterSnapshot, Floats
from rebalancer.model.usage import CPU, MEMORY, ResourceUsage, Usage
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.replay.simulation.cluster import NEVER, SimulatedCluster
from rebalancer.replay.simulation.loads import Wide

if TYPE_CHECKING:
    from rebalancer.replay.cycles.readings import Errors

SOURCE = "replay"


class ReplayedUsage:
    """Implements `model.ports.UsageReader`."""

    def __init__(self, cluster: SimulatedCluster, policy: UsageSource, errors: "Errors | None" = None) -> None:
        """`errors`: of the steps, where the recording has readings of cycles."""
        self._cluster, self._errors = cluster, errors
        self._window = policy.rate_window
        self._shows_departed = policy.source == "Prometheus"
        over, samples = policy.stabilization_window.duration, policy.stabilization_window.samples
        step = max(math.floor(min(over / (max(samples, 2) * 2), self._window / 2)), 1.0) if over > 0 else 1.0
        self._offsets = [step * back for back in range(math.ceil(over / step), -1, -1)] if over > 0 else [0.0]

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage now. The snapshot must be of now, too."""
        cluster = self._cluster
        nodes, rows = np.flatnonzero(cluster.there), cluster.alive()
        started = cluster.recording.start
        times = [max(cluster.now - offset, started) for offset in self._offsets]
        samples = np.array([self._node_cpu(at)[nodes] for at in times])
        cpu = np.where(cluster.ready[nodes], samples[-1], np.nan)
        samples = np.where(cluster.ready[nodes], samples, np.nan)
        memory = self._memory(rows, nodes)
        return Usage(
            source=SOURCE,
            at=cluster.now,
            window_seconds=self._window,
            node_cpu_millicores=cpu,
            pod_cpu_millicores=self._pod_cpu(rows),
            sample_times=np.broadcast_to(np.array(times)[:, None], samples.shape).copy(),
            samples=samples,
            departed_millicores=self._departed()[nodes] if self._shows_departed else None,
            resources={} if memory is None else {MEMORY: memory},
            problems={},
        )

    def _node_cpu(self, at: float) -> Floats:
        """(nodes of the recording,) means over the rate window before a time."""
        mean = self._cluster.counters.mean(at, self._window)
        if self._errors is None:
            return mean
        error = self._errors.of_nodes(at, now=self._cluster.now, count=len(mean))
        return np.maximum(mean + error, 0.0)

    def _pod_cpu(self, rows: Wide) -> Floats:
        """(pods,) means over the rate window; NaN of a pod that has not started."""
        cluster = self._cluster
        mean = pod_means(cluster, rows, self._window)
        if self._errors is not None:
            errors = self._errors.of_loads(now=cluster.now, count=len(cluster.loads))
            mean = np.maximum(mean + errors[cluster.load[rows]], 0.0)
        return np.where(cluster.bound[rows] < cluster.now, mean, np.nan)

    def _departed(self) -> Floats:
        """(nodes of the recording,) means over the rate window of pods that have left their node."""
        cluster = self._cluster
        found = departed(cluster, self._window)
        if self._errors is not None:
            found += self._errors.of_departed(now=cluster.now, count=len(found))
        return np.maximum(found, 0.0)

    def _memory(self, rows: Wide, nodes: Wide) -> ResourceUsage | None:
        cluster = self._cluster
        usage = cluster.loads.usage.get(MEMORY)
        if usage is None:
            return None
        step, count = cluster.step, len(cluster.recording.nodes)
        runs = (cluster.node[rows] >= 0) & (cluster.bound[rows] <= cluster.now)
        used = np.where(runs, usage.at(cluster.load[rows], step), 0.0)
        node = np.bincount(cluster.node[rows[runs]], weights=used[runs], minlength=count).astype(np.float64)
        node += cluster.loads.elsewhere[MEMORY][:, step]
        of_nodes = np.where(cluster.ready[nodes], node[nodes], np.nan)
        return ResourceUsage(
            node=of_nodes,
            capacity=cluster.recording.nodes.memory_capacity_bytes[nodes],
            pod=np.where(runs, used, np.nan),
            samples=np.repeat(of_nodes[None, :], len(self._offsets), axis=0),
        )


def pod_means(cluster: SimulatedCluster, rows: Wide, window: float) -> Floats:
    """(rows,) CPU of these pods, millicores: means over the `window` seconds before now."""
    begin, total = cluster.now - window, np.zeros(len(rows))
    since, until = np.maximum(cluster.from_at[rows], begin), cluster.gone_at[rows]
    for step, first, last in cluster.steps_between(begin, cluster.now):
        seconds = np.clip(np.minimum(last, until) - np.maximum(since, first), 0.0, None)
        total += seconds * cluster.loads.usage[CPU].at(cluster.load[rows], step)
    # a recording that has just begun
    span = min(window, max(cluster.now - cluster.recording.start, 1.0))
    return np.asarray(total / span)


def departed(cluster: SimulatedCluster, window: float) -> Floats:
    """(nodes,) CPU of the pods that have left within the `window` seconds before now."""
    gone = cluster.gone_at[: cluster.count]
    rows = np.flatnonzero((gone > cluster.now - window) & (gone < NEVER) & (cluster.node[: cluster.count] >= 0))
    nodes = len(cluster.recording.nodes)
    left = np.bincount(cluster.node[rows], weights=pod_means(cluster, rows, window), minlength=nodes)
    return left.astype(np.float64)
