"""The state of the simulated cluster at a time: what its parts and the ports of a cycle read."""

from dataclasses import dataclass, field

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.replay.simulation.loads import Loads, Wide
from rebalancer.replay.simulation.nodes import NodeTable
from rebalancer.replay.simulation.pods import NEVER, PodTable


@dataclass(slots=True, kw_only=True)
class ClusterState:
    """Nodes and loads are those of the recording, by index; pods are rows of `pods`."""

    recording: Recording
    loads: Loads
    nodes: NodeTable
    pods: PodTable
    now: float
    """Seconds since the epoch."""
    step: int = 0
    """Of the recording."""
    current: Wide
    """(loads,) the newest pod of each."""
    replacements: Wide
    """(loads,) pods that were made after an eviction or the loss of a node."""
    waiting: dict[int, None] = field(default_factory=dict)
    """Pods that the scheduler has found no node for, oldest first."""

    def carrying(self) -> Wide:
        """Pods that run and carry their load."""
        pods, rows = self.pods, self.pods.alive()
        return rows[(pods.node[rows] >= 0) & (pods.from_at[rows] <= self.now)]

    def kind_of_owner(self, load: int) -> str:
        """Kind of a load's direct controlling owner; empty for none."""
        owner = int(self.recording.pods.owner[self.loads.pod[load]])
        return self.recording.owners[owner].kind if owner >= 0 else ""

    def _steps_between(self, begin: float, end: float) -> list[tuple[int, float, float]]:
        """The steps that a time span touches, each with the part of it that lies in the step."""
        start, found, at = self.recording.start, [], max(begin, self.recording.start)
        while at < end:
            step = int((at - start) // STEP_SECONDS)
            last = min(start + (step + 1) * STEP_SECONDS, end)
            found.append((min(step, self.recording.steps - 1), at, last))
            at = last
        return found

    def pod_means(self, rows: Wide, window: float) -> Floats:
        """(rows,) CPU of these pods, millicores: means over the `window` seconds before now."""
        pods, begin, total = self.pods, self.now - window, np.zeros(len(rows))
        since, until = np.maximum(pods.from_at[rows], begin), pods.gone_at[rows]
        for step, first, last in self._steps_between(begin, self.now):
            seconds = np.clip(np.minimum(last, until) - np.maximum(since, first), 0.0, None)
            total += seconds * self.loads.usage[CPU].at(pods.load[rows], step)
        # a recording that has just begun
        span = min(window, max(self.now - self.recording.start, 1.0))
        return np.asarray(total / span)

    def departed(self, window: float) -> Floats:
        """(nodes,) CPU of the pods that have left within the `window` seconds before now."""
        pods, count = self.pods, len(self.pods)
        gone, node = pods.gone_at[:count], pods.node[:count]
        rows = np.flatnonzero((gone > self.now - window) & (gone < NEVER) & (node >= 0))
        left = np.bincount(node[rows], weights=self.pod_means(rows, window), minlength=len(self.recording.nodes))
        return left.astype(np.float64)
