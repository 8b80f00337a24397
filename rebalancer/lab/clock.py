"""The lab's time: real time, or faster."""

import time
from datetime import UTC, datetime


class LabClock:
    """`model.ports.Clock` with a speed: one real second is `speed` lab seconds.

    Only what is simulated follows it (pods that start, CPU, samples). HTTP timeouts and lease durations stay real.
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


def timestamp(seconds: float) -> str:
    """Kubernetes' `Time` on the wire: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp."""
    return datetime.fromisoformat(text).timestamp()
