"""The lab's scheduler: the queue, the sample, the choice among equals and the binding of kube-scheduler, around the
shared model of its filters and scores.

A scenario's `scheduler: differs` makes it another one on purpose, so that predictions fail: it packs nodes instead of
spreading (MostAllocated, no PodTopologySpread, InterPodAffinity or BalancedAllocation, image locality five times as
heavy), looks at FEW_NODES nodes for each pod, and scores what it saw up to LAG_SECONDS ago. Not modelled in either:
preemption, and the back-off of pods that found no node (they are tried again when anything changes).
"""

import random
from collections.abc import Sequence

import numpy as np

from rebalancer.lab.controlplane.sampling import Sampler, visiting_order
from rebalancer.lab.controlplane.snapshot_view import SchedulerView
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Change, Store
from rebalancer.lab.scenarios.build import condition
from rebalancer.model.cluster.scheduler import DEFAULT_SCHEDULER, SchedulerConfig, SchedulerProfile
from rebalancer.model.notation.arrays import Bools
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Kind
from rebalancer.placement.scheduler.engine import Engine

FEW_NODES = 4
LAG_SECONDS = 30.0
_OTHER_PROFILE = SchedulerProfile(
    weights={"TaintToleration": 1, "NodeAffinity": 1, "NodeResourcesFit": 1, "ImageLocality": 5},
    fit_strategy="MostAllocated",
)


class _Sight:
    """The model over what the scheduler saw at one moment."""

    def __init__(
        self, view: SchedulerView, config: SchedulerConfig, store: Store, *, nodes: Sequence[Obj], pods: Sequence[Obj]
    ) -> None:
        snapshot = view.snapshot(nodes=nodes, pods=pods, others=store.sorted, now=store.clock.now())
        self.names = snapshot.nodes.names
        self.order = visiting_order(snapshot.nodes.labels)
        self.nominated = snapshot.pods.nominated
        self._index = {uid: index for index, uid in enumerate(snapshot.pods.uids)}
        self._board = Board(snapshot)
        self.engine = Engine(self._board, config)

    def index(self, pod: Obj) -> int:
        return self._index[pod["metadata"]["uid"]]

    def kind(self, pod: Obj) -> Kind:
        return self._board.kinds.of(self.index(pod))

    def bind(self, pod: Obj, node: int) -> None:
        self._board.put(self.kind(pod), np.array([node]), np.ones(1))


