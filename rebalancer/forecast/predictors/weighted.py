"""Percentiles weighted over the days: of each day, and of each time of day."""

from rebalancer.forecast.percentiles import P95, quantile, slot_curve, weighted_mean
from rebalancer.forecast.predictors.base import Past, Prediction


class WeightedP95:
    """Each day's P95, weighted over the days."""

    name = "weightedP95"
    simple = False

    def predict(self, past: Past) -> Prediction:
        return Prediction(centres=weighted_mean(past.daily, past.weights)[None])


class SlotPercentile:
    """P95 over the day of a high percentile for each time of day."""

    name = "slotPercentile"
    simple = False

    def predict(self, past: Past) -> Prediction:
        return Prediction(centres=quantile(slot_curve(past.series, past.weights), P95)[None])
