"""The lab's time: real time, or faster."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime


class LabClock:
    """`model.decisions.ports.Clock` with a speed: one real second is `speed` lab seconds.

    Only the simulation follows it (pods that start, CPU, samples). HTTP timeouts and lease durations stay real.
    """

    def __init__(self, *, speed: float = 60.0, start: float | None = None) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        self.speed = speed
        self.started_at = time.time() if start is None else start
        self._origin = time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch, in the lab."""
        return self.started_at + (time.monotonic() - self._origin) * self.speed

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of the lab have passed."""
        if seconds > 0:
            time.sleep(seconds / self.speed)


class SteppedClock(LabClock):
    """Advances only in `sleep`: the due events happen one after another, and `sleep` returns at once.

    Test results are then independent of the machine's speed.
    """

    def __init__(self, *, start: float | None = None) -> None:
        super().__init__(start=start)
        self._now = self.started_at
        self._step: Callable[[], float | None] | None = None
        self._lock: AbstractContextManager[object] | None = None

    def drive(self, step: Callable[[], float | None], lock: AbstractContextManager[object]) -> None:
        """`step` does what is due now and returns when the next event is due (None = none); `lock` is held
        meanwhile."""
        self._step, self._lock = step, lock

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        if self._step is None or self._lock is None or seconds <= 0:
            return
        with self._lock:
            end = self._now + seconds
            while (due := self._step()) is not None and due <= end:
                self._now = max(self._now, due)
            self._now = end
            self._step()


def timestamp(seconds: float) -> str:
    """Kubernetes' `Time` on the wire: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp."""
    return datetime.fromisoformat(text).timestamp()
