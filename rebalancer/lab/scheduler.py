"""The lab's scheduler: filters as the real one, scores by requests only.

It knows: cordons, NoSchedule and NoExecute taints, nodeSelector, required node affinity, room for cpu, memory, pods and
extended resources, host ports, and PreferNoSchedule taints. It does not know: pod (anti-)affinity, topology spread,
image locality, preemption. Ties are broken by a seeded RNG.
"""

import random
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.lab.build import condition
from rebalancer.lab.disruption import is_finished, is_terminating
from rebalancer.lab.log import EventLog
from rebalancer.lab.store import Store
from rebalancer.model.match import labels_match, node_selector_matches, tolerates, untolerated_taint
from rebalancer.model.objects import NodeAffinity, NodeSelector, Taint, Toleration
from rebalancer.model.quantity import parse_quantity
from rebalancer.placement.scores import by_requests

Obj = dict[str, Any]
Floats = NDArray[np.float64]

DEFAULT_CPU_CORES = 0.1
DEFAULT_MEMORY_BYTES = 200.0 * 1024 * 1024
"""What a container that requests nothing counts as when nodes are scored (pkg/scheduler/util/pod_resources.go)."""
SOFT_TAINT_POINTS = 300.0
"""TaintToleration: 100 points at weight 3."""
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the scheduler reads of a pod."""

    cpu: float
    memory: float
    scored: tuple[float, float]
    """cpu cores and memory bytes, with the defaults for containers that request nothing."""
    extended: tuple[tuple[str, float], ...]
    ports: frozenset[tuple[str, int]]
    selector: dict[str, str]
    affinity: NodeSelector | None
    tolerations: tuple[Toleration, ...]


def needs_of(pod: Obj) -> Needs:
    """Effective requests: the larger of the containers' sum and each init container's."""
    spec = pod["spec"]
    sums: dict[str, float] = {}
    scored_cpu = scored_memory = 0.0
    ports: set[tuple[str, int]] = set()
    for container in spec.get("containers", ()):
        requests = (container.get("resources") or {}).get("requests") or {}
        for name, value in requests.items():
            sums[name] = sums.get(name, 0.0) + parse_quantity(str(value))
        scored_cpu += parse_quantity(str(requests["cpu"])) if "cpu" in requests else DEFAULT_CPU_CORES
        scored_memory += parse_quantity(str(requests["memory"])) if "memory" in requests else DEFAULT_MEMORY_BYTES
        ports |= {
            (port.get("protocol", "TCP"), port["hostPort"])
            for port in container.get("ports") or ()
            if port.get("hostPort")
        }
    for container in spec.get("initContainers") or ():
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            sums[name] = max(sums.get(name, 0.0), parse_quantity(str(value)))
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    return Needs(
        cpu=sums.pop("cpu", 0.0),
        memory=sums.pop("memory", 0.0),
        scored=(scored_cpu, scored_memory),
        extended=tuple(sorted((name, value) for name, value in sums.items() if name != "ephemeral-storage")),
        ports=frozenset(ports),
        selector=spec.get("nodeSelector") or {},
        affinity=msgspec.convert(node_affinity, NodeAffinity).required if node_affinity else None,
        tolerations=msgspec.convert(spec.get("tolerations") or [], tuple[Toleration, ...]),
    )


class _Board:
    """The nodes, and what is taken on them: built once a round, updated at each binding."""

    def __init__(self, store: Store, needs: dict[str, Needs]) -> None:
        self.nodes = store.sorted("nodes")
        self.index = {node["metadata"]["name"]: row for row, node in enumerate(self.nodes)}
        self.taints = [
            msgspec.convert(node["spec"].get("taints") or [], tuple[Taint, ...])
            + ((_UNSCHEDULABLE,) if node["spec"].get("unschedulable") else ())
            for node in self.nodes
        ]
        self.room = [
            {"cpu": 0.0, "memory": 0.0, "pods": 0.0}
            | {name: parse_quantity(str(value)) for name, value in node["status"]["allocatable"].items()}
            for node in self.nodes
        ]
        self.allocatable = np.array([[room["cpu"], room["memory"]] for room in self.room]).reshape(-1, 2)
        self.scored = np.zeros((len(self.nodes), 2))
        self.requested = np.zeros((len(self.nodes), 2))
        self.ports: list[set[tuple[str, int]]] = [set() for _ in self.nodes]
        for pod in store.all("pods"):
            row = self.index.get(pod["spec"].get("nodeName") or "", -1)
            # A terminating pod holds its place until it is gone.
            if row >= 0 and not is_finished(pod):
                self.take(row, needs[pod["metadata"]["uid"]])

    def take(self, row: int, need: Needs) -> None:
        room = self.room[row]
        room["cpu"] -= need.cpu
        room["memory"] -= need.memory
        room["pods"] -= 1
        for name, value in need.extended:
            room[name] = room.get(name, 0.0) - value
        self.scored[row] += need.scored
        self.requested[row] += (need.cpu, need.memory)
        self.ports[row] |= need.ports

    def fits(self, row: int, need: Needs) -> str:
        """Empty when the pod may go there, else why not, in the scheduler's words."""
        node, room = self.nodes[row], self.room[row]
        taint = untolerated_taint(need.tolerations, self.taints[row])
        if taint is not None:
            return "were unschedulable" if taint == _UNSCHEDULABLE else f"had untolerated taint {{{taint.key}}}"
        labels = node["metadata"].get("labels") or {}
        if not labels_match(need.selector, labels) or (
            need.affinity is not None and not node_selector_matches(need.affinity, labels, node["metadata"]["name"])
        ):
            return "didn't match Pod's node affinity/selector"
        if room["pods"] < 1:
            return "Too many pods"
        if need.cpu > room["cpu"] + 1e-9:
            return "Insufficient cpu"
        if need.memory > room["memory"]:
            return "Insufficient memory"
        for name, value in need.extended:
            if value > room.get(name, 0.0):
                return f"Insufficient {name}"
        return "didn't have free ports" if need.ports & self.ports[row] else ""

    def scores(self, need: Needs) -> Floats:
        soft = np.array(
            [
                sum(each.effect == "PreferNoSchedule" and not tolerates(need.tolerations, each) for each in taints)
                for taints in self.taints
            ],
            dtype=np.float64,
        )
        most = max(1.0, float(soft.max(initial=0.0)))
        fit = by_requests(
            scored=self.scored,
            requested=self.requested,
            pod_scored=np.array(need.scored),
            pod_requested=np.array([need.cpu, need.memory]),
            allocatable=self.allocatable,
        )
        return fit + SOFT_TAINT_POINTS * (1.0 - soft / most)


