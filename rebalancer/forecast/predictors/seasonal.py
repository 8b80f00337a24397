"""Holt-Winters and STL from statsmodels, on hourly means: oracles for the backtest, too slow for a cycle.

statsmodels costs 150 MiB, so it is imported when one of them is asked.
"""

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.percentiles import P95, last_known
from rebalancer.forecast.predictors.base import Past, Prediction

Floats = NDArray[np.float64]
HOURS = 24
LEAST_DAYS = 2
LEVEL, SEASON = 0.3, 0.2
"""Holt-Winters with fixed smoothing: fitting each node anew costs fifty times as much and gains nothing here."""


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
    """STL: the last level of the trend, plus the season of the last day."""

    name = "stl"
    simple = False

    def predict(self, past: Past) -> Prediction:
        from statsmodels.tsa.seasonal import STL

        def next_day(hourly: Floats) -> Floats:
            parts = STL(hourly, period=HOURS, robust=False).fit()
            return np.asarray(parts.trend[-1] + parts.seasonal[-HOURS:], dtype=np.float64)

        return _of_each_node(past, next_day)


def _of_each_node(past: Past, next_day: Callable[[Floats], Floats]) -> Prediction:
    """P95 of the hours of the next day, plus what the days' P95 lay above their hourly means' P95."""
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
        above = past.daily[node, usable] - np.quantile(flat.reshape(-1, HOURS), P95, axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about series that are constant
            ahead = next_day(flat)
        out[node] = max(float(np.quantile(ahead, P95) + above.mean()), 0.0)
    return Prediction(centres=out[None])
