"""The cluster, read once: lists to columns.

Nodes come first (pods are bound to them), then pods, then only the workloads that pods reference, and the budgets last,
because disruptionsAllowed changes fastest. The workloads are read beside the pods from their first page on: that page
sets the moment of the whole list.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from rebalancer.kube.client.background import in_background
from rebalancer.kube.client.client import JSON, NOT_READABLE, ApiClient, Resource, StatusError
from rebalancer.kube.snapshot.autoscalers import Autoscaler, autoscaler_of
from rebalancer.kube.snapshot.columns import (
    NodeColumns,
    PodColumns,
    larger_than_nodes,
    unreadable_nodes,
    unreadable_pods,
)
from rebalancer.kube.snapshot.lists import EVERYWHERE, METADATA_ONLY, Gathered, read_list
from rebalancer.kube.snapshot.owners import KEPT_WITHOUT_PODS, Owners, Workload, kind_of, standalone_replicasets
from rebalancer.kube.snapshot.quarantine import kept, obstacle_of, read_object, whole
from rebalancer.kube.snapshot.quotas import Quota, quota_of
from rebalancer.kube.snapshot.records import (
    Budget,
    Namespace,
    Node,
    Object,
    OwnerReference,
    Pod,
    PriorityClass,
)
from rebalancer.kube.snapshot.services import Selector, ServiceObject, by_namespace, selector_of
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.kube.snapshot.version import FollowedRelease
from rebalancer.kube.snapshot.volumes import (
    BoundClaims,
    CsiDriverObject,
    CsiNode,
    PersistentVolume,
    drivers_at,
    volume_limits,
)
from rebalancer.model.cluster.annotations import EVICTION_IN_PROGRESS
from rebalancer.model.cluster.autoscaling import HorizontalAutoscaler
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import Pods, PodStatus
from rebalancer.model.cluster.quota import ResourceQuota
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.decisions.ports import Clock, Progress

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R", bound=Object)

NODES = Resource(group="", version="v1", plural="nodes")
PODS = Resource(group="", version="v1", plural="pods")
NAMESPACES = Resource(group="", version="v1", plural="namespaces")
VOLUMES = Resource(group="", version="v1", plural="persistentvolumes")
CSI_NODES = Resource(group="storage.k8s.io", version="v1", plural="csinodes")
CSI_DRIVERS = Resource(group="storage.k8s.io", version="v1", plural="csidrivers")
SERVICES = Resource(group="", version="v1", plural="services")
QUOTAS = Resource(group="", version="v1", plural="resourcequotas")
AUTOSCALERS = Resource(group="autoscaling", version="v2", plural="horizontalpodautoscalers")
BUDGETS = Resource(group="policy", version="v1", plural="poddisruptionbudgets")
PRIORITY_CLASSES = Resource(group="scheduling.k8s.io", version="v1", plural="priorityclasses")
REPLICASETS = Resource(group="apps", version="v1", plural="replicasets")
WORKLOADS: Mapping[str, Resource] = {
    "ReplicaSet": REPLICASETS,
    "Deployment": Resource(group="apps", version="v1", plural="deployments"),
    "StatefulSet": Resource(group="apps", version="v1", plural="statefulsets"),
    "DaemonSet": Resource(group="apps", version="v1", plural="daemonsets"),
    "Job": Resource(group="batch", version="v1", plural="jobs"),
}

READ_RESOURCES: tuple[Resource, ...] = (
    NODES, PODS, NAMESPACES, SERVICES, VOLUMES, CSI_NODES, CSI_DRIVERS, QUOTAS, AUTOSCALERS, BUDGETS, PRIORITY_CLASSES,
    *WORKLOADS.values(),
)  # fmt: skip
"""Resources that a snapshot lists; `doctor` checks the permissions."""
OPTIONAL_RESOURCES = frozenset({CSI_NODES, CSI_DRIVERS, SERVICES, QUOTAS, AUTOSCALERS})
"""Of these: without them only the pods that they concern are in doubt."""


MANY_NAMESPACES = 10
"""More are read as one list of the whole cluster."""

SYSTEM_NAMESPACE = "kube-system"
"""Made once with a cluster and never deleted: its UID is the cluster's identity."""


