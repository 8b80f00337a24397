"""The machine's own time."""

import time


class SystemClock:
    """`model.decisions.ports.Clock` of the machine."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait so many seconds."""
        time.sleep(seconds)
