"""New services: how much of a node's usage comes from pods with a known history, and an allowance for hours of the day
that a service has not shown yet.

A service of three hours has shown three hours of its day. Its pods are imputed with these on all days of the window, so
neither the node's days nor its past errors contain the rest. The other services of the cluster show how much higher a
day is than the same hours of it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.learning.levels import LEAST_MILLICORES
from rebalancer.forecast.learning.prediction_interval import MARGIN_WITHOUT_ERRORS
from rebalancer.forecast.series.compose import Composition
from rebalancer.forecast.series.membership import Members
from rebalancer.forecast.series.percentiles import P95, quantile, slot_mean
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Bools, Floats

HOURS = 24
HOUR_STEPS = SLOTS // HOURS
DEFAULT_GROWTH = 1.0
"""Least allowance with few other services to compare with, as a share of the level: the day may be twice as high."""
LEAST_GROWTH = MARGIN_WITHOUT_ERRORS
"""The same with `LEAST_OTHERS` other services. Both are in proportion to the unknown hours."""
LEAST_OTHERS = 10
MOST_RATIO = 10.0
"""Limit of P95 of the day / level: services that idle for hours may grow a hundredfold."""
RATIO_SHARE = 0.9
"""Percentile over the other services."""
MOST_OTHERS = 500
"""Compared services."""


@dataclass(frozen=True, kw_only=True)
class KnownUsage:
    """(nodes,) each."""

    share: Floats
    """0..1: known days of the pods' services / days of the window, weighted by the usage of each pod."""
    allowance: Floats
    """Millicores that new services may use more than they have shown."""


def known_usage(composition: Composition, members: Members) -> KnownUsage:
    """Known share and allowance of each node. Expected arrivals are not included."""
    window, nodes = composition.window, len(members.nodes)
    known_days, known_hours = composition.profiles.known_days(), composition.profiles.known_hours()
    # pods without a service, and old pods of Jobs, are known by their own samples
    by_service = np.append(known_days > 0, False)[members.service]
    days = np.where(by_service, np.append(known_days, 0.0)[members.service], composition.pod_days)
    unknown_hours = np.append(1.0 - known_hours.mean(axis=1), 1.0)[members.service]
    unknown = np.where(by_service, unknown_hours, 1.0 - np.minimum(days, 1.0))
    growth = np.where(by_service, np.append(_growths(composition, known_hours), 0.0)[members.service], 0.0)
    growth = np.where(by_service, growth, DEFAULT_GROWTH * unknown)
    level = np.where(members.short_lived, 0.0, _mean_of_known(composition.pod_daily))
    request = members.request_millicores if len(members.request_millicores) else np.zeros(len(level))
    missing = np.maximum(request - level, 0.0) * unknown
    # a pod without any figure counts with its request when the forecast is applied to a snapshot
    allowance = np.where(level > 0, np.maximum(growth * level, missing), 0.0)
    expected = np.where(level > 0, level + allowance, np.where(members.short_lived, 0.0, request))
    of_known = expected * np.minimum(days / window.days, 1.0)
    allowances, of_pods, all_pods, known = (
        np.bincount(members.node, weights=each, minlength=nodes).astype(np.float64)
        for each in (allowance, level, expected, of_known)
    )
    own = np.maximum(_mean(composition.series) - of_pods, 0.0)
    total = all_pods + own
    return KnownUsage(
        share=np.divide(known + own, total, out=np.ones(nodes), where=total > 0),
        allowance=allowances,
    )


def _growths(composition: Composition, known_hours: Bools) -> Floats:
    """(services,) how much higher the P95 of the day may be than what a service has shown, as a share of the mean of
    what it has shown; 0 where all hours are known."""
    unknown = 1.0 - known_hours.mean(axis=1)
    out = np.zeros(len(unknown))
    new = np.flatnonzero((unknown > 0) & (unknown < 1))
    if not len(new):
        return out
    whole = np.flatnonzero(unknown == 0)
    others = whole[np.unique(np.linspace(0, len(whole) - 1, min(len(whole), MOST_OTHERS)).astype(np.intp))]
    usual = _usual_day(composition, others)
    daily = quantile(usual, P95)
    out[new] = (LEAST_GROWTH if len(others) >= LEAST_OTHERS else DEFAULT_GROWTH) * unknown[new]
    shown = _usual_day(composition, new)
    steps = np.isfinite(shown)
    level = np.maximum(np.where(steps, shown, 0.0).sum(axis=1) / np.maximum(steps.sum(axis=1), 1), LEAST_MILLICORES)
    # other hours are imputed with the mean
    reached = quantile(np.where(steps, shown, level[:, None].astype(np.float32)), P95) / level
    # services that started together have shown the same hours
    patterns, which = np.unique(known_hours[new], axis=0, return_inverse=True)
    for number, hours in enumerate(patterns):
        same_hours = usual[:, np.repeat(hours, HOUR_STEPS)].mean(axis=1)
        usable = same_hours > 0
        if usable.any():
            ratio = min(float(np.quantile(daily[usable] / same_hours[usable], RATIO_SHARE)), MOST_RATIO)
            mine = which.reshape(-1) == number
            out[new[mine]] = np.maximum(out[new[mine]], ratio - reached[mine])
    return out


def _usual_day(composition: Composition, services: NDArray[np.intp]) -> Grid:
    """(services, 288) mean of a replica over the days; NaN where unknown."""
    days = composition.profiles.mean(services).reshape(len(services), composition.window.days, SLOTS)
    return slot_mean(days, np.ones(composition.window.days))


def _mean(series: Grid) -> Floats:
    """(nodes,) mean of the known steps; 0 without any."""
    known = np.isfinite(series)
    total = np.where(known, series, np.float32(0)).sum(axis=(1, 2), dtype=np.float64)
    return np.asarray(total / np.maximum(known.sum(axis=(1, 2)), 1), dtype=np.float64)


def _mean_of_known(daily: Floats) -> Floats:
    """(pods,) mean over the known days; 0 without any."""
    known = np.isfinite(daily)
    return np.asarray(np.where(known, daily, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1), dtype=np.float64)
