"""Leader election of replicas: a replica tries to acquire the Lease. One that loses it stands by, and leads again, in
a later term, once it has acquired it as any other replica does.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import structlog

from rebalancer.model.decisions.ports import Lease
from rebalancer.model.errors import LeaseHeldError, RebalancerError

LOG = structlog.get_logger("rebalancer")

LOOK_SECONDS = 0.5
"""How often a leader checks its lease."""

RETRY_SECONDS = 2.0

LOG_SECONDS = 60.0
"""Interval of the log line while something other than a leader keeps this replica from leading."""


class Lock(Lease, Protocol):
    """A Lease that can be acquired."""

    def acquire(self) -> None:
        """Raises UnsafeDataError while another process holds it, ConnectError."""
        ...

    def keep(self) -> None:
        """Start renewing it, in a thread of its own."""
        ...

    def release(self) -> None: ...

    def abandon(self) -> None:
        """Stop renewing it, without a request."""
        ...

    def seconds_left(self) -> float: ...

    def note_sequence(self) -> bool:
        """Whether the Lease has the number of the ledger's last reservation."""
        ...


class Leadership:
    """Implements `model.decisions.ports.Lease`: without the lock it holds nothing."""

    def __init__(
        self,
        *,
        make_lock: Callable[[], Lock],
        fence: Callable[[int], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`make_lock` makes a new lock for each attempt, and may raise RebalancerError; `fence` records a new term in
        the ledger before leading begins. `lost` is called when the lease was lost, and raises nothing."""
        self._make_lock = make_lock
        self._fence = fence
        self._lost = lost
        self._working = threading.Lock()
        """Held while a cycle runs."""
        self._lock: Lock | None = None
        self._last_term = 0
        self.led = threading.Event()
        """Set from the moment of becoming leader for the first time."""
        self.waiting_for = "the lease has not been requested yet"
        """Why this replica does not lead."""
        self.prevented = False
        """Whether something other than another leader keeps it from leading."""

    @property
    def term(self) -> int | None:
        lock = self._lock
        return None if lock is None else lock.term

    def holds(self, margin_seconds: float = 0.0) -> bool:
        lock = self._lock
        return lock is not None and lock.holds(margin_seconds)

    def seconds_left(self) -> float:
        """Seconds until the lease expires without a renewal; 0 without it."""
        lock = self._lock
        return 0.0 if lock is None else lock.seconds_left()

    def note_sequence(self) -> bool:
        """Whether the Lease has the number of the ledger's last reservation; it is written where it hasn't yet."""
        lock = self._lock
        return lock is not None and lock.note_sequence()

    @contextmanager
    def work(self) -> Iterator[bool]:
        """Whether this replica leads. In the block it can lose the lease, but leads in no other term: what was planned
        in one term is never carried out in a later one."""
        with self._working:
            yield self.holds()

    def run(self, stopping: threading.Event) -> None:
        """Follow until the lease is acquired and lead until it is lost, again and again until the daemon stops."""
        logged = float("-inf")
        while not stopping.is_set():
            lock = None
            try:
                lock = self._make_lock()
                lock.acquire()
                term = lock.term
                assert term is not None
                lock.keep()
                self._fence(term)
            except RebalancerError as error:
                self.waiting_for, self.prevented = str(error), not isinstance(error, LeaseHeldError)
                if self.prevented and time.monotonic() - logged >= LOG_SECONDS:
                    logged = time.monotonic()
                    LOG.warning("not leading", error=str(error))
                if lock is not None:
                    lock.release()
                stopping.wait(RETRY_SECONDS)
                continue
            with self._working:
                self._lock, self._last_term, self.prevented = lock, term, False
            LOG.info("leading", term=term)
            self.led.set()
            while lock.holds():
                if stopping.wait(LOOK_SECONDS):
                    return
            self.stand_by()
            self._await_work(stopping)

    def stand_by(self) -> None:
        """The lease is lost: evict nothing, and keep everything that was read. Nothing is sent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.abandon()
        self.waiting_for = "the lease was lost: its renewals failed, or another process has it"
        LOG.error("lease lost, standing by", term=self._last_term)
        self._lost()

    def _await_work(self, stopping: threading.Event) -> None:
        """Until what was begun in the lost term has ended: its calls are awaited and recorded."""
        while not stopping.is_set():
            if self._working.acquire(timeout=LOOK_SECONDS):
                self._working.release()
                return

    def release(self) -> None:
        """Release the lease, so that the next leader need not wait."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
