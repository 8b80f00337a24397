"""Nodes and pods, page by page, as the snapshot's columns."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as replaced
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rebalancer.kube.snapshot.effective_requests import whole_up
from rebalancer.kube.snapshot.images import ImageTable
from rebalancer.kube.snapshot.pod_templates import PodTemplateColumns, PodTemplates
from rebalancer.kube.snapshot.quarantine import NAMELESS
from rebalancer.kube.snapshot.records import Condition, Node, NodeStatus, OwnerReference, Pod, PodMeta, PodSpec
from rebalancer.kube.snapshot.records import PodStatus as WireStatus
from rebalancer.kube.snapshot.statuses import NOTHING, is_quiet, restarts_of, scheduling_of, status_of
from rebalancer.kube.snapshot.times import epoch_column, epoch_seconds
from rebalancer.model.cluster.nodes import NodeImages, Nodes
from rebalancer.model.cluster.obstacles import Obstacle, one_line
from rebalancer.model.cluster.pods import FAILED, PHASES, REQUESTED, SUCCEEDED, UNKNOWN, Pods, PodStatus
from rebalancer.model.cluster.releases import OLDEST_MINOR
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.model.notation.quantity import LARGEST, parse_quantity

PLAIN_RESOURCES = frozenset({"cpu", "memory", "pods"})
ADDRESS_TYPES = frozenset({"InternalIP", "Hostname", "InternalDNS"})
LONGEST_ANNOTATION = 256
"""Characters. Annotations that select nodes are short; longer ones are an agent's state."""


