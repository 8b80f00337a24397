"""CPU of pods and nodes at any moment, and as Prometheus shows it: means over a rate window on the scrape grid.

On a node with more demand than capacity every pod gets the same share of its demand.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.lab.loads.cpu import basis
from rebalancer.lab.loads.history import Columns, History
from rebalancer.model.notation.arrays import Bools, Floats

SCRAPE_SECONDS = 15.0
_CHUNK_CELLS = 4_000_000
"""Pods x moments worked on at once: 32 MB in each array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Cores at each of `times`."""

    columns: Columns
    rows: NDArray[np.int64]
    """(pods,) indices into the stays of `columns`: those that ran at all in the range."""
    pods: Floats
    """(pods, times)"""
    seen: Bools
    """(pods, times) whether the pod ran at the moment, or within the window before it."""
    nodes: Floats
    """(machines, times)"""
    up: Bools
    """(machines, times)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Demand in cores, before a full machine has divided its capacity."""

    columns: Columns
    rows: NDArray[np.int64]
    """(pods,) as in `Figures`."""
    running: Bools
    """(pods, times)"""
    pods: Floats
    """(pods, times)"""
    nodes: Floats
    """(machines, times)"""
    up: Bools
    """(machines, times)"""


class UsageModel:
    """The model, at any moment."""

    def __init__(self, *, history: History, window_seconds: float) -> None:
        self.history = history
        self.origin = history.origin
        self.window_seconds = window_seconds

    def at(self, times: Floats) -> Figures:
        """Instantaneous cores at each of `times` (ascending)."""
        return self._instant(self.history.columns(), times)

    def window_means(self, times: Floats, *, window_seconds: float | None = None) -> Figures:
        """Means over the window that ends at the last scrape at or before each of `times` (ascending)."""
        columns = self.history.columns()
        window = window_seconds or self.window_seconds
        samples = max(1, round(window / SCRAPE_SECONDS))
        last = np.floor(times / SCRAPE_SECONDS).astype(np.int64)
        rows = _rows(columns, (last[0] - samples + 1) * SCRAPE_SECONDS, last[-1] * SCRAPE_SECONDS)
        pods = np.empty((len(rows), len(times)))
        seen = np.empty((len(rows), len(times)), dtype=np.bool_)
        nodes = np.empty((len(columns.machines), len(times)))
        up = np.empty((len(columns.machines), len(times)), dtype=np.bool_)
        limit = max(64, _CHUNK_CELLS // max(1, len(rows)))
        begin = 0
        while begin < len(times):
            stop = int(np.searchsorted(last, last[begin] + limit, side="left"))
            part = last[begin:stop]
            grid = np.arange(part[0] - samples + 1, part[-1] + 1)
            figures = self._instant(columns, grid * SCRAPE_SECONDS, rows)
            upper = part - grid[0]
            pods[:, begin:stop] = _sliding_mean(figures.pods, upper, samples)
            nodes[:, begin:stop] = _sliding_mean(figures.nodes, upper, samples)
            seen[:, begin:stop] = _sliding_mean(figures.seen.astype(np.float64), upper, samples) > 0
            up[:, begin:stop] = figures.up[:, upper]
            begin = stop
        return Figures(columns=columns, rows=rows, pods=pods, seen=seen, nodes=nodes, up=up)

    def _instant(self, columns: Columns, times: Floats, rows: NDArray[np.int64] | None = None) -> Figures:
        demand = self.demand(times, columns=columns, rows=rows)
        rows, cores, nodes = demand.rows, demand.pods, demand.nodes
        capacity = np.array([machine.cores for machine in columns.machines])
        with np.errstate(divide="ignore", invalid="ignore"):
            given = np.where(nodes > capacity[:, None], capacity[:, None] / nodes, 1.0)
        if len(rows):
            cores *= given[columns.node[rows]]
        return Figures(columns=columns, rows=rows, pods=cores, seen=demand.running, nodes=nodes * given, up=demand.up)

    def demand(self, times: Floats, *, columns: Columns | None = None, rows: NDArray[np.int64] | None = None) -> Demand:
        """Demand of pods and machines at each of `times` (ascending)."""
        columns = columns or self.history.columns()
        if rows is None:
            rows = _rows(columns, float(times[0]), float(times[-1]))
        waves = basis(times - self.origin)
        running = (columns.start[rows, None] <= times) & (times < columns.end[rows, None])
        cores = (columns.coefficients[rows] @ waves) * running
        self._share_totals(columns, rows, times, waves, cores)
        demand = np.zeros((len(columns.machines), len(times)))
        if len(rows):
            node = columns.node[rows]
            first = np.flatnonzero(np.diff(node, prepend=-1))
            demand[node[first]] = np.add.reduceat(cores, first, axis=0)
        up = np.zeros(demand.shape, dtype=np.bool_)
        for index, machine in enumerate(columns.machines):
            up[index] = (machine.start <= times) & (times < machine.end)
        overhead = np.array([machine.overhead_cores for machine in columns.machines])
        demand += overhead[:, None] * up
        return Demand(columns=columns, rows=rows, running=running, pods=cores, nodes=demand, up=up)

    def _share_totals(
        self, columns: Columns, rows: NDArray[np.int64], times: Floats, waves: Floats, cores: Floats
    ) -> None:
        """Pods of a group get even shares of the group's total while they are ready and not terminating."""
        group = columns.group[rows]
        for index in np.unique(group[group >= 0]):
            # Every member counts for the share, also those that are outside `rows`: they are not ready then.
            members = np.flatnonzero(group == index)
            stays = rows[members]
            serving = (columns.ready[stays, None] <= times) & (times < columns.leaving[stays, None])
            total = columns.group_coefficients[index] @ waves
            cores[members] = serving * (total / np.maximum(np.count_nonzero(serving, axis=0), 1))


def _rows(columns: Columns, first: float, last: float) -> NDArray[np.int64]:
    return np.flatnonzero((columns.end > first) & (columns.start <= last))


def _sliding_mean(values: Floats, upper: NDArray[np.int64], samples: int) -> Floats:
    """Mean of `values[:, u - samples + 1 .. u]` for each u of `upper`."""
    if len(upper) == 1:
        mean: Floats = values.mean(axis=1, keepdims=True)
        return mean
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    means: Floats = (sums[:, upper + 1] - sums[:, upper + 1 - samples]) / samples
    return means
