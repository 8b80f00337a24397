"""Scores of predictors on the same node days. Errors are shares of a node's mean usage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.prediction_interval import pinball
from rebalancer.forecast.predictors.base import Predictor
from rebalancer.model.forecasts import TOLERANCE

Floats = NDArray[np.float64]
LOSS_AT = 0.9


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors as shares of mean usage. NaN without scored node days."""

    mae: float
    under: float
    """Mean amount above the forecast; 0 on covered days."""
    over: float
    pinball: float
    """0.9 x under + 0.1 x over."""
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
    highest: Errors
    """With a margin for the day's highest quarter of an hour instead of its P95."""
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


@dataclass(frozen=True, kw_only=True)
class PredictedDays:
    """One predictor's forecasts of some node days: (node days,) millicores each."""

    upper: Floats
    """With margin."""
    centre: Floats
    """Without margin."""
    top: Floats
    """Of the day's highest quarter of an hour, with margin."""


@dataclass(frozen=True, kw_only=True)
class NodeDays:
    """Actuals and forecasts of some node days. Arrays are (node days,)."""

    actual: Floats
    """Actual P95 in millicores; NaN for a node day that is not scored."""
    highest: Floats
    """The highest quarter of an hour."""
    hours_off: Floats
    """Hours between its predicted and its actual time."""
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

        def joined(arrays: Sequence[Floats]) -> Floats:
            return np.concatenate(arrays)

        return cls(
            actual=joined([part.actual for part in parts]),
            highest=joined([part.highest for part in parts]),
            hours_off=joined([part.hours_off for part in parts]),
            mean=joined([part.mean for part in parts]),
            high=joined([part.high for part in parts]),
            capacity=joined([part.capacity for part in parts]),
            predicted={
                name: PredictedDays(
                    upper=joined([part.predicted[name].upper for part in parts]),
                    centre=joined([part.predicted[name].centre for part in parts]),
                    top=joined([part.predicted[name].top for part in parts]),
                )
                for name in parts[0].predicted
            },
        )


def compare(days: NodeDays, predictors: Mapping[str, Predictor]) -> Comparison:
    """Score of each predictor on the scored node days."""
    counts = np.isfinite(days.actual)
    actual, highest = days.actual[counts], days.highest[counts]
    mean, high = days.mean[counts], days.high[counts]
    hot = actual > high
    scores = []
    for name, predicted in days.predicted.items():
        upper = predicted.upper[counts]
        called = upper > high
        both = np.count_nonzero(hot & called)
        scores.append(
            Score(
                predictor=name,
                simple=predictors[name].simple,
                errors=_errors(actual, upper, mean),
                bare=_errors(actual, predicted.centre[counts], mean),
                highest=_errors(highest, predicted.top[counts], mean),
                hot_recall=float(both / np.count_nonzero(hot)) if hot.any() else float("nan"),
                hot_precision=float(both / np.count_nonzero(called)) if called.any() else float("nan"),
            )
        )
    return Comparison(
        scores=tuple(scores),
        forecasts=len(actual),
        hot_days=int(np.count_nonzero(hot)),
        peak_hour_error=float(np.median(days.hours_off[counts])) if len(actual) else float("nan"),
    )


def _errors(actual: Floats, forecast: Floats, mean: Floats) -> Errors:
    """An unknown forecast counts as 0."""
    if not len(actual):
        return Errors(mae=np.nan, under=np.nan, over=np.nan, pinball=np.nan, coverage=np.nan)
    error = (actual - np.nan_to_num(forecast)) / mean
    return Errors(
        mae=float(np.abs(error).mean()),
        under=float(np.maximum(error, 0.0).mean()),
        over=float(np.maximum(-error, 0.0).mean()),
        pinball=float(pinball(error, LOSS_AT).mean()),
        coverage=float((error <= TOLERANCE).mean()),
    )
