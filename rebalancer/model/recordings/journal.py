"""The daemon's journal: what a replay needs to know of the past, besides usage."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.usage import Usage


class ReadUsage(NamedTuple):
    """What a cycle read."""

    snapshot: ClusterSnapshot
    usage: Usage
    """Of the snapshot's nodes and pods."""


class Journal(Protocol):
    """Stores what has changed from snapshot to snapshot; losing it costs only the precision of replays."""

    def append(
        self,
        snapshot: ClusterSnapshot,
        *,
        evictions: Sequence[Eviction],
        alerts: Sequence[AlertEpisode],
        read: ReadUsage | None = None,
    ) -> None:
        """Store what has changed since the last call, at `snapshot.taken`. `evictions` are those since then and those
        whose replacement has become Ready; repetitions are left out. `alerts` are the open ones.
        `read` is what a cycle has read since then; its snapshot may be older.

        Raises ConfigError when nothing can be written. The next call then stores everything.
        """
        ...

    def take_notes(self) -> tuple[str, ...]:
        """What was left out or removed since the last call, and why."""
        ...
