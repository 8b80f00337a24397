"""Level shifts: nodes whose usage has been far above every past day at the same time of day for six hours.

The days before such a shift say little about the level after it. Their shape is kept and their level raised. Falls are
left to the experts: a low day may be a holiday.
"""

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import SLOTS, Grid

LEAST_STEPS = SLOTS // 4
"""Six hours."""
MOSTLY = 0.95
"""Share of the steps that must be above."""
LEAST_RATIO, MOST_RATIO = 1.25, 4.0
BUSY_SHARE = 0.5
"""At hours under this share of the node's mean a shift adds its own size to the day; at others it scales the day."""
BLOCK_STEPS = 12
"""Steps by which the start of a shift is found."""
LEAST_DAYS = 3


def raised_nodes(series: Grid) -> tuple[NDArray[np.intp], Grid]:
    """Nodes of `series` (nodes, days, 288) with a shift, and their series with the steps before it raised."""
    days = series.shape[1]
    late, before = series[:, -1, -LEAST_STEPS:], series[:, :-1, -LEAST_STEPS:]
    highest = np.where(np.isfinite(before), before, -np.inf).max(axis=1, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        above = (late >= LEAST_RATIO * highest) & np.isfinite(highest)
    known_days = np.isfinite(before).any(axis=2).sum(axis=1)
    found = np.flatnonzero((above.sum(axis=1) >= MOSTLY * LEAST_STEPS) & (known_days >= LEAST_DAYS))
    raised = series[found].reshape(len(found), days * SLOTS)
    for row, node in enumerate(found.tolist()):
        usual = np.where(np.isfinite(series[node, :-1]), series[node, :-1], -np.inf).max(axis=0)
        steps = _steps_above(series[node, -1], usual)
        now, then, mean = (float(np.nanmean(each)) for each in (late[node], before[node], series[node]))
        earlier = raised[row, : days * SLOTS - steps]
        if then < BUSY_SHARE * mean:
            earlier += np.float32(max(now - then, 0.0))
        else:
            earlier *= np.float32(np.clip(now / max(then, 1e-9), 1.0, MOST_RATIO))
    return found, raised.reshape(len(found), days, SLOTS)


def _steps_above(last: NDArray[np.float32], usual: NDArray[np.float32]) -> int:
    """Number of last steps of the last day, in whole blocks, that are above the past days at their time of day."""
    steps = LEAST_STEPS
    while steps + BLOCK_STEPS <= SLOTS:
        block = slice(SLOTS - steps - BLOCK_STEPS, SLOTS - steps)
        if np.mean(last[block] >= LEAST_RATIO * usual[block]) < MOSTLY:
            break
        steps += BLOCK_STEPS
    return steps
