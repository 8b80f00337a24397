"""How good forecasts were, per pool, and whether they are getting worse.

Errors are shares of a node's capacity. Only the daily forecasts are scored: those that a cycle was started for are the
high ones, so they count by their verdicts alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.forecasts import ForecastKind, Verdict, VerifiedForecast
from rebalancer.model.history import DAY_SECONDS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
LEAST = 20
"""Fewer forecasts tell nothing."""
UNCHANGED_SHARE = 0.05
"""A node counts as unchanged when pods of at most this share of its peak have left."""
RECENT_SECONDS, BEFORE_SECONDS = 3 * DAY_SECONDS, 14 * DAY_SECONDS
LOOKS_BACK_SECONDS = RECENT_SECONDS + BEFORE_SECONDS + DAY_SECONDS
"""Forecasts that were made earlier say nothing about a drift."""
LESS_COVERED = 0.15
TIMES_THE_ERROR = 2.0
LEAST_DRIFT_ERROR = 0.01
"""Twice an error of nearly nothing is no drift."""
TOLERANCE = 1e-6
"""History is kept in single precision."""
HOURS = 24.0


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Of the forecasts of one pool, or of all. NaN: there are too few to tell."""

    count: int
    """Forecasts with samples of what came."""
    unknown: int
    """Those without."""
    mae: float
    """Mean absolute error of the P95 before its margin, as a share of capacity: `under` + `over`."""
    under: float
    """What the forecasts were too low by, on average."""
    over: float
    """What they were too high by, on average."""
    coverage: float
    """Share of the days that stayed at or under the forecast, its margin included."""
    hot_days: int
    """Days with a P95 over `high`. Of this and the next three figures days are left out on which we moved pods away
    that the day would have been busier with."""
    called_hot: int
    """Days that were forecast to be."""
    hot_recall: float
    """Of the hot days, the share that was forecast as such."""
    hot_precision: float
    """Of the days that were forecast as hot, the share that was."""
    relieved: int
    """Days that are left out there."""
    peak_hour_error: float
    """Median hours between the predicted and the real busiest quarter of an hour, the short way round the clock."""
    unchanged_share: float
    """Of the nodes that were looked at in time, the share on which the pods were still the same, but for 5 % of the
    peak."""
    unchanged_mae: float
    """The error of those alone."""
    verdicts: Mapping[Verdict, int]
    """How often acting ahead of a peak came to what; every verdict is there."""
    drift: str
    """A sentence when the last 3 days were clearly worse than the 14 before; empty when not."""

    @property
    def enough(self) -> bool:
        """Whether there is enough to tell anything."""
        return self.count >= LEAST


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """What is known of the quality of the forecasts."""

    everything: Scores
    pools: Mapping[str, Scores]
    """By name; empty name: nodes in no pool."""


def accuracy(judged: Sequence[VerifiedForecast], *, since: float, now: float) -> Accuracy:
    """Score the forecasts that were made at or after `since`; a drift is looked for in those of the last 18 days."""
    names = sorted({each.forecast.pool for each in judged})
    pools = {name: [each for each in judged if each.forecast.pool == name] for name in names}
    scored = {name: _scores(members, since=since, now=now) for name, members in pools.items()}
    return Accuracy(
        everything=_scores(judged, since=since, now=now),
        pools={
            name: each for name, each in scored.items() if each.count or each.unknown or any(each.verdicts.values())
        },
    )


class _Columns:
    """Daily forecasts of which there are samples, as columns; CPU as shares of capacity."""

    def __init__(self, judged: Sequence[VerifiedForecast]) -> None:
        daily = [each for each in judged if each.forecast.kind is ForecastKind.DAILY]
        known = [each for each in daily if math.isfinite(_error(each))]
        self.unknown = len(daily) - len(known)
        self.until = np.array([each.forecast.until for each in known])
        self.actual = np.array([_share(each, each.actuals.p95_millicores) for each in known])
        self.upper = np.array([_share(each, each.forecast.peak_millicores) for each in known])
        self.error: Floats = np.array([_error(each) for each in known])
        self.high = np.array([math.nan if each.forecast.high is None else each.forecast.high for each in known])
        self.changed = np.array([each.actuals.departed_peak_share for each in known])
        self.hours_off: Floats = np.array([_hours_apart(each) for each in known])
        # so written that a day of which nobody knows what it would have been counts as relieved
        self.relieved: Bools = np.array(
            [
                not each.actuals.counterfactual_peak_millicores <= each.actuals.peak_millicores * (1 + TOLERANCE)
                for each in known
            ],
            dtype=np.bool_,
        )
        self.covered: Floats = (self.actual <= self.upper + TOLERANCE).astype(np.float64)