class Scheduler:
    """Binds pending pods, one after the other."""

    def __init__(self, *, store: Store, log: EventLog, seed: int) -> None:
        self._store = store
        self._log = log
        self._random = random.Random(seed)
        self._needs: dict[str, Needs] = {}

    def run(self) -> None:
        """Try every pod that waits. The caller holds the lock."""
        pods = self._store.sorted("pods")
        waiting = [
            pod
            for pod in pods
            if not pod["spec"].get("nodeName")
            and not is_terminating(pod)
            and pod["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
        ]
        if not waiting:
            return
        known = self._needs
        self._needs = {pod["metadata"]["uid"]: known.get(pod["metadata"]["uid"]) or needs_of(pod) for pod in pods}
        board = _Board(self._store, self._needs)
        waiting.sort(key=lambda pod: (-pod["spec"].get("priority", 0), pod["metadata"]["creationTimestamp"]))
        for pod in waiting:
            self._place(board, pod)

    def _place(self, board: _Board, pod: Obj) -> None:
        need = self._needs[pod["metadata"]["uid"]]
        reasons = [board.fits(row, need) for row in range(len(board.nodes))]
        rows = [row for row, reason in enumerate(reasons) if not reason]
        if not rows:
            self._refuse(pod, reasons)
            return
        scores = board.scores(need)
        best = max(scores[row] for row in rows)
        row = self._random.choice([row for row in rows if scores[row] == best])
        board.take(row, need)
        now, node = self._store.clock.now(), board.nodes[row]["metadata"]["name"]

        def bind(new: Obj) -> None:
            new["spec"]["nodeName"] = node
            new["status"]["conditions"] = [condition("PodScheduled", True, now)]

        self._store.change("pods", pod, bind)
        meta = pod["metadata"]
        self._log.add("bound", at=now, namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], node=node)

    def _refuse(self, pod: Obj, reasons: list[str]) -> None:
        counts: dict[str, int] = {}
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
        why = ", ".join(f"{count} node(s) {reason}" for reason, count in sorted(counts.items()))
        message = f"0/{len(reasons)} nodes are available: {why}."
        have = pod["status"].get("conditions") or []
        if any(each.get("message") == message for each in have):
            return
        now = self._store.clock.now()
        refused = condition("PodScheduled", False, now, reason="Unschedulable", message=message)
        self._store.change("pods", pod, lambda new: new["status"].update(conditions=[refused]))
