"""Pods of a recording: who, where and when by Prometheus; their templates by today's pods of the same service."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import (
    SCORED_DEFAULT_CPU_MILLICORES,
    SCORED_DEFAULT_MEMORY_BYTES,
    PodTemplateTable,
)
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.recordings.recording import Gap, RecordedPods
from rebalancer.prometheus.recorded.kube_state import PodHistory, PodKey

Parents = Mapping[tuple[str, str, str], tuple[str, str]]
"""(kind, namespace, name) of an owner -> kind and name of its own controller."""

_STEM = re.compile(r"(?P<stem>.+)-[a-z0-9]{1,10}")
"""Name of a ReplicaSet or of a CronJob's Job: that of its controller, and a hash or a number."""
_CONTROLLERS = {"ReplicaSet": ("Deployment", "Rollout"), "Job": ("CronJob",)}
_EQUAL = 1e-3
"""Relative difference of requests that are equal."""


@dataclass(frozen=True, kw_only=True)
class RecordedPodTable:
    """As the fields of `Recording`."""

    pods: RecordedPods
    namespaces: tuple[str, ...]
    owners: tuple[Owner, ...]
    pod_templates: PodTemplateTable
    gaps: tuple[Gap, ...]


class _Row(NamedTuple):
    key: PodKey
    owner: int
    template: int
    node: int
    created: float
    bound: float
    ready: float
    ended: float
    priority: int


def recorded_pods(
    history: PodHistory,
    parents: Parents,
    today: ClusterSnapshot,
    *,
    nodes: Sequence[str],
    start: float,
    steps: int,
) -> RecordedPodTable:
    """Today's namespaces, owners and templates keep their indices. Pods are in the order of their creation."""
    end = start + steps * STEP_SECONDS
    completed = _Completion(history, parents, today)
    node_index = {name: index for index, name in enumerate(nodes)} | {"": -1}
    of_uid = completed.of_uid
    counted: Counter[str] = Counter()
    rows: list[_Row] = []
    for key, info in history.info.items():
        created = history.created.get(key, start)
        # Prometheus may have missed scrapes at the end: what is there today hasn't ended
        last = np.inf if key[2] in of_uid else history.ended.get(key, np.inf)
        ended = history.finished.get(key, last)
        node = node_index.get(info.node)
        if ended <= start or created >= end:
            continue
        if node is None:
            counted["elsewhere"] += 1
            continue
        counted["created"] += key not in history.created
        bound = history.scheduled.get(key, history.started.get(key, created)) if node >= 0 else np.inf
        ready = history.ready.get(key, np.inf) if history.ready else history.started.get(key, bound)
        owner = completed.owner(key[0], *info.owner)
        template, priority = completed.template(key, owner, info.priority_class)
        rows.append(
            _Row(
                key=key,
                owner=owner,
                template=template,
                node=node,
                created=created,
                bound=bound,
                ready=ready,
                ended=ended if ended < end else np.inf,
                priority=priority,
            )
        )
    unseen = list(_unseen(history, today, end))
    rows += unseen
    gaps = completed.gaps(counted, unseen=len(unseen), ready=bool(history.ready) or not rows)
    return completed.table(rows, gaps)


def _unseen(history: PodHistory, today: ClusterSnapshot, end: float) -> "list[_Row]":
    """Today's pods that kube-state-metrics doesn't show."""
    pods = today.pods
    recorded = {uid for _, _, uid in history.info}
    over = (pods.phase == SUCCEEDED) | (pods.phase == FAILED)
    out = []
    for at in np.flatnonzero(~over & (pods.created < end - STEP_SECONDS)).tolist():
        if pods.uids[at] in recorded:
            continue
        node, created, started = int(pods.node[at]), float(pods.created[at]), float(pods.started[at])
        bound = created if np.isnan(started) else started
        out.append(
            _Row(
                key=(today.namespaces[int(pods.namespace[at])], pods.names[at], pods.uids[at]),
                owner=int(pods.owner[at]),
                template=int(pods.template[at]),
                node=node,
                created=created,
                bound=bound if node >= 0 else np.inf,
                ready=bound if node >= 0 and pods.ready[at] else np.inf,
                ended=np.inf,
                priority=int(pods.priority[at]),
            )
        )
    return out


