"""Steady growth of memory, over the longest of several times in which a pod shows it and hasn't grown slower."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.memory.memory_runs import PARTS_OF_DAY, WINDOWS_STEPS, MemoryRuns, part_means
from rebalancer.model.measured.history import HOUR_SECONDS, SLOTS, STEP_SECONDS
from rebalancer.model.notation.arrays import Floats

Ints = NDArray[np.int64]

PARTS = 12
"""Equal parts of a time, of which means are compared."""
RISING_SHARE = 0.8
"""Share of the parts that must be above the one before, and of the growth in all changes up and down."""
LEAST_MEBIBYTES, LEAST_SHARE = 16.0, 0.05
"""Smaller growth over a time is not looked at; the share is of the level before."""
NEW_SHARE = 0.5
"""Share of the growth that lies above the highest level of the run before."""
EVEN_SHARE = 0.5
"""Growth in the first third of a time, at least, as a share of that in its last: otherwise a shorter time counts."""
SLOWER_SHARE = 0.5
"""A longer time counts only if its slope is so large a share of that over a shorter time: otherwise memory has begun to
grow faster."""
PATTERN_DAYS = 1.5
"""Growth over days may contain a daily pattern. So memory grows faster than that only if it has risen above its highest
level by more than the growth of so many days."""
SPREAD = (0.1, 0.9)
"""Quantiles of the slopes between parts that bound the growth."""


@dataclass(slots=True, kw_only=True)
class Growth:
    """Growth of one pod (an index into the columns of runs)."""

    pod: int
    level: float
    """MiB at the end."""
    slope: float
    """MiB an hour, median."""
    slow: float
    fast: float
    left: float
    """MiB by which it still grows if it slows down as before; infinite if it doesn't slow down."""
    hours: float
    """It has been seen for."""
    above: float
    """MiB above the highest level before it."""


def growing(runs: MemoryRuns) -> dict[int, Growth]:
    """Pod -> its steady growth, over the longest time in which it hasn't grown slower than over shorter ones."""
    found: dict[int, Growth] = {}
    level, least = _levels(runs)
    with np.errstate(invalid="ignore"):
        grown = np.flatnonzero(level - least >= np.maximum(LEAST_MEBIBYTES, LEAST_SHARE * least))
    for at, window in enumerate(WINDOWS_STEPS):
        # the part in which a run begins shows a start, not growth
        inside = grown[runs.end - window >= runs.began[grown]]
        means = part_means(runs.latest[inside, SLOTS - window :], PARTS).astype(np.float64)
        grows = steady(means, before=runs.high_before[inside, at], even=at > 0)
        hours, high = window * STEP_SECONDS / HOUR_SECONDS, runs.high_before[inside[grows], at]
        for each in _growths(inside[grows], means[grows], level[inside[grows]], hours, high):
            if each.pod not in found or not _faster(found[each.pod], each):
                found[each.pod] = each
    daily = runs.daily.astype(np.float64)
    pods = np.flatnonzero(steady(daily, rising=1.0) & np.isfinite(level))
    for each in _growths(pods, daily[pods], level[pods], daily.shape[1] * 24.0):
        shorter = found.get(each.pod)
        if shorter is None or shorter.above <= PATTERN_DAYS * 24.0 * each.slope or not _faster(shorter, each):
            found[each.pod] = each
    return found


def _faster(shorter: Growth, longer: Growth) -> bool:
    return longer.slope < SLOWER_SHARE * shorter.slope


def _levels(runs: MemoryRuns) -> tuple[Floats, Floats]:
    """(pods,) newest mean of half an hour, and the least one within a day; NaN where unknown."""
    means = part_means(runs.latest, PARTS_OF_DAY)
    return means[:, -1].astype(np.float64), np.fmin.reduce(means, axis=1).astype(np.float64)


def steady(
    means: Floats, *, before: NDArray[np.float32] | None = None, rising: float = RISING_SHARE, even: bool = True
) -> NDArray[np.bool_]:
    """(pods,) whether they grow in nearly all parts, by enough, above the level `before` (pods,), and, if `even`, from
    the first part on. Unknown parts count as no growth."""
    steps = np.diff(means, axis=1)
    growth, third = means[:, -1] - means[:, 0], means.shape[1] // 3
    above = means[:, -1] - np.fmax(before, means[:, 0]) if before is not None else growth
    early, late = means[:, third] - means[:, 0], means[:, -1] - means[:, -1 - third]
    with np.errstate(invalid="ignore"):
        grows: NDArray[np.bool_] = (
            (growth >= np.maximum(LEAST_MEBIBYTES, LEAST_SHARE * means[:, 0]))
            & (above >= NEW_SHARE * growth)
            & ((steps > 0).mean(axis=1) >= rising)
            & (growth >= RISING_SHARE * np.abs(steps).sum(axis=1))
            & ((early >= EVEN_SHARE * late) | (not even))
        )
    return grows


def _growths(
    pods: Ints, means: Floats, level: Floats, hours: float, high: NDArray[np.float32] | None = None
) -> list[Growth]:
    """Growth of steadily growing pods with (pods, parts) means over `hours`, and their highest level before, `high`."""
    if not len(pods):
        return []
    parts = means.shape[1]
    third, part_hours = parts // 3, hours / parts
    # Theil-Sen, of pairs that end in the later half: the present growth
    pairs = [(a, b) for a, b in combinations(range(parts), 2) if b - a >= third and 2 * b >= parts]
    first, last = np.array(pairs).T
    slopes = (means[:, last] - means[:, first]) / ((last - first) * part_hours)
    slope = np.median(slopes, axis=1)
    slowest, fastest = np.quantile(slopes, SPREAD, axis=1)
    early, late = means[:, third] - means[:, 0], means[:, -1] - means[:, -1 - third]
    recent = late / (third * part_hours)
    # v(t) = top - gap e^(-rate t): the two thirds give the rate, and what is still to come
    with np.errstate(divide="ignore", invalid="ignore"):
        decay = np.log(early / late) * third / (parts - 1 - third)
        left = np.where((late > 0) & (decay > 0), late / np.expm1(decay), np.inf)
    left = np.where(late <= 0, 0.0, left)
    # the mean of the last part is half a part old
    now = np.fmax(level, means[:, -1] + recent * part_hours / 2)
    above = now - (means[:, 0] if high is None else np.fmax(high, means[:, 0]))
    return [
        Growth(pod=pod, level=at, slope=mid, slow=slow, fast=fast, left=rest, hours=hours, above=over)
        for pod, at, mid, slow, fast, rest, over in zip(
            pods.tolist(),
            now.tolist(),
            slope.tolist(),
            np.fmin(slowest, recent).tolist(),
            np.fmax(fastest, recent).tolist(),
            left.tolist(),
            above.tolist(),
            strict=True,
        )
    ]
