"""Supervision of the daemon's threads: one that fails unexpectedly is restarted with a backoff, and the others go on.

The process exits, and the kubelet restarts it, after an error of the lease or the ledger, and without memory.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from rebalancer.model.parts import FailedParts

LOG = structlog.get_logger("rebalancer")

HEALTHY_SECONDS = 60.0
"""A thread works again after so long without another failure."""


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """The worker's last sign of life, by the machine's monotonic clock."""

    stopping: threading.Event
    at: float = field(default_factory=time.monotonic)

    def beat(self) -> bool:
        """A sign of life; whether the daemon is stopping."""
        self.at = time.monotonic()
        return self.stopping.is_set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The thread that ended unexpectedly."""

    thread: str
    error: BaseException | None
    """None if the thread returned."""


class Supervisor:
    """Starts threads and waits for the first whose end ends the process, or for `stop`. Failures of threads that are
    restarted are noted in `parts`."""

    def __init__(self, parts: FailedParts) -> None:
        self._parts = parts
        self._threads: list[threading.Thread] = []
        # SimpleQueue.put is reentrant, so a signal handler may call it
        self._endings: queue.SimpleQueue[Ending | None] = queue.SimpleQueue()
        self.stopping = threading.Event()
        """Set when no new work may start."""

    def start(self, name: str, work: Callable[[], None], *, vital: bool = False) -> None:
        """Run `work`, which returns when the daemon stops, in a thread of this name. It is run again after an
        unexpected error; one of a `vital` thread ends the process."""
        run = self._run if vital else self._run_again
        thread = threading.Thread(target=run, args=(name, work), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Request the end of all threads. Safe in a signal handler."""
        self.stopping.set()
        self._endings.put(None)

    def wait(self) -> Ending | None:
        """Block until `stop` (None) or until a thread ends unexpectedly."""
        ending = self._endings.get()
        self.stopping.set()
        return ending

    def join(self, seconds: float, *, monotonic: Callable[[], float]) -> list[str]:
        """Wait for all threads, at most this long; the names of those still running."""
        end = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _run_again(self, name: str, work: Callable[[], None]) -> None:
        self._run(name, lambda: self._with_restarts(name, work))

    def _with_restarts(self, name: str, work: Callable[[], None]) -> None:
        while not self.stopping.is_set():
            why: Exception | str = "it ended"
            try:
                work()
            except Exception as error:  # noqa: BLE001 - noted by its part
                why = error
            if not self.stopping.is_set():
                part = self._parts.failed(f"thread {name}", why, healthy_seconds=HEALTHY_SECONDS)
                self.stopping.wait(part.wait_seconds)

    def _run(self, name: str, work: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
            LOG.error("thread died", thread=name, error=f"{type(raised).__name__}: {raised}", exc_info=raised)
        if not self.stopping.is_set():
            self._endings.put(Ending(thread=name, error=error))
