"""History of usage to predicted peaks: what each node will need in the next 24 hours, when, and how sure that is."""

from rebalancer.forecast.arrivals import Arrival, expected_arrivals
from rebalancer.forecast.expected_peaks import NodeForecasts, forecast_nodes
from rebalancer.forecast.predict import forecast
from rebalancer.forecast.result import ForecastParts, Forecasts, NodeForecast, PoolForecast

__all__ = [
    "Arrival",
    "ForecastParts",
    "Forecasts",
    "NodeForecast",
    "NodeForecasts",
    "PoolForecast",
    "expected_arrivals",
    "forecast",
    "forecast_nodes",
]