class NodeColumns:
    """A collector of nodes. The records are kept without their images, which are most of a node's size."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._images = ImageTable()

    def add(self, nodes: Sequence[Node], /) -> None:
        """Take one page."""
        for node in nodes:
            self._images.add_node(node.status.images or ())
            self._nodes.append(without_bulk(node))

    def finish(self) -> Nodes:
        """The columns."""
        return node_columns(self._nodes, self._images.finish())


def without_bulk(node: Node) -> Node:
    """A node without its images and without annotations that are whole documents."""
    short = {
        sys.intern(key): value
        for key, value in (node.metadata.annotations or {}).items()
        if len(value) <= LONGEST_ANNOTATION
    }
    return replace(
        node, metadata=replace(node.metadata, annotations=short or None), status=replace(node.status, images=None)
    )


def node_columns(nodes: Sequence[Node], images: NodeImages) -> Nodes:
    """The columns of all nodes, in this order."""
    parsed = _Parsed()
    unreadable = tuple(node.unread or _why_unreadable(node, parsed) for node in nodes)
    nodes = [_closed(node, parsed) if why else node for node, why in zip(nodes, unreadable, strict=True)]
    statuses = [node.status for node in nodes]
    capacity = [status.capacity or {} for status in statuses]
    allocatable = [status.allocatable or {} for status in statuses]

    def figures(amounts: list[dict[str, str]], name: str, scale: float = 1.0) -> Floats:
        return np.array([whole_up(parsed[each.get(name, "0")] * scale) for each in amounts], dtype=np.float64)

    return Nodes(
        names=tuple(node.metadata.name for node in nodes),
        cpu_capacity_millicores=figures(capacity, "cpu", 1000.0),
        cpu_allocatable_millicores=figures(allocatable, "cpu", 1000.0),
        memory_capacity_bytes=figures(capacity, "memory"),
        memory_allocatable_bytes=figures(allocatable, "memory"),
        pods_allocatable=figures(allocatable, "pods"),
        ready=np.array([is_ready(node.status.conditions) for node in nodes], dtype=np.bool_),
        unready_since=np.array([unready_since(node.status.conditions) for node in nodes], dtype=np.float64),
        conditions=tuple(_true(node.status.conditions) for node in nodes),
        unschedulable=np.array([node.spec.unschedulable for node in nodes], dtype=np.bool_),
        created=np.array([epoch_seconds(node.metadata.creation_timestamp) for node in nodes], dtype=np.float64),
        unreadable=unreadable,
        labels=tuple(node.metadata.labels or {} for node in nodes),
        taints=tuple(node.spec.taints or () for node in nodes),
        declared_features=tuple(tuple(status.declared_features or ()) for status in statuses),
        addresses=tuple(
            tuple(address.address for address in status.addresses or () if address.type in ADDRESS_TYPES)
            for status in statuses
        ),
        extended=tuple(
            {name: parsed[text] for name, text in each.items() if name not in PLAIN_RESOURCES} for each in allocatable
        ),
        images=images,
        annotations=tuple(node.metadata.annotations or {} for node in nodes),
    )


def _why_unreadable(node: Node, parsed: "_Parsed") -> str:
    """The first figure that is no quantity, or out of range; empty without one."""
    status = node.status
    for field, amounts in (("capacity", status.capacity), ("allocatable", status.allocatable)):
        for name, text in (amounts or {}).items():
            try:
                if not 0.0 <= parsed[text] * (1000.0 if name == "cpu" else 1.0) <= LARGEST:
                    return one_line(f"{field} of {name}: {text} is out of range")
            except ValueError as error:
                return one_line(f"{field} of {name}: {error}")
    return ""


def _closed(node: Node, parsed: "_Parsed") -> Node:
    """A node that can't be read: not Ready, with nothing allocatable, and of its capacity what can be read. The least
    stands in for the rest, so that a share of it is defined; no usage is plausible there."""
    capacity = dict(node.status.capacity or {})
    for name, least in (("cpu", "1m"), ("memory", "1")):
        try:
            known = 0.0 < parsed[capacity.get(name, "")] <= LARGEST
        except ValueError:
            known = False
        if not known:
            capacity[name] = least
    plain = {name: text for name, text in capacity.items() if name in PLAIN_RESOURCES - {"pods"}}
    return replace(node, status=NodeStatus(capacity=plain, addresses=node.status.addresses))


class _Parsed(dict[str, float]):
    """Quantities, each text parsed once."""

    def __missing__(self, text: str) -> float:
        amount = self[text] = parse_quantity(text)
        return amount


def controller_of(references: Sequence[OwnerReference] | None) -> OwnerReference | None:
    """The reference that is marked as controller; there is at most one."""
    if references:
        for reference in references:
            if reference.controller:
                return reference
    return None


class PodColumns:
    """A collector of pods. Owners are numbered here and looked up in the workload lists afterwards."""

    def __init__(self, *, nodes: Mapping[str, int], namespaces: Sequence[str], minor: int = OLDEST_MINOR) -> None:
        """`minor`: as of the snapshot."""
        self._node_index = nodes
        self._namespace_index = {name: index for index, name in enumerate(dict.fromkeys(namespaces))}
        self._owner_index: dict[tuple[str, str], int] = {}
        self._status_index: dict[PodStatus, int] = {NOTHING: 0}
        self._phase_index = {name: index for index, name in enumerate(PHASES)}
        self._pages: list[dict[str, NDArray[Any]]] = []
        self.names: list[str] = []
        self.uids: list[str] = []
        self.pod_templates = PodTemplates(minor)
        self.owners: list[tuple[str, OwnerReference]] = []
        """(namespace, reference) of each controlling owner, in the order of the `owner` column."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The listed namespaces, then those that only pods name."""
        return tuple(self._namespace_index)

    @property
    def statuses(self) -> tuple[PodStatus, ...]:
        """Statuses of the pods, interned."""
        return tuple(self._status_index)

    def add(self, pods: Sequence[Pod], /) -> None:
        """Take one page."""
        try:
            self._add(pods)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - it is one pod's, and the others of its page are none the worse
            for pod in pods:
                try:
                    self._add([pod])
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this pod's
                    self._add([bare(pod, error)])

    def _add(self, pods: Sequence[Pod]) -> None:
        metas = [pod.metadata for pod in pods]
        statuses = [pod.status for pod in pods]
        nodes, spaces, phases = self._node_index, self._namespace_index, self._phase_index
        namespace, owner, template = [], [], []
        index_of, owners = self.pod_templates.index_of, self._owner_index
        # The one loop that runs for every pod of the cluster: it looks up the tables first and calls as little as it
        # can.
        for pod, meta in zip(pods, metas, strict=True):
            space = spaces.get(meta.namespace)
            if space is None:
                space = spaces[meta.namespace] = len(spaces)
            namespace.append(space)
            reference = controller_of(meta.owner_references)
            if reference is None:
                owner.append(-1)
                template.append(index_of(pod, of_daemonset=False))
                continue
            # with the namespace: a uid that a tenant copied names nothing of another namespace
            key = meta.namespace, reference.uid
            number = owners.get(key)
            if number is None:
                number = owners[key] = len(self.owners)
                self.owners.append((meta.namespace, reference))
            owner.append(number)
            template.append(index_of(pod, of_daemonset=reference.kind == "DaemonSet"))
        node = np.array([nodes.get(pod.spec.node_name, -1) for pod in pods], dtype=np.int32)
        page: dict[str, NDArray[Any]] = {
            "namespace": np.array(namespace, dtype=np.int32),
            "node": node,
            "owner": np.array(owner, dtype=np.int32),
            "template": np.array(template, dtype=np.int32),
            "phase": np.array([phases.get(status.phase, UNKNOWN) for status in statuses], dtype=np.int8),
            "ready": np.array([is_ready(status.conditions) for status in statuses], dtype=np.bool_),
            "unready_since": np.array([unready_since(status.conditions) for status in statuses], dtype=np.float64),
            "ends": np.array([ends(pod) for pod in pods], dtype=np.float64),
            "terminating": np.array([meta.deletion_timestamp is not None for meta in metas], dtype=np.bool_),
            "created": epoch_column([meta.creation_timestamp for meta in metas]),
            "started": epoch_column([status.start_time for status in statuses]),
            **self._waiting(pods, np.flatnonzero(node < 0).tolist()),
            **self._statuses_of(statuses),
        }
        # last, and all together: a page is taken whole or not at all
        self._pages.append(page)
        self.names += [meta.name for meta in metas]
        self.uids += [meta.uid for meta in metas]

    def _statuses_of(self, statuses: Sequence[WireStatus]) -> dict[str, Ints]:
        """(pods,) of the columns of a status."""
        restarts, init_restarts, number = np.zeros((3, len(statuses)), dtype=np.int32)
        numbers = self._status_index
        for row, status in enumerate(statuses):
            if not is_quiet(status):
                restarts[row] = restarts_of(status.container_statuses)
                init_restarts[row] = restarts_of(status.init_container_statuses)
                number[row] = numbers.setdefault(status_of(status), len(numbers))
        return {"restarts": restarts, "init_restarts": init_restarts, "status": number}

    def _waiting(self, pods: Sequence[Pod], rows: Iterable[int]) -> dict[str, NDArray[Any]]:
        """(pods,) of the columns of a pod that waits. `rows`: the pods on no listed node, the only ones that can be so.

        A bound pod may still name the node that it was nominated to: no room is kept there any more. One that is bound
        to a node that isn't listed waits for none.
        """
        gated, unschedulable = np.zeros((2, len(pods)), dtype=np.bool_)
        nominated = np.full(len(pods), -1, dtype=np.int32)
        for row in rows:
            if pods[row].spec.node_name:
                gated[row] = True
            else:
                gated[row], unschedulable[row] = scheduling_of(pods[row])
                nominated[row] = self._node_index.get(pods[row].status.nominated_node_name, -1)
        return {"gated": gated, "unschedulable": unschedulable, "nominated": nominated}

    def finish(self, owner_numbers: Sequence[int]) -> Pods:
        """The columns; `owner_numbers` maps each of `owners` to its index in the snapshot's owners."""
        # -1 (no owner) picks the appended last element, which is -1 again.
        numbers = np.array([*owner_numbers, -1], dtype=np.int32)
        columns = self._joined()
        columns["owner"] = numbers[columns["owner"]]
        return pod_columns(columns, names=self.names, uids=self.uids, figures=self.pod_templates.columns())

    def _joined(self) -> dict[str, NDArray[Any]]:
        if not self._pages:
            # An empty page has every column's type.
            self.add(())
        joined = {name: np.concatenate([page[name] for page in self._pages]) for name in self._pages[0]}
        self._pages = [joined]
        return dict(joined)


