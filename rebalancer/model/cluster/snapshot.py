"""The cluster at one moment, as columns.

150,000 pods are a handful of numpy arrays and interned tables, not 150,000 objects: masks and sorts take
milliseconds, and `Pod` objects are made only for the few that a decision looks at. Index -1 means "none".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.autoscaling import HorizontalAutoscaler
from rebalancer.model.cluster.objects import LabelSelector, NodeSelector, PodTemplate, Taint
from rebalancer.model.cluster.quota import ResourceQuota
from rebalancer.model.cluster.template_index import PodTemplateOutline, TemplateIndex
from rebalancer.model.notation.decoding import json_decoder

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

SCORED_DEFAULT_CPU_MILLICORES = 100.0
SCORED_DEFAULT_MEMORY_BYTES = 200.0 * 1024 * 1024
OWNER_LEVELS = 8
"""More owners above each other than there are in any cluster."""


class NodeImages:
    """Container images on nodes, by every name that a node reports for them."""

    def __init__(self, names: Mapping[str, int], size_bytes: Floats, image: Ints, node: Ints) -> None:
        """`names` numbers the image names; `size_bytes` (names,) is the first reporting node's; `image` and `node`
        (pairs,) are the pairs of name and node, in any order, without repeats."""
        self._names = names
        self._size_bytes = size_bytes
        order = np.argsort(image, kind="stable")
        self._node = node[order]
        self._starts = np.searchsorted(image[order], np.arange(len(size_bytes) + 1))

    @classmethod
    def none(cls) -> "NodeImages":
        """No node reports any image."""
        nothing = np.empty(0, dtype=np.int32)
        return cls({}, np.empty(0), nothing, nothing)

    def of_nodes(self, nodes: Ints) -> "NodeImages":
        """The images of these nodes, numbered from 0 in their order."""
        count = int(max(self._node.max(initial=-1), nodes.max(initial=-1))) + 1
        place = np.full(count, -1, dtype=np.int32)
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        image = np.repeat(np.arange(len(self._size_bytes), dtype=np.int32), np.diff(self._starts))
        kept = place[self._node] >= 0
        return NodeImages(self._names, self._size_bytes, image[kept], place[self._node[kept]])

    def size_of(self, name: str) -> float | None:
        """Bytes of an image; None where no node has it. `name` must be normalised (with its tag)."""
        number = self._names.get(name)
        return None if number is None else float(self._size_bytes[number])

    def nodes_with(self, name: str) -> Ints:
        """Indices of the nodes that have the image."""
        number = self._names.get(name)
        if number is None:
            return self._node[:0]
        return self._node[self._starts[number] : self._starts[number + 1]]

    def only(self, nodes: Ints) -> "NodeImages":
        """The images of some nodes, ascending indices; the first of them is node 0."""
        image = np.repeat(np.arange(len(self._size_bytes), dtype=np.int32), np.diff(self._starts))
        kept = np.isin(self._node, nodes)
        node = np.searchsorted(nodes, self._node[kept]).astype(np.int32)
        return NodeImages(self._names, self._size_bytes, image[kept], node)

    def columns(self) -> tuple[Mapping[str, int], Floats, Ints, Ints]:
        """The arguments that make the same table, pairs by image."""
        image = np.repeat(np.arange(len(self._size_bytes), dtype=np.int32), np.diff(self._starts))
        return self._names, self._size_bytes, image, self._node


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Columns of length `nodes`; labels, taints and extended resources are per-node tuples."""

    names: tuple[str, ...]
    cpu_capacity_millicores: Floats
    cpu_allocatable_millicores: Floats
    memory_capacity_bytes: Floats
    memory_allocatable_bytes: Floats
    pods_allocatable: Floats
    ready: Bools
    unschedulable: Bools
    created: Floats
    """Seconds since the epoch."""
    labels: tuple[Mapping[str, str], ...]
    taints: tuple[tuple[Taint, ...], ...]
    addresses: tuple[tuple[str, ...], ...]
    """Internal IPs and hostnames: possible values of an `instance` label."""
    extended: tuple[Mapping[str, float], ...]
    """Allocatable of every resource besides cpu, memory and pods."""
    images: NodeImages = field(default_factory=NodeImages.none)
    annotations: tuple[Mapping[str, str], ...]

    def __len__(self) -> int:
        return len(self.names)


