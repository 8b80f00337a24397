"""Our soft taint on nodes, from before the first eviction until the plan is over.

Nobody else removes it, so whoever may evict clears up first: what an earlier process left, what has cooled, what is too
old. `Steerer.clear` is called on every way out of a run.
"""

import threading
import time
from collections.abc import Callable, Mapping
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
    """What we know of our taints. `taints` does the patching. Safe to use from several threads."""

    taints: NodeTaints
    only_clears: bool = False
    """It puts none, and removes what others of us left."""
    may: Callable[[], bool] = lambda: True
    """Asked before each taint is put: whether we still lead and are not about to end."""
    held: dict[str, str] = field(default_factory=dict)
    """Node -> value of the taint that is on it, as far as we know."""
    uncertain: set[str] = field(default_factory=set)
    """Nodes of which we don't know whether they carry it: the last patch may have failed, or its answer was lost."""
    _guard: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _closed: bool = False

    def granted(self) -> bool:
        """Whether we may patch nodes. Raises ConnectError."""
        return self.taints.granted()

    def see(self, snapshot: ClusterSnapshot) -> None:
        """Take over what the snapshot shows, also what an earlier process left."""
        with self._guard:
            self.held = {name: value for name, (value, _) in our_taints(snapshot).items()}
            self.uncertain = set()

    def hold(self, wanted: Mapping[str, str]) -> set[str]:
        """Put the taint on just these nodes (name -> value); the names of those that carry it now."""
        for node in sorted(self.held.keys() - wanted.keys()):
            self._take(node)
        sure = {node for node, value in wanted.items() if self.held.get(node) == value}
        for node in sorted(wanted.keys() - sure):
            with self._guard:
                if self._closed or not self.may():
                    break
                # also where it seems to fail: an answer may be lost, and it is to be removed at the end
                self.held[node] = wanted[node]
                if self.taints.put(node, value=wanted[node]):
                    sure.add(node)
                else:
                    self.uncertain.add(node)
        return sure

    def clear(self, *, seconds: float = float("inf")) -> None:
        """Remove all of them, and put none any more. What isn't removed after so long is left to the next leader."""
        end = time.monotonic() + seconds
        with self._guard:
            self._closed = True
        for node in sorted(self.held):
            if time.monotonic() > end:
                return
            self._take(node)

    def _take(self, node: str) -> None:
        with self._guard:
            if self.taints.take(node):
                self.held.pop(node, None)
            else:
                self.uncertain.add(node)


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
