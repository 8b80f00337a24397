"""A simple cluster-autoscaler: a node that stays empty is removed.

Empty is a node with nothing but pods of DaemonSets, mirror pods and finished pods, as the real one counts it. It never
adds a node, never drains one, and leaves nodes alone that say `scale-down-disabled`.
"""

from rebalancer.lab.controlplane.owned import controller_of
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import is_finished
from rebalancer.lab.objects.store import Store

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


class Autoscaler:
    """Tracks since when nodes are empty."""

    def __init__(self, *, store: Store, log: EventLog, after_seconds: float) -> None:
        self._store = store
        self._log = log
        self._after_seconds = after_seconds
        self._empty_since: dict[str, float] = {}

    def next_due(self) -> float | None:
        """Lab time of the next removal, None when no node is empty."""
        return min((since + self._after_seconds for since in self._empty_since.values()), default=None)

    def run(self, now: float) -> None:
        """Check all nodes, and remove those that have been empty for long enough. The caller holds the lock."""
        inhabited = {
            pod["spec"].get("nodeName")
            for pod in self._store.all("pods")
            if not is_finished(pod) and (controller_of(pod) or {}).get("kind") not in ("DaemonSet", "Node")
        }
        empty = [
            node["metadata"]["name"]
            for node in self._store.sorted("nodes")
            if node["metadata"]["name"] not in inhabited
            and (node["metadata"].get("annotations") or {}).get(DISABLED) != "true"
        ]
        self._empty_since = {name: self._empty_since.get(name, now) for name in empty}
        for name, since in list(self._empty_since.items()):
            if now - since >= self._after_seconds:
                del self._empty_since[name]
                self._store.remove("nodes", "", name)
                self._log.add(Entry(event="removed", at=now, node=name))
