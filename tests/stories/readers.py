"""Nodes that are emptied, as the lab saw it: cordons and pods at every moment, and services on their way from node to
node. Nothing here asks the program what it did."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.lab import Lab, Scenario
from rebalancer.lab.log import Entry
from rebalancer.lab.objects.store import Change
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.policy import RebalancerPolicy
from tests.stories.scenarios.stage import Moved, Stage, moves, stories_policy

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint that comes and goes with a cordon."""

GENEROUS: dict[str, Any] = {
    "perCycle": 100,
    "cluster": {"inFlight": 100},
    "node": {"evictions": [{"max": 100, "per": "10m"}]},
    "service": {"inFlight": 1},
    "replacements": {"perNode": 20},
}
"""Limits that leave it to budgets, services and waves how fast it goes."""


# ---- a run that looks ahead


@dataclass(slots=True, kw_only=True)
class ForeseeingStage(Stage):
    """A stage whose cycles know the forecast, as a daemon's do."""

    lookout: ForecastLoop

    def cycle(self) -> CycleReport:
        """What a worker does: a look ahead when it is time for one, then a cycle of everything."""
        request = CycleRequest(trigger=Trigger.PERIODIC)
        if self.policy.forecast.mode != "Off" and self.lab.clock.now() >= self.lookout.next_at():
            ahead = self.lookout.look(self.world.cluster.snapshot()).request()
            request = request if ahead is None else request.merged(ahead)
        report = run_cycle(self.world, self.policy, request=request, dry_run=False).report
        assert report.stopped is None, report.stopped
        self.reports.append(report)
        return report


@contextmanager
def a_foreseeing_stage(cluster: Scenario, folder: Path, *, start: float, **sections: Any) -> Iterator[ForeseeingStage]:
    """A run against this cluster from `start` on, with a real history read over HTTP."""
    folder.mkdir(exist_ok=True)
    with Lab.start(cluster, stepped=True, start_time=start) as lab:
        policy = RebalancerPolicy.model_validate(stories_policy(lab, **sections))
        settings = Settings(
            database=f"sqlite:///{folder / 'rebalancer.db'}",
            history_dir=str(folder / "history"),
            kubeconfig=str(lab.write_kubeconfig(folder / "config")),
        )
        with (
            acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world,
            history_keepers(policy, settings, progress=NullProgress(), clock=lab.clock) as keepers,
        ):
            lookout = ForecastLoop(policy=policy, keepers=keepers, clock=lab.clock, ledger=world.ledger)
            knowing = replace(
                world,
                peaks=lookout.peaks,
                service_day_profiles=lookout.service_day_profiles,
                memory_leaks=lookout.memory_leaks,
            )
            yield ForeseeingStage(lab=lab, policy=policy, settings=settings, world=knowing, lookout=lookout)


# ---- the lab now


def cordoned(lab: Lab) -> set[str]:
    """Nodes that are cordoned, by whomever."""
    with lab.cluster.lock:
        return {each["metadata"]["name"] for each in lab.cluster.nodes() if each["spec"].get("unschedulable")}


def pods_by_node(lab: Lab) -> dict[str, set[str]]:
    """Node -> uids of the pods that are on it."""
    with lab.cluster.lock:
        found: dict[str, set[str]] = {each["metadata"]["name"]: set() for each in lab.cluster.nodes()}
        for pod in lab.cluster.store.sorted("pods"):
            if pod["spec"].get("nodeName"):
                found[pod["spec"]["nodeName"]].add(pod["metadata"]["uid"])
    return found


def empty_nodes(lab: Lab) -> set[str]:
    """Nodes without any pod."""
    return {name for name, uids in pods_by_node(lab).items() if not uids}


def annotate(lab: Lab, plural: str, name: str, key: str, value: str | None, *, namespace: str = "") -> None:
    """As `kubectl annotate`; None takes it off."""

    def apply(new: dict[str, Any]) -> None:
        have = {**(new["metadata"].get("annotations") or {}), key: value}
        new["metadata"]["annotations"] = {each: said for each, said in have.items() if said is not None}

    with lab.cluster.lock:
        lab.cluster.store.change(plural, lab.cluster.store.get(plural, namespace, name), apply)


