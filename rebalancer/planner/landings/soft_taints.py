"""Nodes with our soft taint while a plan runs.

kube-scheduler goes by requests, not real CPU: it prefers a hot node whose requests fall, and a node that is empty by
requests but warm by real CPU attracts every replacement. The simulation of the plan taints such nodes first, then those
that the plan relieves, up to the policy's share of each pool.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.steering import CHOSEN, HOT, NO_ROOM, PREDICTED_HOT
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Refusal

SETTING = "softTaint.maxNodes"
"""The policy's key of the budget."""


@dataclass(slots=True, kw_only=True)
class SoftTaintBudget:
    """The tainted nodes, never more of a pool than the policy allows."""

    pool_of: NDArray[np.int32]
    """(nodes,) index of the pool, -1 for none: such a node is never tainted."""
    left: list[int]
    """For each pool: how many more."""
    hot: Bools
    """(nodes,)"""
    due: Bools | None = None
    """(nodes,) relieved ahead of their peak; None = none."""
    free: Bools | None = None
    """(nodes,) chosen for maintenance: they don't count against `left`; None = none."""
    chosen: dict[int, str] = field(default_factory=dict)
    """Node -> the taint's value."""

    def start_over(self) -> None:
        """Remove all taints."""
        self.give_back(list(self.chosen))

    def take(self, nodes: Sequence[int], *, why: str = "") -> list[int] | None:
        """Taint all of these and return the new ones; None, with no taint, when they are too many or none is new.
        `why`: the taint's value; empty = by what the node is."""
        new = [node for node in nodes if node not in self.chosen]
        if not new:
            return None  # tainted already and still likely
        wanted = np.bincount(self.pool_of[new] + 1, minlength=len(self.left) + 1)
        for node in filter(self._is_free, new):
            wanted[self.pool_of[node] + 1] -= self.pool_of[node] >= 0
        if wanted[0] or any(count > left for count, left in zip(wanted[1:], self.left, strict=True)):
            return None
        for node in new:
            self.left[int(self.pool_of[node])] -= not self._is_free(node)
            self.chosen[node] = why or self._why(node)
        return new

    def limits(self, refusal: Refusal, nodes: Sequence[int]) -> Refusal:
        """The refusal of a landing that these nodes bar, with the setting that would free it."""
        new = [node for node in nodes if node not in self.chosen and not self._is_free(node)]
        pools = self.pool_of[new]
        if not new or (pools < 0).any():
            return refusal
        wanted = np.bincount(pools, minlength=len(self.left))
        used = np.bincount(
            self.pool_of[[node for node in self.chosen if not self._is_free(node)]], minlength=len(self.left)
        )
        short = [at for at in range(len(self.left)) if wanted[at] > self.left[at]]
        if not short:
            return refusal
        sizes = np.bincount(self.pool_of[self.pool_of >= 0], minlength=len(self.left))
        percent = max(math.ceil(100 * (used[at] + wanted[at]) / sizes[at]) for at in short)
        value = f"{min(percent, 100)}%"
        message = f"{refusal.message}; soft taints on more nodes ({SETTING}: {value}) would allow it"
        return replace(refusal, message=message, setting=SETTING, value=value)

    def _is_free(self, node: int) -> bool:
        return self.free is not None and bool(self.free[node])

    def _why(self, node: int) -> str:
        if self._is_free(node):
            return CHOSEN
        if self.hot[node]:
            return HOT
        return PREDICTED_HOT if self.due is not None and self.due[node] else NO_ROOM

    def give_back(self, nodes: Sequence[int]) -> None:
        """Remove the taints of these."""
        for node in nodes:
            self.left[int(self.pool_of[node])] += not self._is_free(node)
            del self.chosen[node]

    @property
    def mask(self) -> Bools:
        """(nodes,)"""
        out = np.zeros(len(self.pool_of), dtype=np.bool_)
        out[list(self.chosen)] = True
        return out
