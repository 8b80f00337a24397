"""The practice cluster: the store, and the parts of a control plane that act on it."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import msgspec
import numpy as np

from rebalancer.lab.clock import LabClock, timestamp
from rebalancer.lab.controlplane.autoscaler import Autoscaler
from rebalancer.lab.controlplane.controllers import Controllers
from rebalancer.lab.controlplane.cron_jobs import CronJobs
from rebalancer.lab.controlplane.horizontal import HorizontalAutoscaler
from rebalancer.lab.controlplane.kubelet import Kubelet
from rebalancer.lab.controlplane.node_drains import NodeDrains
from rebalancer.lab.controlplane.resizing import resize
from rebalancer.lab.controlplane.scheduler import Scheduler
from rebalancer.lab.controlplane.workloads import Workloads
from rebalancer.lab.controlplane.zones import set_zone
from rebalancer.lab.loads.cpu import Breaks
from rebalancer.lab.loads.history import History
from rebalancer.lab.loads.usage import UsageModel
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import has_wasted_room, update_statuses
from rebalancer.lab.objects.errors import conflict
from rebalancer.lab.objects.kinds import Obj, by_plural
from rebalancer.lab.objects.object_history import ObjectHistory
from rebalancer.lab.objects.store import Change, Store
from rebalancer.lab.objects.taints import changed, check_taints, set_cordon, set_taints
from rebalancer.lab.scenarios import build, steps
from rebalancer.lab.scenarios.scenario import Scenario
from rebalancer.lab.scenarios.specs import NodeSpec, WorkloadSpec
from rebalancer.lab.scenarios.steps import Step

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_MOST_ROUNDS = 100
_QUIET = ("events", "leases", "horizontalpodautoscalers")
"""Kinds whose writes call for no round of controllers and scheduler."""


class Timed(Protocol):
    """A part of the control plane that acts at times of its own."""

    def next_due(self) -> float | None:
        """Lab time of its next action, None when it has none."""
        ...

    def run(self, now: float) -> None:
        """Do what is due. The caller holds the lock."""
        ...


class Cluster:
    """Objects, controllers, scheduler and kubelets of one lab.

    `step` brings everything up to the clock; the simulation's thread calls it, and so may a test without a server.
    Reading and writing through these methods is safe from any thread.
    """

    def __init__(self, *, scenario: Scenario, clock: LabClock, seed: int) -> None:
        self.clock = clock
        self.scenario = scenario
        self.store = Store(clock=clock, seed=seed)
        self.lock = self.store.lock
        self.log = EventLog()
        self.objects = ObjectHistory(clock=clock)
        self.origin = 0.0 if scenario.anchor_hour is None else clock.started_at - scenario.anchor_hour * 3600.0
        self.history = History(clock=clock, seed=seed, origin=self.origin)
        """Midnight of the CPU curves' day zero, seconds since the epoch."""
        self.usage = UsageModel(history=self.history, window_seconds=scenario.rate_window_seconds)
        self._kubelet = Kubelet(
            store=self.store,
            log=self.log,
            start_seconds=scenario.start_seconds,
            stop_seconds=scenario.stop_seconds,
            pull_bytes_per_second=scenario.pull_bytes_per_second,
        )
        self._workloads = Workloads(self.store, self._kubelet)
        self._controllers = Controllers(store=self.store, log=self.log)
        self._scheduler = Scheduler(store=self.store, log=self.log, seed=seed, differs=scenario.scheduler == "differs")
        self._steps = sorted(scenario.steps, key=lambda step: step.at_seconds)
        self._drains = NodeDrains(store=self.store, log=self.log)
        scaler = HorizontalAutoscaler(store=self.store, log=self.log, cores=self._pod_cores)
        self._timed: list[Timed] = [self._drains, CronJobs(store=self.store, log=self.log), scaler]
        empty_after = scenario.remove_empty_after_seconds
        if empty_after is not None:
            self._timed.append(Autoscaler(store=self.store, log=self.log, after_seconds=empty_after))
        self._addresses = 0
        self._changed = threading.Event()
        self._unseen = True
        """Something was written since the last round of controllers and scheduler."""
        self._writer = ""
        self.store.subscribe(self._observe)
        with self.lock:
            self._lay_out(scenario)
            self.history.preparing = self.objects.preparing = False

    def _observe(self, change: Change) -> None:
        self.history.observe(change)
        self.objects.observe(change)
        self._controllers.observe(change)
        self._kubelet.observe(change)
        self._scheduler.observe(change)
        if change.plural == "nodes" and change.before is not None and change.type == "MODIFIED":
            self._note_taints(change.before, change.object)
        if change.plural not in _QUIET:
            self._unseen = True
            self._changed.set()

    def _note_taints(self, before: Obj, after: Obj) -> None:
        gone, new = changed(before, after)
        for event, taints in (("untainted", gone), ("tainted", new)):
            for taint in taints:
                self.log.add(
                    Entry(
                        event=event,
                        at=self.clock.now(),
                        node=after["metadata"]["name"],
                        user_agent=self._writer,
                        key=taint["key"],
                        value=taint.get("value", ""),
                        effect=taint.get("effect", ""),
                    )
                )

    @contextmanager
    def written_by(self, user_agent: str) -> Iterator[None]:
        """Hold the lock; what is written meanwhile is logged with this User-Agent."""
        with self.lock:
            self._writer = user_agent
            try:
                yield
            finally:
                self._writer = ""

    def _lay_out(self, scenario: Scenario) -> None:
        for name in _SYSTEM_NAMESPACES:
            self._workloads.ensure_namespace(name)
        for name, value in {**SYSTEM_PRIORITIES, **scenario.priority_classes}.items():
            self.store.create("priorityclasses", {"metadata": {"name": name}, "value": value, "globalDefault": False})
        for node in scenario.nodes:
            self._add_node(node)
        for workload in scenario.workloads:
            self._workloads.add(workload)
        self._round(self.clock.now())

    # -- the simulation ---------------------------------------------------------------------------------------------

    def step(self) -> float | None:
        """Do what is due and what follows from it. Lab time of the next step that is known, None when idle."""
        with self.lock:
            self._round(self.clock.now())
            self._changed.clear()  # every writer needs the lock, so no change is missed
            return self._next_due()

    def _next_due(self) -> float | None:
        due = [self._kubelet.next_due(), *(self.clock.started_at + step.at_seconds for step in self._steps[:1])]
        due += [each.next_due() for each in self._timed]
        return min((each for each in due if each is not None), default=None)

    def _round(self, now: float) -> None:
        while self._steps and self.clock.started_at + self._steps[0].at_seconds <= now:
            self._apply(self._steps.pop(0))
        self._settle(now)
        for each in self._timed:
            each.run(now)
            self._settle(now)

    def _apply(self, step: Step) -> None:
        if isinstance(step, steps.WorkloadStep):
            self._apply_to_workload(step)
        else:
            self._apply_to_nodes(step)

    def _apply_to_nodes(self, step: steps.NodeStep) -> None:
        match step:
            case steps.Cordon() | steps.Uncordon():
                self.cordon(step.node, on=isinstance(step, steps.Cordon))
            case steps.Taint():
                self.taint(step.node, step.key, value=step.value, effect=step.effect)
            case steps.Untaint():
                self.untaint(step.node, step.key)
            case steps.LabelNode():
                self.label_node(step.node, step.labels)
            case steps.AddNode():
                self.add_node(step.node)
            case steps.RemoveNode():
                self.remove_node(step.node)
            case steps.DrainNode():
                self.drain_node(step.node, within_seconds=step.within_seconds)
            case steps.FailZone() | steps.RestoreZone():
                self.set_zone(step.zone, up=isinstance(step, steps.RestoreZone))

    def _apply_to_workload(self, step: steps.WorkloadStep) -> None:
        match step:
            case steps.LabelPods():
                for pod in self.pods(namespace=step.namespace, workload=step.workload):
                    self.label_pod(step.namespace, pod["metadata"]["name"], step.labels)
            case steps.EndContainers():
                for pod in self.pods(namespace=step.namespace, workload=step.workload, node=step.node):
                    if pod["status"]["phase"] == "Running":
                        self.end_containers(step.namespace, pod["metadata"]["name"], step.how)
            case steps.RollOut():
                plural = "deployments" if step.kind == "Deployment" else "statefulsets"
                self.roll_out(step.namespace, step.workload, plural=plural, image=step.image)
            case steps.Resize():
                self.resize(step.namespace, step.workload, step.requests)
            case steps.AddWorkload():
                self.add_workload(step.workload)

    def _settle(self, now: float) -> None:
        for _ in range(_MOST_ROUNDS):
            self._kubelet.run(now)
            if not self._unseen:
                break
            self._unseen = False
            self._controllers.run()
            self._scheduler.run()
            update_statuses(self.store)
        if has_wasted_room(self.store):
            update_statuses(self.store)

    def wait_for_change(self, seconds: float) -> None:
        """Return when something was written, or after `seconds` of real time."""
        self._changed.wait(seconds)

    def wake(self) -> None:
        """End a `wait_for_change`."""
        self._changed.set()

    def wait_until(self, predicate: Callable[[], bool], *, seconds: float = 10.0, what: str = "condition") -> None:
        """Poll until `predicate` is true. Raises TimeoutError after `seconds` of real time."""
        deadline = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the lab: {what} not true after {seconds} s")
            time.sleep(0.01)

    # -- building ---------------------------------------------------------------------------------------------------

    def add_node(self, spec: NodeSpec) -> Obj:
        """Add a machine, created now."""
        with self.lock:
            return self._add_node(msgspec.structs.replace(spec, age_seconds=0.0))

    def _add_node(self, spec: NodeSpec) -> Obj:
        self._addresses += 1
        address = f"10.0.{self._addresses // 250}.{self._addresses % 250 + 1}"
        return self.store.create("nodes", build.node_object(spec, now=self.clock.now(), address=address))

    def cordon(self, name: str, *, on: bool = True) -> None:
        """Set `spec.unschedulable`, and the taint that the node controller sets with it."""
        self._change("nodes", "", name, lambda new: set_cordon(new, on=on, now=self.clock.now()))

    def taint(self, name: str, key: str, *, value: str = "", effect: str = "NoSchedule") -> None:
        """Give a node a taint, as an autoscaler or an administrator would. Raises ApiError 404, 422."""

        def apply(new: Obj) -> None:
            kept = [each for each in new["spec"].get("taints") or () if (each["key"], each["effect"]) != (key, effect)]
            set_taints(new, [*kept, {"key": key, "effect": effect, **({"value": value} if value else {})}])
            check_taints(new)

        self._change("nodes", "", name, apply)

    def untaint(self, name: str, key: str) -> None:
        """Take a taint off a node, with every effect. Raises ApiError 404."""

        def apply(new: Obj) -> None:
            set_taints(new, [each for each in new["spec"].get("taints") or () if each["key"] != key])

        self._change("nodes", "", name, apply)

    def label_node(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Set a node's labels; None takes one off. Pods that run there stay. Raises ApiError 404."""
        self._change("nodes", "", name, lambda new: _set_labels(new, labels))

    def label_pod(self, namespace: str, name: str, labels: Mapping[str, str | None]) -> None:
        """Set a pod's labels; required anti-affinity of other pods may conflict with it from now on. Raises ApiError
        404."""
        self._change("pods", namespace, name, lambda new: _set_labels(new, labels))

    def _change(self, plural: str, namespace: str, name: str, apply: Callable[[Obj], None]) -> None:
        with self.lock:
            self.store.change(plural, self.store.get(plural, namespace, name), apply)

    def remove_node(self, name: str) -> None:
        """A machine that is switched off; its pods go with it. Raises ApiError 404."""
        with self.lock:
            self.store.remove("nodes", "", name)

    def drain_node(self, name: str, *, within_seconds: float = 900.0) -> None:
        """Evict its pods as their PDBs allow, then remove the node, at the latest `within_seconds` from now. Raises
        ApiError 404."""
        with self.lock:
            self._drains.begin(name, within_seconds=within_seconds)

    def set_zone(self, zone: str, *, up: bool) -> None:
        """Fail or restore all nodes of a zone."""
        with self.lock:
            set_zone(self.store, zone, up=up)

    def resize(self, namespace: str, name: str, requests: Mapping[str, str]) -> None:
        """Give a Deployment's pods other requests, as a VerticalPodAutoscaler does. Raises ApiError 404."""
        with self.lock:
            resize(self.store, namespace, name, dict(requests))

    def end_containers(self, namespace: str, name: str, how: Breaks | None = None) -> None:
        """A running pod's containers end now: they wait in CrashLoopBackOff, or (`restarts=False`) the pod has failed.

        Raises ApiError 404, and 409 where it doesn't run.
        """
        with self.lock:
            pod = self.store.get("pods", namespace, name)
            if pod["status"]["phase"] != "Running":
                raise conflict(by_plural("pods"), name, f"it is {pod['status']['phase']}, not Running")
            self._kubelet.end_containers(pod, how or Breaks(after_seconds=0.0), self.clock.now())

    def roll_out(self, namespace: str, name: str, *, plural: str = "statefulsets", image: str = "") -> None:
        """Change a workload's template, as `kubectl rollout restart` does, to another image where one is given.

        Raises ApiError 404.
        """
        with self.lock:
            owner = self.store.get(plural, namespace, name)
            template = owner["spec"]["template"]
            annotations = {**(template["metadata"].get("annotations") or {})}
            annotations["kubectl.kubernetes.io/restartedAt"] = timestamp(self.clock.now())
            containers = [dict(each) for each in template["spec"]["containers"]]
            if image:
                containers[0]["image"] = image
            new = {
                "metadata": {**template["metadata"], "annotations": annotations},
                "spec": {**template["spec"], "containers": containers},
            }
            self.store.update(plural, {**owner, "spec": {**owner["spec"], "template": new}})

    def add_workload(self, spec: WorkloadSpec) -> None:
        """Add a workload. Pods of its `place` run at once; the others are for controllers and scheduler."""
        with self.lock:
            self._workloads.add(spec)

    # -- reading ----------------------------------------------------------------------------------------------------

    def pods(self, *, namespace: str = "", node: str = "", workload: str = "") -> list[Obj]:
        """Pods, by (namespace, name); `workload` is the name that the short form gave."""
        return [
            pod
            for pod in self.store.sorted("pods")
            if (not namespace or pod["metadata"]["namespace"] == namespace)
            and (not node or pod["spec"].get("nodeName") == node)
            and (not workload or (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == workload)
        ]

    def nodes(self) -> list[Obj]:
        """Nodes, by name."""
        return self.store.sorted("nodes")

    def _pod_cores(self) -> dict[str, float]:
        """CPU of each pod now, by its uid."""
        figures = self.usage.at(np.array([self.clock.now()]))
        stays = figures.columns.stays
        return {stays[row].uid: float(figures.pods[at, 0]) for at, row in enumerate(figures.rows.tolist())}

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Holds the lock, so that nothing changes."""
        with self.lock:
            yield


def _set_labels(obj: Obj, labels: Mapping[str, str | None]) -> None:
    have = {**(obj["metadata"].get("labels") or {}), **labels}
    obj["metadata"]["labels"] = {key: value for key, value in have.items() if value is not None}
