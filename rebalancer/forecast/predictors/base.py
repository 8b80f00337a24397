"""Input and output of a predictor. The margin is no part of a prediction: it is derived from past errors."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.percentiles import P95, last_known, quantile
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Floats

RECENT_STEPS = SLOTS // 4
"""Six hours."""


@dataclass(frozen=True)
class Past:
    """History of all nodes before a moment."""

    series: Grid
    """(nodes, days, 288) millicores, oldest day first; the last step is the latest. NaN where unknown."""
    weights: Floats = field(kw_only=True)
    """(days,) weight of each day."""
    statistic: float = field(default=P95, kw_only=True)
    """Quantile of a day that is predicted: the P95, or 1 for the highest."""

    @cached_property
    def daily(self) -> Floats:
        """(nodes, days) statistic of each day; NaN with samples of less than half of the day."""
        return quantile(self.series, self.statistic)

    @cached_property
    def late(self) -> Floats:
        """(nodes, days) statistic of each day's last six hours."""
        return quantile(np.ascontiguousarray(self.series[:, :, -RECENT_STEPS:]), self.statistic)

    @cached_property
    def swing(self) -> Floats:
        """(nodes,) millicores, the scale of expected errors: the mean change from day to day, half the distance to the
        highest day, and 30 % of the level, the only term of a node without changes."""
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
        """(nodes,) mean of the known days' statistic, at least one millicore."""
        known = np.isfinite(self.daily)
        total = np.where(known, self.daily, 0.0).sum(axis=1)
        level: Floats = np.maximum(total / np.maximum(known.sum(axis=1), 1), 1.0)
        return level

    def before(self, day: int) -> "Past":
        """The days before day `day` of the window; weights are by age."""
        then = replace(self, series=self.series[:, :day], weights=self.weights[len(self.weights) - day :])
        for name in ("daily", "late"):
            then.__dict__[name] = getattr(self, name)[:, :day]
        return then

    def of_nodes(self, rows: NDArray[np.intp]) -> "Past":
        """The history of some nodes."""
        return replace(self, series=self.series[rows])

    def weighted(self, weights: Floats) -> "Past":
        """The same days with other weights."""
        other = replace(self, weights=weights)
        for name in ("daily", "late", "swing", "level"):
            other.__dict__[name] = getattr(self, name)
        return other


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Level without its margin, in one or more versions. The one with the least past loss is used."""

    centres: Floats
    """(versions, nodes) millicores, NaN where unknown."""


class Predictor(Protocol):
    """A way to predict the statistic of the horizon."""

    @property
    def name(self) -> str:
        """Name in the policy and in JSON."""
        ...

    @property
    def simple(self) -> bool:
        """Whether it is a baseline predictor, which the others must beat."""
        ...

    def predict(self, past: Past) -> Prediction:
        """The statistic of the 24 hours after `past`."""
        ...
