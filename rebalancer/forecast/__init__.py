"""Forecasts of node CPU: predicted peak, its time and its confidence for the next 24 hours."""

from rebalancer.forecast.peaks.expected_peaks import NodeForecasts, forecast_nodes
from rebalancer.forecast.peaks.predict import forecast
from rebalancer.forecast.peaks.result import ForecastParts, Forecasts, NodeForecast, PoolForecast
from rebalancer.forecast.series.arrivals import Arrival, expected_arrivals

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
