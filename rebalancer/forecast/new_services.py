"""New services: how much of a node's usage comes from pods with a known history, and an allowance for hours of the day
that a service has not shown yet.

A service of three hours has shown three hours of its day. Its pods are imputed with these on all days of the window, so
neither the node's days nor its past errors contain the rest. The other services of the cluster show how much higher a
day is than the same hours of it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.compose import Composition
from rebalancer.forecast.membership import Members
from rebalancer.forecast.percentiles import P95, quantile
from rebalancer.model.history import SLOTS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
HOURS = 24
HOUR_STEPS = SLOTS // HOURS
DEFAULT_GROWTH = 1.0
"""Least allowance of a service without any known hour, as a share of its level; less in proportion to its known
hours."""
MOST_GROWTH = 9.0
"""Greatest allowance as a share of the level: services that idle for hours may grow a hundredfold."""
GROWTH_SHARE = 0.9
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
    profiles, window, nodes = composition.profiles, composition.window, len(members.nodes)
    known_days, known_hours = profiles.known_days(), profiles.known_hours()
    service = members.service
    # pods without a service, and old pods of Jobs, are known by their own samples
    by_service = (service >= 0) & (np.append(known_days, 0.0)[service] > 0)
    days = np.where(by_service, np.append(known_days, 0.0)[service], composition.pod_days)
    level = _mean_of_known(composition.pod_daily)
    level[members.short_lived] = 0.0
    unknown = np.where(by_service, np.append(1.0 - known_hours.mean(axis=1), 1.0)[service], 1.0 - np.minimum(days, 1.0))
    growth = DEFAULT_GROWTH * unknown
    growth[by_service] = np.maximum(growth, _growths(composition, known_hours)[service])[by_service]
    missing = np.maximum(members.request_millicores - level, 0.0) * unknown if len(members.request_millicores) else 0.0
    # pods without any figure count with their request elsewhere
    allowance = np.where(level > 0, np.maximum(growth * level, missing), 0.0)
    of_pods = np.bincount(members.node, weights=level, minlength=nodes)
    of_known = np.bincount(members.node, weights=level * np.minimum(days / window.days, 1.0), minlength=nodes)
    known = np.isfinite(composition.series)
    mean = np.where(known, composition.series, 0.0).sum(axis=(1, 2), dtype=np.float64)
    mean /= np.maximum(known.sum(axis=(1, 2)), 1)
    own = np.maximum(mean - of_pods, 0.0)
    total = of_pods + own
    return KnownUsage(
        share=np.divide(of_known + own, total, out=np.ones(nodes), where=total > 0),
        allowance=np.bincount(members.node, weights=allowance, minlength=nodes).astype(np.float64),
    )


def _growths(composition: Composition, known_hours: Bools) -> Floats:
    """(services + 1,) growth from the P95 of a service's known hours to that of its day: the 90th percentile over the
    services of which all hours are known; 0 where all or none are known, and at the end."""
    out = np.zeros(len(known_hours) + 1)
    whole = np.flatnonzero(known_hours.all(axis=1))
    new = np.flatnonzero(~known_hours.all(axis=1) & known_hours.any(axis=1))
    if not len(whole) or not len(new):
        return out
    others = whole[np.unique(np.linspace(0, len(whole) - 1, min(len(whole), MOST_OTHERS)).astype(np.intp))]
    days = composition.profiles.mean(others).reshape(len(others), composition.window.days, SLOTS)
    known = np.isfinite(days)
    usual = np.where(known, days, np.float32(0)).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    daily = quantile(usual, P95)
    # services that started together have shown the same hours
    patterns, which = np.unique(known_hours[new], axis=0, return_inverse=True)
    for number, hours in enumerate(patterns):
        shown = quantile(np.ascontiguousarray(usual[:, np.repeat(hours, HOUR_STEPS)]), P95)
        usable = shown > 0
        if usable.any():
            growth = float(np.quantile(daily[usable] / shown[usable], GROWTH_SHARE)) - 1.0
            out[new[which.reshape(-1) == number]] = min(max(growth, 0.0), MOST_GROWTH)
    return out


def _mean_of_known(daily: Floats) -> Floats:
    """(pods,) mean over the known days; 0 without any."""
    known = np.isfinite(daily)
    return np.asarray(np.where(known, daily, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1), dtype=np.float64)