def cluster_uid(client: ApiClient) -> str:
    """Identity of the Kubernetes cluster; empty where the server doesn't tell it. Raises ConnectError."""
    response = client.get(NAMESPACES.path(), query={"fieldSelector": f"metadata.name={SYSTEM_NAMESPACE}"})
    if response.status != 200:
        return ""
    found = client.decode(response.data, dict[str, Any], what="the namespaces").get("items") or []
    return next((str(each["metadata"]["uid"]) for each in found if each["metadata"]["name"] == SYSTEM_NAMESPACE), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStateRecord:
    """A pod as re-read."""

    uid: str
    terminating: bool
    ready_since: float
    """NaN while it is not Ready."""
    node: str
    eviction_in_progress: bool

    @property
    def ready(self) -> bool:
        return math.isfinite(self.ready_since)


def _ready_since(pod: Pod) -> float:
    """Seconds since the epoch; NaN while it is not Ready, 0 where that time is not known."""
    for each in pod.status.conditions or ():
        if each.type == "Ready" and each.status == "True":
            at = epoch_seconds(each.last_transition_time)
            return at if math.isfinite(at) else 0.0
    return math.nan


class SortedOut:
    """Records of the small kinds, and the obstacles among them."""

    def __init__(self) -> None:
        self.obstacles: list[Obstacle] = []

    def kept(self, kind: str, records: Iterable[R], keep: Callable[[R], V]) -> list[V]:
        """What `keep` makes of the records; one at which it raises is an obstacle."""
        found, obstacles = kept(kind, records, keep)
        self.obstacles += obstacles
        return found


def itself(record: T) -> T:
    """A record that is kept as it is."""
    return record


def unread_workloads(workloads: Mapping[str, tuple[str, Workload]]) -> list[Obstacle]:
    """The obstacles among the workloads, which come as uid -> (kind, workload)."""
    return [obstacle_of(kind, each, each.unread) for kind, each in workloads.values() if each.unread]


class KubeCluster:
    """Reads the cluster through the Kubernetes API. Implements `model.decisions.ports.ClusterReader`."""

    def __init__(self, *, client: ApiClient, clock: Clock, progress: Progress | None = None) -> None:
        self._client = client
        self._clock = clock
        self._progress = progress
        self._release = FollowedRelease(client)

    def snapshot(self) -> ClusterSnapshot:
        """Read everything.

        An object that can't be read is an obstacle of the snapshot. Raises ConnectError when the server can't be
        reached or refuses, UnsafeDataError when a list can't be read consistently or is no list.
        """
        # The moment before the first list: nothing in the snapshot is older.
        taken = self._clock.now()
        nodes: Nodes = self._list(NODES, Node, NodeColumns).finish()
        spaces = self._list(NAMESPACES, Namespace, Gathered[Namespace])
        classes = self._list(PRIORITY_CLASSES, PriorityClass, Gathered[PriorityClass])
        names, minor = [space.metadata.name for space in spaces], self._release.minor()
        pods, owners, numbers, complete = self._pods(nodes, names, EVERYWHERE, minor)
        claims: BoundClaims | None = BoundClaims()
        csi_nodes: Sequence[CsiNode] | None = ()
        csi_drivers: Sequence[CsiDriverObject] | None = ()
        if pods.pod_templates.uses_claims:
            claims = self._if_granted(VOLUMES, PersistentVolume, BoundClaims)
            csi_nodes = self._if_granted(CSI_NODES, CsiNode, Gathered[CsiNode])
            csi_drivers = self._if_granted(CSI_DRIVERS, CsiDriverObject, Gathered[CsiDriverObject])
        services = self._if_granted(SERVICES, ServiceObject, Gathered[ServiceObject])
        quotas = self._if_granted(QUOTAS, Quota, Gathered[Quota])
        autoscalers = self._if_granted(AUTOSCALERS, Autoscaler, Gathered[Autoscaler])
        budgets = self._list(BUDGETS, Budget, Gathered[Budget])
        sorted_out = SortedOut()
        return put_together(
            taken=taken,
            minor=minor,
            nodes=nodes,
            pods=pods.finish(numbers),
            pod_templates=pods.pod_templates.table(),
            namespaces=pods.namespaces,
            statuses=pods.statuses,
            spaces=sorted_out.kept("Namespace", spaces, itself),
            classes=sorted_out.kept("PriorityClass", classes, whole),
            owners=owners.records,
            listed_kinds=complete,
            budgets=sorted_out.kept("PodDisruptionBudget", budgets, budget_of),
            claims=claims,
            csi_nodes=None if csi_nodes is None else sorted_out.kept("CSINode", csi_nodes, itself),
            csi_drivers=None if csi_drivers is None else sorted_out.kept("CSIDriver", csi_drivers, itself),
            services=None if services is None else sorted_out.kept("Service", services, selector_of),
            quotas=sorted_out.kept("ResourceQuota", quotas or (), quota_of),
            autoscalers=sorted_out.kept("HorizontalPodAutoscaler", autoscalers or (), autoscaler_of),
            obstacles=[*owners.knots.values(), *unread_workloads(owners.workloads), *sorted_out.obstacles],
            causes=pods.pod_templates.causes,
        )

    def services(self, namespaces: Collection[str]) -> ClusterSnapshot:
        """Read the nodes, and the pods of these namespaces with their owners; nothing else is in it. Raises as
        `snapshot` does."""
        taken = self._clock.now()
        nodes: Nodes = self._list(NODES, Node, NodeColumns).finish()
        wanted = sorted(namespaces) if len(namespaces) <= MANY_NAMESPACES else EVERYWHERE
        minor = self._release.minor()
        pods, owners, numbers, complete = self._pods(nodes, (), wanted, minor)
        return put_together(
            taken=taken,
            minor=minor,
            nodes=nodes,
            pods=pods.finish(numbers),
            pod_templates=pods.pod_templates.table(),
            namespaces=pods.namespaces,
            statuses=pods.statuses,
            spaces=(),
            classes=(),
            owners=owners.records,
            listed_kinds=complete,
            budgets=(),
            claims=None,
            csi_nodes=None,
            csi_drivers=None,
            services=None,
            quotas=(),
            autoscalers=(),
            obstacles=[*owners.knots.values(), *unread_workloads(owners.workloads)],
            causes=pods.pod_templates.causes,
        )

    def _pods(
        self, nodes: Nodes, names: Sequence[str], namespaces: Sequence[str | None], minor: int
    ) -> tuple[PodColumns, Owners, list[int], frozenset[str]]:
        """The pods of `namespaces` with their owners as by `_owners`; `names` are the known namespaces."""
        node_index = {name: index for index, name in enumerate(nodes.names)}
        beside: dict[str, Future[list[Workload]]] = {}

        def read_beside(pods: PodColumns) -> None:
            for kind in named_kinds(pods.owners) & WORKLOADS.keys():
                beside[kind] = in_background(partial(self._workloads, kind, namespaces), name=f"list {kind}")

        pods: PodColumns = self._list(
            PODS,
            Pod,
            lambda: PodColumns(nodes=node_index, namespaces=names, minor=minor),
            first_page=read_beside,
            namespaces=namespaces,
        )
        return pods, *self._owners(pods, beside, namespaces)

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PodStateRecord]:
        """Current state of single (namespace, name) pods; a missing one is not in the result.

        Raises ConnectError or UnsafeDataError.
        """
        states = {}
        for namespace, name in pods:
            path = PODS.path(namespace=namespace, name=name)
            raw = self._client.read(path, msgspec.Raw, verb="get", resource="pods")
            if raw is not None:
                pod = read_object(bytes(raw), Pod)
                states[namespace, name] = PodStateRecord(
                    uid=pod.metadata.uid,
                    terminating=pod.metadata.deletion_timestamp is not None,
                    ready_since=_ready_since(pod),
                    node=pod.spec.node_name,
                    eviction_in_progress=EVICTION_IN_PROGRESS in (pod.metadata.annotations or {}),
                )
        return states

    def _list(self, resource: Resource, item: type[Any], collector: Callable[[], Any], **options: Any) -> Any:
        """`read_list` without the version."""
        return read_list(self._client, resource, item=item, collector=collector, progress=self._progress, **options)[0]

    def _owners(
        self, pods: PodColumns, beside: Mapping[str, Future[list[Workload]]], namespaces: Sequence[str | None]
    ) -> tuple[Owners, list[int], frozenset[str]]:
        """The owner records, the index of each of the pods' owners among them, and the kinds that are complete.
        `beside`: the lists under way, by kind."""
        named = named_kinds(pods.owners)
        workloads: dict[str, tuple[str, Workload]] = {}
        for kind in WORKLOADS:
            if kind in named:
                found = beside[kind].result() if kind in beside else self._workloads(kind, namespaces)
                workloads |= {each.metadata.uid: (kind, each) for each in found}
        if standalone_replicasets([reference for _, reference in pods.owners], workloads):
            found = self._list(REPLICASETS, Workload, Gathered[Workload], namespaces=namespaces)
            workloads |= {each.metadata.uid: ("ReplicaSet", each) for each in found}
        owners = Owners(workloads=workloads)
        numbers = [owners.number(namespace, reference) for namespace, reference in pods.owners]
        owners.add_those_without_pods()
        return owners, numbers, KEPT_WITHOUT_PODS & named

    def _workloads(self, kind: str, namespaces: Sequence[str | None]) -> list[Workload]:
        # Of a ReplicaSet only its controller is read: ten old ones of every Deployment would cost more than all pods.
        # Servers without the metadata form send whole objects, which serve as well.
        accept = METADATA_ONLY if kind == "ReplicaSet" else JSON
        found: list[Workload] = self._list(
            WORKLOADS[kind], Workload, Gathered[Workload], accept=accept, namespaces=namespaces
        )
        return found

    def _if_granted(self, resource: Resource, item: type[Any], collector: Callable[[], Any]) -> Any:
        """The list; None without permission, or where the server doesn't have the resource."""
        try:
            return self._list(resource, item, collector)
        except StatusError as error:
            if error.status not in NOT_READABLE:
                raise
            return None


