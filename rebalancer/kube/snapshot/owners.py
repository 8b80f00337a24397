"""Workloads as owner records, from a pod's controller up to the workload that a user names.

Up: ReplicaSet to its Deployment (or another controller), Job to its CronJob. Deployment, StatefulSet and DaemonSet are
the top even where an operator's object controls them: they hold the desired replicas.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from msgspec.structs import replace

from rebalancer.kube.snapshot.columns import controller_of
from rebalancer.kube.snapshot.records import Condition, OwnerReference, Wire
from rebalancer.model.cluster.owners import Owner

# The group of each kind that is interpreted; a Job of another group is not Kubernetes' Job.
KNOWN_GROUPS: Mapping[str, str] = {
    "ReplicaSet": "apps",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ControllerRevision": "apps",
    "Job": "batch",
    "CronJob": "batch",
    "ReplicationController": "",
    "Node": "",
    "Pod": "",
}
HAVE_PARENTS = frozenset({"ReplicaSet", "Job"})
KEPT_WITHOUT_PODS = frozenset({"Deployment", "StatefulSet"})
"""Kinds whose workloads are among the owners also without pods: the last one may have been evicted."""


# One record serves every kind of workload, each fills what it has.


class RollingUpdate(Wire, frozen=True):
    # maxSurge and maxUnavailable may be numbers or percentages; they are not read.
    partition: int = 0


class UpdateStrategy(Wire, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class FailurePattern(Wire, frozen=True):
    type: str = ""
    status: str = "True"


class FailureRule(Wire, frozen=True):
    action: str = ""
    on_pod_conditions: list[FailurePattern] | None = None


class FailurePolicy(Wire, frozen=True):
    rules: list[FailureRule] | None = None


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    update_strategy: UpdateStrategy | None = None
    pod_failure_policy: FailurePolicy | None = None


class WorkloadStatus(Wire, frozen=True):
    observed_generation: int | None = None
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    conditions: list[Condition] | None = None


class WorkloadMeta(Wire, frozen=True):
    """Without labels: there are many ReplicaSets, and their labels are not used."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    owner_references: list[OwnerReference] | None = None


class Workload(Wire, frozen=True):
    """`spec` is None where the server sent metadata only."""

    metadata: WorkloadMeta
    spec: WorkloadSpec | None = None
    status: WorkloadStatus = WorkloadStatus()


@dataclass(slots=True, kw_only=True)
class Owners:
    """The snapshot's owners under construction."""

    workloads: Mapping[str, tuple[str, Workload]]
    """uid -> (kind, workload), of every listed workload."""
    records: list[Owner] = field(default_factory=list)
    known: dict[str, tuple[Workload, Owner]] = field(default_factory=dict)
    """uid -> a workload and its record, of an earlier snapshot; used while the workload and its parent are the same."""
    _index: dict[str, int] = field(default_factory=dict)

    def number(self, namespace: str, reference: OwnerReference) -> int:
        """Index in `records` of the owner that a reference names, its parents before it."""
        known = self._index.get(reference.uid)
        if known is not None:
            return known
        record = self._record(namespace, reference)
        index = self._index[reference.uid] = len(self.records)
        self.records.append(record)
        return index

    def add_those_without_pods(self) -> None:
        """Every listed workload of KEPT_WITHOUT_PODS that no pod references."""
        for uid, (kind, workload) in self.workloads.items():
            if kind in KEPT_WITHOUT_PODS and uid not in self._index:
                self._index[uid] = len(self.records)
                self.records.append(self._listed(kind, workload, -1))

    def with_workloads(self, workloads: Mapping[str, tuple[str, Workload]]) -> "Owners | None":
        """The same owners with these workloads, of which only those that have changed are made again; None where other
        owners may be needed."""
        if workloads.keys() != self.workloads.keys():
            return None
        records = list(self.records)
        out = Owners(workloads=workloads, records=records, known=self.known, _index=self._index)
        for uid, (kind, workload) in workloads.items():
            before = self.workloads[uid]
            if before[1] is workload:
                continue
            if before[0] != kind or _controller_uid(before[1]) != _controller_uid(workload):
                return None
            index = self._index.get(uid)
            if index is not None and records[index].kind == kind:
                records[index] = out._listed(kind, workload, records[index].parent)
        return out

    def _record(self, namespace: str, reference: OwnerReference) -> Owner:
        kind = kind_of(reference)
        listed = self.workloads.get(reference.uid)
        if listed is None or listed[0] != kind:
            # Created after its list was read, or of a kind that isn't listed: only the reference is known.
            space = "" if kind == "Node" else namespace
            return Owner(kind=kind, namespace=space, name=reference.name, uid=reference.uid)
        workload = listed[1]
        up = controller_of(workload.metadata.owner_references) if kind in HAVE_PARENTS else None
        parent = -1 if up is None else self.number(workload.metadata.namespace, up)
        return self._listed(kind, workload, parent)

    def _listed(self, kind: str, workload: Workload, parent: int) -> Owner:
        known = self.known.get(workload.metadata.uid)
        if known is not None and known[0] is workload and known[1].parent == parent:
            return known[1]
        record = _listed(kind, workload, parent)
        self.known[workload.metadata.uid] = workload, record
        return record


