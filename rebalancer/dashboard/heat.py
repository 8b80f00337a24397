"""What cycles measured of the pools in the last hours, read once for each cycle."""

import threading
from collections.abc import Sequence

from rebalancer.dashboard.sources import Archive
from rebalancer.model.records.cycles import PoolMeasurement

HEAT_SECONDS = 6 * 3600.0


class MeasuredPools:
    """The measurements of the last HEAT_SECONDS, for any thread. A cycle's are written once, when it ends."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._known: dict[str, tuple[PoolMeasurement, ...]] = {}

    def latest(self, now: float) -> Sequence[PoolMeasurement]:
        """By the start of their cycles. Raises ConnectError."""
        since = now - HEAT_SECONDS
        with self._lock:
            known = self._known
        fresh: dict[str, list[PoolMeasurement]] = {}
        for each in self._archive.pool_measurements(since, known=known):
            fresh.setdefault(each.cycle, []).append(each)
        kept = {cycle: of for cycle, of in known.items() if of[0].at >= since}
        kept |= {cycle: tuple(of) for cycle, of in fresh.items()}
        with self._lock:
            self._known = kept
        return sorted((each for of in kept.values() for each in of), key=lambda each: (each.at, each.cycle))
