"""Predictors of the P95 of the horizon, by name; of memory, of its highest.

Holt-Winters and STL use hourly means and are references for the backtest: too slow for a cycle. They import
statsmodels (150 MiB) on first use.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from rebalancer.forecast.predictors.base import Past, Prediction, Predictor
from rebalancer.forecast.series.percentiles import last_known, quantile, slot_profile, weighted_mean
from rebalancer.model.notation.arrays import Floats

HISTOGRAM_HALF_LIFE_DAYS = 1.0
COMBINED: Final = "combined"
"""The default: all experts and regressions of `learner`, `weightedP95` among them."""
HOURS = 24
LEAST_DAYS = 2
LEVEL, SEASON = 0.3, 0.2
"""Fixed smoothing of Holt-Winters: fitting it to each node takes fifty times as long and gains nothing."""


class LastDay:
    """The P95 of the last 24 hours."""

    name = "lastDay"
    simple = True

    def predict(self, past: Past) -> Prediction:
        return Prediction(centres=last_known(past.daily)[None])


class Max:
    """The highest daily P95."""

    name = "max"
    simple = True

    def predict(self, past: Past) -> Prediction:
        known = np.isfinite(past.daily)
        highest = np.where(known, past.daily, -np.inf).max(axis=1)
        return Prediction(centres=np.where(known.any(axis=1), highest, np.nan)[None])


class DecayingHistogram:
    """P95 of all samples, their weights halved every 24 hours, as in VerticalPodAutoscaler."""

    name = "decayingHistogram"
    simple = True

    def predict(self, past: Past) -> Prediction:
        nodes, days, slots = past.series.shape
        age_days = np.arange(days * slots - 1, -1, -1) / slots
        weights = 0.5 ** (age_days / HISTOGRAM_HALF_LIFE_DAYS)
        flat = past.series.reshape(nodes, days * slots)
        order = np.argsort(flat, axis=1)
        ordered = np.take_along_axis(flat, order, axis=1)
        mass = np.cumsum(np.where(np.isfinite(ordered), weights[order], 0.0), axis=1)
        at = np.argmax(mass >= past.statistic * mass[:, -1:], axis=1)
        return Prediction(centres=ordered[np.arange(nodes), at].astype(np.float64)[None])


class WeightedP95:
    """Weighted mean of the daily P95."""

    name = "weightedP95"
    simple = False

    def predict(self, past: Past) -> Prediction:
        return Prediction(centres=weighted_mean(past.daily, past.weights)[None])


class SlotPercentile:
    """P95 over the day of the P90 of each time of day."""

    name = "slotPercentile"
    simple = False

    def predict(self, past: Past) -> Prediction:
        return Prediction(centres=quantile(slot_profile(past.series, past.weights), past.statistic)[None])


class RecentHours:
    """P95 of the last six hours: it follows a change of level at once and ignores the other hours of the day."""

    name = "recentHours"
    simple = False

    def predict(self, past: Past) -> Prediction:
        return Prediction(centres=last_known(past.late)[None])


class HoltWinters:
    """Exponential smoothing with a daily season."""

    name = "holtWinters"
    simple = False

    def predict(self, past: Past) -> Prediction:
        from statsmodels.tsa.holtwinters import ExponentialSmoothing

        def next_day(hourly: Floats) -> Floats:
            model = ExponentialSmoothing(
                hourly, seasonal="add", seasonal_periods=HOURS, initialization_method="heuristic"
            )
            fit = model.fit(smoothing_level=LEVEL, smoothing_seasonal=SEASON, optimized=False)
            return np.asarray(fit.forecast(HOURS), dtype=np.float64)

        return _of_each_node(past, next_day)


class SeasonalTrend:
    """STL: the last level of the trend plus the seasonal component of the last day."""

    name = "stl"
    simple = False

    def predict(self, past: Past) -> Prediction:
        from statsmodels.tsa.seasonal import STL

        def next_day(hourly: Floats) -> Floats:
            parts = STL(hourly, period=HOURS, robust=False).fit()
            return np.asarray(parts.trend[-1] + parts.seasonal[-HOURS:], dtype=np.float64)

        return _of_each_node(past, next_day)


def _of_each_node(past: Past, next_day: Callable[[Floats], Floats]) -> Prediction:
    """P95 of the next day's hours, plus the mean excess of the daily P95 over the P95 of hourly means."""
    nodes, days, slots = past.series.shape
    hourly = past.series.reshape(nodes, days, HOURS, slots // HOURS).astype(np.float64)
    known = np.isfinite(hourly)
    means = np.where(known, hourly, 0.0).sum(axis=3) / np.maximum(known.sum(axis=3), 1)
    means[~known.any(axis=3)] = np.nan
    out = last_known(past.daily)
    for node in range(nodes):
        usable = np.isfinite(past.daily[node])
        flat = means[node, usable].ravel()
        if usable.sum() < LEAST_DAYS:
            continue
        flat = np.interp(np.arange(len(flat)), np.flatnonzero(np.isfinite(flat)), flat[np.isfinite(flat)])
        above = past.daily[node, usable] - np.quantile(flat.reshape(-1, HOURS), past.statistic, axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant series
            ahead = next_day(flat)
        out[node] = max(float(np.quantile(ahead, past.statistic) + above.mean()), 0.0)
    return Prediction(centres=out[None])


def predictors() -> Mapping[str, Predictor]:
    """Predictors by name, the baseline predictors first."""
    available: tuple[Predictor, ...] = (
        LastDay(),
        Max(),
        DecayingHistogram(),
        WeightedP95(),
        SlotPercentile(),
        RecentHours(),
        HoltWinters(),
        SeasonalTrend(),
    )
    return {each.name: each for each in available}


def own_predictor(name: str) -> Predictor:
    """The predictor whose centre is the expert `own`."""
    return predictors()[WeightedP95.name if name == COMBINED else name]
