"""What every object was over time, as far as kube-state-metrics shows it: pods, nodes, budgets and owners.

It listens to the store, as the history of loads does, and keeps a few figures of each object instead of its versions.
Times are seconds since the epoch in the lab; what exists when the lab starts has been there since minus infinity.
"""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rebalancer.lab.clock import LabClock, seconds_of
from rebalancer.lab.objects.disruption import is_ready
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Change
from rebalancer.model.notation.quantity import parse_quantity

_OWNED = ("replicasets", "jobs")


@dataclass(slots=True, kw_only=True)
class PodRecord:
    """A pod. `since` and `gone` are when it was there; the others what its metrics say."""

    namespace: str
    name: str
    uid: str
    owner: tuple[str, str]
    """Kind and name, empty for none."""
    priority_class: str
    requests: tuple[tuple[str, str, float], ...]
    """(container, `cpu` or `memory`, cores or bytes)."""
    created: float
    since: float
    node: str = ""
    bound: float = math.inf
    """When it was bound."""
    started: float = math.inf
    ready: float = math.inf
    """When it was Ready first."""
    finished: float = math.inf
    phase: str = "Pending"
    gone: float = math.inf


class NodeState(NamedTuple):
    """A node from `at` on."""

    at: float
    ready: bool
    unschedulable: bool
    taints: tuple[tuple[str, str, str], ...]


@dataclass(slots=True, kw_only=True)
class NodeRecord:
    """A node."""

    name: str
    address: str
    created: float
    since: float
    amounts: Mapping[tuple[str, str], float]
    """(`capacity` or `allocatable`, resource) -> amount."""
    states: list[NodeState] = field(default_factory=list)
    gone: float = math.inf


class BudgetState(NamedTuple):
    """The status of a PodDisruptionBudget from `at` on."""

    at: float
    desired: int
    current: int
    expected: int
    allowed: int


@dataclass(slots=True, kw_only=True)
class BudgetRecord:
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    since: float
    states: list[BudgetState] = field(default_factory=list)
    gone: float = math.inf


@dataclass(slots=True, kw_only=True)
class OwnerRecord:
    """A ReplicaSet or a Job."""

    plural: str
    namespace: str
    name: str
    owner: tuple[str, str]
    """Kind and name of its own controller, empty for none."""
    since: float
    gone: float = math.inf


