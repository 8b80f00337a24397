"""The usage of the simulated cluster, as Prometheus would have it at that time."""

import math

import numpy as np

from rebalancer.model.snapshot import ClusterSnapshot, Floats
from rebalancer.model.usage import CPU, MEMORY, ResourceUsage, Usage
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.replay.cluster import SimulatedCluster
from rebalancer.replay.loads import Wide

SOURCE = "replay"


class ReplayedUsage:
    """Implements `model.ports.UsageReader`."""

    def __init__(self, cluster: SimulatedCluster, policy: UsageSource) -> None:
        self._cluster = cluster
        self._window = policy.rate_window
        over, samples = policy.stabilization_window.duration, policy.stabilization_window.samples
        step = max(min(over / (max(samples, 2) * 2), self._window / 2), 1.0) if over > 0 else 1.0
        self._offsets = [step * back for back in range(math.ceil(over / step), -1, -1)] if over > 0 else [0.0]

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage now. The snapshot must be of now, too."""
        cluster = self._cluster
        nodes, rows = np.flatnonzero(cluster.there), cluster.alive()
        started = cluster.recording.start
        times = [max(cluster.now - offset, started) for offset in self._offsets]
        samples = np.array([cluster.counters.mean(at, self._window)[nodes] for at in times])
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
            resources={} if memory is None else {MEMORY: memory},
            problems={},
        )

    def _pod_cpu(self, rows: Wide) -> Floats:
        """(pods,) means over the rate window; NaN of a pod that has not started."""
        cluster, window = self._cluster, self._window
        begin, total = cluster.now - window, np.zeros(len(rows))
        since = np.maximum(cluster.from_at[rows], begin)
        for step, first, last in cluster.steps_between(begin, cluster.now):
            seconds = np.clip(last - np.maximum(since, first), 0.0, None)
            total += seconds * cluster.loads.usage[CPU].at(cluster.load[rows], step)
        # a recording that has just begun
        span = min(window, max(cluster.now - cluster.recording.start, 1.0))
        started = cluster.bound[rows] < cluster.now
        return np.where(started, total / span, np.nan)

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