def pod_columns(
    rows: Mapping[str, NDArray[Any]], *, names: list[str], uids: list[str], figures: PodTemplateColumns
) -> Pods:
    """The columns of pods. `rows` has those that are not of the template, by name, as (pods,) arrays."""
    template = rows["template"]
    unreadable = figures.unreadable[template]
    return Pods(
        names=names,
        uids=uids,
        namespace=rows["namespace"],
        node=rows["node"],
        owner=rows["owner"],
        template=template,
        phase=rows["phase"],
        ready=rows["ready"],
        unready_since=rows["unready_since"],
        ends=rows["ends"],
        terminating=rows["terminating"],
        created=rows["created"],
        started=rows["started"],
        priority=figures.priority[template],
        cpu_request_millicores=figures.cpu_request_millicores[template],
        memory_request_bytes=figures.memory_request_bytes[template],
        cpu_scored_millicores=figures.cpu_scored_millicores[template],
        memory_scored_bytes=figures.memory_scored_bytes[template],
        # what it needs isn't known, so no room is kept for it and none asked for
        gated=rows["gated"] | (unreadable & (rows["node"] < 0)),
        unschedulable=rows["unschedulable"],
        nominated=rows["nominated"],
        restarts=rows["restarts"],
        init_restarts=rows["init_restarts"],
        status=rows["status"],
        unreadable=unreadable,
    )


