"""Amounts of memory and of named resources that pods and nodes use at any moment."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.lab.loads.cpu import basis, of_shard
from rebalancer.lab.loads.history import Columns, Stay
from rebalancer.model.measured.history import HOUR_SECONDS
from rebalancer.model.notation.arrays import Bools, Floats

MEAN_BYTES, SPREAD = 200 * 2.0**20, 0.2
"""Working set of a pod without a model; it differs by up to this share from pod to pod."""
SWING = 0.03
"""Share that comes and goes with the pod's CPU."""
COLD_SHARE, CACHE_SECONDS = 0.15, 120.0
"""Share that is missing at the start, and the time in which most of it comes."""
LIMIT_SHARE = 0.8
"""Most of its limit that such a pod uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Amounts of one resource at some moments."""

    rows: NDArray[np.int64]
    """(pods,) indices into the stays of the columns: those that run at one of the moments."""
    running: Bools
    """(pods, times)"""
    pods: Floats
    """(pods, times)"""
    nodes: Floats
    """(machines, times) sum of its pods, no more than the capacity where it has one."""
    up: Bools
    """(machines, times)"""


def memory(columns: Columns, times: Floats) -> Amounts:
    """Bytes of working sets. A pod grows from nothing until it is warm; a leak goes on until its containers restart."""
    waves = basis(times - columns.origin)

    def of(row: int, stay: Stay) -> Floats:
        model = stay.behaviour.memory
        if model is None:
            return _usual(stay, columns.coefficients[row] @ waves, times)
        base = of_shard(stay.pod, model.shards, model.base_bytes)
        leaked = _since_start(stay, times) / HOUR_SECONDS * model.growth_bytes_per_hour
        if not model.warm_seconds or stay.start == -np.inf:
            return base + leaked
        grown: Floats = np.clip((times - stay.start) / model.warm_seconds, 0.0, 1.0) * base
        return grown + leaked

    capacity = np.array([machine.memory_bytes for machine in columns.machines])
    return _amounts(columns, times, of, capacity)


def _usual(stay: Stay, cores: Floats, times: Floats) -> Floats:
    """(times,) bytes of a pod without a model: fills its caches, then follows its CPU, under its limit.

    The swing stays under what a search for leaks takes for growth.
    """
    base = min(MEAN_BYTES * (1.0 + SPREAD * (stay.curve.phases[-1] / math.pi - 1.0)), LIMIT_SHARE * stay.limit_bytes)
    busy = np.clip(cores / stay.curve.level - 1.0, -1.0, 1.0) if stay.curve.level > 0 else np.zeros(len(times))
    cold = np.exp(-np.maximum(times - stay.start, 0.0) / CACHE_SECONDS)
    return np.asarray(base * (1.0 + SWING * busy) * (1.0 - COLD_SHARE * cold), dtype=np.float64)


def _since_start(stay: Stay, times: Floats) -> Floats:
    """(times,) seconds since its containers started."""
    starts = np.array([-np.inf, *stay.container_starts])
    last = starts[np.searchsorted(starts, times, side="right") - 1]
    return np.where(np.isfinite(last), times - last, 0.0)


def named(columns: Columns, times: Floats, name: str) -> Amounts:
    """Amounts of a resource of the scenario."""
    without = np.full(len(columns.machines), np.inf)
    return _amounts(
        columns, times, lambda _, stay: np.full(len(times), stay.behaviour.resources.get(name, 0.0)), without
    )


def names(columns: Columns) -> list[str]:
    """Resources that any pod uses."""
    return sorted({name for stay in columns.stays for name in stay.behaviour.resources})


def _amounts(columns: Columns, times: Floats, of: Callable[[int, Stay], Floats], capacity: Floats) -> Amounts:
    rows = np.flatnonzero((columns.end > times[0]) & (columns.start <= times[-1]))
    running = (columns.start[rows, None] <= times) & (times < columns.end[rows, None])
    pods = np.zeros((len(rows), len(times)))
    for at, row in enumerate(rows.tolist()):
        pods[at] = of(row, columns.stays[row])
    pods *= running
    nodes = np.zeros((len(columns.machines), len(times)))
    np.add.at(nodes, columns.node[rows], pods)
    up = np.array([(machine.start <= times) & (times < machine.end) for machine in columns.machines], dtype=np.bool_)
    return Amounts(
        rows=rows,
        running=running,
        pods=pods,
        nodes=np.minimum(nodes, capacity[:, None]),
        up=up.reshape(nodes.shape),
    )
