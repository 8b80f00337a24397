"""The CPU counters of the simulated cluster's nodes.

CPU is integrated exactly, as counters are. Every minute the counters are sampled, so that means over a rate window can
be read at any time.
"""

import math
from collections import deque
from collections.abc import Callable

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats

TICK_SECONDS = 60.0
"""Between two samples."""


class Counters:
    """See the module. Times are seconds since the epoch."""

    def __init__(
        self, nodes: int, *, start: float, rate: Callable[[], Floats], remembered_seconds: float = 3600.0
    ) -> None:
        """`rate`: (nodes,) millicores from the current time on. `remembered_seconds`: how far back means are read."""
        self._start = self._now = start
        self._rate = rate
        self.value: Floats = np.zeros(nodes)
        """Millicore-seconds of each node."""
        self._samples: deque[tuple[float, Floats]] = deque(
            maxlen=math.ceil(max(remembered_seconds, STEP_SECONDS) / TICK_SECONDS) + 2
        )
        self._step_counter: Floats = self.value.copy()

    def advance(self, at: float) -> None:
        """Count until a time."""
        if at > self._now:
            self.value += self._rate() * (at - self._now)
            self._now = at

    def sample(self) -> None:
        """Remember the counters of now."""
        self._samples.append((self._now, self.value.copy()))

    def mean_of_step(self) -> Floats:
        """(nodes,) mean millicores of the step that ends now; the next one begins."""
        mean: Floats = (self.value - self._step_counter) / STEP_SECONDS
        self._step_counter = self.value.copy()
        return mean

    def mean(self, at: float, window: float) -> Floats:
        """(nodes,) mean millicores over the `window` seconds before a time that is still remembered; of a younger
        recording, since its start."""
        begin = max(at - window, self._start)
        if at - begin < 1e-9:
            return self._rate().copy()
        return (self._at(at) - self._at(begin)) / (at - begin)

    def _at(self, at: float) -> Floats:
        if at >= self._now:
            return self.value
        later = self._now, self.value
        for sampled, counter in reversed(self._samples):
            if sampled <= at:
                span = later[0] - sampled
                return counter if span <= 0 else counter + (later[1] - counter) * ((at - sampled) / span)
            later = sampled, counter
        return later[1]
