"""Scores of predictors on the same node days. Errors are shares of a node's mean usage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.learning.prediction_interval import pinball
from rebalancer.forecast.predictors import predictors
from rebalancer.forecast.series.resource import USUAL_LOSS_AT
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.records.forecasts import TOLERANCE


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors as shares of mean usage. NaN without scored node days."""

    mae: float
    under: float
    """Mean amount above the forecast; 0 on covered days."""
    over: float
    pinball: float
    """q x under + (1 - q) x over, with q 0.9, or 0.95 for memory."""
    coverage: float
    """Share of days at or under the forecast."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One predictor."""

    predictor: str
    simple: bool
    errors: Errors
    """With margin."""
    bare: Errors
    """Without margin."""
    unlimited: Errors
    """With margin, where forecasts are not limited to the capacity of the node."""
    weekdays: tuple[float, ...]
    """Share of days at or under the forecast, by weekday of the traces; NaN without any."""
    hours: Mapping[int, float]
    """The same by hour of the forecast."""
    hot_recall: float
    """Share of the hot days that were predicted; NaN without hot days."""
    hot_precision: float
    """Share of the predicted hot days that were hot."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All predictors on the same node days."""

    scores: tuple[Score, ...]
    forecasts: int
    """Scored node days of each predictor."""
    hot_days: int
    peak_hour_error: float
    """Median hours between the predicted and the actual busiest quarter of an hour."""
    peak_within_hour: float
    """Share of days on which it was predicted within one hour."""
    yesterday_within_hour: float
    """The same of yesterday's busiest quarter of an hour."""


@dataclass(frozen=True, kw_only=True)
class PredictedDays:
    """One predictor's forecasts of some node days: (node days,) millicores each."""

    upper: Floats
    """With margin."""
    centre: Floats
    """Without margin."""


@dataclass(frozen=True, kw_only=True)
class NodeDays:
    """Actuals and forecasts of some node days. Arrays are (node days,)."""

    actual: Floats
    """Actual statistic of the day; NaN for a node day that is not scored."""
    hours_off: Floats
    """Hours between the predicted and the actual time of the busiest quarter of an hour."""
    hours_off_yesterday: Floats
    """Hours between yesterday's and the actual time."""
    weekday: NDArray[np.int64]
    hour: NDArray[np.int64]
    """Weekday (0 to 6) and hour of the forecast."""
    mean: Floats
    """Mean usage of the node."""
    high: Floats
    """Threshold of a hot node; infinite without one."""
    capacity: Floats
    """Capacity of the node."""
    predicted: Mapping[str, PredictedDays]
    """By predictor."""

    @classmethod
    def joined(cls, parts: Sequence["NodeDays"]) -> "NodeDays":
        """Concatenation; all parts have the same predictors."""

        return cls(
            actual=np.concatenate([part.actual for part in parts]),
            hours_off=np.concatenate([part.hours_off for part in parts]),
            hours_off_yesterday=np.concatenate([part.hours_off_yesterday for part in parts]),
            weekday=np.concatenate([part.weekday for part in parts]),
            hour=np.concatenate([part.hour for part in parts]),
            mean=np.concatenate([part.mean for part in parts]),
            high=np.concatenate([part.high for part in parts]),
            capacity=np.concatenate([part.capacity for part in parts]),
            predicted={
                name: PredictedDays(
                    upper=np.concatenate([part.predicted[name].upper for part in parts]),
                    centre=np.concatenate([part.predicted[name].centre for part in parts]),
                )
                for name in parts[0].predicted
            },
        )


def compare(days: NodeDays, *, loss_at: float = USUAL_LOSS_AT) -> Comparison:
    """Score of each predictor on the scored node days. Forecasts are limited to the capacity, as usage is. `loss_at`:
    quantile of the pinball loss."""
    counts = np.isfinite(days.actual)
    actual, mean, high, capacity = (each[counts] for each in (days.actual, days.mean, days.high, days.capacity))
    weekday, hour = days.weekday[counts], days.hour[counts]
    hot = actual > high
    simple = {name for name, each in predictors().items() if each.simple}
    scores = []
    for name, predicted in days.predicted.items():
        unlimited = predicted.upper[counts]
        upper = np.minimum(unlimited, capacity)
        called = upper > high
        both = np.count_nonzero(hot & called)
        covered = (actual - np.nan_to_num(upper)) / mean <= TOLERANCE
        scores.append(
            Score(
                predictor=name,
                simple=name in simple,
                errors=_errors(actual, upper, mean, loss_at),
                bare=_errors(actual, np.minimum(predicted.centre[counts], capacity), mean, loss_at),
                unlimited=_errors(actual, unlimited, mean, loss_at),
                weekdays=tuple(_mean(covered[weekday == each]) for each in range(7)),
                hours={int(each): _mean(covered[hour == each]) for each in np.unique(hour)},
                hot_recall=float(both / np.count_nonzero(hot)) if hot.any() else float("nan"),
                hot_precision=float(both / np.count_nonzero(called)) if called.any() else float("nan"),
            )
        )
    return Comparison(
        scores=tuple(scores),
        forecasts=len(actual),
        hot_days=int(np.count_nonzero(hot)),
        peak_hour_error=float(np.median(days.hours_off[counts])) if len(actual) else float("nan"),
        peak_within_hour=_mean(days.hours_off[counts] <= 1.0),
        yesterday_within_hour=_mean(days.hours_off_yesterday[counts] <= 1.0),
    )


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _errors(actual: Floats, forecast: Floats, mean: Floats, loss_at: float) -> Errors:
    """An unknown forecast counts as 0."""
    if not len(actual):
        return Errors(mae=np.nan, under=np.nan, over=np.nan, pinball=np.nan, coverage=np.nan)
    error = (actual - np.nan_to_num(forecast)) / mean
    return Errors(
        mae=float(np.abs(error).mean()),
        under=float(np.maximum(error, 0.0).mean()),
        over=float(np.maximum(-error, 0.0).mean()),
        pinball=float(pinball(error, loss_at).mean()),
        coverage=float((error <= TOLERANCE).mean()),
    )