def bare(pod: Pod, error: Exception) -> Pod:
    """The pod with what identifies it and says where it runs, for one that a reader raised `error` at."""
    meta = pod.metadata
    return Pod(
        metadata=PodMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=meta.owner_references,
        ),
        spec=PodSpec(node_name=pod.spec.node_name),
        status=WireStatus(phase=pod.status.phase),
        unread=pod.unread or one_line(f"{type(error).__name__}: {error}"),
    )


def unreadable_pods(pods: Pods, namespaces: Sequence[str], causes: Sequence[str]) -> list[Obstacle]:
    """The obstacles among the pods. `causes` (templates,): why each can't be read."""
    return [
        Obstacle(
            kind="Pod",
            namespace=namespaces[int(pods.namespace[row])],
            name=pods.names[row] or NAMELESS,
            cause=causes[int(pods.template[row])],
        )
        for row in np.flatnonzero(pods.unreadable).tolist()
    ]


REQUESTED_OF = (
    ("cpu", "cpu_request_millicores", "cpu_allocatable_millicores"),
    ("memory", "memory_request_bytes", "memory_allocatable_bytes"),
)
"""Resource, column of the pods, column of the nodes."""


def larger_than_nodes(pods: Pods, nodes: Nodes, namespaces: Sequence[str]) -> tuple[Pods, list[Obstacle]]:
    """The pods, of which those that request more than their whole node are unreadable too, and these obstacles.

    No scheduler puts a pod there and no kubelet runs it, but a tenant can write `nodeName` or resize a pod in place.
    Until it is measured, what such a pod will use would be taken from its request.
    """
    held = (pods.node >= 0) & (pods.phase != SUCCEEDED) & (pods.phase != FAILED) & ~pods.unreadable
    found: dict[int, str] = {}
    for name, requested, allocatable in REQUESTED_OF:
        # the last is of pods on no node; a node without a figure is not registered yet
        there = np.append(getattr(nodes, allocatable), 0.0)[pods.node]
        request = getattr(pods, requested)
        for row in np.flatnonzero(held & (there > 0) & (request > there)).tolist():
            found.setdefault(row, f"request of {name}: {request[row]:g} is more than the {there[row]:g} of its node")
    if not found:
        return pods, []
    rows = np.zeros(len(pods), dtype=np.bool_)
    rows[list(found)] = True
    nothing: dict[str, Any] = {name: np.where(rows, 0.0, getattr(pods, name)) for name in REQUESTED}
    obstacles = [
        Obstacle(kind="Pod", namespace=namespaces[int(pods.namespace[row])], name=pods.names[row], cause=why)
        for row, why in found.items()
    ]
    return replaced(pods, unreadable=pods.unreadable | rows, **nothing), obstacles


def unreadable_nodes(nodes: Nodes) -> list[Obstacle]:
    """The obstacles among the nodes."""
    return [
        Obstacle(kind="Node", namespace="", name=name or NAMELESS, cause=why)
        for name, why in zip(nodes.names, nodes.unreadable, strict=True)
        if why
    ]


def is_ready(conditions: Sequence[Condition] | None) -> bool:
    """The condition Ready; False without it."""
    if conditions:
        for condition in conditions:
            if condition.type == "Ready":
                return condition.status == "True"
    return False


def unready_since(conditions: Sequence[Condition] | None) -> float:
    """When the condition Ready changed last, where it is not True; seconds since the epoch, NaN where it is or isn't
    known."""
    for condition in conditions or ():
        if condition.type == "Ready":
            return math.nan if condition.status == "True" else epoch_seconds(condition.last_transition_time)
    return math.nan


def ends(pod: Pod) -> float:
    """When the pod ends at the latest, seconds since the epoch; NaN without a time. The API server dates a deletion at
    the end of the grace period."""
    if pod.metadata.deletion_timestamp is not None:
        return epoch_seconds(pod.metadata.deletion_timestamp)
    seconds = pod.spec.active_deadline_seconds
    return math.nan if seconds is None else epoch_seconds(pod.status.start_time) + seconds


def _true(conditions: Sequence[Condition] | None) -> tuple[str, ...]:
    """Types of the conditions that are True, but Ready, in order."""
    found = (each.type for each in conditions or () if each.status == "True" and each.type != "Ready")
    return tuple(sorted(map(sys.intern, found)))