def _controller_uid(workload: Workload) -> str:
    controller = controller_of(workload.metadata.owner_references)
    return "" if controller is None else controller.uid


def with_shared_strings(workload: Workload) -> Workload:
    """The workload with its controller alone, whose strings the siblings share: every page is decoded to new strings,
    and a cluster has ten old ReplicaSets of every Deployment."""
    meta = workload.metadata
    up = controller_of(meta.owner_references)
    return replace(
        workload,
        metadata=replace(
            meta,
            namespace=sys.intern(meta.namespace),
            owner_references=None
            if up is None
            else [
                OwnerReference(
                    api_version=sys.intern(up.api_version),
                    kind=sys.intern(up.kind),
                    name=sys.intern(up.name),
                    uid=sys.intern(up.uid),
                    controller=True,
                )
            ],
        ),
    )


def kind_of(reference: OwnerReference) -> str:
    """The kind; with its group when it only shares its name with one of Kubernetes' kinds: `Job.batch.volcano.sh`."""
    return known_kind(reference.api_version, reference.kind)


@lru_cache(maxsize=1024)
def known_kind(api_version: str, kind: str) -> str:
    """The same of an apiVersion and a kind."""
    group = api_version.rpartition("/")[0]
    known = KNOWN_GROUPS.get(kind)
    return kind if known is None or known == group else f"{kind}.{group or 'core'}"


def _listed(kind: str, workload: Workload, parent: int) -> Owner:
    desired, ready, rolling = _scale(kind, workload)
    meta = workload.metadata
    return Owner(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        parent=parent,
        desired=desired,
        ready=ready,
        rolling_out=rolling,
        next_revision=_next_revision(kind, workload),
        finished=kind == "Job" and _finished(workload),
        spares_disruptions=kind == "Job" and _spares_disruptions(workload),
    )


def _scale(kind: str, workload: Workload) -> tuple[int | None, int | None, bool]:
    """(desired, ready, rolling out); None where the kind has no such field or the server sent metadata only."""
    spec, status = workload.spec, workload.status
    if spec is None or kind == "Job":
        return None, None, False
    unseen = status.observed_generation is None or status.observed_generation < workload.metadata.generation
    # Deployments, StatefulSets and DaemonSets: kubectl's own test, pkg/polymorphichelpers/rollout_status.go.
    strategy = spec.update_strategy
    by_hand = strategy is not None and strategy.type == "OnDelete"
    if kind == "DaemonSet":
        desired = status.desired_number_scheduled
        return desired, status.number_ready, unseen or (not by_hand and status.updated_number_scheduled < desired)
    desired = 1 if spec.replicas is None else spec.replicas
    rolling = unseen
    if kind == "Deployment":
        rolling = rolling or status.updated_replicas < desired or status.replicas > status.updated_replicas
    elif kind == "StatefulSet" and not by_hand and status.update_revision != status.current_revision:
        partition = strategy.rolling_update.partition if strategy and strategy.rolling_update else 0
        # With a partition the old revision stays on purpose: done when the upper ordinals have the new one.
        rolling = rolling or partition == 0 or status.updated_replicas < desired - partition
    return desired, status.ready_replicas, rolling


def _next_revision(kind: str, workload: Workload) -> str:
    strategy = workload.spec.update_strategy if workload.spec is not None else None
    on_delete = kind == "StatefulSet" and strategy is not None and strategy.type == "OnDelete"
    return workload.status.update_revision if on_delete else ""


def _finished(job: Workload) -> bool:
    return any(each.type in ("Complete", "Failed") and each.status == "True" for each in job.status.conditions or ())


def _spares_disruptions(job: Workload) -> bool:
    policy = job.spec.pod_failure_policy if job.spec else None
    for rule in (policy.rules or ()) if policy else ():
        if any(condition.type == "DisruptionTarget" for condition in rule.on_pod_conditions or ()):
            # Rules are tried in order, and only the first that matches counts.
            return rule.action == "Ignore"
    return False


class Listed(Protocol):
    """Workloads by uid, with their kind."""

    def get(self, uid: str, /) -> tuple[str, Workload] | None: ...


def standalone_replicasets(references: Sequence[OwnerReference], workloads: Listed) -> bool:
    """Whether a ReplicaSet without a controller owns pods while the server sent metadata only."""
    for reference in references:
        listed = workloads.get(reference.uid) if reference.kind == "ReplicaSet" else None
        if listed is not None and listed[0] == "ReplicaSet":
            workload = listed[1]
            if workload.spec is None and controller_of(workload.metadata.owner_references) is None:
                return True
    return False
