"""Forecasts of memory and of other resources with a history, beside those of CPU.

What goes wrong with one of them is a note: the forecasts of CPU don't depend on it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from rebalancer.cycle.isolation import isolated
from rebalancer.forecast.peaks.expected_peaks import NodeForecasts
from rebalancer.forecast.series.resource import ForecastResource
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS, History
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.policy import RebalancerPolicy

MAX_HISTORY_GAP_SECONDS = 6 * 3600.0
"""A forecast whose newest sample is older than this is not used."""

Capacities = Mapping[str, Mapping[str, float]]
"""Resource -> node -> the whole of it, in units of `Usage`."""


def resource_of(name: str, policy: RebalancerPolicy, capacities: Capacities) -> ForecastResource | None:
    """The resource to forecast; None while the capacity of its nodes isn't known."""
    if name in (CPU, MEMORY):
        return ForecastResource(name=name, of_allocatable=policy.usage.source == "MetricsServer")
    prometheus = policy.usage.prometheus
    named = {each.name: each for each in prometheus.resources} if prometheus is not None else {}
    if name in named and named[name].capacity is None:
        return ForecastResource(name=name)
    known = {node: amount for node, amount in capacities.get(name, {}).items() if math.isfinite(amount)}
    return ForecastResource(name=name, capacities=known) if known else None


def forecast_resources(
    histories: Mapping[str, History],
    policy: RebalancerPolicy,
    make: Callable[[ForecastResource, History], NodeForecasts],
    *,
    capacities: Capacities,
    now: float,
) -> tuple[dict[str, NodeForecasts], tuple[str, ...]]:
    """(resource -> its forecasts, notes), of the resources besides CPU with current days in `histories`.

    `make` returns the forecasts of one resource.
    """
    found: dict[str, NodeForecasts] = {}
    notes: list[str] = []

    def add(name: str, history: History) -> Sequence[str]:
        resource = resource_of(name, policy, capacities)
        if resource is None:
            return ()
        if now - known_until(history) > MAX_HISTORY_GAP_SECONDS:
            return history.notes
        made = make(resource, history)
        found[name] = made
        return made.forecasts.notes

    for name, history in histories.items():
        if name != CPU:
            said, failed = isolated("no forecast", partial(add, name, history))
            notes += [f"{name}: {each}" for each in (*(said or ()), *failed)]
    return found, tuple(notes)


def known_until(history: History) -> float:
    """End of the newest step with a sample, seconds since the epoch; -inf without any."""
    for block in reversed(history.days):
        for grid in (block.node_millicores, block.pod_millicores):
            known = np.flatnonzero(np.isfinite(grid).any(axis=0))
            if len(known):
                return float(block.day * DAY_SECONDS + (int(known[-1]) + 1) * STEP_SECONDS)
    return -math.inf