_ADDED = b"\0"
"""Begins a stored template that was added to a table: no adapter's begins so."""


class PodTemplateTable:
    """Pod templates, interned, and decoded on access.

    `decode` turns one stored blob into a `PodTemplate`; adapters that have objects already pass them through. `outline`
    does the same for the few fields that are read of all templates, where that is quicker than decoding the whole.
    """

    def __init__(
        self,
        blobs: list[bytes],
        decode: Callable[[bytes], PodTemplate],
        outline: Callable[[bytes], PodTemplateOutline] | None = None,
        *,
        extends: "PodTemplateTable | None" = None,
    ) -> None:
        """`extends`: a table of which all templates come first in this one."""
        self._blobs = blobs
        self._index: TemplateIndex = TemplateIndex() if extends is None else extends._index
        self._decode = decode
        self._outline = outline
        self._decoded: dict[int, PodTemplate] = {}

    def __len__(self) -> int:
        return len(self._blobs)

    def __getitem__(self, index: int) -> PodTemplate:
        template = self._decoded.get(index)
        if template is None:
            template = self._decoded[index] = self._decode(self._blobs[index])
        return template

    def only(self, indices: Sequence[int]) -> "PodTemplateTable":
        """A table of the templates at `indices`, in that order."""
        return PodTemplateTable([self._blobs[index] for index in indices], self._decode, self._outline)

    def __reduce__(self) -> tuple[Callable[[list[bytes]], "PodTemplateTable"], tuple[list[bytes]]]:
        # decoded first: what decodes the blobs need not be known to another process
        return _from_json, ([msgspec.json.encode(self._decode(blob)) for blob in self._blobs],)

    def blob(self, index: int) -> bytes:
        """One template as it is stored: the same in every table of a reader."""
        return self._blobs[index]

    def decoded(self, index: int) -> PodTemplate:
        """As by index, but not kept."""
        return self._decoded.get(index) or self._decode(self._blobs[index])

    def outline(self, index: int) -> PodTemplateOutline:
        """Labels and affinity of one template; not kept."""
        if self._outline is not None:
            return self._outline(self._blobs[index])
        return _outline_of(self[index])

    def followed_by(self, templates: Sequence[PodTemplate]) -> "PodTemplateTable":
        """A table of these templates, then of `templates`."""
        added = [_ADDED + msgspec.json.encode(each) for each in templates]
        outline = None if self._outline is None else _OutlineAdded(self._outline)
        return PodTemplateTable([*self._blobs, *added], _DecodeAdded(self._decode), outline, extends=self)

    @property
    def index(self) -> TemplateIndex:
        """All templates by what selects them; made of those that the table before didn't have."""
        known = self._index
        if known.count < len(self):
            known = self._index = known.extended(map(self.outline, range(known.count, len(self))))
        return known


@dataclass(frozen=True, slots=True)
class _DecodeAdded:
    """Decodes the templates of a table and those that were added to it."""

    decode: Callable[[bytes], PodTemplate]

    def __call__(self, blob: bytes) -> PodTemplate:
        return _added(blob) if blob.startswith(_ADDED) else self.decode(blob)


@dataclass(frozen=True, slots=True)
class _OutlineAdded:
    """The same of their outlines."""

    outline: Callable[[bytes], PodTemplateOutline]

    def __call__(self, blob: bytes) -> PodTemplateOutline:
        return _outline_of(_added(blob)) if blob.startswith(_ADDED) else self.outline(blob)


def _added(blob: bytes) -> PodTemplate:
    return json_decoder(PodTemplate).decode(blob[len(_ADDED) :])


def _outline_of(template: PodTemplate) -> PodTemplateOutline:
    affinity = b"" if template.affinity is None else msgspec.json.encode(template.affinity)
    return PodTemplateOutline(template.labels, affinity, bool(template.topology_spread))


def _from_json(blobs: list[bytes]) -> PodTemplateTable:
    return PodTemplateTable(blobs, json_decoder(PodTemplate).decode)


