"""Supervision of the daemon's threads: if one ends unexpectedly, the process exits and the kubelet restarts it."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

LOG = structlog.get_logger("rebalancer")


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
    """Starts threads and waits for the first that ends, or for `stop`."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        # SimpleQueue.put is reentrant, so a signal handler may call it
        self._endings: queue.SimpleQueue[Ending | None] = queue.SimpleQueue()
        self.stopping = threading.Event()
        """Set when no new work may start."""

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread of this name until it returns."""
        thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
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

    def _run(self, name: str, work: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
            LOG.error("thread died", thread=name, error=f"{type(raised).__name__}: {raised}", exc_info=raised)
        if not self.stopping.is_set():
            self._endings.put(Ending(thread=name, error=error))
