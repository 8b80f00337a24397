"""Which nodes shall carry our soft taint while a plan runs.

kube-scheduler knows requests, not real CPU: a hot node whose requests fall becomes its favourite, and a node that is
empty by requests but warm in fact attracts every replacement. A rehearsal of the plan finds out which of them stand in
its way; those come first, then the nodes that the plan relieves, as far as the policy's share of each pool goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.steering import CHOSEN, HOT, NO_ROOM, PREDICTED_HOT

Bools = NDArray[np.bool_]


@dataclass(slots=True, kw_only=True)
class SoftTaintBudget:
    """Nodes that are steered away from, never more of a pool than allowed."""

    pool_of: NDArray[np.int32]
    """(nodes,) index of the pool, -1 for none: such a node is never tainted."""
    left: list[int]
    """Of each pool: how many more."""
    hot: Bools
    """(nodes,)"""
    due: Bools | None = None
    """(nodes,) relieved ahead of their peak; None = none is."""
    free: Bools | None = None
    """(nodes,) that people gave up to be emptied: they don't count against `left`; None = none is."""
    chosen: dict[int, str] = field(default_factory=dict)
    """Node -> the taint's value."""

    def take(self, nodes: Sequence[int]) -> list[int] | None:
        """Steer away from all of these: those that are new; None when that is more than allowed, or none is new."""
        new = [node for node in nodes if node not in self.chosen]
        if not new:
            return None  # they are avoided already, and yet they are likely: more of the same doesn't help
        wanted = np.bincount(self.pool_of[new] + 1, minlength=len(self.left) + 1)
        for node in filter(self._is_free, new):
            wanted[self.pool_of[node] + 1] -= self.pool_of[node] >= 0
        if wanted[0] or any(count > left for count, left in zip(wanted[1:], self.left, strict=True)):
            return None
        for node in new:
            self.left[int(self.pool_of[node])] -= not self._is_free(node)
            self.chosen[node] = self._why(node)
        return new

    def _is_free(self, node: int) -> bool:
        return self.free is not None and bool(self.free[node])

    def _why(self, node: int) -> str:
        if self._is_free(node):
            return CHOSEN
        if self.hot[node]:
            return HOT
        return PREDICTED_HOT if self.due is not None and self.due[node] else NO_ROOM

    def give_back(self, nodes: Sequence[int]) -> None:
        """Don't steer away from these after all."""
        for node in nodes:
            self.left[int(self.pool_of[node])] += not self._is_free(node)
            del self.chosen[node]

    @property
    def mask(self) -> Bools:
        """(nodes,)"""
        out = np.zeros(len(self.pool_of), dtype=np.bool_)
        out[list(self.chosen)] = True
        return out
