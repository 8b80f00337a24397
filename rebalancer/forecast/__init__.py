"""History of usage to predicted peaks: what each node will need in the next 24 hours, when, and how sure that is."""

from rebalancer.forecast.predict import Arrival, forecast
from rebalancer.forecast.result import ForecastParts, Forecasts, NodeForecast, PoolForecast

__all__ = ["Arrival", "ForecastParts", "Forecasts", "NodeForecast", "PoolForecast", "forecast"]
