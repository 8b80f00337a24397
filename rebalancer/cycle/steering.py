"""Our taints on nodes, soft ones and cordons: from before the first eviction until nobody needs them any more.

Nobody else removes them, so whoever may evict clears up first: what an earlier process left, what has cooled, what is
too old, what nobody asks for. `SoftTaintController.clear` is called on
every way out of a run. A cordon for maintenance outlives
us: people took the node out of service, and it is lifted only when they no longer choose it.
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
from rebalancer.model.steering import CORDONS, MAINTENANCE, SOFT_TAINT

Bools = NDArray[np.bool_]

HALF = ""
"""Value of `SoftTaintController.held` for a node that carries our cordon annotation and was uncordoned by people."""


@dataclass(slots=True, kw_only=True)
class SoftTaintController:
    """What we know of our taints and cordons. `taints` does the patching. Safe to use from several threads."""

    taints: NodeTaints
    remove_only: bool = False
    """It puts nothing that somebody would have to remove later, and removes what others of us left."""
    may: Callable[[], bool] = lambda: True
    """Asked before each taint is put: whether we still lead and are not about to end."""
    held: dict[str, str] = field(default_factory=dict)
    """Node -> value of the taint that is on it, as far as we know."""
    uncertain: set[str] = field(default_factory=set)
    """Nodes of which we don't know whether they carry it: the last patch may have failed, or its answer was lost."""
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _closed: bool = False

    def granted(self) -> bool:
        """Whether we may patch nodes. Raises ConnectError."""
        return self.taints.granted()

    def see(self, snapshot: ClusterSnapshot) -> None:
        """Take over what the snapshot shows, also what an earlier process left."""
        with self._lock:
            cordons = our_cordons(snapshot)
            self.held = {
                name: HALF if value in CORDONS and name not in cordons else value
                for name, (value, _) in our_taints(snapshot).items()
            }
            self.uncertain = set()

    def hold(self, wanted: Mapping[str, str]) -> set[str]:
        """Put the taint on just these nodes (name -> value), with a value of CORDONS the cordon as well; the names of
        those that have it now."""
        for node in sorted(self.held.keys() - wanted.keys()):
            self._take(node)
        sure = {node for node, value in wanted.items() if self.held.get(node) == value}
        for node in sorted(wanted.keys() - sure):
            with self._lock:
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
        """Remove all but the cordons for maintenance, and put none any more. What isn't removed after so long is left
        to the next leader."""
        end = time.monotonic() + seconds
        with self._lock:
            self._closed = True
        for node in sorted(node for node, value in self.held.items() if value != MAINTENANCE):
            if time.monotonic() > end:
                return
            self._take(node)

    def _take(self, node: str) -> None:
        with self._lock:
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
        if taint.key == SOFT_TAINT and taint.effect == "PreferNoSchedule"
    }


def our_cordons(snapshot: ClusterSnapshot) -> dict[str, tuple[str, float]]:
    """The same of the nodes that are cordoned by us: our taint says so, and they are. Any other cordon is somebody
    else's."""
    cordoned, index = snapshot.nodes.unschedulable, snapshot.node_index
    return {
        name: (value, since)
        for name, (value, since) in our_taints(snapshot).items()
        if value in CORDONS and cordoned[index[name]]
    }


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
