"""Sums over runs of rows: the pods of a node, the replicas of a service."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import Grid
from rebalancer.model.notation.arrays import Bools


def sums_of_runs(values: Grid, starts: NDArray[np.intp]) -> Grid:
    """(runs, steps) sums of the rows of each run; `starts` (runs,) are their first rows, rising from 0.

    A product with ones adds a row at a time and takes a fifth of the time of `np.add.reduceat`, which adds a column at
    a time.
    """
    out: Grid = np.zeros((len(starts), values.shape[1]), dtype=np.float32)
    edges = [*starts.tolist(), len(values)]
    ones = np.ones(max((end - first for first, end in pairwise(edges)), default=0), dtype=np.float32)
    for run, (first, end) in enumerate(pairwise(edges)):
        np.dot(ones[: end - first], values[first:end], out=out[run])
    return out


def any_of_runs(values: Bools, starts: NDArray[np.intp]) -> Bools:
    """(runs, steps) whether any row of each run is true; runs with a row that is true throughout cost little."""
    out = np.zeros((len(starts), values.shape[1]), dtype=np.bool_)
    out[np.searchsorted(starts, np.flatnonzero(values.all(axis=1)), "right") - 1] = True
    open_runs = np.flatnonzero(~out.all(axis=1))
    ends = np.append(starts[1:], len(values))
    for run in open_runs.tolist():
        np.logical_or.reduce(values[starts[run] : ends[run]], axis=0, out=out[run])
    return out