class Scheduler:
    """Binds pending pods, one after the other."""

    def __init__(self, *, store: Store, log: EventLog, seed: int, differs: bool = False) -> None:
        self._store = store
        self._log = log
        self._random = random.Random(seed)
        self._config = SchedulerConfig(profiles={DEFAULT_SCHEDULER: _OTHER_PROFILE}) if differs else SchedulerConfig()
        self._sampler = Sampler(FEW_NODES if differs else None)
        self._view = SchedulerView()
        self._lag = _Lag(store, LAG_SECONDS) if differs else None
        self._waiting: dict[tuple[str, str], None] = {}
        """(namespace, name) of the pods without a node, in the order of their coming."""

    def observe(self, change: Change) -> None:
        """The store's listener: who waits."""
        if change.plural != "pods":
            return
        pod = change.object
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if change.type == "DELETED" or pod["spec"].get("nodeName") or is_terminating(pod):
            self._waiting.pop(key, None)
        else:
            self._waiting.setdefault(key)

    def run(self) -> None:
        """Try every pod that waits. The caller holds the lock."""
        found = [self._store.get("pods", *key) for key in self._waiting]
        waiting = [pod for pod in found if self._is_ours(pod)]
        if not waiting:
            return
        nodes, pods = self._store.sorted("nodes"), self._store.sorted("pods")
        now = _Sight(self._view, self._config, self._store, nodes=nodes, pods=pods)
        seen = now if self._lag is None else self._lag.sight(self._config, nodes=nodes, pods=pods, waiting=waiting)
        waiting.sort(key=lambda pod: (-pod["spec"].get("priority", 0), pod["metadata"]["creationTimestamp"]))
        for pod in waiting:
            self._place(now, seen, pod)

    def _is_ours(self, pod: Obj) -> bool:
        spec = pod["spec"]
        return spec.get("schedulerName", DEFAULT_SCHEDULER) in self._config.profiles and not spec.get("schedulingGates")

    def _place(self, now: _Sight, seen: _Sight, pod: Obj) -> None:
        feasible = now.engine.feasible(now.kind(pod))
        if not feasible.any():
            self._refuse(pod, now)
            return
        name = self._choose(now, seen, pod, feasible)
        for sight in {id(each): each for each in (now, seen)}.values():
            if name in sight.names:
                sight.bind(pod, sight.names.index(name))
        at = self._store.clock.now()

        def bind(new: Obj) -> None:
            new["spec"]["nodeName"] = name
            new["status"]["conditions"] = [condition("PodScheduled", True, at)]

        bound = self._store.change("pods", pod, bind)
        if self._lag is not None:
            self._lag.assume(bound)
        meta = pod["metadata"]
        self._log.add(
            Entry(event="bound", at=at, namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], node=name)
        )

    def _choose(self, now: _Sight, seen: _Sight, pod: Obj, feasible: Bools) -> str:
        """The name of the node to bind to; at least one is feasible."""
        nominated = int(now.nominated[now.index(pod)])
        if nominated >= 0 and feasible[nominated]:
            return now.names[nominated]
        if seen is not now:
            # An old view misleads in what it prefers; where the pod doesn't fit now, the kubelet would turn it away.
            free = {now.names[row] for row in np.flatnonzero(feasible)}
            fits = np.array([name in free for name in seen.names], dtype=np.bool_)
            both = seen.engine.feasible(seen.kind(pod)) & fits
            seen, feasible = (seen, both) if both.any() else (now, feasible)
        rows = self._sampler.sample(feasible, seen.order)
        scores = seen.engine.scores(seen.kind(pod))[rows]
        best = rows[np.flatnonzero(scores == scores.max())]
        return seen.names[int(self._random.choice(sorted(best.tolist())))]

    def _refuse(self, pod: Obj, now: _Sight) -> None:
        counts: dict[str, int] = {}
        for refused_by in now.engine.verdict(now.kind(pod)).filtered:
            plugin, words = refused_by or ("", "")
            # this one filter tells everything that a node lacks
            for reason in words.split(", ") if plugin == "NodeResourcesFit" else [words]:
                counts[reason] = counts.get(reason, 0) + 1
        why = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        message = f"0/{len(now.names)} nodes are available: {why}." if why else "no nodes available to schedule pods"
        have = pod["status"].get("conditions") or []
        if any(each.get("message") == message for each in have):
            return
        refused = condition("PodScheduled", False, self._store.clock.now(), reason="Unschedulable", message=message)
        self._store.change("pods", pod, lambda new: new["status"].update(conditions=[refused]))


class _Lag:
    """What the scheduler saw when it last looked, and what it has bound since."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._view = SchedulerView()
        self._looked = -np.inf
        self._nodes: list[Obj] = []
        self._pods: dict[str, Obj] = {}

    def sight(self, config: SchedulerConfig, *, nodes: list[Obj], pods: list[Obj], waiting: Sequence[Obj]) -> _Sight:
        """The model over the old view; `waiting` pods are in it as they are now."""
        now = self._store.clock.now()
        if now - self._looked >= self._seconds:
            self._looked, self._nodes = now, nodes
            self._pods = {pod["metadata"]["uid"]: pod for pod in pods}
        known = {**self._pods, **{pod["metadata"]["uid"]: pod for pod in waiting}}
        return _Sight(self._view, config, self._store, nodes=self._nodes, pods=list(known.values()))

    def assume(self, pod: Obj) -> None:
        """Its own bindings it knows at once."""
        self._pods[pod["metadata"]["uid"]] = pod
