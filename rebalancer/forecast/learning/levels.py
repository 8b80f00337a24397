"""Levels of each node's history: what the experts and the regression of `learner` see.

An expert's centre is a level of the next 24 hours without margin. All are linear in a node's usage, so they are equally
good on large and small nodes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.predictors.base import RECENT_STEPS, Past, Predictor
from rebalancer.forecast.series.percentiles import last_known, quantile
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.forecast import HISTORY_DAYS

SAME_WEEKDAY = 6
"""Age in days of the block with the weekday of the next 24 hours."""
HIGHEST_DAYS = 3
EXPERTS = ("own", "last", "late", "highest", "highest3", "week", "weekMax", "mean", "step", "second")
"""Centres, in the order of `Levels.centres`."""
LEAST_MILLICORES = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Levels:
    """Levels of (nodes,) each."""

    daily: Floats
    """(nodes, 8) statistic of each day, the newest last; NaN with samples of less than half of the day."""
    late: Floats
    """Statistic of the last six hours; NaN where unknown."""
    own: Floats
    """Centre of the configured predictor."""

    @classmethod
    def of(cls, past: Past, predictor: Predictor) -> "Levels":
        """Levels of a history of at most 8 days."""
        nodes, days = past.daily.shape
        daily = np.full((nodes, HISTORY_DAYS), np.nan)
        daily[:, HISTORY_DAYS - days :] = past.daily
        late = quantile(np.ascontiguousarray(past.series[:, -1, -RECENT_STEPS:]), past.statistic)
        return cls(daily=daily, late=late, own=predictor.predict(past).centres[0])

    def patched(self, rows: NDArray[np.intp], others: "Levels") -> "Levels":
        """The same with other levels of some nodes."""
        columns = self.encoded()
        columns[rows] = others.encoded()
        return Levels.decoded(columns)

    def of_nodes(self, rows: NDArray[np.intp]) -> "Levels":
        """Levels of some nodes."""
        return Levels.decoded(self.encoded()[rows])

    @classmethod
    def decoded(cls, columns: Floats) -> "Levels":
        """From the columns of `encoded`."""
        return cls(daily=columns[:, :HISTORY_DAYS], late=columns[:, HISTORY_DAYS], own=columns[:, HISTORY_DAYS + 1])

    def encoded(self) -> Floats:
        """(nodes, 10) columns."""
        return np.column_stack([self.daily, self.late, self.own])

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        return np.isfinite(self.daily)

    @cached_property
    def days(self) -> NDArray[np.int64]:
        """Known days."""
        return np.asarray(self.known.sum(axis=1), dtype=np.int64)

    @cached_property
    def level(self) -> Floats:
        """Mean of the known days, at least one millicore."""
        total = np.where(self.known, self.daily, 0.0).sum(axis=1)
        return np.asarray(np.maximum(total / np.maximum(self.days, 1), LEAST_MILLICORES), dtype=np.float64)

    @cached_property
    def last(self) -> Floats:
        """The newest known day; NaN without any."""
        return last_known(self.daily)

    def at(self, age: int) -> Floats:
        """The day of that age, 0 for the newest; where it is unknown, the newest known day."""
        day = self.daily[:, HISTORY_DAYS - 1 - age]
        return np.where(np.isfinite(day), day, self.last)

    @cached_property
    def week(self) -> Floats:
        """The same weekday last week."""
        return self.at(SAME_WEEKDAY)

    @cached_property
    def step(self) -> Floats:
        """The newest day, changed as from the day before the same weekday last week to that day."""
        before = self.daily[:, HISTORY_DAYS - 2 - SAME_WEEKDAY]
        return np.maximum(self.last + self.week - np.where(np.isfinite(before), before, self.week), 0.0)

    @cached_property
    def ordered(self) -> Floats:
        """(nodes, 8) days by height, the highest first; -inf for unknown ones."""
        return np.sort(np.where(self.known, self.daily, -np.inf), axis=1)[:, ::-1]

    @cached_property
    def highest(self) -> Floats:
        return np.where(self.days > 0, self.ordered[:, 0], np.nan)

    @cached_property
    def highest3(self) -> Floats:
        """The highest of the last three days."""
        recent = np.where(self.known, self.daily, -np.inf)[:, -HIGHEST_DAYS:].max(axis=1)
        return np.where(np.isfinite(recent), recent, self.last)

    @cached_property
    def recent(self) -> Floats:
        """The last six hours; the newest known day where they are unknown."""
        return np.where(np.isfinite(self.late), self.late, self.last)

    @cached_property
    def spread(self) -> Floats:
        """Highest less lowest day."""
        lowest = np.where(self.known, self.daily, np.inf).min(axis=1)
        return np.where(self.days > 0, self.ordered[:, 0] - lowest, np.nan)

    @cached_property
    def moves(self) -> Floats:
        """Mean change from day to day."""
        changes = np.abs(np.diff(self.daily, axis=1))
        pairs = np.isfinite(changes)
        return np.asarray(np.where(pairs, changes, 0.0).sum(axis=1) / np.maximum(pairs.sum(axis=1), 1))

    @cached_property
    def centres(self) -> Floats:
        """(experts, nodes) in the order of `EXPERTS`."""
        second = np.where(np.isfinite(self.ordered[:, 1]), self.ordered[:, 1], self.last)
        own = np.where(np.isfinite(self.own), self.own, self.last)
        return np.stack(
            [
                own,
                self.last,
                self.recent,
                self.highest,
                self.highest3,
                self.week,
                np.maximum(self.last, self.week),
                np.where(self.days > 0, self.level, np.nan),
                self.step,
                second,
            ]
        )

    @cached_property
    def columns(self) -> Floats:
        """(nodes, 9) columns of the regression: 1, then differences from the level and spreads, as shares of it. The
        latter are 0 for a node whose days are equal."""
        # with the newest day in place of an unknown one, both would share a coefficient until the day is known
        week = self.daily[:, HISTORY_DAYS - 1 - SAME_WEEKDAY]
        week = np.where(np.isfinite(week), week, self.level)
        levels = np.stack([self.last, self.recent, self.highest, self.highest3, self.step, week], axis=1)
        differences = (levels - self.level[:, None]) / self.level[:, None]
        spreads = np.stack([self.spread, self.moves], axis=1) / self.level[:, None]
        return np.asarray(np.hstack([np.ones((len(differences), 1)), differences, spreads]), dtype=np.float64)


def mean_usage(series: Grid) -> Floats:
    """(nodes,) mean of the known samples of `series` (nodes, days, 288), at least one millicore."""
    known = np.isfinite(series)
    total = np.where(known, series, np.float32(0)).sum(axis=(1, 2), dtype=np.float64)
    return np.asarray(np.maximum(total / np.maximum(known.sum(axis=(1, 2)), 1), LEAST_MILLICORES), dtype=np.float64)


def days_before(series: Grid, steps: int) -> tuple[Grid, Grid]:
    """(nodes, days, 288) the whole days that end `steps` before the end of `series`, and (nodes, 288) the day after."""
    nodes, days, _ = series.shape
    flat = series.reshape(nodes, days * SLOTS)
    end = days * SLOTS - steps
    whole = end // SLOTS
    return flat[:, end - whole * SLOTS : end].reshape(nodes, whole, SLOTS), flat[:, end : end + SLOTS]
