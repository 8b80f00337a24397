"""Room in the targets: how much load each node may still take and stay at or under its target."""

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.plan import Loads

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDING = 1e-9
"""Relative slack for sums of floats: a node filled to exactly its target is not over it."""


class TargetRoom:
    """Loads with this plan's moves counted in."""

    def __init__(self, loads: Loads, closed: Bools) -> None:
        """`closed` (nodes,) may not be landed on, whatever their load."""
        self.loads = loads
        self.node = loads.node.copy()
        hot = (loads.node > loads.high).any(axis=1)
        judged = np.isfinite(loads.target).all(axis=1) & np.isfinite(loads.node).all(axis=1)
        self._open: Bools = np.asarray(judged & ~closed & ~hot)
        with np.errstate(invalid="ignore"):
            self.low: Bools = np.asarray(self._open & (loads.node < loads.low).all(axis=1), dtype=np.bool_)

    def takes(self, pod_load: Floats) -> Bools:
        """(nodes,) nodes that stay at or under their target with `pod_load` (resources,) added."""
        with np.errstate(invalid="ignore"):
            fits = (self.node + pod_load <= self.loads.target * (1 + ROUNDING)).all(axis=1)
        return np.asarray(fits & self._open, dtype=np.bool_)

    def excess(self, node: int) -> Floats:
        """(resources,) load over target; negative or zero where the goal is reached."""
        over: Floats = self.node[node] - self.loads.target[node]
        return over

    def reached(self, node: int) -> bool:
        """Whether the node is at or under its target in every resource."""
        return bool((self.node[node] <= self.loads.target[node] * (1 + ROUNDING)).all())

    def shift(self, pod_load: Floats, source: int, landing: int) -> None:
        """Count a move."""
        self.node[source] -= pod_load
        self.node[landing] += pod_load
