"""Time of a node's peak: a vote of the days, each for its own busiest quarter of an hour.

A percentile of each time of day mixes the peaks of several days; the busiest time of most days is steadier. The votes
within an hour of a slot are summed, newer days count more, and so does the same weekday last week.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Floats

Ints = NDArray[np.int64]

HALF_LIFE_DAYS = 4.0
SAME_WEEKDAY = 0.5
"""Added to the vote of the day one week before the horizon."""
REACH = 12
"""Slots on either side whose votes count for a slot: one hour."""
BY_HOUR, BY_QUARTER = 1e-3, 1e-6
"""Weights of the mean day, smoothed over an hour and over a quarter of an hour: they only break ties."""
HELD = 0.8
"""Share of the votes between `first` and `last`."""
CHUNK_ROWS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSlots:
    """Slots of a day of 288, each (nodes,); the day is cyclic. -1 in all three for a node without a known day."""

    slot: Ints
    """Middle step of the quarter of an hour in which the peak is expected."""
    first: Ints
    """The shortest time around `slot` with at least 80 % of the votes: its first step; may be negative."""
    last: Ints
    """Its last step; may be over 287."""


def peak_slots(series: Grid) -> PeakSlots:
    """Time of the peak of the day after `series` (nodes, days, 288), oldest day first. NaN where unknown; a day with
    less than half of its steps has no vote."""
    days = series.shape[1]
    age = np.arange(days - 1, -1, -1)
    weights = 0.5 ** (age / HALF_LIFE_DAYS) + SAME_WEEKDAY * (age % 7 == 6)
    parts = [_of(series[first : first + CHUNK_ROWS], weights) for first in range(0, len(series), CHUNK_ROWS)]
    slot, first, last = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), dtype=np.int64)
    return PeakSlots(slot=slot, first=first, last=last)


def _of(series: Grid, weights: Floats) -> Ints:
    """(3, nodes)"""
    rows = np.arange(len(series))
    quarters = _around(series, 1)
    known = np.isfinite(quarters)
    votes = np.argmax(np.where(known, quarters, -np.inf), axis=2)
    counted = np.where(2 * np.isfinite(series).sum(axis=2) >= SLOTS, weights, 0.0) * known.any(axis=2)
    ballot = np.zeros((len(series), SLOTS))
    np.add.at(ballot, (rows[:, None], votes), counted)
    with np.errstate(invalid="ignore"):  # 0/0 where unknown
        mean = np.where(known, quarters, 0.0).sum(axis=1) / known.sum(axis=1)
    mean = np.nan_to_num(mean)
    score = _around(ballot, REACH) + BY_HOUR * _scaled(_around(mean, REACH // 2)) + BY_QUARTER * _scaled(mean)
    slot = np.argmax(score, axis=1)
    first, last = _interval((votes - slot[:, None] + SLOTS // 2) % SLOTS - SLOTS // 2, counted)
    out = np.stack([slot, slot + first - 1, slot + last + 1])
    out[:, ~(counted > 0).any(axis=1)] = -1
    return out


def _around(values: NDArray[np.floating], reach: int) -> Floats:
    """Sum of each slot and `reach` slots on either side, along the last axis, which is cyclic."""
    if reach == 1:
        return np.asarray(np.roll(values, 1, axis=-1) + values + np.roll(values, -1, axis=-1), dtype=np.float64)
    wide = np.concatenate([values[..., -reach - 1 :], values, values[..., :reach]], axis=-1)
    total = np.cumsum(wide, axis=-1, dtype=np.float64)
    out: Floats = total[..., 2 * reach + 1 :] - total[..., : -2 * reach - 1]
    return out


def _scaled(values: Floats) -> Floats:
    """(nodes, 288) to 0..1."""
    low = values.min(axis=1, keepdims=True)
    spread = values.max(axis=1, keepdims=True) - low
    out: Floats = np.divide(values - low, spread, out=np.zeros_like(values), where=spread > 0)
    return out


def _interval(offset: Ints, weight: Floats) -> tuple[Ints, Ints]:
    """(nodes,) slots before and after the peak of the shortest interval with HELD of the votes, which are `offset`
    (nodes, days) slots from the peak."""
    low, high = np.minimum(offset, 0), np.maximum(offset, 0)
    inside = (offset[:, None, None] >= low[:, :, None, None]) & (offset[:, None, None] <= high[:, None, :, None])
    held = (inside * weight[:, None, None]).sum(axis=3)
    enough = held >= (HELD - 1e-9) * weight.sum(axis=1)[:, None, None]
    length = np.where(enough, high[:, None, :] - low[:, :, None], 2 * SLOTS)
    best = np.argmin(length.reshape(len(offset), -1), axis=1)
    rows, days = np.arange(len(offset)), offset.shape[1]
    return low[rows, best // days], high[rows, best % days]
