"""Named threads under one roof: if one ends by itself, the process ends, and whoever runs us starts it again."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

LOG = structlog.get_logger("rebalancer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why the process ends."""

    thread: str
    error: BaseException | None
    """None where the thread just returned."""


class Supervisor:
    """Starts threads and waits for the first that ends, or for `stop`."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        # a queue, because a signal handler may put into it whatever the thread that it interrupts is at
        self._endings: queue.SimpleQueue[Ending | None] = queue.SimpleQueue()
        self.stopping = threading.Event()
        """Set once no new work may be taken."""

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread of this name until it returns."""
        thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ask everything to end. May be called from a signal handler."""
        self.stopping.set()
        self._endings.put(None)

    def wait(self) -> Ending | None:
        """Until `stop`, or until a thread ends by itself; how that was, None after `stop`."""
        ending = self._endings.get()
        self.stopping.set()
        return ending

    def join(self, seconds: float, *, monotonic: Callable[[], float]) -> list[str]:
        """Wait for all threads, so long at most; the names of those that still run."""
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
