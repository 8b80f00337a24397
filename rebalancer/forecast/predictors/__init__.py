"""Ways to guess the P95 of the next 24 hours, by name."""

from collections.abc import Mapping

from rebalancer.forecast.predictors.base import Past, Prediction, Predictor
from rebalancer.forecast.predictors.combined import Combined
from rebalancer.forecast.predictors.recent import RecentHours
from rebalancer.forecast.predictors.seasonal import HoltWinters, SeasonalTrend
from rebalancer.forecast.predictors.simple import DecayingHistogram, LastDay, Max
from rebalancer.forecast.predictors.weighted import SlotPercentile, WeightedP95

DEFAULT = "combined"


def predictors() -> Mapping[str, Predictor]:
    """Each predictor by its name, the simple ones first."""
    everyone: tuple[Predictor, ...] = (
        LastDay(),
        Max(),
        DecayingHistogram(),
        WeightedP95(),
        SlotPercentile(),
        RecentHours(),
        HoltWinters(),
        SeasonalTrend(),
        Combined(),
    )
    return {each.name: each for each in everyone}


__all__ = ["DEFAULT", "Past", "Prediction", "Predictor", "predictors"]
