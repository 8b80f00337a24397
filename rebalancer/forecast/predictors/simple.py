"""Last day, maximum, decaying histogram."""

import numpy as np

from rebalancer.forecast.percentiles import P95, last_known
from rebalancer.forecast.predictors.base import Past, Prediction

HISTOGRAM_HALF_LIFE_DAYS = 1.0


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
    """P95 of all samples, a sample counting half for every 24 hours of age: the way of VerticalPodAutoscaler."""

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
        at = np.argmax(mass >= P95 * mass[:, -1:], axis=1)
        return Prediction(centres=ordered[np.arange(nodes), at].astype(np.float64)[None])
