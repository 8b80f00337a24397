"""The fields that are read of each kind: msgspec skips the other nine tenths of every page.

Field meanings: the Kubernetes API reference, v1.36. `gc=False` keeps the garbage collector off records that live for
one page; none of them can be part of a cycle.
"""

from typing import Any, Generic, TypeVar

import msgspec

from rebalancer.model.cluster.objects import Affinity, Int32, Int64, LabelSelector, SpreadConstraint, Taint, Toleration

T = TypeVar("T")


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base: camelCase, unknown fields skipped, absent fields at their defaults."""


class Object(Wire, frozen=True, kw_only=True):
    """Base of the records of whole objects."""

    unread: str = msgspec.field(default="", name="rebalancer.unread")
    """Why it could not be read in full; then the fields that could are there, and the others have their defaults. It is
    no field of any API object: `quarantine.py` sets it."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """(namespace, name, uid); empty where the kind has none, or it can't be read."""
        meta: Any = getattr(self, "metadata", None)
        return getattr(meta, "namespace", ""), getattr(meta, "name", ""), getattr(meta, "uid", "")


class Empty(Wire, frozen=True):
    """An object whose presence alone matters."""


class ListMeta(Wire, frozen=True):
    """Version and continuation of a list."""

    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None
    resource_version: str = ""


class Page(Wire, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Wire, frozen=True):
    """The metadata of all kinds but pods and nodes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: Int64 = 0
    labels: dict[str, str] | None = None


# --- watches


class WatchEvent(Wire, frozen=True):
    """One line of a watch. The type of `object` depends on `type`; a bookmark's has metadata only."""

    type: str
    object: msgspec.Raw


class VersionMeta(Wire, frozen=True):
    resource_version: str = ""


class Versioned(Wire, frozen=True):
    """The resourceVersion of an object."""

    metadata: VersionMeta


class WatchStatus(Wire, frozen=True):
    """The object of an ERROR event."""

    code: int = 0
    message: str = ""


# --- pods


class PodMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    generation: Int64 = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Limits(Wire, frozen=True):
    """The limits that are read."""

    memory: str | None = None


class Resources(Wire, frozen=True):
    requests: dict[str, str] | None = None
    limits: Limits | None = None


class Port(Wire, frozen=True):
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class RestartRule(Wire, frozen=True):
    action: str = ""


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    resources: Resources | None = None
    ports: list[Port] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None


class ImageSource(Wire, frozen=True):
    reference: str = ""


class VolumeSource(Wire, frozen=True):
    """Without its name: that of a token volume is random and would part equal templates."""

    host_path: Empty | None = None
    empty_dir: dict[str, str] | None = None
    persistent_volume_claim: dict[str, str | bool] | None = None
    ephemeral: Empty | None = None
    image: ImageSource | None = None


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[VolumeSource] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: dict[str, str] | None = None
    scheduling_gates: list[Empty] | None = None
    host_network: bool = False
    host_users: bool | None = None
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    priority: Int32 = 0
    priority_class_name: str = ""
    scheduler_name: str = "default-scheduler"
    resource_claims: list[Empty] | None = None
    """Of dynamic resource allocation."""
    scheduling_group: Empty | None = None
    workload_ref: Empty | None = None
    """Before Kubernetes 1.36, in place of `scheduling_group`."""


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Waiting(Wire, frozen=True):
    reason: str = ""


class Terminated(Wire, frozen=True):
    reason: str = ""
    exit_code: Int32 = 0


NOTHING = msgspec.Raw(b"")


class ContainerState(Wire, frozen=True):
    """The waiting and terminated states are read; a running container has none."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    resources: msgspec.Raw = NOTHING
    """`Resources`, decoded for pods that were resized only."""
    allocated_resources: msgspec.Raw = NOTHING
    """The same of amounts by resource."""
    restart_count: Int32 = 0
    state: ContainerState | None = None


class PodStatus(Wire, frozen=True):
    phase: str = ""
    reason: str = ""
    conditions: list[Condition] | None = None
    start_time: str | None = None
    nominated_node_name: str = ""
    qos_class: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: msgspec.Raw = NOTHING
    """As those of a container's status: of the pod as a whole."""
    allocated_resources: msgspec.Raw = NOTHING


class Pod(Object, frozen=True):
    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Count(msgspec.Struct, array_like=True, gc=False):
    """One way to count what the containers of a resized pod request."""

    mains: list[dict[str, str]] = []
    inits: list[tuple[dict[str, str], bool]] = []
    """With whether it is a sidecar."""
    whole: dict[str, str] | None = None
    """Their total, where the kubelet reports it; the others are empty then."""


class Template(msgspec.Struct, array_like=True, gc=False):
    """What pods of one template share, in the order in which it is interned (see `pod_templates.py`)."""

    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    node_selector: dict[str, str] | None
    affinity: Affinity | None
    tolerations: list[Toleration] | None
    topology_spread_constraints: list[SpreadConstraint] | None
    volumes: list[VolumeSource] | None
    containers: list[Container] | None
    init_containers: list[Container] | None
    resources: Resources | None
    overhead: dict[str, str] | None
    termination_grace_period_seconds: int | None
    priority: int
    priority_class_name: str
    scheduler_name: str
    qos_class: str
    resource_claims: list[Empty] | None
    unread: str = ""
    grouped: bool = False
    """Whether it belongs to a PodGroup."""
    users_on_host_network: bool = False
    """Whether it has a user namespace of its own and the host's network."""
    counts: list[Count] | None = None
    """Of these the largest holds, for each resource; None = that of `containers` and `init_containers`."""


# --- nodes


class NodeMeta(Wire, frozen=True):
    name: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeAddress(Wire, frozen=True):
    type: str = ""
    address: str = ""


class ContainerImage(Wire, frozen=True):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeStatus(Wire, frozen=True):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None
    declared_features: list[str] | None = None
    addresses: list[NodeAddress] | None = None
    images: list[msgspec.Raw] | None = None
    """A `ContainerImage` each, decoded once for all nodes that have it."""


class Node(Object, frozen=True):
    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- the small kinds


class Namespace(Object, frozen=True):
    metadata: Meta


class PriorityClass(Object, frozen=True):
    metadata: Meta
    value: Int32 = 0


class BudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Wire, frozen=True):
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    observed_generation: Int64 = 0


class Budget(Object, frozen=True):
    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
