"""The cluster as the pages show it: one snapshot that they share, instead of one for each part of each page."""

import threading
from collections.abc import Callable

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock

SHARED_SECONDS = 10.0
"""An older snapshot is replaced. On a large cluster it takes part of a second, and what is compiled from it another."""


class SharedSnapshot:
    """For any thread: those that find it too old wait for one new snapshot."""

    def __init__(self, current: Callable[[], Active], clock: Clock) -> None:
        self._current = current
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: ClusterSnapshot | None = None

    def measured(self, snapshot: ClusterSnapshot) -> None:
        """Store what a cycle has just read."""
        with self._lock:
            if self._kept is None or snapshot.taken > self._kept.taken:
                self._kept = snapshot

    def forget(self) -> None:
        """The cluster has changed: the next reader gets a new snapshot."""
        with self._lock:
            self._kept = None

    def latest(self) -> ClusterSnapshot:
        """At most SHARED_SECONDS old. Raises UnsafeDataError where the cluster can't be read."""
        with self._lock:
            if self._kept is None or not 0 <= self._clock.now() - self._kept.taken < SHARED_SECONDS:
                self._kept = self._current().context.cluster.snapshot()
            return self._kept
