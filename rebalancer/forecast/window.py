"""The last days before a moment, in whole steps. A day here is 24 hours that end at the time of day of the moment, so
no day is a partial one; with `now` at midnight they are calendar days (UTC)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.history import SLOTS, STEP_SECONDS
from rebalancer.policy.schema.forecast import HISTORY_DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`days` days of 288 steps. Steps are counted from the epoch."""

    end_step: int
    """The first step that is not in it: the one that `now` is in."""
    days: int = HISTORY_DAYS

    @classmethod
    def before(cls, now: float, days: int = HISTORY_DAYS) -> "Window":
        """The days before `now` (seconds since the epoch)."""
        return cls(end_step=int(now // STEP_SECONDS), days=days)

    @property
    def steps(self) -> int:
        return self.days * SLOTS

    @property
    def start_step(self) -> int:
        return self.end_step - self.steps

    @property
    def first_slot(self) -> int:
        """Slot of the UTC day (0 is 00:00) that every day of the window begins with."""
        return self.end_step % SLOTS

    @property
    def day_starts(self) -> tuple[float, ...]:
        """Seconds since the epoch at which each day begins, oldest first."""
        return tuple(float((self.start_step + day * SLOTS) * STEP_SECONDS) for day in range(self.days))

    def times(self) -> NDArray[np.float64]:
        """(days, 288) seconds since the epoch at which each step begins."""
        steps = np.arange(self.start_step, self.end_step, dtype=np.float64)
        return (steps * STEP_SECONDS).reshape(self.days, SLOTS)

    def overlap(self, day: int) -> tuple[slice, slice] | None:
        """Which steps of UTC day `day` lie in the window, and where in it they lie; None where none do."""
        first, last = max(day * SLOTS, self.start_step), min((day + 1) * SLOTS, self.end_step)
        if first >= last:
            return None
        return (
            slice(first - day * SLOTS, last - day * SLOTS),
            slice(first - self.start_step, last - self.start_step),
        )
