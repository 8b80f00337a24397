"""Window of the last days before a moment, in whole steps. A day is 24 hours that end at the time of day of the moment;
at midnight the days are UTC days."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import SLOTS, STEP_SECONDS
from rebalancer.policy.schema.forecast import HISTORY_DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`days` days of 288 steps. Steps are counted from the epoch."""

    end_step: int
    """End, exclusive: the step of `now`."""
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
        """Slot of the UTC day (0 is 00:00) at which the days of the window begin."""
        return self.end_step % SLOTS

    @property
    def day_starts(self) -> tuple[float, ...]:
        """Starts of the days, seconds since the epoch, oldest first."""
        return tuple(float((self.start_step + day * SLOTS) * STEP_SECONDS) for day in range(self.days))

    def times(self) -> NDArray[np.float64]:
        """(days, 288) starts of the steps, seconds since the epoch."""
        steps = np.arange(self.start_step, self.end_step, dtype=np.float64)
        return (steps * STEP_SECONDS).reshape(self.days, SLOTS)

    def overlap(self, day: int) -> tuple[slice, slice] | None:
        """Steps of UTC day `day` within the window: (of the day, of the window); None without any."""
        first, last = max(day * SLOTS, self.start_step), min((day + 1) * SLOTS, self.end_step)
        if first >= last:
            return None
        return (
            slice(first - day * SLOTS, last - day * SLOTS),
            slice(first - self.start_step, last - self.start_step),
        )