def named_kinds(owners: Iterable[tuple[str, OwnerReference]]) -> set[str]:
    """The kinds to list for following the pods' owners, which come as (namespace, reference)."""
    named = {kind_of(reference) for _, reference in owners}
    return named | {"Deployment"} if "ReplicaSet" in named else named


def put_together(
    *,
    taken: float,
    minor: int,
    nodes: Nodes,
    pods: Pods,
    pod_templates: PodTemplateTable,
    namespaces: tuple[str, ...],
    statuses: tuple[PodStatus, ...],
    spaces: Iterable[Namespace],
    classes: Iterable[PriorityClass],
    owners: Sequence[Owner],
    listed_kinds: frozenset[str],
    budgets: Iterable[DisruptionBudget],
    claims: BoundClaims | None,
    csi_nodes: Sequence[CsiNode] | None,
    csi_drivers: Iterable[CsiDriverObject] | None,
    services: Iterable[Selector] | None,
    quotas: Iterable[ResourceQuota],
    autoscalers: Iterable[HorizontalAutoscaler],
    obstacles: Iterable[Obstacle],
    causes: Sequence[str],
) -> ClusterSnapshot:
    """The snapshot; `claims`, `csi_nodes`, `csi_drivers` and `services` are None without permission to list them.
    `obstacles` are those besides nodes, pods and volumes; `causes` (templates,) say why the pods of each can't be
    read."""
    found = {*obstacles, *unreadable_nodes(nodes), *unreadable_pods(pods, namespaces, causes)}
    pods, larger = larger_than_nodes(pods, nodes, namespaces)
    found.update(larger)
    return ClusterSnapshot(
        taken=taken,
        minor=minor,
        nodes=nodes,
        pods=pods,
        pod_templates=pod_templates,
        namespaces=namespaces,
        statuses=statuses,
        namespace_labels={space.metadata.name: space.metadata.labels or {} for space in spaces},
        owners=tuple(owners),
        listed_kinds=listed_kinds,
        budgets=tuple(budgets),
        priority_classes={each.metadata.name: each.value for each in classes},
        local_claims=frozenset(claims.local) if claims else frozenset(),
        volume_nodes=claims.nodes if claims else {},
        exclusive_claims=frozenset(claims.exclusive) if claims else frozenset(),
        one_node_claims=frozenset(claims.one_node) if claims else frozenset(),
        bound_claims=frozenset(claims.bound) if claims else None,
        claim_drivers=claims.drivers if claims else {},
        volume_limits=None if csi_nodes is None else volume_limits(csi_nodes, nodes.names),
        drivers_at=None if csi_drivers is None else drivers_at(csi_drivers, csi_nodes or (), nodes.names),
        services=None if services is None else by_namespace(services),
        quotas=tuple(quotas),
        autoscalers=tuple(autoscalers),
        claims_known=claims is not None,
        obstacles=tuple(sorted(found.union(claims.obstacles if claims else ()))),
    )


def budget_of(budget: Budget) -> DisruptionBudget:
    """The record as a `DisruptionBudget`. Raises ValueError where it could not be read in full."""
    whole(budget)
    meta, status = budget.metadata, budget.status
    return DisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        selector=budget.spec.selector,
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        up_to_date=status.observed_generation >= meta.generation,
        evicts_unhealthy=budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )
