"""Our soft taint on nodes, from before the first eviction until the plan is over.

Nobody else removes it, so whoever may evict clears up first: what an earlier process left, what has cooled, what is too
old. `Steerer.clear` is called on every way out of a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.ports import NodeTaints
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.steering import STEERING_TAINT

Bools = NDArray[np.bool_]


@dataclass(slots=True, kw_only=True)
class Steerer:
    """What we know of our taints. `taints` does the patching."""

    taints: NodeTaints
    only_clears: bool = False
    """It puts none, and removes what others of us left."""
    held: dict[str, str] = field(default_factory=dict)
    """Node -> value of the taint that is on it, as far as we know."""

    def granted(self) -> bool:
        """Whether we may patch nodes. Raises ConnectError."""
        return self.taints.granted()

    def see(self, snapshot: ClusterSnapshot) -> None:
        """Take over what the snapshot shows, also what an earlier process left."""
        self.held = {name: value for name, (value, _) in our_taints(snapshot).items()}

    def hold(self, wanted: Mapping[str, str]) -> set[str]:
        """Put the taint on just these nodes (name -> value); the names of those that carry it now."""
        for node in sorted(self.held.keys() - wanted.keys()):
            self._take(node)
        sure = {node for node, value in wanted.items() if self.held.get(node) == value}
        for node in sorted(wanted.keys() - sure):
            # also where it seems to have failed: an answer may have been lost, and it is to be removed at the end
            self.held[node] = wanted[node]
            if self.taints.put(node, value=wanted[node]):
                sure.add(node)
        return sure

    def clear(self) -> None:
        """Remove all of them."""
        for node in sorted(self.held):
            self._take(node)

    def _take(self, node: str) -> None:
        if self.taints.take(node):
            del self.held[node]


def our_taints(snapshot: ClusterSnapshot) -> dict[str, tuple[str, float]]:
    """Node -> value of our taint there, and when it was put (seconds since the epoch; 0 where it doesn't say)."""
    return {
        name: (taint.value, _seconds(taint.time_added))
        for name, taints in zip(snapshot.nodes.names, snapshot.nodes.taints, strict=True)
        for taint in taints
        if taint.key == STEERING_TAINT and taint.effect == "PreferNoSchedule"
    }


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
