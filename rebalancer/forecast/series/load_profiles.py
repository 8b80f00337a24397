"""Load profiles: usage of one replica of each service, step by step, for pods without history."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.runs import any_of_runs, sums_of_runs
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Bools, Ints

MOST_REPLICAS = 12
"""Sampled replicas of a service and day."""
LAYER_RATIO = 1.5
"""Least ratio of the means of two layers: no replica's mean lies between them, and the gap is the widest."""
LEAST_IN_LAYER = 2
LEAST_FILLED = 1e-6


class ServiceLoadProfiles:
    """(services, 2, steps) millicores of one replica on the reference machine; NaN where no replica ran.

    The two layers are the light and the heavy replicas of a service (leader and followers, shards of different size);
    they are equal where replicas are alike.
    """

    def __init__(self, services: int, steps: int) -> None:
        self.layers: Grid = np.full((services, 2, steps), np.nan, dtype=np.float32)
        self._heavy = np.zeros((services, 2), dtype=np.float64)
        self._sampled = np.zeros((services, steps), dtype=np.bool_)

    def note(self, at: slice, samples: Bools, service: Ints) -> None:
        """Note which of the steps `at` have a sample: `samples` (rows, steps) of replicas, with their `service` (rows,)
        in rising order. Samples from saturated nodes count: they show the hour, if not the demand."""
        if len(samples):
            starts = np.flatnonzero(np.diff(service, prepend=-1))
            self._sampled[service[starts], at] = any_of_runs(samples, starts)

    def known_days(self) -> NDArray[np.float64]:
        """(services,) known steps, in days."""
        return np.asarray(self._sampled.sum(axis=1) / SLOTS, dtype=np.float64)

    def known_hours(self) -> Bools:
        """(services, 24) whether any sample of that hour of the day is known. Hours begin with the window's days."""
        services, steps = self._sampled.shape
        hours = self._sampled.reshape(services, steps // SLOTS, 24, SLOTS // 24)
        return np.asarray(hours.any(axis=(1, 3)), dtype=np.bool_)

    def add(self, at: slice, values: Grid, service: Ints) -> None:
        """Add the steps `at`: `values` (rows, steps) of replicas, NaN where unknown, with their `service` (rows,) in
        rising order. Overwrites `values`."""
        missing = np.isnan(values)
        values[missing] = 0
        counts = values.shape[1] - missing.sum(axis=1)
        means = np.divide(values.sum(axis=1), counts, out=np.zeros(len(values), dtype=np.float32), where=counts > 0)
        alive = np.flatnonzero(counts > 0)
        if not len(alive):
            return
        ranked = alive[np.lexsort((means[alive], service[alive]))]
        heavy_ranked, layered_ranked = _split(means[ranked], service[ranked])
        heavy, layered = np.zeros(len(values), dtype=np.bool_), np.zeros(len(values), dtype=np.bool_)
        heavy[ranked], layered[ranked] = heavy_ranked, layered_ranked
        self._set((0, 1), at, values, missing, service)
        for layer, rows in ((0, np.flatnonzero(layered & ~heavy)), (1, np.flatnonzero(heavy))):
            self._set((layer,), at, values[rows], missing[rows], service[rows])
        np.add.at(self._heavy, (service[alive], heavy[alive].astype(np.intp)), 1.0)

    def _set(self, layers: tuple[int, ...], at: slice, values: Grid, missing: Bools, service: Ints) -> None:
        """Mean of the rows of each service."""
        if not len(values):
            return
        starts = np.flatnonzero(np.diff(service, prepend=-1))
        sums = sums_of_runs(values, starts)
        many = np.repeat(np.diff(np.append(starts, len(values)))[:, None].astype(np.float32), values.shape[1], axis=1)
        incomplete = np.flatnonzero(missing.any(axis=1))
        if len(incomplete):
            np.subtract.at(
                many, np.searchsorted(starts, incomplete, "right") - 1, missing[incomplete].astype(np.float32)
            )
        with np.errstate(invalid="ignore"):
            sums /= many  # 0/0 where no replica ran
        for layer in layers:
            self.layers[service[starts], layer, at] = sums

    @property
    def has_layers(self) -> Bools:
        """(services,) whether any day has a heavy layer."""
        return np.asarray(self._heavy[:, 1] > 0, dtype=np.bool_)

    def mean(self, services: NDArray[np.integer[Any]]) -> Grid:
        """(services, steps) mean of one replica over both layers; NaN where unknown."""
        light, heavy = self.layers[services, 0], self.layers[services, 1]
        counts = self._heavy[services]
        share = (counts[:, 1] / np.maximum(counts.sum(axis=1), 1.0)).astype(np.float32)
        mixed = light + (heavy - light) * share[:, None]
        mixed = np.where(np.isnan(mixed), np.where(np.isnan(light), heavy, light), mixed)
        return np.asarray(mixed, dtype=np.float32)


def _split(means: NDArray[np.floating], service: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(rows,) whether each is of the heavy layer, and whether its service has layers. Rows: by service, then mean."""
    rows = len(means)
    starts = np.flatnonzero(np.diff(service, prepend=-1))
    group = np.cumsum(np.bincount(starts, minlength=rows)) - 1
    ends = np.append(starts[1:], rows) - 1
    logs = np.log(np.maximum(means, LEAST_FILLED))
    gap = np.full(rows, -np.inf)
    gap[1:] = np.diff(logs)
    gap[starts] = -np.inf
    widest = np.maximum.reduceat(gap, starts)
    # the first of the widest gaps of each service
    is_widest = np.flatnonzero(gap == widest[group])
    first = np.full(len(starts), rows)
    np.minimum.at(first, group[is_widest], is_widest)
    at = np.minimum(first, ends)
    below = logs[np.maximum(at - 1, starts)] - logs[starts]
    above = logs[ends] - logs[at]
    layered = (
        (widest >= np.log(LAYER_RATIO))
        & (widest > below)
        & (widest > above)
        & (at - starts >= LEAST_IN_LAYER)
        & (ends - at + 1 >= LEAST_IN_LAYER)
    )
    return (np.arange(rows) >= at[group]) & layered[group], layered[group]


def sampled(service: Ints) -> NDArray[np.intp]:
    """Rows for the profiles, by service: at most `MOST_REPLICAS` of each, evenly over its rows."""
    rows = np.flatnonzero(service >= 0)
    order = rows[np.argsort(service[rows], kind="stable")]
    if not len(order):
        return order
    sorted_service = service[order]
    starts = np.flatnonzero(np.diff(sorted_service, prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    size = np.repeat(sizes, sizes)
    # the k-th of n is kept where the multiples of most/n pass a whole number
    kept = (place * MOST_REPLICAS) // size != ((place - 1) * MOST_REPLICAS) // size
    return np.asarray(order[kept | (size <= MOST_REPLICAS)], dtype=np.intp)
