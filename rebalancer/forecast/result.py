"""What a forecast says, and what it was made of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.history import Grid


@dataclass(frozen=True, kw_only=True)
class ForecastParts:
    """The sum behind a peak, for people. Days oldest first; NaN for a day of which too little is known."""

    day_starts: tuple[float, ...]
    """Seconds since the epoch."""
    daily_p95: NDArray[np.float64]
    """(days,) millicores, of the aligned sum of today's pods."""
    weights: NDArray[np.float64]
    """(days,) of the days that are known; they add up to 1."""
    products: NDArray[np.float64]
    """(days,) P95 times weight."""
    weighted_p95: float
    """Their sum."""
    level: float
    """What the predictor makes of it, before margin and events."""
    version: str
    """Which mixture it chose; empty where there is one only."""
    yardstick: str
    """What the margin is a part of."""
    event_factor: float
    """Level and margin are multiplied by it for declared events."""
    events: tuple[str, ...]
    """Names of the events within the next 24 hours."""
    arrivals_millicores: float
    """Mean CPU of pods that are expected to come; it is in every figure above."""
    crowd_millicores: float
    """Mean CPU of its share of the pool's short-lived pods; it is in every figure above."""
    own_share: float
    """Part of the series that was measured on these very pods and this node; the rest is their services' curves."""
    saturated_steps: int
    """Steps at which the node had nothing left to give, so that its demand was estimated."""


@dataclass(frozen=True, kw_only=True)
class NodeForecast:
    """The next 24 hours of one node. NaN where nothing is known."""

    node: str
    peak_millicores: float
    """P95 of the next 24 hours, with its margin."""
    peak_share: float
    """The same as a share of the node's capacity."""
    peak_at: float
    """Seconds since the epoch: the busiest quarter of an hour of the next 24 hours, by the curve."""
    curve: Grid
    """(288,) millicores by time of day, slot 0 at 00:00 UTC: what is reached on most days at that time, without margin.
    A daily P95 is blind to anything shorter than 72 minutes; the curve is not."""
    short_peak_millicores: float
    """The highest quarter of an hour of the curve: above `peak_millicores` for a short daily peak."""
    confidence: float
    """0..1: known days, times how much of it was measured on these very pods."""
    days_used: int
    margin: float
    """Millicores of `peak_millicores` that are margin."""
    parts: ForecastParts


@dataclass(frozen=True, kw_only=True)
class PoolForecast:
    """Short-lived pods (Jobs, CronJobs) of one pool: nobody knows which node they will land on."""

    pool: str
    crowd_peak_millicores: float
    """P95 of the next 24 hours of all of them together, weighted over the days; no margin."""
    crowd_curve: Grid
    """(288,) millicores by time of day, slot 0 at 00:00 UTC."""


@dataclass(frozen=True, kw_only=True)
class Forecasts:
    """One for each node of the snapshot, in its order, and one for each pool."""

    nodes: tuple[NodeForecast, ...]
    pools: tuple[PoolForecast, ...]
    notes: tuple[str, ...] = ()
    """What is doubtful, in sentences."""
