"""The last hours."""

from rebalancer.forecast.percentiles import last_known
from rebalancer.forecast.predictors.base import Past, Prediction


class RecentHours:
    """P95 of the last six hours: follows a change of level at once, and is blind to the other hours of the day."""

    name = "recentHours"
    simple = False

    def predict(self, past: Past) -> Prediction:
        return Prediction(centres=last_known(past.late)[None])
