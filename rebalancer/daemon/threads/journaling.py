"""The journal's thread: on the leader, after each cycle and every minute without one.

It never ends or delays a cycle: what goes wrong is logged once, and the next append stores everything.
"""

import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.ports import Clock, Ledger
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.usage import Usage
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


class JournalWriter:
    """Appends to the journal in a thread of its own."""

    def __init__(
        self,
        journal: Journal,
        *,
        ledger: Ledger,
        inbox: OpenEpisodes,
        snapshot: Callable[[], ClusterSnapshot],
        leads: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """`snapshot` reads the cluster from memory; `leads` as the worker's."""
        self._journal = journal
        self._ledger = ledger
        self._inbox = inbox
        self._snapshot = snapshot
        self._leads = leads
        self._clock = clock
        self._done = threading.Event()
        self._observed: ReadUsage | None = None
        self._last: float | None = None
        """Time of the last snapshot that was appended."""
        self._tried = float("-inf")
        self._problem = ""

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
            if not self._leads():
                return False
            now = self._clock.now()
            if not done and now < self._tried + EVERY_SECONDS:
                return False
            self._tried = now
            self._append()
        except RebalancerError as error:
            if str(error) != self._problem:
                LOG.warning("journal not written", error=str(error))
            self._problem = str(error)
        except Exception as error:
            # without a journal only replays lack something
            if repr(error) != self._problem:
                LOG.exception("journal not written")
            self._problem = repr(error)
        return True

    def _append(self) -> None:
        read, self._observed = self._observed, None
        if read is not None and (self._last is None or read.snapshot.taken > self._last):
            snapshot = read.snapshot
        else:
            snapshot = self._snapshot()
        since = snapshot.taken - DAY_SECONDS if self._last is None else self._last - OVERLAP_SECONDS
        evictions = {each.record: each for each in (*self._ledger.evicted(since), *self._ledger.replaced(since))}
        episodes = self._inbox.open_episodes()
        self._journal.append(snapshot, evictions=list(evictions.values()), alerts=episodes, read=read)
        self._last = snapshot.taken
        if self._problem:
            self._problem = ""
            LOG.info("journal continued")
        for note in self._journal.take_notes():
            LOG.warning("journal", note=note)
