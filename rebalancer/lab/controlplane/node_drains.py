"""Drains of nodes that are to be replaced, as by `kubectl drain` or an autoscaler: evictions that respect PDBs, asked
for again until the node is empty or the time is over; then the node is removed.
"""

from dataclasses import dataclass

from rebalancer.lab.controlplane.owned import controller_of, terminate
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import check_eviction, is_finished, is_terminating, update_statuses
from rebalancer.lab.objects.errors import ApiError
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.objects.taints import set_cordon, set_taints

RETRY_SECONDS = 30.0
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"


@dataclass(slots=True, kw_only=True)
class _Drain:
    next_at: float
    give_up_at: float


class NodeDrains:
    """All drains that go on."""

    def __init__(self, *, store: Store, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._drains: dict[str, _Drain] = {}
        """Node -> its drain."""

    def begin(self, name: str, *, within_seconds: float) -> None:
        """Cordon and taint the node, and drain it from now on. Raises ApiError 404. The caller holds the lock."""

        def apply(new: Obj) -> None:
            set_cordon(new, on=True, now=self._store.clock.now())
            set_taints(new, [*new["spec"]["taints"], {"key": TO_BE_DELETED, "effect": "NoSchedule"}])

        self._store.change("nodes", self._store.get("nodes", "", name), apply)
        now = self._store.clock.now()
        self._drains[name] = _Drain(next_at=now, give_up_at=now + within_seconds)

    def next_due(self) -> float | None:
        """Lab time of the next attempt, None without drains."""
        return min((each.next_at for each in self._drains.values()), default=None)

    def run(self, now: float) -> None:
        """Make the attempts that are due. The caller holds the lock."""
        for name, drain in sorted(self._drains.items()):
            if drain.next_at > now:
                continue
            drain.next_at = now + RETRY_SECONDS
            pods = self._pods_on(name)
            if self._store.find("nodes", "", name) is None:
                del self._drains[name]
            elif not pods or now >= drain.give_up_at:
                del self._drains[name]
                self._store.remove("nodes", "", name)
                self._log.add(Entry(event="removed", at=now, node=name, detail=f"{len(pods)} pods left"))
            else:
                for pod in pods:
                    self._evict(pod)

    def _pods_on(self, name: str) -> list[Obj]:
        return [
            pod
            for pod in self._store.sorted("pods")
            if pod["spec"].get("nodeName") == name
            and not is_finished(pod)
            and (controller_of(pod) or {}).get("kind") not in ("DaemonSet", "Node")
        ]

    def _evict(self, pod: Obj) -> None:
        if is_terminating(pod):
            return
        try:
            check_eviction(self._store, pod, uid=None, dry_run=False)
        except ApiError:
            return  # asked for again
        terminate(self._store, self._log, pod)
        update_statuses(self._store)