class _Completion:
    """Owners and templates, with those that today's objects don't have."""

    def __init__(self, history: PodHistory, parents: Parents, today: ClusterSnapshot) -> None:
        self._history, self._parents, self._today = history, parents, today
        pods = today.pods
        self.of_uid = {uid: at for at, uid in enumerate(pods.uids)}
        self._spaces = {name: at for at, name in enumerate(today.namespaces)}
        self._owners = list(today.owners)
        self._owner_of = {(each.kind, each.namespace, each.name): at for at, each in enumerate(today.owners)}
        newest = np.argsort(pods.created, kind="stable").tolist()
        owners, tops = pods.owner.tolist(), today.top_owner.tolist()
        self._of_owner = {owners[at]: at for at in newest if owners[at] >= 0}
        """Owner -> its newest pod of today."""
        self._of_top = {tops[owners[at]]: at for at in newest if owners[at] >= 0}
        spaces = pods.namespace.tolist()
        self._of_name = {(today.namespaces[spaces[at]], pods.names[at]): at for at in newest}
        self._known = len(today.pod_templates)
        self._made: dict[tuple[int, float, float, str], int] = {}
        self._templates: list[PodTemplate] = []
        self._counted: Counter[str] = Counter()

    def owner(self, namespace: str, kind: str, name: str) -> int:
        """Index of an owner; -1 for none."""
        if not kind:
            return -1
        space = "" if kind == "Node" else namespace
        return self._numbered(kind, space, name)

    def _numbered(self, kind: str, namespace: str, name: str) -> int:
        key = (kind, namespace, name)
        found = self._owner_of.get(key)
        if found is None:
            parent = self._parent(kind, namespace, name)
            found = self._owner_of[key] = len(self._owners)
            uid = f"recorded/{kind}/{namespace}/{name}"
            self._owners.append(Owner(kind=kind, namespace=namespace, name=name, uid=uid, parent=parent))
        return found

    def _parent(self, kind: str, namespace: str, name: str) -> int:
        recorded = self._parents.get((kind, namespace, name))
        if recorded is not None and recorded[0]:
            return self._numbered(recorded[0], namespace, recorded[1])
        stem = _STEM.fullmatch(name)
        for above in _CONTROLLERS.get(kind, ()) if stem else ():
            assert stem is not None
            found = self._owner_of.get((above, namespace, stem["stem"]))
            if found is not None:
                self._counted["stems"] += 1
                return found
        return -1

    def template(self, key: PodKey, owner: int, priority_class: str) -> tuple[int, int]:
        """Index of a pod's template, and its priority."""
        pods = self._today.pods
        at = self.of_uid.get(key[2])
        if at is not None:
            return int(pods.template[at]), int(pods.priority[at])
        at = self._of_name.get(key[:2])
        if at is None or owner < 0 or int(pods.owner[at]) != owner:
            at = self._of_owner.get(owner)
        if at is None and owner >= 0:
            at = self._of_top.get(self._top(owner))
            self._counted["service"] += at is not None
        if at is None:
            self._counted["requests"] += 1
            return self._of_requests(key, priority_class), self._today.priority_classes.get(priority_class, 0)
        return self._like(key, at), int(pods.priority[at])

    def _top(self, owner: int) -> int:
        seen: set[int] = set()
        while (parent := self._owners[owner].parent) >= 0 and owner not in seen:
            seen.add(owner)
            owner = parent
        return owner

    def _like(self, key: PodKey, at: int) -> int:
        """The template of one of today's pods, with the requests that this one had."""
        today, history = self._today, self._history
        template = int(today.pods.template[at])
        other = (today.namespaces[int(today.pods.namespace[at])], today.pods.names[at], today.pods.uids[at])
        if other not in history.cpu_cores and other not in history.memory_bytes:
            return template
        more = [
            (known.get(key, 0.0) - known.get(other, 0.0)) * unit
            for known, unit in ((history.cpu_cores, 1000.0), (history.memory_bytes, 1.0))
        ]
        had = [known.get(key, 0.0) * unit for known, unit in ((history.cpu_cores, 1000.0), (history.memory_bytes, 1.0))]
        if all(abs(by) <= _EQUAL * max(of, 1.0) for by, of in zip(more, had, strict=True)):
            return template
        cpu, memory = more

        def made() -> PodTemplate:
            of = today.pod_templates[template]
            return msgspec.structs.replace(
                of,
                cpu_request_millicores=max(of.cpu_request_millicores + cpu, 0.0),
                memory_request_bytes=max(of.memory_request_bytes + memory, 0.0),
                cpu_scored_millicores=max(of.cpu_scored_millicores + cpu, 0.0),
                memory_scored_bytes=max(of.memory_scored_bytes + memory, 0.0),
                scored_on_arrival=None,
            )

        self._counted["other requests"] += 1
        return self._interned((template, cpu, memory, ""), made)

    def _of_requests(self, key: PodKey, priority_class: str) -> int:
        cpu = self._history.cpu_cores.get(key, 0.0) * 1000.0
        memory = self._history.memory_bytes.get(key, 0.0)

        def made() -> PodTemplate:
            return PodTemplate(
                cpu_request_millicores=cpu,
                memory_request_bytes=memory,
                cpu_scored_millicores=cpu or SCORED_DEFAULT_CPU_MILLICORES,
                memory_scored_bytes=memory or SCORED_DEFAULT_MEMORY_BYTES,
                priority_class=priority_class,
                qos="Burstable" if cpu or memory else "BestEffort",
            )

        return self._interned((-1, cpu, memory, priority_class), made)

    def _interned(self, key: tuple[int, float, float, str], made: Callable[[], PodTemplate]) -> int:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._known + len(self._templates)
            self._templates.append(made())
        return found

    def gaps(self, counted: Mapping[str, int], *, unseen: int, ready: bool) -> tuple[Gap, ...]:
        """What was completed, in sentences."""
        own, history = self._counted, self._history
        sentences = [
            (
                own["service"],
                "templates of pods whose ReplicaSet or Job is gone are those of today's pods of the same service",
            ),
            (
                own["other requests"],
                "requests differ from those of today's pods of the service, whose template is taken for all else",
            ),
            (
                own["requests"],
                "services without any pod today have templates of the recorded requests alone, without labels, "
                "affinity and tolerations",
            ),
            (counted["elsewhere"], "pods on nodes that kube_node_info doesn't have are left out"),
            (counted["created"], "pods without kube_pod_created count as created before the recording"),
            (unseen, "pods of today that kube-state-metrics doesn't show have the times of their status"),
        ]
        out = [Gap(text, pods) for pods, text in sentences if pods]
        if own["stems"]:
            out.append(Gap("owners of ReplicaSets and Jobs that are gone are found by their names", 0))
        if not ready:
            out.append(Gap("no kube_pod_status_ready_time: pods count as Ready when they started", len(history.info)))
        if not history.scheduled and history.info:
            text = "no kube_pod_status_scheduled_time: pods count as bound when they started"
            out.append(Gap(text, len(history.info)))
        if not history.cpu_cores and not history.memory_bytes and history.info:
            out.append(Gap("no kube_pod_container_resource_requests: requests are those of today's templates", 0))
        return tuple(out)

    def table(self, rows: Sequence[_Row], gaps: tuple[Gap, ...]) -> RecordedPodTable:
        """The finished columns."""
        rows = sorted(rows, key=lambda row: (row.created, row.key))
        spaces = self._spaces
        namespace = [spaces.setdefault(row.key[0], len(spaces)) for row in rows]

        def times(name: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
            return np.array([getattr(row, name) for row in rows], dtype=np.float64)

        def indices(name: str) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
            return np.array([getattr(row, name) for row in rows], dtype=np.int32)

        pods = RecordedPods(
            names=[row.key[1] for row in rows],
            uids=[row.key[2] for row in rows],
            namespace=np.array(namespace, dtype=np.int32),
            owner=indices("owner"),
            template=indices("template"),
            node=indices("node"),
            created=times("created"),
            bound=times("bound"),
            ready=times("ready"),
            ended=times("ended"),
            priority=np.array([row.priority for row in rows], dtype=np.int64),
            replaced=np.full(len(rows), -1, dtype=np.int32),
        )
        return RecordedPodTable(
            pods=pods,
            namespaces=tuple(spaces),
            owners=tuple(self._owners),
            pod_templates=self._today.pod_templates.followed_by(self._templates),
            gaps=gaps,
        )
