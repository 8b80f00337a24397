"""What a predictor sees and what it says. None knows its own errors: the margin is made from them elsewhere."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.percentiles import P95, last_known, quantile
from rebalancer.model.history import SLOTS, Grid

Floats = NDArray[np.float64]
RECENT_STEPS = SLOTS // 4
"""Six hours."""


@dataclass(frozen=True)
class Past:
    """The days before a moment, of all nodes."""

    series: Grid
    """(nodes, days, 288) millicores, oldest day first; the last step is the latest. NaN where unknown."""
    weights: Floats = field(kw_only=True)
    """(days,) what each day counts."""

    @cached_property
    def daily(self) -> Floats:
        """(nodes, days) each day's P95; NaN where less than half of the day is known."""
        return quantile(self.series, P95)

    @cached_property
    def late(self) -> Floats:
        """(nodes, days) P95 of each day's last six hours."""
        return quantile(np.ascontiguousarray(self.series[:, :, -RECENT_STEPS:]), P95)

    @cached_property
    def swing(self) -> Floats:
        """(nodes,) millicores that tell how far the next day may lie off: the mean step from day to day, the way back
        up to the highest day, and a third of the level, which alone counts for a node that never moved."""
        daily = self.daily
        known = np.isfinite(daily)
        steps = np.abs(np.diff(daily, axis=1))
        pairs = np.isfinite(steps)
        moves = np.where(pairs, steps, 0.0).sum(axis=1) / np.maximum(pairs.sum(axis=1), 1)
        latest = np.nan_to_num(last_known(self.late))
        highest = np.where(known, daily, 0.0).max(axis=1)
        swing: Floats = moves + np.maximum(highest - latest, 0.0) / 2 + 0.3 * np.maximum(latest, 1.0)
        return swing

    @cached_property
    def level(self) -> Floats:
        """(nodes,) mean of the known days' P95, at least one millicore."""
        known = np.isfinite(self.daily)
        total = np.where(known, self.daily, 0.0).sum(axis=1)
        level: Floats = np.maximum(total / np.maximum(known.sum(axis=1), 1), 1.0)
        return level

    def before(self, day: int) -> "Past":
        """What was known before day `day` of the window began; the weights move along with the days."""
        then = Past(self.series[:, :day], weights=self.weights[len(self.weights) - day :])
        for name in ("daily", "late"):
            then.__dict__[name] = getattr(self, name)[:, :day]
        return then

    def weighted(self, weights: Floats) -> "Past":
        """The same days, weighed otherwise."""
        other = Past(self.series, weights=weights)
        for name in ("daily", "late", "swing", "level"):
            other.__dict__[name] = getattr(self, name)
        return other


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The level without its margin, in one or more versions: which one holds here is seen from their past errors."""

    centres: Floats
    """(versions, nodes) millicores, NaN where nothing is known."""
    versions: tuple[str, ...] = ("",)


class Predictor(Protocol):
    """One way to guess."""

    @property
    def name(self) -> str:
        """As in the policy and in JSON."""
        ...

    @property
    def simple(self) -> bool:
        """What anybody would write first: the bar that the others have to clear."""
        ...

    def predict(self, past: Past) -> Prediction:
        """The P95 of the 24 hours after `past`."""
        ...
