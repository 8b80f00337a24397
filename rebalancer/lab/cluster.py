"""The practice cluster: the store, and the parts of a control plane that act on it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rebalancer.lab import build
from rebalancer.lab.clock import LabClock, timestamp
from rebalancer.lab.controllers import Controllers, daemon_affinity, daemon_runs_on, replica_set_of
from rebalancer.lab.disruption import update_statuses
from rebalancer.lab.history import History
from rebalancer.lab.kubelet import Kubelet
from rebalancer.lab.log import EventLog
from rebalancer.lab.scenario import NodeSpec, Scenario, WorkloadSpec
from rebalancer.lab.scheduler import Scheduler
from rebalancer.lab.store import Change, Store

Obj = dict[str, Any]

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_MOST_ROUNDS = 100


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
        self.history = History(clock=clock, seed=seed)
        self._kubelet = Kubelet(
            store=self.store, log=self.log, start_seconds=scenario.start_seconds, stop_seconds=scenario.stop_seconds
        )
        self._controllers = Controllers(store=self.store, log=self.log)
        self._scheduler = Scheduler(store=self.store, log=self.log, seed=seed)
        self._addresses = 0
        self._changed = threading.Event()
        self.store.subscribe(self._observe)
        with self.lock:
            self._lay_out(scenario)
            self.history.preparing = False

    def _observe(self, change: Change) -> None:
        self.history.observe(change)
        self._controllers.observe(change)
        if change.plural not in ("events", "leases"):
            self._changed.set()

    def _lay_out(self, scenario: Scenario) -> None:
        for name in _SYSTEM_NAMESPACES:
            self.ensure_namespace(name)
        for name, value in {**SYSTEM_PRIORITIES, **scenario.priority_classes}.items():
            self.store.create("priorityclasses", {"metadata": {"name": name}, "value": value, "globalDefault": False})
        for node in scenario.nodes:
            self.add_node(node)
        for workload in scenario.workloads:
            self._add_workload(workload)
        self._round(self.clock.now())

    # -- the simulation ---------------------------------------------------------------------------------------------

    def step(self) -> float | None:
        """Do what is due and what follows from it. Lab time of the next step that is known, None when idle."""
        with self.lock:
            self._round(self.clock.now())
            self._changed.clear()  # whoever writes needs the lock, so nothing is missed
            return self._kubelet.next_due()

    def _round(self, now: float) -> None:
        for _ in range(_MOST_ROUNDS):
            before = self.store.version
            self._kubelet.run(now)
            self._controllers.run()
            self._scheduler.run()
            update_statuses(self.store)
            if self.store.version == before:
                break
        self._kubelet.run(now)

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

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it is there."""
        with self.lock:
            if self.store.find("namespaces", "", name) is None:
                labels = {"kubernetes.io/metadata.name": name}
                meta = {"name": name, "labels": labels, "creationTimestamp": timestamp(self.clock.now() - 30 * 86400)}
                self.store.create("namespaces", {"metadata": meta, "spec": {}, "status": {"phase": "Active"}})

    def add_node(self, spec: NodeSpec) -> Obj:
        """Add a machine."""
        with self.lock:
            self._addresses += 1
            address = f"10.0.{self._addresses // 250}.{self._addresses % 250 + 1}"
            return self.store.create("nodes", build.node_object(spec, now=self.clock.now(), address=address))

    def remove_node(self, name: str) -> None:
        """Take a machine away; its pods are removed."""
        self.store.remove("nodes", "", name)

    def cordon(self, name: str, *, on: bool = True) -> None:
        """Set `spec.unschedulable`, and the taint that the node controller sets with it."""
        with self.lock:
            node = self.store.get("nodes", "", name)
            self.store.change("nodes", node, lambda new: set_cordon(new, on=on))

    def add_workload(self, spec: WorkloadSpec) -> None:
        """Add a workload. Pods of its `place` run at once; the others are for controllers and scheduler."""
        with self.lock:
            self._add_workload(spec)

    def _add_workload(self, spec: WorkloadSpec) -> None:
        self.ensure_namespace(spec.namespace)
        now = self.clock.now()
        placed = sum(spec.place.values())
        replicas = placed if spec.replicas is None else spec.replicas
        created = now - 2 * spec.age_seconds
        template = build.template(spec)
        owner: Obj | None = None
        if spec.kind not in ("Pod", "Mirror"):
            plural, obj = build.workload_object(spec, replicas=replicas, created=created)
            if spec.kind == "CronJob":
                obj = self._cron_job(spec, obj)
            owner = self.store.create(plural, obj)
            if spec.kind == "Deployment":
                owner = self.store.create(
                    "replicasets", replica_set_of(owner, replicas, created=owner["metadata"]["creationTimestamp"])
                )
                template = owner["spec"]["template"]
        if spec.pdb is not None:
            self.store.create("poddisruptionbudgets", build.pdb_object(spec, spec.pdb, created))
        for claim, volume in build.claims(spec, created):
            self.store.create("persistentvolumes", volume)
            self.store.create("persistentvolumeclaims", claim)
        for number, node in enumerate(self._places(spec, template)):
            self._place(spec, template, owner, number, node)

    def _cron_job(self, spec: WorkloadSpec, job: Obj) -> Obj:
        cron = {
            "metadata": job["metadata"],
            "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": job["spec"]}},
        }
        parent = self.store.create("cronjobs", cron)
        meta = {**job["metadata"], "name": f"{spec.name}-29000000", "ownerReferences": [build.owner_reference(parent)]}
        return {**job, "metadata": meta}

    def _places(self, spec: WorkloadSpec, template: Obj) -> Iterator[str]:
        if spec.kind == "DaemonSet" and not spec.place:
            for node in self.store.sorted("nodes"):
                if daemon_runs_on(template, node):
                    yield node["metadata"]["name"]
        for node_name, count in spec.place.items():
            yield from [node_name] * count

    def _place(self, spec: WorkloadSpec, template: Obj, owner: Obj | None, number: int, node: str) -> None:
        now = self.clock.now()
        name, prefix = "", f"{(owner or {'metadata': {'name': spec.name}})['metadata']['name']}-"
        if spec.kind == "StatefulSet":
            name = f"{spec.name}-{number}"
        elif spec.kind == "Mirror":
            name = f"{spec.name}-{node}"
        elif spec.kind == "Pod":
            name = spec.name if sum(spec.place.values()) == 1 else f"{spec.name}-{number}"
        pod = build.complete_pod(
            build.pod_object(template, namespace=spec.namespace, name=name, prefix=prefix, owner=owner)
        )
        pod["metadata"]["creationTimestamp"] = timestamp(now - spec.age_seconds)
        if spec.kind == "StatefulSet":
            pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name
        if spec.kind == "DaemonSet":
            pod["spec"]["affinity"] = daemon_affinity(node)
        if spec.kind == "Mirror":
            pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "mirror"
            pod["metadata"]["annotations"]["kubernetes.io/config.source"] = "file"
            pod["metadata"]["ownerReferences"] = [build.owner_reference(self.store.get("nodes", "", node))]
        pod["spec"]["nodeName"] = node
        self._kubelet.start(pod, now - spec.age_seconds, ready=spec.ready)
        self.store.create("pods", pod)

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

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing changes while this is held."""
        with self.lock:
            yield


def set_cordon(node: Obj, *, on: bool) -> None:
    """What `spec.unschedulable` brings with it. Changes `node`."""
    taints = [each for each in node["spec"].get("taints") or () if each["key"] != "node.kubernetes.io/unschedulable"]
    node["spec"].pop("unschedulable", None)
    if on:
        node["spec"]["unschedulable"] = True
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    node["spec"].pop("taints", None)
    if taints:
        node["spec"]["taints"] = taints
