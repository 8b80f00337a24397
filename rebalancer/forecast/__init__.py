"""Forecasts of node CPU: predicted peak, its time and its confidence for the next 24 hours."""

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
