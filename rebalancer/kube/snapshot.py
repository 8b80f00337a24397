"""The cluster, read once: lists to columns.

Nodes come first (pods are bound to them), then pods, then only the workloads that pods name, and the budgets last,
because their room is what changes fastest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.kube.client import JSON, ApiClient, Resource, StatusError
from rebalancer.kube.columns import PodColumns, node_columns
from rebalancer.kube.lists import METADATA_ONLY, Gathered, read_list
from rebalancer.kube.owners import Owners, kind_of, standalone_replicasets
from rebalancer.kube.records import Budget, Namespace, Node, PersistentVolume, Pod, PriorityClass, Workload
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.ports import Clock, Progress
from rebalancer.model.snapshot import ClusterSnapshot, DisruptionBudget

NODES = Resource(group="", version="v1", plural="nodes")
PODS = Resource(group="", version="v1", plural="pods")
NAMESPACES = Resource(group="", version="v1", plural="namespaces")
VOLUMES = Resource(group="", version="v1", plural="persistentvolumes")
BUDGETS = Resource(group="policy", version="v1", plural="poddisruptionbudgets")
PRIORITY_CLASSES = Resource(group="scheduling.k8s.io", version="v1", plural="priorityclasses")
REPLICASETS = Resource(group="apps", version="v1", plural="replicasets")
WORKLOADS: tuple[tuple[str, Resource], ...] = (
    ("ReplicaSet", REPLICASETS),
    ("Deployment", Resource(group="apps", version="v1", plural="deployments")),
    ("StatefulSet", Resource(group="apps", version="v1", plural="statefulsets")),
    ("DaemonSet", Resource(group="apps", version="v1", plural="daemonsets")),
    ("Job", Resource(group="batch", version="v1", plural="jobs")),
)
READ_RESOURCES: tuple[Resource, ...] = (
    NODES, PODS, NAMESPACES, VOLUMES, BUDGETS, PRIORITY_CLASSES, *(resource for _, resource in WORKLOADS),
)  # fmt: skip
"""What a snapshot lists: `doctor` asks whether we may."""
HOSTNAME_LABEL = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStateRecord:
    """A pod as re-read."""

    uid: str
    terminating: bool
    ready: bool
    node: str


class KubeCluster:
    """Reads the cluster through the Kubernetes API. Implements `model.ports.ClusterReader`."""

    def __init__(self, *, client: ApiClient, clock: Clock, progress: Progress | None = None) -> None:
        self._client = client
        self._clock = clock
        self._progress = progress

    def snapshot(self) -> ClusterSnapshot:
        """Read everything.

        Raises ConnectError when the server can't be reached or refuses, UnsafeDataError when a list can't be had in
        one piece or can't be understood.
        """
        try:
            return self._snapshot()
        except ValueError as error:
            raise UnsafeDataError(f"{self._client.server}: {error}") from None

    def _snapshot(self) -> ClusterSnapshot:
        # The moment before the first list: nothing in the snapshot is older.
        taken = self._clock.now()
        nodes = node_columns(self._list(NODES, Node, Gathered[Node]))
        spaces = self._list(NAMESPACES, Namespace, Gathered[Namespace])
        classes = self._list(PRIORITY_CLASSES, PriorityClass, Gathered[PriorityClass])
        node_index = {name: index for index, name in enumerate(nodes.names)}
        names = [space.metadata.name for space in spaces]
        pods = self._list(PODS, Pod, lambda: PodColumns(nodes=node_index, namespaces=names))
        owners, numbers = self._owners(pods)
        claims, claims_known = self._local_claims() if pods.shapes.uses_claims else (frozenset(), True)
        budgets = self._list(BUDGETS, Budget, Gathered[Budget])
        return ClusterSnapshot(
            taken=taken,
            nodes=nodes,
            pods=pods.finish(numbers),
            shapes=pods.shapes.table(),
            namespaces=pods.namespaces,
            namespace_labels={space.metadata.name: space.metadata.labels or {} for space in spaces},
            owners=tuple(owners.records),
            budgets=tuple(_budget(budget) for budget in budgets),
            priority_classes={each.metadata.name: each.value for each in classes},
            local_claims=claims,
            claims_known=claims_known,
        )

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PodStateRecord]:
        """What the API server says now of single (namespace, name) pods; a missing one is not in the answer.

        Raises ConnectError or UnsafeDataError.
        """
        states = {}
        for namespace, name in pods:
            pod = self._client.read(PODS.path(namespace=namespace, name=name), Pod, verb="get", resource="pods")
            if pod is not None:
                states[namespace, name] = PodStateRecord(
                    uid=pod.metadata.uid,
                    terminating=pod.metadata.deletion_timestamp is not None,
                    ready=any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()),
                    node=pod.spec.node_name,
                )
        return states

    def _list(self, resource: Resource, item: type[Any], collector: Callable[[], Any], accept: str = JSON) -> Any:
        return read_list(self._client, resource, item=item, collector=collector, progress=self._progress, accept=accept)

    def _owners(self, pods: PodColumns) -> tuple[Owners, list[int]]:
        """The owner records, and where each of the pods' owners stands among them."""
        named = {kind_of(reference) for _, reference in pods.owners}
        if "ReplicaSet" in named:
            named.add("Deployment")
        workloads: dict[str, tuple[str, Workload]] = {}
        for kind, resource in WORKLOADS:
            if kind in named:
                # A ReplicaSet is asked only for its controller: ten old ones of every Deployment would cost more
                # than all pods. Servers that don't know the form send whole objects, which serve as well.
                accept = METADATA_ONLY if kind == "ReplicaSet" else JSON
                self._gather(workloads, kind, resource, accept)
        if standalone_replicasets([reference for _, reference in pods.owners], workloads):
            self._gather(workloads, "ReplicaSet", REPLICASETS, JSON)
        owners = Owners(workloads=workloads)
        return owners, [owners.number(namespace, reference) for namespace, reference in pods.owners]

    def _gather(self, into: dict[str, tuple[str, Workload]], kind: str, resource: Resource, accept: str) -> None:
        for workload in self._list(resource, Workload, Gathered[Workload], accept):
            into[workload.metadata.uid] = (kind, workload)

    def _local_claims(self) -> tuple[frozenset[tuple[str, str]], bool]:
        """(namespace, name) of claims bound to a volume that stays on one node; and whether we may know."""
        try:
            volumes = self._list(VOLUMES, PersistentVolume, Gathered[PersistentVolume])
        except StatusError as error:
            if error.status != 403:
                raise
            return frozenset(), False
        bound = ((volume.spec, volume.spec.claim_ref) for volume in volumes)
        return frozenset((ref.namespace, ref.name) for spec, ref in bound if ref is not None and _is_local(spec)), True


def _is_local(spec: Any) -> bool:
    if spec.local is not None or spec.host_path is not None:
        return True
    required = spec.node_affinity.required if spec.node_affinity else None
    terms = required.node_selector_terms if required else ()
    return any(
        rule.key == HOSTNAME_LABEL or rule in term.match_fields
        for term in terms
        for rule in (*term.match_expressions, *term.match_fields)
    )


def _budget(budget: Budget) -> DisruptionBudget:
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
