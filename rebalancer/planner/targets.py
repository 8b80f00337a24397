"""Room in the targets: how much load each node may still take and stay at or under its target."""

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.plan import Loads

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDING = 1e-9
"""Relative slack for sums of floats: a node filled to exactly its target is not over it."""


class TargetRoom:
    """Loads with this plan's moves counted in. A resource without a mark (NaN) is not judged on that node."""

    def __init__(self, loads: Loads, closed: Bools) -> None:
        """`closed` (nodes,) may not be landed on, whatever their load."""
        self.loads = loads
        self.node = loads.node.copy()
        """(nodes, resources) with every replacement on its likeliest landing."""
        self._marked: Bools = np.isfinite(loads.target)
        known = _in_all(np.isfinite(loads.node) | ~self._marked)
        cool = ~_in_any(loads.node > loads.high)
        self._open: Bools = _in_any(self._marked) & known & cool & ~closed
        self.low: Bools = self._open & _in_all((loads.node < loads.low) | ~self._marked)

    def takes(self, pod_load: Floats) -> Bools:
        """(nodes,) nodes that stay at or under their target with `pod_load` (resources,) added."""
        return _in_all((self.node + pod_load <= self._limit) | ~self._marked) & self._open

    @property
    def _limit(self) -> Floats:
        limit: Floats = self.loads.target * (1 + ROUNDING)
        return limit

    def excess(self, node: int) -> Floats:
        """(resources,) load over target; negative or zero where the goal is reached, NaN where nothing is judged."""
        over: Floats = self.node[node] - self.loads.target[node]
        return over

    def reached(self, node: int) -> bool:
        """Whether the node is at or under its target in every resource that is judged."""
        return not bool((self.node[node] > self._limit[node]).any())

    def shift(self, pod_load: Floats, source: int, landing: int) -> None:
        """Count a move."""
        self.node[source] -= pod_load
        self.node[landing] += pod_load


def _in_all(each: Bools) -> Bools:
    """(nodes,) whether it is so in every resource."""
    out: Bools = np.asarray(each.all(axis=1), dtype=np.bool_)
    return out


def _in_any(each: Bools) -> Bools:
    """(nodes,) whether it is so in any resource."""
    out: Bools = np.asarray(each.any(axis=1), dtype=np.bool_)
    return out
