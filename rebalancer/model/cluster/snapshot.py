"""The cluster at one moment, as columns.

150,000 pods are a handful of numpy arrays and interned tables, not 150,000 objects: masks and sorts take
milliseconds, and `Pod` objects are made only for the few that a decision looks at. Index -1 means "none".
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.model.cluster.autoscaling import HorizontalAutoscaler
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import LabelSelector, NodeSelector, PodTemplate
from rebalancer.model.cluster.obstacles import Obstacle, by_namespace, by_object
from rebalancer.model.cluster.owners import OWNER_LEVELS, REVISION_LABEL, ROLLOUT_KINDS, RUN_ONCE_KINDS, Owner, Service
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED, Pods, PodStatus
from rebalancer.model.cluster.quota import ResourceQuota
from rebalancer.model.cluster.releases import OLDEST_MINOR
from rebalancer.model.notation.arrays import Bools, Floats, Ints


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
    drivers_at: Mapping[str, Bools] | None = field(default_factory=dict)
    """CSI driver that keeps pods with its volumes off nodes without it -> (nodes,) where it is. None where CSIDrivers
    can't be read."""
    services: Mapping[str, tuple[Mapping[str, str], ...]] | None = field(default_factory=dict)
    """Namespace -> the selectors of its Services. None where they can't be read."""
    quotas: tuple[ResourceQuota, ...] = ()
    autoscalers: tuple[HorizontalAutoscaler, ...] = ()
    """Empty where they can't be read."""
    claims_known: bool = True
    """False where PersistentVolumes can't be read: then every claim counts as local."""
    minor: int = OLDEST_MINOR
    """Minor version of Kubernetes 1 whose kube-scheduler is followed."""
    obstacles: tuple[Obstacle, ...] = ()
    """Objects that can't be read, or not in full, in order."""

    @cached_property
    def _obstacles(self) -> tuple[Mapping[tuple[str, str, str], Obstacle], Mapping[str, Obstacle]]:
        return by_object(self.obstacles), by_namespace(self.obstacles)

    def obstacle_of(self, pod: int) -> Obstacle | None:
        """The object that can't be read and concerns this pod: itself, an owner, its namespace or a rule in it."""
        if not self.obstacles:
            return None
        objects, spaces = self._obstacles
        namespace = self.namespaces[int(self.pods.namespace[pod])]
        found = objects.get(("Pod", namespace, self.pods.names[pod])) or spaces.get(namespace)
        at = int(self.pods.owner[pod])
        for _ in range(OWNER_LEVELS):
            if found is not None or at < 0:
                break
            owner = self.owners[at]
            found, at = objects.get((owner.kind, owner.namespace, owner.name)), owner.parent
        return found

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
    def _services_near(self) -> Mapping[tuple[str, str, str], list[Mapping[str, str]]]:
        """(namespace, key and value of the rarest of its labels) -> selectors."""
        services = self.services or {}
        counts = Counter((space, pair) for space, all_ in services.items() for each in all_ for pair in each.items())
        near: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
        for namespace, selectors in services.items():
            for selector in selectors:
                _, rarest = min((counts[namespace, pair], pair) for pair in selector.items())
                near.setdefault((namespace, *rarest), []).append(selector)
        return near

    @cached_property
    def unread_services(self) -> frozenset[str]:
        """Namespaces with a Service that can't be read."""
        return frozenset(each.namespace for each in self.obstacles if each.kind == "Service")

    def service_labels(self, namespace: str, labels: Mapping[str, str]) -> Mapping[str, str]:
        """What the selectors of the Services of pods with these labels ask for, together."""
        near, found = self._services_near, dict[str, str]()
        if near:
            for pair in labels.items():
                for selector in near.get((namespace, *pair), ()):
                    if selector.items() <= labels.items():
                        found |= selector
        return found

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
