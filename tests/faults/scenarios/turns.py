"""Threads that take turns with the one that has started them, so that waits are simulated time only."""

import threading
from collections.abc import Callable

from tests.faults.fakes import Killed


class Turns:
    """Work in a thread of its own that runs in `resume` only: until it waits, or ends."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.due = float("-inf")
        """Until when it waits, in seconds since the epoch."""
        self.over = False
        self._work = work
        self._error: BaseException | None = None
        self._killed = False
        self._resumed, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Raises what the work has raised."""
        self._resumed.release()
        self._paused.acquire()
        if self.over:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def kill(self) -> None:
        """Its wait raises Killed."""
        self._killed = True
        self.resume()

    def wait(self, due: float) -> None:
        """In its thread: until it is resumed."""
        if self._killed:
            raise Killed
        self.due = due
        self._paused.release()
        self._resumed.acquire()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        self._resumed.acquire()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised where the work is resumed
            self._error = error
        finally:
            self.over = True
            self._paused.release()
