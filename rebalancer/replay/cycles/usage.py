"""The usage of the simulated cluster, as Prometheus would have it at that time."""

import math

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import ResourceUsage, Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.replay.cycles.readings import Errors
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import Wide

SOURCE = "replay"


class ReplayedUsage:
    """Implements `model.decisions.ports.UsageReader`."""

    def __init__(self, cluster: SimulatedCluster, policy: UsageSource, errors: Errors | None = None) -> None:
        """`errors`: of the steps, where the recording has readings of cycles."""
        self._state, self._counters, self._errors = cluster.state, cluster.counters, errors
        self._window = policy.rate_window
        self._shows_departed = policy.source == "Prometheus"
        over, samples = policy.stabilization_window.duration, policy.stabilization_window.samples
        step = max(math.floor(min(over / (max(samples, 2) * 2), self._window / 2)), 1.0) if over > 0 else 1.0
        self._offsets = [step * back for back in range(math.ceil(over / step), -1, -1)] if over > 0 else [0.0]

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage now. The snapshot must be of now, too."""
        state = self._state
        nodes, rows = np.flatnonzero(state.nodes.there), state.pods.alive()
        started = state.recording.start
        times = [max(state.now - offset, started) for offset in self._offsets]
        samples = np.array([self._node_cpu(at)[nodes] for at in times])
        cpu = np.where(state.nodes.ready[nodes], samples[-1], np.nan)
        samples = np.where(state.nodes.ready[nodes], samples, np.nan)
        memory = self._memory(rows, nodes)
        return Usage(
            source=SOURCE,
            at=state.now,
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
        mean = self._counters.mean(at, self._window)
        if self._errors is None:
            return mean
        error = self._errors.of_nodes(at, now=self._state.now, count=len(mean))
        return np.maximum(mean + error, 0.0)

    def _pod_cpu(self, rows: Wide) -> Floats:
        """(pods,) means over the rate window; NaN of a pod that has not started."""
        state = self._state
        mean = state.pod_means(rows, self._window)
        if self._errors is not None:
            errors = self._errors.of_loads(now=state.now, count=len(state.loads))
            mean = np.maximum(mean + errors[state.pods.load[rows]], 0.0)
        return np.where(state.pods.bound[rows] < state.now, mean, np.nan)

    def _departed(self) -> Floats:
        """(nodes of the recording,) means over the rate window of pods that have left their node."""
        state = self._state
        found = state.departed(self._window)
        if self._errors is not None:
            found += self._errors.of_departed(now=state.now, count=len(found))
        return np.maximum(found, 0.0)

    def _memory(self, rows: Wide, nodes: Wide) -> ResourceUsage | None:
        state = self._state
        usage = state.loads.usage.get(MEMORY)
        if usage is None:
            return None
        step, count = state.step, len(state.recording.nodes)
        runs = (state.pods.node[rows] >= 0) & (state.pods.bound[rows] <= state.now)
        used = np.where(runs, usage.at(state.pods.load[rows], step), 0.0)
        node = np.bincount(state.pods.node[rows[runs]], weights=used[runs], minlength=count).astype(np.float64)
        node += state.loads.elsewhere[MEMORY][:, step]
        of_nodes = np.where(state.nodes.ready[nodes], node[nodes], np.nan)
        return ResourceUsage(
            node=of_nodes,
            capacity=state.recording.nodes.memory_capacity_bytes[nodes],
            pod=np.where(runs, used, np.nan),
            samples=np.repeat(of_nodes[None, :], len(self._offsets), axis=0),
        )
