"""The journal's thread: on the leader, after each cycle and every minute without one.

It never ends or delays a cycle: what goes wrong is logged once, and the next append stores everything.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.ports import Clock, Ledger
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.usage import Usage
from rebalancer.model.parts import FailedParts
from rebalancer.model.recordings.journal import Journal, ReadUsage

LOG = structlog.get_logger("rebalancer")

POLL_SECONDS = 1.0

EVERY_SECONDS = 60.0
"""What happened between two entries has no time of its own."""

OVERLAP_SECONDS = 2 * 3600.0
"""Evictions are read again for so long: a replacement is recorded by the next cycle, with the time at which it was
Ready, outcomes may come late, and the database has a clock of its own."""


class OpenEpisodes(Protocol):
    """Reads alerts."""

    def open_episodes(self) -> list[AlertEpisode]:
        """Those that fire."""
        ...


@dataclass(kw_only=True)
class JournalWriter:
    """Appends to the journal in a thread of its own."""

    journal: Journal
    ledger: Ledger
    inbox: OpenEpisodes
    snapshot: Callable[[], ClusterSnapshot]
    """Reads the cluster from memory."""
    leads: Callable[[], bool]
    clock: Clock
    parts: FailedParts
    _done: threading.Event = field(default_factory=threading.Event)
    _observed: ReadUsage | None = None
    _last: float | None = None
    """Time of the last snapshot that was appended."""
    _tried: float = float("-inf")
    _problem: str = ""

    def observed(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        """A cycle has read the cluster and its usage."""
        self._observed = ReadUsage(snapshot, usage)

    def cycle_done(self) -> None:
        """It has ended: append soon."""
        self._done.set()

    def run(self, stopping: threading.Event) -> None:
        """Thread: append until `stopping`."""
        while not stopping.is_set():
            self.turn(done=self._done.wait(POLL_SECONDS))

    def turn(self, *, done: bool) -> bool:
        """Append if a cycle is `done` or a minute has passed; whether that was tried."""
        if done:
            # also while another one leads: an event that stays set is a loop without a wait
            self._done.clear()
        try:
            if not self.leads():
                return False
            now = self.clock.now()
            if not done and now < self._tried + EVERY_SECONDS:
                return False
            self._tried = now
            self._append()
        except RebalancerError as error:
            if str(error) != self._problem:
                LOG.warning("journal not written", error=str(error))
            self._problem = str(error)
        except Exception as error:  # noqa: BLE001 - noted by its part
            # without a journal only replays lack something
            self.parts.failed("journal", error)
            self._problem = repr(error)
        return True

    def _append(self) -> None:
        read, self._observed = self._observed, None
        if read is not None and (self._last is None or read.snapshot.taken > self._last):
            snapshot = read.snapshot
        else:
            snapshot = self.snapshot()
        since = snapshot.taken - DAY_SECONDS if self._last is None else self._last - OVERLAP_SECONDS
        evictions = {each.reserved.record: each for each in (*self.ledger.evicted(since), *self.ledger.replaced(since))}
        episodes = self.inbox.open_episodes()
        self.journal.append(snapshot, evictions=list(evictions.values()), alerts=episodes, read=read)
        self._last = snapshot.taken
        if self._problem:
            self._problem = ""
            self.parts.worked("journal")
            LOG.info("journal continued")
        for note in self.journal.take_notes():
            LOG.warning("journal", note=note)