# ---- what the log says


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """For how long a node was cordoned."""

    node: str
    start: float
    end: float | None
    """None while it is, or when the node was removed."""


def cordons(log: Iterable[Entry]) -> list[Cordon]:
    """Every time that a node was cordoned after the lab's start, by whomever."""
    begun: dict[str, Entry] = {}
    found = []
    for each in log:
        if each.key != UNSCHEDULABLE:
            continue
        if each.event == "tainted":
            begun[each.node] = each
        elif each.node in begun:
            found.append(Cordon(node=each.node, start=begun.pop(each.node).at, end=each.at))
    found += [Cordon(node=each.node, start=each.at, end=None) for each in begun.values()]
    return sorted(found, key=lambda each: (each.start, each.node))


def chains(log: Iterable[Entry]) -> list[list[Moved]]:
    """The moves of each replica one after the other: the pod, what came in its place, what came in the place of
    that."""
    moved = moves(log)
    after = {each.uid: each for each in moved}
    firsts = [each for each in moved if each.uid not in {one.new_uid for one in moved}]
    found = []
    for first in firsts:
        chain = [first]
        while chain[-1].new_uid in after:
            chain.append(after[chain[-1].new_uid])
        found.append(chain)
    return found


def moved_once(log: Iterable[Entry]) -> bool:
    """Whether nothing that came in a moved pod's place was moved again, and nothing came back to where it left."""
    return all(len(chain) == 1 and chain[0].target not in ("", chain[0].source) for chain in chains(log))


# ---- at every moment


@dataclass(slots=True, kw_only=True)
class Watch:
    """Sees every single change of the lab, inside its lock, and keeps the worst of what must never be."""

    least_ready: Mapping[str, int]
    """Service -> so many of its pods its budget wants ready."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """Node that may be emptied -> its wave."""
    broken: list[tuple[float, str, int]] = field(default_factory=list)
    """(when, service, pods ready) of each moment with too few."""
    waves: set[frozenset[str]] = field(default_factory=set)
    """Which waves had nodes in work (cordoned and not empty) at the same moment."""
    most_in_work: int = 0
    """Nodes cordoned and not empty, at any moment."""
    _ready: dict[str, set[str]] = field(default_factory=dict)
    _on: dict[str, set[str]] = field(default_factory=dict)
    _cordoned: set[str] = field(default_factory=set)

    def begin(self, lab: Lab) -> "Watch":
        """From now on."""
        with lab.cluster.lock:
            for pod in lab.cluster.store.sorted("pods"):
                self._take_in(pod, gone=False)
            lab.cluster.store.subscribe(lambda change: self._see(change, lab.clock.now()))
        return self

    def _see(self, change: Change, now: float) -> None:
        if change.plural == "pods":
            self._take_in(change.object, gone=change.type == "DELETED")
            name = _service(change.object)
            count = len(self._ready.get(name, ()))
            if count < self.least_ready.get(name, 0):
                self.broken.append((now, name, count))
        elif change.plural == "nodes":
            name = change.object["metadata"]["name"]
            there = change.type != "DELETED" and change.object["spec"].get("unschedulable")
            (self._cordoned.add if there else self._cordoned.discard)(name)
        else:
            return
        in_work = [name for name in self._cordoned if self._on.get(name) and name in self.group_of]
        self.most_in_work = max(self.most_in_work, len(in_work))
        self.waves.add(frozenset(self.group_of[name] for name in in_work))

    def _take_in(self, pod: dict[str, Any], *, gone: bool) -> None:
        uid, status = pod["metadata"]["uid"], pod.get("status") or {}
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
        serves = is_ready and not gone and not pod["metadata"].get("deletionTimestamp")
        ready = self._ready.setdefault(_service(pod), set())
        (ready.add if serves else ready.discard)(uid)
        if node := pod["spec"].get("nodeName"):
            on = self._on.setdefault(node, set())
            (on.discard if gone else on.add)(uid)


def _service(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name", ""))
