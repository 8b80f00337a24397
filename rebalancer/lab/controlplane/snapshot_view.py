"""The lab's objects as the snapshot that the scheduler's model reads.

Written independently of the adapter that reads a real API server, so that a mistake in one of the two shows as a
difference. Parsed values are cached: a stored object never changes in place.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.lab.clock import seconds_of
from rebalancer.lab.controlplane.owned import controller_of
from rebalancer.lab.controlplane.pod_templates import template_of
from rebalancer.lab.objects.disruption import is_ready, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.model.cluster.nodes import NodeImages, Nodes
from rebalancer.model.cluster.objects import NodeSelector, PodTemplate, Taint
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import PHASES, Pods, requested
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.decoding import convert
from rebalancer.model.notation.quantity import LARGEST, parse_quantity
from rebalancer.placement.plugins.images import normalised

_PLAIN = ("cpu", "memory", "pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The column values of one pod."""

    version: str
    namespace: str
    owner: tuple[str, Owner] | None
    """(uid, record) of the direct controller."""
    template: int
    phase: int
    ready: bool
    terminating: bool
    created: float
    started: float
    priority: int
    gated: bool
    unschedulable: bool


class SchedulerView:
    """Makes snapshots; caches parsed pods and templates."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._template_numbers: dict[bytes, int] = {}
        self._templates: list[PodTemplate] = []

    def snapshot(
        self, *, nodes: Sequence[Obj], pods: Sequence[Obj], others: Callable[[str], Iterable[Obj]], now: float
    ) -> ClusterSnapshot:
        """The snapshot of these nodes and pods, in their order. `others(plural)` returns the objects of other kinds."""
        rows = [self._row(pod) for pod in pods]
        self._rows = {pod["metadata"]["uid"]: row for pod, row in zip(pods, rows, strict=True)}
        spaces = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in others("namespaces")}
        for row in rows:
            spaces.setdefault(row.namespace, {})
        owners: dict[str, Owner] = dict(row.owner for row in rows if row.owner is not None)
        volume_nodes, exclusive = _claims(others)
        return ClusterSnapshot(
            taken=now,
            nodes=_nodes(nodes),
            pods=self._pods(nodes, pods, rows, list(spaces), list(owners)),
            pod_templates=PodTemplateTable(
                [str(number).encode() for number in range(len(self._templates))], self._template
            ),
            namespaces=tuple(spaces),
            namespace_labels=spaces,
            owners=tuple(owners.values()),
            budgets=(),
            volume_nodes=volume_nodes,
            exclusive_claims=exclusive,
            services=_services(others),
        )

    def _template(self, number: bytes) -> PodTemplate:
        return self._templates[int(number)]

    def _row(self, pod: Obj) -> _Row:
        meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
        known = self._rows.get(meta["uid"])
        if known is not None and known.version == meta["resourceVersion"]:
            return known
        owner = controller_of(pod)
        record = None
        if owner is not None:
            namespace = "" if owner["kind"] == "Node" else meta["namespace"]
            record = (
                owner["uid"],
                Owner(kind=owner["kind"], namespace=namespace, name=owner["name"], uid=owner["uid"]),
            )
        return _Row(
            version=meta["resourceVersion"],
            namespace=meta["namespace"],
            owner=record,
            template=self._number(pod, of_daemon_set=owner is not None and owner["kind"] == "DaemonSet"),
            phase=PHASES.index(status.get("phase", "Pending")),
            ready=is_ready(pod),
            terminating=is_terminating(pod),
            created=seconds_of(meta["creationTimestamp"]),
            started=seconds_of(status["startTime"]) if "startTime" in status else float("nan"),
            priority=int(spec.get("priority") or 0),
            gated=bool(spec.get("schedulingGates")),
            unschedulable=not spec.get("nodeName") and _is_unschedulable(status),
        )

    def _number(self, pod: Obj, *, of_daemon_set: bool) -> int:
        spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "schedulingGates")}
        if of_daemon_set and pod["spec"].get("nodeName"):
            # Its node affinity is the pod's own, and would make each pod a template.
            spec.pop("affinity", None)
        key = msgspec.json.encode((pod["metadata"].get("labels"), spec), order="deterministic")
        number = self._template_numbers.get(key)
        if number is None:
            number = self._template_numbers[key] = len(self._templates)
            self._templates.append(template_of(pod["metadata"].get("labels") or {}, spec))
        return number

    def _pods(
        self, nodes: Sequence[Obj], pods: Sequence[Obj], rows: Sequence[_Row], spaces: list[str], owners: list[str]
    ) -> Pods:
        node_at = {node["metadata"]["name"]: index for index, node in enumerate(nodes)}
        space_at = {name: index for index, name in enumerate(spaces)}
        owner_at = {uid: index for index, uid in enumerate(owners)}

        def ints(values: Iterable[int]) -> Any:
            return np.fromiter(values, dtype=np.int32, count=len(rows))

        def floats(values: Iterable[float]) -> Any:
            return np.fromiter(values, dtype=np.float64, count=len(rows))

        def bools(values: Iterable[bool]) -> Any:
            return np.fromiter(values, dtype=np.bool_, count=len(rows))

        return replace(
            Pods.blank(len(rows)),
            names=[pod["metadata"]["name"] for pod in pods],
            uids=[pod["metadata"]["uid"] for pod in pods],
            namespace=ints(space_at[row.namespace] for row in rows),
            node=ints(node_at.get(pod["spec"].get("nodeName") or "", -1) for pod in pods),
            owner=ints(-1 if row.owner is None else owner_at[row.owner[0]] for row in rows),
            template=ints(row.template for row in rows),
            phase=np.array([row.phase for row in rows], dtype=np.int8),
            ready=bools(row.ready for row in rows),
            terminating=bools(row.terminating for row in rows),
            created=floats(row.created for row in rows),
            started=floats(row.started for row in rows),
            priority=np.array([row.priority for row in rows], dtype=np.int64),
            **requested(self._templates[row.template] for row in rows),
            gated=bools(row.gated for row in rows),
            unschedulable=bools(row.unschedulable for row in rows),
            nominated=ints(
                -1 if pod["spec"].get("nodeName") else node_at.get(pod["status"].get("nominatedNodeName") or "", -1)
                for pod in pods
            ),
        )


def _is_unschedulable(status: Obj) -> bool:
    conditions = status.get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def _nodes(nodes: Sequence[Obj]) -> Nodes:
    capacity = [node["status"].get("capacity") or {} for node in nodes]
    allocatable = [node["status"].get("allocatable") or {} for node in nodes]

    def amounts(of: list[Obj], name: str, scale: float = 1.0) -> Any:
        found = [min(parse_quantity(str(each.get(name, "0"))) * scale, LARGEST) for each in of]
        return np.array(found, dtype=np.float64)

    return replace(
        Nodes.blank(len(nodes)),
        names=tuple(node["metadata"]["name"] for node in nodes),
        cpu_capacity_millicores=amounts(capacity, "cpu", 1000.0),
        cpu_allocatable_millicores=amounts(allocatable, "cpu", 1000.0),
        memory_capacity_bytes=amounts(capacity, "memory"),
        memory_allocatable_bytes=amounts(allocatable, "memory"),
        pods_allocatable=amounts(allocatable, "pods"),
        ready=np.array([is_ready(node) for node in nodes], dtype=np.bool_),
        unschedulable=np.array([bool(node["spec"].get("unschedulable")) for node in nodes], dtype=np.bool_),
        created=np.array([seconds_of(node["metadata"]["creationTimestamp"]) for node in nodes], dtype=np.float64),
        labels=tuple(node["metadata"].get("labels") or {} for node in nodes),
        taints=tuple(convert(node["spec"].get("taints") or [], tuple[Taint, ...]) for node in nodes),
        addresses=tuple(tuple(each["address"] for each in node["status"].get("addresses") or ()) for node in nodes),
        extended=tuple(
            {name: min(parse_quantity(str(value)), LARGEST) for name, value in each.items() if name not in _PLAIN}
            for each in allocatable
        ),
        images=_images(nodes),
        annotations=tuple(node["metadata"].get("annotations") or {} for node in nodes),
    )


def _images(nodes: Sequence[Obj]) -> NodeImages:
    names: dict[str, int] = {}
    sizes: list[float] = []
    pairs: dict[tuple[int, int], None] = {}
    for index, node in enumerate(nodes):
        for image in node["status"].get("images") or ():
            for name in image.get("names") or ():
                number = names.setdefault(normalised(name), len(names))
                if number == len(sizes):
                    sizes.append(float(image.get("sizeBytes", 0)))
                pairs[number, index] = None
    table = np.array(list(pairs), dtype=np.int32).reshape(-1, 2)
    return NodeImages(names, np.array(sizes, dtype=np.float64), table[:, 0], table[:, 1])


def _services(others: Callable[[str], Iterable[Obj]]) -> dict[str, tuple[dict[str, str], ...]]:
    """Namespace -> the selectors of its Services."""
    out: dict[str, tuple[dict[str, str], ...]] = {}
    for each in others("services"):
        if selector := each.get("spec", {}).get("selector"):
            space = each["metadata"]["namespace"]
            out[space] = (*out.get(space, ()), selector)
    return out


def _claims(
    others: Callable[[str], Iterable[Obj]],
) -> tuple[dict[tuple[str, str], NodeSelector], frozenset[tuple[str, str]]]:
    """Nodes on which claims' volumes can be used, and the claims that one pod at a time may use."""
    tied: dict[tuple[str, str], NodeSelector] = {}
    for volume in others("persistentvolumes"):
        claim = volume["spec"].get("claimRef")
        required = (volume["spec"].get("nodeAffinity") or {}).get("required")
        if claim and required:
            tied[claim["namespace"], claim["name"]] = convert(required, NodeSelector)
    exclusive = frozenset(
        (claim["metadata"]["namespace"], claim["metadata"]["name"])
        for claim in others("persistentvolumeclaims")
        if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ())
    )
    return tied, exclusive
