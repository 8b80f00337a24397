"""Placement history of pods and nodes: the source of all usage figures.

It listens to the store, so every move of a pod (controllers, an eviction, `kubectl delete`) is recorded. Pods that
exist when the lab starts count as having always been where they are.
"""

import math
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.lab.clock import LabClock, seconds_of
from rebalancer.lab.loads.cpu import OVERHEAD, Behaviour, Curve, behaviour_of, coefficients, curve
from rebalancer.lab.objects.store import Change
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.quantity import parse_quantity

Ints = NDArray[np.int64]

SIDECAR_SHARE = 0.1


@dataclass(slots=True, kw_only=True)
class Stay:
    """One pod on one node. Times in seconds since the epoch, `inf` for what has not happened."""

    uid: str
    namespace: str
    pod: str
    node: str
    containers: tuple[tuple[str, str, float], ...]
    """(name, image, share of the pod's CPU)."""
    behaviour: Behaviour
    curve: Curve
    limit_cores: float = math.inf
    """Of its containers together; infinite where one has none."""
    limit_bytes: float = math.inf
    """The same of memory."""
    start: float = math.inf
    """Its containers run from here on."""
    container_starts: list[float] = field(default_factory=list)
    """When they started and restarted, of a pod that leaks."""
    ready: float = math.inf
    leaving: float = math.inf
    """Its deletionTimestamp was set, or it stopped being ready."""
    end: float = math.inf


@dataclass(slots=True, kw_only=True)
class Machine:
    """One node, from `start` until `end`."""

    name: str
    address: str
    cores: float
    overhead_cores: float
    memory_bytes: float
    start: float
    end: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The history as arrays, stays sorted by node. Immutable."""

    origin: float
    """Midnight of the curves' day zero, seconds since the epoch."""
    stays: tuple[Stay, ...]
    machines: tuple[Machine, ...]
    coefficients: Floats
    """(stays, terms)"""
    node: Ints
    """(stays,) index into machines."""
    start: Floats
    ready: Floats
    leaving: Floats
    end: Floats
    group: Ints
    """(stays,) index into `group_coefficients`, -1 for a pod with CPU of its own."""
    group_coefficients: Floats
    """(groups, terms)"""