def _scores(judged: Sequence[VerifiedForecast], *, since: float, now: float) -> Scores:
    counted = [each for each in judged if each.forecast.made_at >= since]
    days = _Columns(counted)
    marked = ~days.relieved & np.isfinite(days.high)
    hot, called = (marked & (values > days.high) for values in (days.actual, days.upper))
    both = int(np.count_nonzero(hot & called))
    enough = len(days.error) >= LEAST
    looked = np.isfinite(days.changed)
    unchanged = looked & (days.changed <= UNCHANGED_SHARE)
    return Scores(
        count=len(days.error),
        unknown=days.unknown,
        mae=_mean(np.abs(days.error)),
        under=_mean(np.maximum(days.error, 0.0)),
        over=_mean(np.maximum(-days.error, 0.0)),
        coverage=_mean(days.covered),
        hot_days=int(np.count_nonzero(hot)),
        called_hot=int(np.count_nonzero(called)),
        hot_recall=both / int(np.count_nonzero(hot)) if enough and hot.any() else math.nan,
        hot_precision=both / int(np.count_nonzero(called)) if enough and called.any() else math.nan,
        relieved=int(np.count_nonzero(days.relieved & np.isfinite(days.high))),
        peak_hour_error=_median(days.hours_off[np.isfinite(days.hours_off)]),
        unchanged_share=_mean(unchanged[looked].astype(np.float64)),
        unchanged_mae=_mean(np.abs(days.error[unchanged])),
        verdicts={verdict: sum(each.actuals.verdict is verdict for each in counted) for verdict in Verdict},
        drift=_drift(_Columns(judged), now),
    )


def _drift(days: _Columns, now: float) -> str:
    """The last three days against the fourteen before, by the ends of the forecasts."""
    age = np.where(days.relieved, math.nan, now - days.until)  # our own moves make a forecast too high
    recent = age < RECENT_SECONDS
    before = (age >= RECENT_SECONDS) & (age < RECENT_SECONDS + BEFORE_SECONDS)
    return drift_sentence(
        covered=_mean(days.covered[recent]),
        was_covered=_mean(days.covered[before]),
        error=_mean(np.abs(days.error[recent])),
        was_error=_mean(np.abs(days.error[before])),
    )


def drift_sentence(*, covered: float, was_covered: float, error: float, was_error: float) -> str:
    """What got clearly worse in the last three days; empty for nothing, also where a figure isn't known (NaN)."""
    found = []
    # a NaN is no drift
    if covered <= was_covered - LESS_COVERED + TOLERANCE:
        found.append(f"{covered:.0%} of the last 3 days stayed at or under the forecast, {was_covered:.0%} before")
    if error >= max(TIMES_THE_ERROR * was_error - TOLERANCE, LEAST_DRIFT_ERROR):
        found.append(f"the error of the last 3 days is {error:.1%} of capacity, {was_error:.1%} before")
    return "; ".join(found)


def _share(each: VerifiedForecast, millicores: float) -> float:
    capacity = each.forecast.capacity_millicores
    return millicores / capacity if capacity > 0 else math.nan


def _error(each: VerifiedForecast) -> float:
    """What came, less what was expected before the margin."""
    expected = each.forecast.peak_millicores - each.forecast.margin_millicores
    return _share(each, each.actuals.p95_millicores - expected)


def _hours_apart(each: VerifiedForecast) -> float:
    apart = abs(each.forecast.peak_at - each.actuals.peak_at) / 3600.0 % HOURS
    return min(apart, HOURS - apart)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) >= LEAST else math.nan


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) >= LEAST else math.nan