@dataclass(slots=True)
class ObjectHistory:
    """All of them so far. `observe` is the store's listener."""

    clock: LabClock
    preparing: bool = True
    """While the scenario is built."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pods: dict[str, PodRecord] = field(default_factory=dict)
    _nodes: dict[str, NodeRecord] = field(default_factory=dict)
    _budgets: dict[str, BudgetRecord] = field(default_factory=dict)
    _owners: dict[str, OwnerRecord] = field(default_factory=dict)

    def observe(self, change: Change) -> None:
        """Record one write."""
        with self._lock:
            match change.plural:
                case "pods":
                    self._observe_pod(change.object, change.type == "DELETED")
                case "nodes":
                    self._observe_node(change.object, change.type == "DELETED")
                case "poddisruptionbudgets":
                    self._observe_budget(change.object, change.type == "DELETED")
                case "replicasets" | "jobs" if change.type != "MODIFIED":
                    self._observe_owner(change)

    def pods(self) -> tuple[PodRecord, ...]:
        """Every pod, in the order of creation."""
        with self._lock:
            return tuple(self._pods.values())

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node."""
        with self._lock:
            return tuple(self._nodes.values())

    def budgets(self) -> tuple[BudgetRecord, ...]:
        """Every PodDisruptionBudget with a status."""
        with self._lock:
            return tuple(each for each in self._budgets.values() if each.states)

    def owners(self) -> tuple[OwnerRecord, ...]:
        """Every ReplicaSet and Job."""
        with self._lock:
            return tuple(self._owners.values())

    def _now(self) -> float:
        return -math.inf if self.preparing else self.clock.now()

    def _observe_pod(self, pod: Obj, deleted: bool) -> None:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        record = self._pods.get(meta["uid"])
        if record is None:
            record = self._pods[meta["uid"]] = PodRecord(
                namespace=meta["namespace"],
                name=meta["name"],
                uid=meta["uid"],
                owner=_controller(pod),
                priority_class=spec.get("priorityClassName") or "",
                requests=_requests(spec),
                created=seconds_of(meta["creationTimestamp"]),
                since=self._now(),
            )
        now = self.clock.now()
        if deleted:
            record.gone = min(record.gone, now)
            return
        record.phase = status.get("phase", "Pending")
        if spec.get("nodeName") and not record.node:
            record.node = spec["nodeName"]
            record.bound = record.created if self.preparing else now
        if "startTime" in status and record.started == math.inf:
            record.started = seconds_of(status["startTime"])
        if record.ready == math.inf and record.phase == "Running" and is_ready(pod):
            record.ready = record.started if self.preparing else now
        if record.phase in ("Succeeded", "Failed"):
            record.finished = min(record.finished, now)

    def _observe_node(self, node: Obj, deleted: bool) -> None:
        meta, status = node["metadata"], node.get("status") or {}
        record = self._nodes.get(meta["uid"])
        if record is None:
            addresses = status.get("addresses") or ()
            record = self._nodes[meta["uid"]] = NodeRecord(
                name=meta["name"],
                address=next((each["address"] for each in addresses if each["type"] == "InternalIP"), ""),
                created=seconds_of(meta["creationTimestamp"]),
                since=self._now(),
                amounts={
                    (kind, resource): parse_quantity(str(amount))
                    for kind in ("capacity", "allocatable")
                    for resource, amount in (status.get(kind) or {}).items()
                },
            )
        if deleted:
            record.gone = min(record.gone, self.clock.now())
            return
        spec = node.get("spec") or {}
        state = NodeState(
            self._now(),
            any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()),
            bool(spec.get("unschedulable")),
            tuple((each["key"], each.get("value", ""), each.get("effect", "")) for each in spec.get("taints") or ()),
        )
        if not record.states or record.states[-1][1:] != state[1:]:
            record.states.append(state)

    def _observe_budget(self, budget: Obj, deleted: bool) -> None:
        meta, status = budget["metadata"], budget.get("status") or {}
        record = self._budgets.get(meta["uid"])
        if record is None:
            record = self._budgets[meta["uid"]] = BudgetRecord(
                namespace=meta["namespace"], name=meta["name"], since=self._now()
            )
        if deleted:
            record.gone = min(record.gone, self.clock.now())
        elif "desiredHealthy" in status:
            state = BudgetState(
                self._now(),
                status["desiredHealthy"],
                status.get("currentHealthy", 0),
                status.get("expectedPods", 0),
                status.get("disruptionsAllowed", 0),
            )
            if not record.states or record.states[-1][1:] != state[1:]:
                record.states.append(state)

    def _observe_owner(self, change: Change) -> None:
        meta = change.object["metadata"]
        if change.type == "DELETED":
            self._owners[meta["uid"]].gone = self.clock.now()
            return
        self._owners[meta["uid"]] = OwnerRecord(
            plural=change.plural,
            namespace=meta["namespace"],
            name=meta["name"],
            owner=_controller(change.object),
            since=self._now(),
        )


def _controller(obj: Obj) -> tuple[str, str]:
    references = obj["metadata"].get("ownerReferences") or ()
    return next(((each["kind"], each["name"]) for each in references if each.get("controller")), ("", ""))


def _requests(spec: Obj) -> tuple[tuple[str, str, float], ...]:
    return tuple(
        (container["name"], resource, parse_quantity(str(amount)))
        for container in spec.get("containers") or ()
        for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items()
        if resource in ("cpu", "memory")
    )