REVISION_LABEL = "controller-revision-hash"
"""Label of a StatefulSet's pods, and of those of controllers that are made after it."""

ROLLOUT_KINDS = ("Deployment", "StatefulSet", "DaemonSet")
"""Kinds whose status says whether they roll out."""

RUN_ONCE_KINDS = ("Job", "CronJob")
"""Kinds without revisions. Each Job has a pod template of its own, and there may be 100,000."""

# Pod phases, as small numbers in the column.
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN = range(5)


class PodStatus(NamedTuple):
    """A pod's status besides its phase. Most pods have the empty one."""

    reason: str = ""
    """The pod's own, such as Evicted or NodeLost."""
    containers: tuple[str, ...] = ()
    """Reasons why its containers wait or have ended: CrashLoopBackOff, ImagePullBackOff, OOMKilled."""
    init_containers: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    """Of its containers that have ended."""
    init_exit_codes: tuple[int, ...] = ()
    resizing: bool = False
    """The kubelet is changing its resources in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Columns of length `pods`."""

    names: list[str]
    uids: list[str]
    namespace: Ints
    """Index into `ClusterSnapshot.namespaces`."""
    node: Ints
    """Index into `Nodes`, -1 while not bound (or bound to a node that is not listed)."""
    owner: Ints
    """Index into `ClusterSnapshot.owners` of the controlling owner, -1 for a bare pod."""
    template: Ints
    phase: NDArray[np.int8]
    ready: Bools
    terminating: Bools
    created: Floats
    started: Floats
    """Seconds since the epoch, NaN while not started."""
    priority: NDArray[np.int64]
    cpu_request_millicores: Floats
    memory_request_bytes: Floats
    cpu_scored_millicores: Floats
    memory_scored_bytes: Floats
    gated: Bools
    """Has scheduling gates, or a claim that must be bound first: no scheduler places it now."""
    unschedulable: Bools
    """The condition PodScheduled is False: its scheduler found no node for it. Set only while it is not bound."""
    nominated: Ints
    """Index of the node that it was nominated to (room is reserved there), -1 for none."""
    restarts: Ints
    """Of its containers, summed."""
    init_restarts: Ints
    """The same of its init containers, sidecars included."""
    status: Ints
    """Index into `ClusterSnapshot.statuses`."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A workload, or the owner reference of one that isn't listed.

    `desired` and `ready` are None where the kind has no such field; then the pods themselves are counted.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    parent: int = -1
    """Index of its own controlling owner, -1 at the top."""
    desired: int | None = None
    ready: int | None = None
    rolling_out: bool = False
    """The controller has not seen the newest spec, or not all replicas are of it."""
    next_revision: str = ""
    """An OnDelete StatefulSet: the revision that every pod made from now on has. Its older pods stay as they are."""
    finished: bool = False
    """A Job that has completed or failed: it makes no more pods."""
    spares_disruptions: bool = False
    """A Job whose podFailurePolicy ignores DisruptionTarget: an eviction doesn't count as a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The workload that a user names: the top owner."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget, with its controller's last status."""

    namespace: str
    name: str
    selector: LabelSelector | None
    disruptions_allowed: int
    current_healthy: int = 0
    desired_healthy: int = 0
    up_to_date: bool = True
    """`observedGeneration` has reached `generation`: the status belongs to the current spec."""
    evicts_unhealthy: bool = False
    """`unhealthyPodEvictionPolicy: AlwaysAllow`."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, made from the columns for the few that a decision inspects."""

    index: int
    namespace: str
    name: str
    uid: str
    node: int
    node_name: str
    owner: Owner | None
    service: Service | None
    template: PodTemplate
    phase: int
    ready: bool
    terminating: bool
    created: float
    started: float
    priority: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """Everything that was read from the Kubernetes API for one cycle."""

    taken: float
    """Seconds since the epoch, by our clock."""
    nodes: Nodes
    pods: Pods
    pod_templates: PodTemplateTable
    namespaces: tuple[str, ...]
    namespace_labels: Mapping[str, Mapping[str, str]]
    owners: tuple[Owner, ...]
    budgets: tuple[DisruptionBudget, ...]
    statuses: tuple[PodStatus, ...] = (PodStatus(),)
    """Statuses of the pods, interned."""
    listed_kinds: frozenset[str] = frozenset()
    """Kinds of which all workloads are among `owners`, also those without pods; of the others only those with pods."""
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    local_claims: frozenset[tuple[str, str]] = frozenset()
    """(namespace, name) of the claims whose volume stays on one node."""
    volume_nodes: Mapping[tuple[str, str], NodeSelector] = field(default_factory=dict)
    """(namespace, name) of a claim -> the nodes that its bound volume can be used on, where not on all."""
    exclusive_claims: frozenset[tuple[str, str]] = frozenset()
    """Claims that one pod at a time may use (ReadWriteOncePod)."""
    one_node_claims: frozenset[tuple[str, str]] = frozenset()
    """Claims that pods of one node at a time may use (ReadWriteOnce)."""
    bound_claims: frozenset[tuple[str, str]] | None = None
    """Claims with a volume; None where that wasn't read: then all count as bound."""
    claim_drivers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Claim -> CSI driver of its volume."""
    volume_limits: Mapping[str, Floats] | None = field(default_factory=dict)
    """CSI driver -> (nodes,) volumes that a node can have attached. None where CSINodes can't be read."""
    quotas: tuple[ResourceQuota, ...] = ()
    autoscalers: tuple[HorizontalAutoscaler, ...] = ()
    """Empty where they can't be read."""
    claims_known: bool = True
    """False where PersistentVolumes can't be read: then every claim counts as local."""

    @cached_property
    def _autoscaler_of(self) -> Mapping[tuple[str, str, str], HorizontalAutoscaler]:
        return {(each.namespace, *each.target): each for each in self.autoscalers}

    def autoscaler_of(self, service: Service | None) -> HorizontalAutoscaler | None:
        """The HorizontalPodAutoscaler of a service."""
        if service is None:
            return None
        return self._autoscaler_of.get((service.namespace, service.kind, service.name))

    @cached_property
    def budgets_near(self) -> Mapping[tuple[str, tuple[str, str] | None], list[int]]:
        """(namespace, a label pair that a selected pod must have) -> indices of budgets; None for selectors without
        any."""
        near: dict[tuple[str, tuple[str, str] | None], list[int]] = {}
        for index, budget in enumerate(self.budgets):
            pairs = budget.selector.match_labels if budget.selector is not None else {}
            near.setdefault((budget.namespace, next(iter(pairs.items()), None)), []).append(index)
        return near

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.nodes.names)}

    @cached_property
    def active(self) -> Bools:
        """(pods,) pods that hold their requests: bound and not finished."""
        holds: Bools = (self.pods.node >= 0) & (self.pods.phase != SUCCEEDED) & (self.pods.phase != FAILED)
        return holds

    @cached_property
    def _by_node(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.pods.node, kind="stable").astype(np.int32)
        starts = np.searchsorted(self.pods.node[order], np.arange(len(self.nodes) + 1)).astype(np.int32)
        return order, starts

    def pods_on(self, node: int) -> Ints:
        """Indices of the pods bound to a node, finished ones included."""
        order, starts = self._by_node
        return order[starts[node] : starts[node + 1]]

    def per_node(self, values: Floats) -> Floats:
        """(nodes,) sum of a pod column over each node's active pods."""
        chosen = self.active
        return np.bincount(self.pods.node[chosen], weights=values[chosen], minlength=len(self.nodes)).astype(np.float64)

    @cached_property
    def top_owner(self) -> Ints:
        """(owners,) index of each owner's top owner (itself at the top)."""
        top = np.arange(len(self.owners), dtype=np.int32)
        parents = np.fromiter((each.parent for each in self.owners), dtype=np.int32, count=len(top))
        for _ in range(OWNER_LEVELS):
            above = np.where(parents[top] >= 0, parents[top], top)
            if np.array_equal(above, top):
                return top
            top = above
        # a cycle
        for index in range(len(self.owners)):
            seen, at = {index}, index
            while (parent := self.owners[at].parent) >= 0 and parent not in seen:
                seen.add(parent)
                at = parent
            top[index] = at
        return top

    @cached_property
    def _by_top_owner(self) -> tuple[Ints, Ints]:
        owned = np.flatnonzero(self.pods.owner >= 0).astype(np.int32)
        tops = self.top_owner[self.pods.owner[owned]]
        order = np.argsort(tops, kind="stable")
        starts = np.searchsorted(tops[order], np.arange(len(self.owners) + 1)).astype(np.int32)
        return owned[order], starts

    def pods_of(self, owner: int) -> Ints:
        """Indices of all listed pods of an owner's service."""
        order, starts = self._by_top_owner
        top = self.top_owner[owner]
        return order[starts[top] : starts[top + 1]]

    def service_of(self, owner: int) -> Service | None:
        """The service that an owner index belongs to; None for -1."""
        if owner < 0:
            return None
        top = self.owners[int(self.top_owner[owner])]
        return Service(kind=top.kind, namespace=top.namespace, name=top.name)

    @cached_property
    def _counted(self) -> tuple[Ints, Ints]:
        """(owners,) pods that are not finished and pods that are ready, of each top owner.

        A terminating pod is not ready, but its service still needs a replacement.
        """
        pods = self.pods
        there = (pods.owner >= 0) & (pods.phase != SUCCEEDED) & (pods.phase != FAILED)
        tops, count = self.top_owner[pods.owner[there]], len(self.owners)
        ready = self.top_owner[pods.owner[there & ~pods.terminating & pods.ready]]
        return (
            np.bincount(tops, minlength=count).astype(np.int32),
            np.bincount(ready, minlength=count).astype(np.int32),
        )

    def replicas(self, owner: int) -> tuple[int, int]:
        """(desired, ready) of an owner's top owner; counted from the pods where the kind has no such field."""
        top = int(self.top_owner[owner])
        record, there, ready = self.owners[top], *(int(counts[top]) for counts in self._counted)
        desired = there if record.desired is None else record.desired
        return desired, ready if record.ready is None else min(ready, record.ready)

    @cached_property
    def in_two_revisions(self) -> frozenset[int]:
        """Top owners of unlisted kinds whose live pods are of more than one revision, as in a canary rollout.

        A revision is a ReplicaSet, or the label REVISION_LABEL of pods that have another owner.
        """
        pods = self.pods
        unlisted = np.array(
            [each.desired is None and each.kind not in (*ROLLOUT_KINDS, *RUN_ONCE_KINDS) for each in self.owners],
            dtype=np.bool_,
        )
        live = (pods.owner >= 0) & ~pods.terminating & (pods.phase != SUCCEEDED) & (pods.phase != FAILED)
        live[live] = unlisted[self.top_owner[pods.owner[live]]]
        revisions: dict[int, set[int | str]] = {}
        for owner, template in np.unique(np.column_stack([pods.owner[live], pods.template[live]]), axis=0).tolist():
            revision: int | str = owner
            if self.owners[owner].kind != "ReplicaSet":
                revision = self.pod_templates.outline(template).labels.get(REVISION_LABEL, "")
            if revision != "":
                revisions.setdefault(int(self.top_owner[owner]), set()).add(revision)
        return frozenset(top for top, found in revisions.items() if len(found) > 1)

    def pod(self, index: int) -> Pod:
        """One pod as an object."""
        pods = self.pods
        node, owner = int(pods.node[index]), int(pods.owner[index])
        return Pod(
            index=int(index),
            namespace=self.namespaces[int(pods.namespace[index])],
            name=pods.names[index],
            uid=pods.uids[index],
            node=node,
            node_name=self.nodes.names[node] if node >= 0 else "",
            owner=self.owners[owner] if owner >= 0 else None,
            service=self.service_of(owner),
            template=self.pod_templates[int(pods.template[index])],
            phase=int(pods.phase[index]),
            ready=bool(pods.ready[index]),
            terminating=bool(pods.terminating[index]),
            created=float(pods.created[index]),
            started=float(pods.started[index]),
            priority=int(pods.priority[index]),
        )
