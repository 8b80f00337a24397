"""Who leads: one replica asks for the Lease until it has it; once lost, it never leads again and the process ends."""

import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from rebalancer.model.errors import RebalancerError
from rebalancer.model.ports import Lease

LOG = structlog.get_logger("rebalancer")

LOOK_SECONDS = 0.5
"""How often a leader looks whether it still is."""

RETRY_SECONDS = 2.0


class Lock(Lease, Protocol):
    """A Lease that can be asked for."""

    def acquire(self) -> None:
        """Raises UnsafeDataError while somebody else holds it, ConnectError."""
        ...

    def keep(self) -> None:
        """Begin to renew it, in a thread of its own."""
        ...

    def release(self) -> None: ...

    def seconds_left(self) -> float: ...


class Leadership:
    """Implements `model.ports.Lease` for whoever evicts: without the lock it holds nothing."""

    def __init__(self, *, make_lock: Callable[[], Lock], fence: Callable[[int], None]) -> None:
        """`make_lock` makes a new lock for each try, and may raise RebalancerError; `fence` tells the ledger of a new
        term, before anybody leads."""
        self._make_lock = make_lock
        self._fence = fence
        self._lock: Lock | None = None
        self.led = threading.Event()
        """Set from the moment we lead."""
        self.waiting_for = "the lease has not been asked for yet"
        """Why we don't lead, in words."""

    @property
    def term(self) -> int | None:
        lock = self._lock
        return None if lock is None else lock.term

    def holds(self, margin_seconds: float = 0.0) -> bool:
        lock = self._lock
        return lock is not None and lock.holds(margin_seconds)

    def seconds_left(self) -> float:
        """How long the lease is still ours if it isn't renewed; 0 without it."""
        lock = self._lock
        return 0.0 if lock is None else lock.seconds_left()

    def run(self, stopping: threading.Event) -> None:
        """Follow until we lead, lead until the lease is lost (then return) or we stop."""
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
                self.waiting_for = str(error)
                if lock is not None:
                    lock.release()
                stopping.wait(RETRY_SECONDS)
                continue
            self._lock = lock
            LOG.info("leading", term=term)
            self.led.set()
            while not stopping.wait(LOOK_SECONDS):
                if not lock.holds():
                    LOG.error("lease lost", term=term)
                    return
            return

    def release(self) -> None:
        """Give the lease back, so that the next leader need not wait."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