@dataclass(slots=True)
class History:
    """The stays and machines so far. `observe` is the store's listener."""

    clock: LabClock
    seed: int
    origin: float
    """Midnight of the curves' day zero, seconds since the epoch."""
    preparing: bool = True
    """While the scenario is built: objects count as having always existed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[str, Stay] = field(default_factory=dict)
    _stays: list[Stay] = field(default_factory=list)
    _machines: list[Machine] = field(default_factory=list)
    _columns: Columns | None = None

    def observe(self, change: Change) -> None:
        """Record one write."""
        if change.plural == "pods":
            with self._lock:
                self._observe_pod(change)
        elif change.plural == "nodes" and change.type != "MODIFIED":
            with self._lock:
                self._observe_node(change)

    def _now(self) -> float:
        return -math.inf if self.preparing else self.clock.now()

    def _observe_pod(self, change: Change) -> None:
        pod, now = change.object, self._now()
        meta, status = pod["metadata"], pod.get("status") or {}
        stay = self._open.get(meta["uid"])
        running = status.get("phase") == "Running" and change.type != "DELETED"
        if stay is None:
            if not running or not pod["spec"].get("nodeName"):
                return
            stay = self._open[meta["uid"]] = self._new_stay(pod)
            self._stays.append(stay)
            stay.start = now
        began = started_at(pod) if running and stay.behaviour.leaks else None
        if began is not None and began not in stay.container_starts[-1:]:
            stay.container_starts.append(began)
        is_ready = running and any(
            each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()
        )
        if is_ready and stay.ready == math.inf:
            stay.ready = now
        if (meta.get("deletionTimestamp") or not running) and stay.leaving == math.inf:
            stay.leaving = now
        if not running:
            stay.end = now
            del self._open[meta["uid"]]
        self._columns = None

    def _new_stay(self, pod: dict[str, Any]) -> Stay:
        meta, behaviour = pod["metadata"], behaviour_of(pod)
        containers = [(each["name"], each.get("image", "")) for each in pod["spec"].get("containers", ())]
        has_sidecar = bool(behaviour.sidecar) and len(containers) > 1
        main = (1.0 - SIDECAR_SHARE * has_sidecar) / max(1, len(containers) - has_sidecar)
        key = behaviour.group or f"{meta['namespace']}/{meta['name']}"
        return Stay(
            uid=meta["uid"],
            namespace=meta["namespace"],
            pod=meta["name"],
            node=pod["spec"]["nodeName"],
            containers=tuple(
                (name, image, SIDECAR_SHARE if has_sidecar and name == behaviour.sidecar else main)
                for name, image in containers
            ),
            behaviour=behaviour,
            curve=curve(behaviour.cpu, key=key, seed=self.seed),
            limit_cores=_limit(pod, "cpu"),
            limit_bytes=_limit(pod, "memory"),
        )

    def _observe_node(self, change: Change) -> None:
        node = change.object
        name = node["metadata"]["name"]
        self._columns = None
        if change.type == "DELETED":
            for machine in self._machines:
                if machine.name == name:
                    machine.end = min(machine.end, self._now())
            return
        addresses = (node.get("status") or {}).get("addresses") or ()
        capacity = (node.get("status") or {}).get("capacity") or {}
        machine = Machine(
            name=name,
            address=next((each["address"] for each in addresses if each["type"] == "InternalIP"), name),
            cores=parse_quantity(str(capacity.get("cpu", "1"))),
            memory_bytes=parse_quantity(str(capacity.get("memory", "0"))),
            overhead_cores=float((node["metadata"].get("annotations") or {}).get(OVERHEAD, 0.0)),
            start=self._now(),
        )
        self._machines.append(machine)

    def columns(self) -> Columns:
        """The history as arrays; built when it has changed."""
        with self._lock:
            if self._columns is None:
                self._columns = self._build()
            return self._columns

    def _build(self) -> Columns:
        newest = {machine.name: index for index, machine in enumerate(self._machines)}
        kept = [stay for stay in self._stays if stay.node in newest]
        kept.sort(key=lambda stay: newest[stay.node])
        groups: dict[str, int] = {}
        group_curves: list[Curve] = []
        group = np.full(len(kept), -1, dtype=np.int64)
        for row, stay in enumerate(kept):
            name = stay.behaviour.group
            if not name:
                continue
            if name not in groups:
                groups[name] = len(groups)
                group_curves.append(stay.curve)
            group[row] = groups[name]
        # Copies: these columns show one moment, whatever is recorded meanwhile.
        return Columns(
            origin=self.origin,
            stays=tuple(kept),
            machines=tuple(self._machines),
            coefficients=coefficients([stay.curve for stay in kept]),
            node=np.array([newest[stay.node] for stay in kept], dtype=np.int64),
            start=np.array([stay.start for stay in kept], dtype=np.float64),
            ready=np.array([stay.ready for stay in kept], dtype=np.float64),
            leaving=np.array([stay.leaving for stay in kept], dtype=np.float64),
            end=np.array([stay.end for stay in kept], dtype=np.float64),
            group=group,
            group_coefficients=coefficients(group_curves),
        )


def started_at(pod: dict[str, Any]) -> float | None:
    """When its containers started last, seconds since the epoch; None while they don't run."""
    states = [each["state"].get("running") for each in pod["status"].get("containerStatuses") or ()]
    return max((seconds_of(each["startedAt"]) for each in states if each), default=None)


def _limit(pod: dict[str, Any], resource: str) -> float:
    limits = [
        ((each.get("resources") or {}).get("limits") or {}).get(resource) for each in pod["spec"].get("containers", ())
    ]
    return math.inf if None in limits else sum(parse_quantity(str(each)) for each in limits)
