"""A lab's own account of what happened in it, as a recording: nothing is read over HTTP and nothing is guessed."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from rebalancer.lab import Lab
from rebalancer.lab.clock import seconds_of
from rebalancer.lab.controlplane.owned import controller_of
from rebalancer.lab.controlplane.pod_templates import template_of
from rebalancer.lab.controlplane.snapshot_view import SchedulerView
from rebalancer.lab.objects.disruption import is_finished, is_ready
from rebalancer.lab.objects.store import Change
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import RecordedBudget, RecordedPods, RecordedTaint, RecordedUsage, Recording

Obj = dict[str, Any]
NEVER = float("inf")
OURS = "rebalancer"


@dataclass(slots=True)
class _Seen:
    pod: Obj
    bound: float = NEVER
    ready: float = NEVER
    ended: float = NEVER


@dataclass(slots=True)
class Witness:
    """Listens to a lab from its start on."""

    lab: Lab
    pods: dict[str, _Seen] = field(default_factory=dict)
    nodes: dict[str, tuple[Obj, float, float]] = field(default_factory=dict)
    """Name -> the node, joined, left."""
    node_changes: list[tuple[float, str, bool, bool]] = field(default_factory=list)
    """(when, node, Ready, unschedulable)"""
    budgets: dict[tuple[str, str], list[tuple[float, Obj]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, lab: Lab) -> "Witness":
        """One that has seen everything that is there now."""
        witness = cls(lab)
        with lab.cluster.lock:
            for plural in ("nodes", "pods", "poddisruptionbudgets"):
                for each in lab.cluster.store.all(plural):
                    witness._note(plural, each, first=True)
            lab.cluster.store.subscribe(witness._observe)
        return witness

    def _observe(self, change: Change) -> None:
        if change.type == "DELETED":
            self._gone(change.plural, change.object)
        elif change.plural in ("nodes", "pods", "poddisruptionbudgets"):
            self._note(change.plural, change.object)

    def _gone(self, plural: str, obj: Obj) -> None:
        now = self.lab.clock.now()
        if plural == "pods" and obj["metadata"]["uid"] in self.pods:
            seen = self.pods[obj["metadata"]["uid"]]
            seen.ended = min(seen.ended, now)
        elif plural == "nodes":
            node, joined, _ = self.nodes[obj["metadata"]["name"]]
            self.nodes[obj["metadata"]["name"]] = node, joined, now

    def _note(self, plural: str, obj: Obj, *, first: bool = False) -> None:
        meta, now = obj["metadata"], self.lab.clock.now()
        if plural == "pods":
            seen = self.pods.setdefault(meta["uid"], _Seen(obj))
            seen.pod = obj
            begun = seconds_of(meta["creationTimestamp"]) if first else now
            if obj["spec"].get("nodeName"):
                seen.bound = min(seen.bound, begun)
            if is_ready(obj):
                seen.ready = min(seen.ready, begun)
            if is_finished(obj):
                seen.ended = min(seen.ended, now)
        elif plural == "nodes":
            _, joined, left = self.nodes.get(meta["name"], (obj, -NEVER if first else now, NEVER))
            self.nodes[meta["name"]] = obj, joined, left
            ready = is_ready(obj)
            self.node_changes.append((now, meta["name"], ready, bool(obj["spec"].get("unschedulable"))))
        else:
            self.budgets[meta["namespace"], meta["name"]].append((now, obj))

    # ---- the recording

    def recording(self, *, start: float, end: float, chained: bool = True) -> Recording:
        """From `start` to `end`. `chained`: evictions of ours are named."""
        steps = round((end - start) / STEP_SECONDS)
        seen = [each for each in self.pods.values() if each.ended > start]
        nodes = list(self.nodes)
        owners, owner_of = self._owners(seen)
        spaces = sorted({each.pod["metadata"]["namespace"] for each in seen})
        templates, template_of_pod = _templates(seen)
        place = {name: at for at, name in enumerate(nodes)}
        pods = RecordedPods(
            names=[each.pod["metadata"]["name"] for each in seen],
            uids=[each.pod["metadata"]["uid"] for each in seen],
            namespace=np.array([spaces.index(each.pod["metadata"]["namespace"]) for each in seen], dtype=np.int32),
            owner=np.array(owner_of, dtype=np.int32),
            template=np.array(template_of_pod, dtype=np.int32),
            node=np.array([place.get(each.pod["spec"].get("nodeName", ""), -1) for each in seen], dtype=np.int32),
            created=np.array([seconds_of(each.pod["metadata"]["creationTimestamp"]) for each in seen]),
            bound=np.array([each.bound for each in seen]),
            ready=np.array([each.ready for each in seen]),
            ended=np.array([each.ended for each in seen]),
            priority=np.array([int(each.pod["spec"].get("priority") or 0) for each in seen], dtype=np.int64),
            replaced=self._replaced(seen) if chained else np.full(len(seen), -1, dtype=np.int32),
        )
        view = SchedulerView()
        with self.lab.cluster.lock:
            today = view.snapshot(
                nodes=[obj for obj, _, _ in self.nodes.values()],
                pods=[],
                others=self.lab.cluster.store.sorted,
                now=end,
            )
        ready, cordoned = self._conditions(nodes, start, steps)
        return Recording(
            source="the lab",
            cluster="lab",
            start=start,
            steps=steps,
            nodes=today.nodes,
            node_joined=np.array([joined for _, joined, _ in self.nodes.values()]),
            node_left=np.array([left for _, _, left in self.nodes.values()]),
            node_ready=ready,
            node_unschedulable=cordoned,
            namespaces=tuple(spaces),
            owners=tuple(owners),
            pod_templates=templates,
            pods=pods,
            usage={CPU: self._usage(seen, nodes, start, steps)},
            budgets=tuple(self._budgets(start, steps)),
            soft_taints=tuple(self._soft_taints(place)),
            today=today,
        )

    def _owners(self, seen: list[_Seen]) -> tuple[list[Owner], list[int]]:
        owners: list[Owner] = []
        number: dict[str, int] = {}

        def intern(reference: Obj, namespace: str) -> int:
            if reference["uid"] not in number:
                parent = -1
                if reference["kind"] == "ReplicaSet":
                    name = reference["name"].rpartition("-")[0]
                    parent = intern({"kind": "Deployment", "name": name, "uid": f"{namespace}/{name}"}, namespace)
                number[reference["uid"]] = len(owners)
                owners.append(
                    Owner(
                        kind=reference["kind"],
                        namespace=namespace,
                        name=reference["name"],
                        uid=reference["uid"],
                        parent=parent,
                    )
                )
            return number[reference["uid"]]

        of_pod = []
        for each in seen:
            owner = controller_of(each.pod)
            of_pod.append(-1 if owner is None else intern(owner, each.pod["metadata"]["namespace"]))
        return owners, of_pod

    def _replaced(self, seen: list[_Seen]) -> Any:
        """The pod that each one replaced after an eviction of ours: the first new one of its owner."""
        row = {each.pod["metadata"]["uid"]: at for at, each in enumerate(seen)}
        found = np.full(len(seen), -1, dtype=np.int32)
        for entry in sorted(self.lab.log.evictions(code=201), key=lambda each: each.at):
            at = row.get(entry.uid)
            if at is None or not entry.user_agent.startswith(OURS):
                continue
            owner = controller_of(seen[at].pod)
            for other, each in enumerate(seen):
                mine = controller_of(each.pod)
                created = seconds_of(each.pod["metadata"]["creationTimestamp"])
                same = mine is not None and owner is not None and mine["uid"] == owner["uid"]
                if same and found[other] < 0 and entry.at - 1.0 <= created <= entry.at + 60.0 and other != at:
                    found[other] = at
                    break
        return found

    def _conditions(self, nodes: list[str], start: float, steps: int) -> tuple[Any, Any]:
        ready = np.ones((len(nodes), steps), dtype=np.bool_)
        cordoned = np.zeros((len(nodes), steps), dtype=np.bool_)
        place = {name: at for at, name in enumerate(nodes)}
        for when, name, up, shut in self.node_changes:
            step = max(int(np.ceil((when - start) / STEP_SECONDS)), 0)
            ready[place[name], step:], cordoned[place[name], step:] = up, shut
        return ready, cordoned

    def _usage(self, seen: list[_Seen], nodes: list[str], start: float, steps: int) -> RecordedUsage:
        ends = start + STEP_SECONDS * np.arange(1, steps + 1)
        figures = self.lab.usage.window_means(ends, window_seconds=float(STEP_SECONDS))
        stays = figures.columns.stays
        row = {stays[number].uid: at for at, number in enumerate(figures.rows.tolist())}
        machines = {machine.name: at for at, machine in enumerate(figures.columns.machines)}
        values, first, begin = [], [], [0]
        for each in seen:
            at = row.get(each.pod["metadata"]["uid"])
            low = max(int((each.bound - start) // STEP_SECONDS), 0) if each.bound < NEVER else steps
            high = steps if each.ended == NEVER else min(int((each.ended - start) // STEP_SECONDS) + 1, steps)
            own = np.zeros(0) if at is None or low >= high else figures.pods[at, low:high] * 1000.0
            values.append(own)
            first.append(min(low, steps - 1))
            begin.append(begin[-1] + len(own))
        node = np.where(figures.up, figures.nodes * 1000.0, np.nan)[[machines[name] for name in nodes]]
        return RecordedUsage(
            pod_values=np.concatenate(values).astype(np.float32),
            pod_start=np.array(begin, dtype=np.int64),
            pod_first=np.array(first, dtype=np.int32),
            node=node.astype(np.float32),
        )

    def _soft_taints(self, place: dict[str, int]) -> list[RecordedTaint]:
        since: dict[str, float] = {}
        found = []
        for entry in self.lab.log.entries():
            if entry.key != SOFT_TAINT or entry.node not in place:
                continue
            if entry.event == "tainted":
                since.setdefault(entry.node, entry.at)
            elif entry.event == "untainted" and entry.node in since:
                found.append(RecordedTaint(place[entry.node], since.pop(entry.node), entry.at))
        return [*found, *(RecordedTaint(place[node], at, NEVER) for node, at in since.items())]

    def _budgets(self, start: float, steps: int) -> list[RecordedBudget]:
        found = []
        for (namespace, name), course in self.budgets.items():
            desired = np.zeros(steps, dtype=np.int32)
            for when, obj in course:
                if obj.get("status"):
                    desired[max(int((when - start) // STEP_SECONDS), 0) :] = obj["status"]["desiredHealthy"]
            selector = msgspec.convert(course[-1][1]["spec"].get("selector"), LabelSelector)
            found.append(RecordedBudget(namespace=namespace, name=name, selector=selector, desired_healthy=desired))
        return found


def _templates(seen: list[_Seen]) -> tuple[PodTemplateTable, list[int]]:
    templates, numbers, of_pod = [], {}, []
    for each in seen:
        spec = {key: value for key, value in each.pod["spec"].items() if key not in ("nodeName", "schedulingGates")}
        owner = controller_of(each.pod)
        if owner is not None and owner["kind"] == "DaemonSet":
            spec.pop("affinity", None)
        template = template_of(each.pod["metadata"].get("labels") or {}, spec)
        key = repr(template)
        if key not in numbers:
            numbers[key] = len(templates)
            templates.append(template)
        of_pod.append(numbers[key])
    blobs = [msgspec.json.encode(each) for each in templates]
    return PodTemplateTable(blobs, decoded), of_pod


def decoded(blob: bytes) -> PodTemplate:
    """A template from its blob; by name, so that recordings can be pickled."""
    return msgspec.json.decode(blob, type=PodTemplate)
