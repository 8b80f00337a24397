"""The nodes of the simulated cluster: who is there, what is Ready or cordoned as recorded, and our taints."""

from collections.abc import Sequence

import numpy as np

from rebalancer.model.notation.arrays import Bools
from rebalancer.model.recordings.recording import RecordedTaint, Recording

STEERED = "recorded"
"""Value of a soft taint of the recording."""


class NodeTable:
    """Nodes are those of the recording, by index."""

    def __init__(self, recording: Recording, soft_taints: Sequence[RecordedTaint]) -> None:
        """`soft_taints`: those that come and go as recorded."""
        self._recording, self._soft_taints = recording, soft_taints
        self.there: Bools = self._there_at(recording.start)
        self.ready: Bools = self.there & recording.node_ready[:, 0]
        self.cordoned: Bools = recording.node_unschedulable[:, 0].copy()
        self.taints: dict[int, tuple[str, float, bool]] = {}
        """Node -> value of our taint, since when, and whether it is our cordon."""
        self.version = 0
        """Changes with the nodes, their conditions and our taints."""

    def _there_at(self, now: float) -> Bools:
        recording = self._recording
        there: Bools = (recording.node_joined <= now) & (now < recording.node_left)
        return there

    def changes(self) -> set[float]:
        """Times at which a node joins or leaves, or a recorded soft taint does."""
        recording = self._recording
        marks = {mark for each in self._soft_taints for mark in (each.since, each.until)}
        return {*recording.node_joined.tolist(), *recording.node_left.tolist(), *marks}

    def change(self, now: float, step: int) -> list[int]:
        """What is recorded for a time comes true. Returns the nodes that have left; their pods are still there."""
        before, self.there = self.there, self._there_at(now)
        self.ready = self.there & self._recording.node_ready[:, step]
        left: list[int] = np.flatnonzero(before & ~self.there).tolist()
        for node in left:
            self.taints.pop(node, None)
        for taint in self._soft_taints:
            if taint.since == now and self.there[taint.node]:
                self.taints[taint.node] = (STEERED, now, False)
            elif taint.until == now:
                self.taints.pop(taint.node, None)
        self.version += 1
        return left

    def begin_step(self, step: int) -> None:
        """Conditions and cordons are recorded by step."""
        ready = self.there & self._recording.node_ready[:, step]
        cordoned = self._recording.node_unschedulable[:, step]
        if not (np.array_equal(ready, self.ready) and np.array_equal(cordoned, self.cordoned)):
            self.ready, self.cordoned = ready, cordoned.copy()
            self.version += 1

    def taint(self, node: int, value: str, now: float, *, cordon: bool) -> None:
        """Set our taint, or change it."""
        self.taints[node] = (value, now, cordon)
        self.version += 1

    def untaint(self, node: int) -> None:
        """Remove our taint and our cordon."""
        if self.taints.pop(node, None) is not None:
            self.version += 1
