"""Hot minutes of nodes from the means of steps.

Within a step only the mean is known. The load is taken as the curve that has these means and, between two steps, the
value in the middle of both. So a peak is about as high and as long as it was, where a line between the means would cut
it off. The same rule counts what was measured and what was simulated.
"""

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.recordings.replay import Grid32

MINUTES = round(STEP_SECONDS / 60.0)


def hot_minutes(share: Floats | Grid32, high: Floats) -> Grid32:
    """(nodes, steps) minutes, 0..5, at whose end the mean over the last five minutes was over `high`.

    `share` (nodes, steps) are means over each step, NaN while unknown; `high` (nodes,), NaN = never.
    """
    mean = np.asarray(share, dtype=np.float64)
    before = np.concatenate([mean[:, :1], mean[:, :-1]], axis=1)
    after = np.concatenate([mean[:, 1:], mean[:, -1:]], axis=1)
    # beside an unknown step the load is flat
    before, after = np.where(np.isfinite(before), before, mean), np.where(np.isfinite(after), after, mean)
    at_start, at_end = (before + mean) / 2.0, (mean + after) / 2.0
    out = np.zeros(mean.shape, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        for minute in range(1, MINUTES + 1):
            so_far = _until(minute / MINUTES, at_start, mean, at_end)
            rest = mean - so_far
            earlier = np.concatenate([mean[:, :1] * (1.0 - minute / MINUTES), rest[:, :-1]], axis=1)
            earlier = np.where(np.isfinite(earlier), earlier, mean * (1.0 - minute / MINUTES))
            out += so_far + earlier > high[:, None]
    return out


def _until(part: float, at_start: Floats, mean: Floats, at_end: Floats) -> Floats:
    """The integral from the start of each step over a part of it (0..1), by Hermite's cubic."""
    first = part**3 - 2 * part**2 + part
    whole = 3 * part**2 - 2 * part**3
    last = part**3 - part**2
    return first * at_start + whole * mean + last * at_end
