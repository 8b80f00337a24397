"""Our taints on nodes: soft taints and the taints of our cordons.

A process that may evict first removes the taints that no cycle needs any more: those of an earlier process, of nodes
that have cooled, and expired ones. `SoftTaintController.clear` is called on every way out of a run. A cordon for
maintenance outlives the process: it is lifted when the policy no longer chooses the node.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import CORDONS, MAINTENANCE, SOFT_TAINT
from rebalancer.model.decisions.ports import NodeTaints

HALF = ""
"""Value of `SoftTaintController.held` for a node with the taint of our cordon that was uncordoned by hand."""


@dataclass(slots=True, kw_only=True)
class SoftTaintController:
    """The known state of our taints and cordons. Thread-safe."""

    taints: NodeTaints
    """Patches nodes."""
    remove_only: bool = False
    """Taints that would have to be removed later are not applied; those of earlier processes are removed."""
    may: Callable[[], bool] = lambda: True
    """Called before each taint: whether this process still leads and isn't stopping."""
    held: dict[str, str] = field(default_factory=dict)
    """Node -> value of the taint on it, as far as known."""
    uncertain: set[str] = field(default_factory=set)
    """Nodes whose taint is unknown: the last patch failed, or its answer was lost."""
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _closed: bool = False

    def granted(self) -> bool:
        """Whether nodes may be patched. Raises ConnectError."""
        return self.taints.granted()

    def see(self, snapshot: ClusterSnapshot) -> None:
        """Take over the taints in the snapshot, those of earlier processes too."""
        with self._lock:
            cordons = our_cordons(snapshot)
            self.held = {
                name: HALF if value in CORDONS and name not in cordons else value
                for name, (value, _) in our_taints(snapshot.nodes).items()
            }
            self.uncertain = set()

    def hold(self, desired: Mapping[str, str]) -> set[str]:
        """Taint exactly these nodes (name -> value); a value of CORDONS cordons them too. Returns the names of the
        nodes that have it now."""
        for node in sorted(self.held.keys() - desired.keys()):
            self._take(node)
        sure = {node for node, value in desired.items() if self.held.get(node) == value}
        for node in sorted(desired.keys() - sure):
            with self._lock:
                if self._closed or not self.may():
                    break
                # also where the patch seems to fail: its answer may be lost, and the taint must be removed at the end
                self.held[node] = desired[node]
                if self.taints.put(node, value=desired[node]):
                    sure.add(node)
                else:
                    self.uncertain.add(node)
        return sure

    def clear(self, *, seconds: float = float("inf")) -> None:
        """Remove all taints but those of maintenance, and apply none any more. What isn't removed after `seconds` is
        left to the next leader."""
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


def our_taints(nodes: Nodes) -> dict[str, tuple[str, float]]:
    """Node -> value of our taint and when it was applied (seconds since the epoch; 0 where unknown)."""
    return {
        name: (taint.value, taint.added if taint.added > 0 else 0.0)
        for name, taints in zip(nodes.names, nodes.taints, strict=True)
        for taint in taints
        if taint.key == SOFT_TAINT and taint.effect == "PreferNoSchedule"
    }


def our_cordons(snapshot: ClusterSnapshot) -> dict[str, tuple[str, float]]:
    """The same for the nodes that we cordoned: unschedulable, with a taint of ours whose value is one of CORDONS."""
    cordoned, index = snapshot.nodes.unschedulable, snapshot.node_index
    return {
        name: (value, since)
        for name, (value, since) in our_taints(snapshot.nodes).items()
        if value in CORDONS and cordoned[index[name]]
    }
