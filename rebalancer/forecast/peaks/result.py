"""Results of a forecast and their components."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import Grid


@dataclass(frozen=True, kw_only=True)
class ForecastParts:
    """Components of a predicted peak. Days oldest first; NaN for a day without enough samples."""

    day_starts: tuple[float, ...]
    """Seconds since the epoch."""
    daily_p95: NDArray[np.float64]
    """(days,) millicores of the current pods, summed step by step."""
    weights: NDArray[np.float64]
    """(days,) weights of the known days; their sum is 1."""
    products: NDArray[np.float64]
    """(days,) P95 x weight."""
    weighted_p95: float
    """Sum of the products."""
    level: float
    """Prediction, before margin and events."""
    event_factor: float
    """Factor of declared events on level and margin."""
    events: tuple[str, ...]
    """Names of the events within the next 24 hours."""
    own_share: float
    """Share of the series that was measured on the current pods and the node; the rest is imputed."""


@dataclass(frozen=True, kw_only=True)
class NodeForecast:
    """Forecast of one node over the horizon. NaN where unknown."""

    node: str
    peak_millicores: float
    """P95 of the horizon with its margin."""
    peak_share: float
    """The peak as a share of capacity."""
    peak_at: float
    """Expected time of the busiest quarter of an hour: its middle step, seconds since the epoch."""
    peak_from: float
    """Start of the shortest time around `peak_at` that holds the busiest quarters of an hour of 80 % of the days, by
    their weights; within the horizon."""
    peak_until: float
    """Its end."""
    profile: Grid
    """(288,) millicores by time of day, slot 0 at 00:00 UTC: weighted P90 over the days, without margin. It shows peaks
    shorter than 72 minutes, which a daily P95 ignores."""
    short_peak_millicores: float
    """Highest quarter of an hour of the profile; above `peak_millicores` for a short daily peak."""
    confidence: float
    """0..1: known share x (0.5 + 0.5 x `own_share`). The known share is the known days of the pods' services / 8,
    weighted by the usage of each pod, and at most `days_used` / 8."""
    days_used: int
    margin: float
    """Margin within `peak_millicores`, with the allowance for new services."""
    allowance: float
    """The part of the margin for new services: it keeps pods away, and starts no relief."""
    parts: ForecastParts


@dataclass(frozen=True, kw_only=True)
class PoolForecast:
    """Forecast of the short-lived pods (Jobs, CronJobs) of one pool, whose nodes are unknown."""

    pool: str
    short_lived_peak_millicores: float
    """P95 of their sum over the horizon, weighted over the days, without margin."""


@dataclass(frozen=True, kw_only=True)
class Forecasts:
    """Forecasts of the snapshot's nodes, in its order, and of the pools."""

    nodes: tuple[NodeForecast, ...]
    pools: tuple[PoolForecast, ...]
    notes: tuple[str, ...] = ()
    """Warnings, in sentences."""
