"""The learner: from the levels of each node's history, and from what came of earlier forecasts, to the next peak.

One learner makes the forecasts of the daemon, of `rebalancer forecast` and of the backtest. It has three parts:

- Each expert is a level of the history with a margin, a weighted conformal quantile of its own past errors.
- Two linear quantile regressions over the levels: with published coefficients, and fitted to the outcomes toward these.
- The forecast is their weighted mean. The weights are those of Bernstein online aggregation (Wintenberger 2017, Machine
  Learning 106) with the gradient of the pinball loss: the mean loss exceeds that of the best fixed weights, known only
  afterwards, by no more than a multiple of sqrt(log(experts) / outcomes). Half of the weight stays where it
  starts.

Errors count as shares of a node's level, so large and small nodes count alike. An actual at capacity is a lower bound:
a higher prediction is right there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import get_args

import numpy as np

from rebalancer.forecast.learning.levels import EXPERTS, Levels
from rebalancer.forecast.learning.prediction_interval import (
    HALF_LIFE_DAYS,
    MARGIN_WITHOUT_ERRORS,
    conformal_share,
    weighted_quantile,
)
from rebalancer.forecast.learning.quantile_regression import fit
from rebalancer.forecast.predictors import COMBINED
from rebalancer.forecast.series.compose import FULL_SHARE
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.outcomes import PERIOD_SECONDS, ForecastOutcomes
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.forecast import HISTORY_DAYS, PredictorName

LAYOUT = 1


def layout_of(predictor: str) -> int:
    """Layout of the outcomes of a predictor, whose level is one of the columns."""
    return LAYOUT * 100 + get_args(PredictorName).index(predictor)


FORECASTS = (*EXPERTS, "highestBare", "published", "fitted")
"""What is weighted: the experts with margins, the highest day without, and the regressions."""
PUBLISHED = {
    0.5: (0.0, 0.52, 0.08, 0.02, 0.06, 0.14, 0.17, 0.0, -0.05),
    0.8: (0.0, 0.22, 0.07, 0.24, 0.35, 0.20, 0.11, -0.02, 0.33),
    0.9: (0.0, 0.13, 0.06, 0.62, 0.31, 0.23, 0.03, -0.18, 0.77),
    0.95: (0.0, 0.15, 0.05, 1.02, 0.22, 0.20, 0.01, -0.21, 0.84),
    0.98: (0.0, 0.15, 0.10, 2.09, -0.28, 0.12, 0.03, -0.36, 1.25),
}
"""Quantile -> coefficients of `Levels.columns`, fitted on twelve sets of traces (docs/forecast.md); `make bench
ONLY=coefficients` fits them to folders of traces."""
STRENGTH_DAYS = 100.0
"""The published coefficients count as much as the outcomes of so many days."""
START = {"published": 0.2, "fitted": 0.5}
"""Start weights; the rest is shared equally."""
KEPT_AT_START = 0.5
OTHER_POOLS = 0.25
"""Weight of the outcomes of other pools."""
ENOUGH_PERIODS = 112
"""Periods with outcomes of a pool, four weeks, from which on those of other pools are not needed."""
MOST_ROWS = 12_000
"""Rows of the regression; of more, evenly spaced ones stand for all."""
SMALL_SHARE = 0.5
"""Nodes under this share of the median level count less: one that was nearly idle is many times over its level when it
fills up."""
MOST_WEIGHT = 20.0
"""Limit of level / mean usage, as which a node's errors count in the regression."""
UNKNOWN_DAYS = 2.0
"""Changes from day to day that are added when all days are unknown, in proportion for some."""
LEAST_WEEKS, WEEKS = 4, 4.0
"""A weekday has a shift of its own from so many of its days on; it counts half after `WEEKS`."""
LEAST_WORKDAYS, MOST_DAYS = 2, 4
"""High days that a week needs: a single one is none. Where the day before the same weekday is unknown most days must be
high, else the level has fallen."""
REST_MARGIN = 0.05
"""Share of the same weekday last week that is added to it where rest days lie between."""
REST_SHARE = 0.7
"""A day under this share of the same weekday last week is a rest day before it."""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """(nodes,) millicores each; NaN where nothing is known."""

    level: Floats
    """Median of the next 24 hours' P95."""
    upper: Floats
    """With margin."""
    uppers: Floats
    """(nodes, forecasts + 1) as in `ForecastOutcomes.uppers`."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """What was learned for one pool."""

    coverage: float
    margins: Floats
    """(experts,) shares of the level."""
    coefficients: Floats
    weights: Floats
    """(forecasts,) sum 1."""
    weekdays: dict[int, float] = field(default_factory=dict)
    """Weekday of the middle of the 24 hours, Monday is 0 -> shift as a share of the level."""
    alone: bool = False
    """Whether the forecast is the configured predictor with its margin only."""

    def predict(self, levels: Levels, *, made_at: float) -> Predicted:
        """The next 24 hours from `made_at` (seconds since the epoch)."""
        level = levels.level
        published = 1.0 + levels.columns @ published_coefficients(self.coverage)
        uppers = np.vstack(
            [
                levels.centres + self.margins[:, None] * level,
                levels.highest,
                published * level,
                (1.0 + levels.columns @ self.coefficients) * level,
            ]
        )
        uppers = np.maximum(uppers + few_days(levels), 0.0)
        final = self.weights @ uppers
        shifted = final + self.weekdays.get(_weekday(made_at), 0.0) * level
        least = np.zeros(len(level)) if self.alone else rest_floor(levels)
        upper = np.maximum(np.maximum(shifted, 0.0), least)
        median = (1.0 + levels.columns @ published_coefficients(0.5)) * level
        # a predictor that is usually too high has a negative margin
        centre = (
            levels.centres[0]
            if self.alone
            else np.minimum(np.maximum(np.maximum(median, 0.0), least / (1.0 + REST_MARGIN)), upper)
        )
        return Predicted(level=centre, upper=upper, uppers=np.vstack([uppers, final]).T)


def few_days(levels: Levels) -> Floats:
    """(nodes,) what is added for unknown days of the history: a higher day may be among them."""
    unknown = 1.0 - np.minimum(levels.days, HISTORY_DAYS) / HISTORY_DAYS
    return UNKNOWN_DAYS * unknown * levels.moves


def rest_floor(levels: Levels) -> Floats:
    """(nodes,) the same weekday last week with a margin, where rest days lie between it and now, else 0.

    Rest days are low, and were followed by a high day a week ago too, which was not the only one.
    """
    week = levels.week
    yesterday, week_before = levels.last, levels.daily[:, 0]
    with np.errstate(invalid="ignore"):
        rested = (yesterday <= REST_SHARE * week) & ~(week_before > REST_SHARE * week)
        rested &= (levels.daily > REST_SHARE * week[:, None]).sum(axis=1) >= np.where(
            np.isfinite(week_before), LEAST_WORKDAYS, MOST_DAYS
        )
    return np.where(rested, (1.0 + REST_MARGIN) * week, 0.0)


def published_coefficients(share: float) -> Floats:
    """(columns,) coefficients of a quantile, interpolated between the published ones."""
    shares = sorted(PUBLISHED)
    table = np.array([PUBLISHED[each] for each in shares])
    return np.array([np.interp(share, shares, column) for column in table.T])


def learn(
    outcomes: Iterable[ForecastOutcomes],
    *,
    pool: str,
    coverage: float,
    now: float,
    predictor: PredictorName = COMBINED,
) -> Learner:
    """Learn from the outcomes of the predictor whose 24 hours are over at `now`.

    With another one than `combined` the forecast is its level with a margin.
    """
    alone = predictor != COMBINED
    over = [each for each in outcomes if usable(each, predictor, now)]
    own = [each for each in over if each.pool == pool]
    rows = [_Rows.of(each, pool, now) for each in (own if len(own) >= ENOUGH_PERIODS else over)]
    rows = sorted((each for each in rows if each.count), key=lambda each: each.period)
    start = start_weights(alone=alone)
    published = published_coefficients(coverage)
    if not rows:
        return Learner(
            coverage=coverage,
            margins=np.full(len(EXPERTS), MARGIN_WITHOUT_ERRORS),
            coefficients=published,
            weights=start,
            alone=alone,
        )
    periods = len({each.period for each in rows})
    share = conformal_share(coverage, max(periods * PERIOD_SECONDS / DAY_SECONDS, 1.0))
    joined = _Rows.joined(rows)
    errors = (joined.actual - joined.limited(joined.levels.centres)) / joined.level
    margins = np.array([_quantile(each, joined.weight, share) for each in errors])
    if alone:
        return Learner(coverage=coverage, margins=margins, coefficients=published, weights=start, alone=True)
    chosen = np.flatnonzero(np.isfinite(joined.levels.columns).all(axis=1))
    each_of = max(-(-len(chosen) // MOST_ROWS), 1)
    chosen = chosen[::each_of]
    coefficients = fit(
        joined.levels.columns[chosen],
        (joined.actual / joined.level - 1.0)[chosen],
        weights=(joined.weight * joined.importance)[chosen] * each_of,
        cap=(joined.cap * FULL_SHARE / joined.level - 1.0)[chosen],
        share=coverage,
        toward=published,
        strength=STRENGTH_DAYS,
    )
    return Learner(
        coverage=coverage,
        margins=margins,
        coefficients=coefficients,
        weights=(1.0 - KEPT_AT_START) * _aggregate(rows, start, coverage) + KEPT_AT_START * start,
        weekdays=_weekday_shifts(rows, coverage),
    )


def usable(outcomes: ForecastOutcomes, predictor: PredictorName, now: float) -> bool:
    """Whether anything can be learned from outcomes at `now`."""
    if outcomes.layout != layout_of(predictor) or outcomes.made_at + DAY_SECONDS > now:
        return False
    return bool((np.isfinite(outcomes.actual) & np.isfinite(outcomes.uppers).all(axis=1)).any())


def start_weights(*, alone: bool = False) -> Floats:
    """(forecasts,) weights without outcomes."""
    if alone:
        return np.array([1.0] + [0.0] * (len(FORECASTS) - 1))
    rest = (1.0 - sum(START.values())) / (len(FORECASTS) - len(START))
    return np.array([START.get(name, rest) for name in FORECASTS])


@dataclass(frozen=True, eq=False, kw_only=True)
class _Rows:
    """Outcomes with actuals."""

    period: int
    weekday: int
    levels: Levels
    level: Floats
    cap: Floats
    actual: Floats
    uppers: Floats
    """(rows, forecasts + 1)"""
    weight: Floats
    """Sum over the rows of a period: the share of a day that it stands for, halved every 30 days."""
    importance: Floats
    """Level / mean usage."""

    @property
    def count(self) -> int:
        return len(self.actual)

    def limited(self, predicted: Floats) -> Floats:
        """Predictions (..., rows), limited to the capacity where the actual is at capacity."""
        return np.where(self.actual >= self.cap * FULL_SHARE, np.minimum(predicted, self.actual), predicted)

    def gradient(self, coverage: float) -> Floats:
        """(rows,) of the pinball loss at the forecast, as a share of the level, weighted."""
        slope = np.where(self.actual > self.uppers[:, -1], -coverage, 1.0 - coverage)
        full = (self.actual >= self.cap * FULL_SHARE) & (self.uppers[:, -1] >= self.actual)
        return np.where(full, 0.0, slope) / self.level * self.weight

    @classmethod
    def of(cls, outcomes: ForecastOutcomes, pool: str, now: float) -> "_Rows":
        known = np.isfinite(outcomes.actual) & np.isfinite(outcomes.uppers).all(axis=1)
        known &= np.isfinite(outcomes.capacity)
        levels = Levels.decoded(outcomes.features[known])
        cap = outcomes.capacity[known]
        age = (now - outcomes.made_at) / DAY_SECONDS - 1.0
        each = PERIOD_SECONDS / DAY_SECONDS * 0.5 ** (age / HALF_LIFE_DAYS) / max(int(known.sum()), 1)
        return cls(
            period=outcomes.period,
            weekday=_weekday(outcomes.made_at),
            levels=levels,
            level=levels.level,
            cap=cap,
            actual=np.minimum(outcomes.actual[known], cap),
            uppers=outcomes.uppers[known],
            weight=(each if outcomes.pool == pool else OTHER_POOLS * each)
            * (levels.days / HISTORY_DAYS) ** 2
            * np.minimum(levels.level / (SMALL_SHARE * np.median(levels.level)), 1.0),
            importance=np.minimum(levels.level / outcomes.usage[known], MOST_WEIGHT),
        )

    @classmethod
    def joined(cls, rows: Sequence["_Rows"]) -> "_Rows":
        return cls(
            period=rows[0].period,
            weekday=rows[0].weekday,
            levels=Levels.decoded(np.concatenate([each.levels.encoded() for each in rows])),
            level=np.concatenate([each.level for each in rows]),
            cap=np.concatenate([each.cap for each in rows]),
            actual=np.concatenate([each.actual for each in rows]),
            uppers=np.concatenate([each.uppers for each in rows]),
            weight=np.concatenate([each.weight for each in rows]),
            importance=np.concatenate([each.importance for each in rows]),
        )


def _aggregate(rows: Sequence[_Rows], start: Floats, coverage: float) -> Floats:
    """(forecasts,) weights of Bernstein online aggregation, with a learning rate for each forecast."""
    regret, squares, largest = np.zeros(len(start)), np.zeros(len(start)), np.full(len(start), 1e-9)
    weights = start
    for _, some in groupby(rows, key=lambda each: each.period):
        period = list(some)
        gradients = [each.gradient(coverage) for each in period]
        total = sum(float(each.weight.sum()) for each in period)
        losses = sum(
            (gradient @ each.uppers[:, :-1] for gradient, each in zip(gradients, period, strict=True)),
            np.zeros(len(start)),
        )
        gain = (weights @ losses - losses) / max(total, 1e-12)
        squares += gain**2
        largest = np.maximum(largest, np.abs(gain))
        rate = np.minimum(0.5 / largest, np.sqrt(np.log(len(start)) / np.maximum(squares, 1e-12)))
        regret += gain - rate * gain**2 / 2
        exponent = np.log(start) + np.log(rate) + rate * regret
        weights = np.exp(exponent - exponent.max())
        weights = weights / weights.sum()
    return weights


def _weekday_shifts(rows: Sequence[_Rows], coverage: float) -> dict[int, float]:
    """Weekday -> shift of its forecasts, for weekdays with enough days."""
    whole = _Rows.joined(rows)
    # the rows' own forecasts may have been made for another coverage
    usual = _quantile((whole.actual - whole.limited(whole.uppers[:, -1])) / whole.level, whole.weight, coverage)
    found = {}
    for weekday in range(7):
        mine = [each for each in rows if each.weekday == weekday]
        days = len({(each.period * PERIOD_SECONDS + DAY_SECONDS // 2) // DAY_SECONDS for each in mine})
        if days >= LEAST_WEEKS:
            joined = _Rows.joined(mine)
            errors = (joined.actual - joined.limited(joined.uppers[:, -1])) / joined.level
            found[weekday] = (_quantile(errors, joined.weight, coverage) - usual) * days / (days + WEEKS)
    return found


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    known = np.isfinite(values)
    return weighted_quantile(values[known], weights[known], share) if known.any() else MARGIN_WITHOUT_ERRORS


def _weekday(made_at: float) -> int:
    return datetime.fromtimestamp(made_at + DAY_SECONDS / 2, UTC).weekday()
