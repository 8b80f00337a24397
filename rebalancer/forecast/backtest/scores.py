"""How far predictors were off on the same node days. Errors are shares of what a node uses on average."""

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
    """How far off, as shares of what the nodes use on average. NaN when nothing was scored."""

    mae: float
    under: float
    """Mean of what was missing; 0 on days that stayed under the forecast."""
    over: float
    pinball: float
    """0.9 of under and 0.1 of over: too low costs nine times as much."""
    coverage: float
    """Share of days that stayed at or under the forecast."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One predictor."""

    predictor: str
    simple: bool
    errors: Errors
    """With its margin."""
    bare: Errors
    """Without."""
    highest: Errors
    """With a margin made for the day's highest quarter of an hour instead of its P95."""
    hot_recall: float
    """Of the hot days, the share that was forecast as such; NaN when no day was hot."""
    hot_precision: float
    """Of the days that were forecast as hot, the share that was."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All predictors on the same node days."""

    scores: tuple[Score, ...]
    forecasts: int
    """Node days that were scored, for each predictor."""
    hot_days: int
    peak_hour_error: float
    """Median hours between the predicted and the real busiest quarter of an hour."""


@dataclass(frozen=True, kw_only=True)
class PredictedDays:
    """What one predictor said of some node days: (node days,) millicores each."""

    upper: Floats
    """With its margin."""
    centre: Floats
    """Without."""
    top: Floats
    """Of the day's highest quarter of an hour, with its margin."""


@dataclass(frozen=True, kw_only=True)
class NodeDays:
    """Some node days, and what was said of them. Arrays are (node days,)."""

    actual: Floats
    """Millicores: the P95 that came; NaN for a node day that does not count."""
    highest: Floats
    """The highest quarter of an hour."""
    hours_off: Floats
    """Hours between the expected and the real time of it."""
    mean: Floats
    """What the node uses on average."""
    high: Floats
    """The node is hot above it; infinite where nothing is called hot."""
    capacity: Floats
    """Of the node."""
    said: Mapping[str, PredictedDays]
    """By predictor."""

    @classmethod
    def joined(cls, parts: Sequence["NodeDays"]) -> "NodeDays":
        """All of them; each part has the same predictors."""

        def joined(arrays: Sequence[Floats]) -> Floats:
            return np.concatenate(arrays)

        return cls(
            actual=joined([part.actual for part in parts]),
            highest=joined([part.highest for part in parts]),
            hours_off=joined([part.hours_off for part in parts]),
            mean=joined([part.mean for part in parts]),
            high=joined([part.high for part in parts]),
            capacity=joined([part.capacity for part in parts]),
            said={
                name: PredictedDays(
                    upper=joined([part.said[name].upper for part in parts]),
                    centre=joined([part.said[name].centre for part in parts]),
                    top=joined([part.said[name].top for part in parts]),
                )
                for name in parts[0].said
            },
        )


def compare(days: NodeDays, predictors: Mapping[str, Predictor]) -> Comparison:
    """Each predictor's score on the node days that count."""
    counts = np.isfinite(days.actual)
    actual, highest = days.actual[counts], days.highest[counts]
    mean, high = days.mean[counts], days.high[counts]
    hot = actual > high
    scores = []
    for name, said in days.said.items():
        upper = said.upper[counts]
        called = upper > high
        both = np.count_nonzero(hot & called)
        scores.append(
            Score(
                predictor=name,
                simple=predictors[name].simple,
                errors=_errors(actual, upper, mean),
                bare=_errors(actual, said.centre[counts], mean),
                highest=_errors(highest, said.top[counts], mean),
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
    """Nodes that nothing was known of count as forecast to use nothing."""
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
