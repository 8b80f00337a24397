"""Percentiles of days and of times of day, weighted over the days. NaN is ignored."""

import numpy as np

from rebalancer.model.measured.history import DAY_SECONDS, Grid
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.forecast import DayWeights

P95 = 0.95
SLOT_QUANTILE = 0.9
CHUNK_ROWS = 512


def quantile(values: Grid, share: float) -> Floats:
    """Interpolated quantile along the last axis; NaN where less than half of the values is known."""
    steps = values.shape[-1]
    if share == 1.0:
        enough = 2 * np.isfinite(values).sum(axis=-1) >= steps
        return np.asarray(np.where(enough, np.fmax.reduce(values, axis=-1), np.nan), dtype=np.float64)
    at = share * (steps - 1)
    low = int(at)
    high = min(low + 1, steps - 1)
    flat = values.reshape(-1, steps)
    parted = np.partition(flat, (low, high), axis=1)  # NaN counts as the largest
    out = parted[:, low] + (parted[:, high] - parted[:, low]).astype(np.float64) * (at - low)
    incomplete = np.flatnonzero(np.isnan(flat).any(axis=1))
    if len(incomplete):
        ordered = np.sort(flat[incomplete], axis=1)
        count = np.isfinite(ordered).sum(axis=1)
        place = share * np.maximum(count - 1, 0)
        below = place.astype(np.int64)
        rows = np.arange(len(incomplete))
        first, second = ordered[rows, below], ordered[rows, np.minimum(below + 1, np.maximum(count - 1, 0))]
        between = first + (second - first).astype(np.float64) * (place - below)
        out[incomplete] = np.where(count * 2 >= steps, between, np.nan)
    return np.asarray(out.reshape(values.shape[:-1]), dtype=np.float64)


def day_weights(policy: DayWeights, days: int) -> Floats:
    """(days,) weights of the last days, oldest first."""
    age = np.arange(days - 1, -1, -1)
    if policy.weights is not None:
        listed = np.array(policy.weights)
        weights = np.where(age < len(listed), listed[np.minimum(age, len(listed) - 1)], 0.0)
    else:
        weights = 0.5 ** (age * DAY_SECONDS / policy.half_life)
    weights[age % 7 == 6] *= policy.same_weekday  # the same weekday as the horizon
    return weights


def weighted_mean(daily: Floats, weights: Floats) -> Floats:
    """(nodes,) of `daily` (nodes, days), over the known days; the newest value if all known days have weight 0."""
    known = np.isfinite(daily)
    counted = np.where(known, weights, 0.0)
    total = counted.sum(axis=1)
    mean = np.divide(
        (np.nan_to_num(daily) * counted).sum(axis=1), total, out=np.full(len(daily), np.nan), where=total > 0
    )
    return np.where(total > 0, mean, last_known(daily))


def last_known(daily: Floats) -> Floats:
    """(nodes,) newest known value of each row; NaN without any."""
    known = np.isfinite(daily)
    newest = daily.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    return np.where(known.any(axis=1), daily[np.arange(len(daily)), newest], np.nan)


def slot_mean(series: Grid, weights: Floats) -> Grid:
    """(rows, 288) weighted mean of each time of day over the days of `series` (rows, days, 288); NaN where unknown."""
    out = np.empty((series.shape[0], series.shape[2]), dtype=np.float32)
    for first in range(0, len(series), CHUNK_ROWS):
        values = series[first : first + CHUNK_ROWS]
        counted = np.isfinite(values) * weights.astype(np.float32)[:, None]
        with np.errstate(invalid="ignore"):  # 0/0 where unknown
            out[first : first + CHUNK_ROWS] = (np.nan_to_num(values) * counted).sum(axis=1) / counted.sum(axis=1)
    return out


def slot_profile(series: Grid, weights: Floats, share: float = SLOT_QUANTILE) -> Grid:
    """(nodes, 288) weighted percentile of each time of day over the days of `series` (nodes, days, 288).

    The smallest value with at least `share` of the weights at or under it; NaN where unknown.
    """
    out = np.empty((series.shape[0], series.shape[2]), dtype=np.float32)
    for first in range(0, len(series), CHUNK_ROWS):
        values = series[first : first + CHUNK_ROWS]
        order = np.argsort(values, axis=1)
        ordered = np.take_along_axis(values, order, axis=1)
        mass = np.where(np.isfinite(ordered), weights[order], 0.0)
        mass = np.cumsum(mass, axis=1)
        reached = mass >= (share - 1e-9) * mass[:, -1:]
        at = np.argmax(reached, axis=1)
        out[first : first + CHUNK_ROWS] = np.take_along_axis(ordered, at[:, None, :], axis=1)[:, 0]
    return out
