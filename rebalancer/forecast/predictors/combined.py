"""The default: days and last hours, mixed as their past errors say."""

import numpy as np

from rebalancer.forecast.percentiles import last_known, weighted_mean
from rebalancer.forecast.predictors.base import Past, Prediction

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Combined:
    """Weighted daily P95 and the P95 of the last six hours, in five mixtures.

    Where load follows the time of day the last hours say little and the days win; where it moves from one level to
    another and stays, the days are late and the last hours win.
    """

    name = "combined"
    simple = False

    def predict(self, past: Past) -> Prediction:
        days, hours = weighted_mean(past.daily, past.weights), last_known(past.late)
        hours = np.where(np.isfinite(hours), hours, days)
        return Prediction(
            centres=np.stack([days + (hours - days) * share for share in SHARES]),
            versions=tuple(f"{1 - share:.0%} days, {share:.0%} last hours" for share in SHARES),
        )
