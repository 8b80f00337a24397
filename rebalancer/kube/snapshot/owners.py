"""Workloads as owner records, from a pod's controller up to the workload that a user names.

Up: ReplicaSet to its Deployment (or another controller), Job to its CronJob. Deployment, StatefulSet and DaemonSet are
the top even where an operator's object controls them: they hold the desired replicas.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import lru_cache
from typing import Protocol

from msgspec.structs import replace

from rebalancer.kube.snapshot.columns import controller_of
from rebalancer.kube.snapshot.quarantine import obstacle_of
from rebalancer.kube.snapshot.records import Condition, Object, OwnerReference, Wire
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.model.cluster.objects import Int32, Int64
from rebalancer.model.cluster.obstacles import Obstacle, one_line
from rebalancer.model.cluster.owners import OWNER_LEVELS, Owner

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
    partition: Int32 = 0


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


class DeploymentStrategy(Wire, frozen=True):
    type: str = ""


class WorkloadSpec(Wire, frozen=True):
    replicas: Int32 | None = None
    paused: bool = False
    strategy: DeploymentStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    pod_failure_policy: FailurePolicy | None = None
    active_deadline_seconds: Int64 | None = None


class WorkloadStatus(Wire, frozen=True):
    observed_generation: Int64 | None = None
    replicas: Int32 = 0
    ready_replicas: Int32 = 0
    updated_replicas: Int32 = 0
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: Int32 = 0
    updated_number_scheduled: Int32 = 0
    number_ready: Int32 = 0
    start_time: str | None = None
    conditions: list[Condition] | None = None


class WorkloadMeta(Wire, frozen=True):
    """Without labels: there are many ReplicaSets, and their labels are not used."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: Int64 = 0
    owner_references: list[OwnerReference] | None = None


class Workload(Object, frozen=True):
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
    knots: dict[str, Obstacle] = field(default_factory=dict)
    """uid of a workload -> why the owners above it are left out."""
    _index: dict[object, int] = field(default_factory=dict)
    """Identity of an owner -> its index in `records`."""
    _levels: list[int] = field(default_factory=list)
    """(records,) owners above each."""

    def number(self, namespace: str, reference: OwnerReference) -> int:
        """Index in `records` of the owner that a reference names, its parents before it.

        A tenant writes the references: they may lead back to where they began, or to no end.
        """
        chain: dict[str, tuple[str, Workload]] = {}
        at, up = namespace, reference
        while True:
            kind, identity = kind_of(up), self._identity(at, up)
            parent = self._index.get(identity)
            if parent is not None:
                break
            if identity in chain:
                self._cut(chain, str(identity))
                parent = -1
                break
            listed = self.workloads[up.uid] if identity == up.uid else None
            if listed is None:
                # Created after its list was read, or of a kind that isn't listed: only the reference is known.
                space = "" if kind == "Node" else at
                parent = self._append(identity, Owner(kind=kind, namespace=space, name=up.name, uid=up.uid), level=0)
                break
            chain[up.uid] = listed
            above = controller_of(listed[1].metadata.owner_references) if kind in HAVE_PARENTS else None
            if above is None:
                parent = -1
                break
            at, up = listed[1].metadata.namespace, above
        for uid, (kind, workload) in reversed(chain.items()):
            level = 0 if parent < 0 else self._levels[parent] + 1
            if level >= OWNER_LEVELS:
                self.knots[uid] = obstacle_of(kind, workload, f"more than {OWNER_LEVELS} owners above each other")
            if uid in self.knots:
                parent, level = -1, 0
            parent = self._append(uid, self._listed(kind, workload, parent), level=level)
        return parent

    def _identity(self, namespace: str, reference: OwnerReference) -> object:
        """The uid of a listed workload; of another the reference: a uid that was copied from another namespace, or to
        another kind, is not that workload."""
        listed = self.workloads.get(reference.uid)
        if listed is None or listed[0] != kind_of(reference) or listed[1].metadata.namespace != namespace:
            return namespace, kind_of(reference), reference.name, reference.uid
        return reference.uid

    def _cut(self, chain: Mapping[str, tuple[str, Workload]], uid: str) -> None:
        """Leave out what is above each workload of a cycle: those of `chain` from `uid` on."""
        uids = list(chain)
        cycle = uids[uids.index(uid) :]
        for each, above in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            (kind, workload), (_, parent) = chain[each], chain[above]
            by = "" if workload is parent else f", by way of {parent.metadata.name}"
            self.knots[each] = obstacle_of(kind, workload, one_line(f"ownerReferences: it is its own owner{by}"))

    def _append(self, identity: object, record: Owner, *, level: int) -> int:
        index = self._index[identity] = len(self.records)
        self.records.append(record)
        self._levels.append(level)
        return index

    def add_those_without_pods(self) -> None:
        """Every listed workload of KEPT_WITHOUT_PODS that no pod references."""
        for uid, (kind, workload) in self.workloads.items():
            if kind in KEPT_WITHOUT_PODS and uid not in self._index:
                self._append(uid, self._listed(kind, workload, -1), level=0)

    def with_workloads(self, workloads: Mapping[str, tuple[str, Workload]]) -> "Owners | None":
        """The same owners with these workloads, of which only those that have changed are made again; None where other
        owners may be needed."""
        if workloads.keys() != self.workloads.keys():
            return None
        records = list(self.records)
        out = replace_fields(self, workloads=workloads, records=records)
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
        paused=kind == "Deployment" and workload.spec is not None and workload.spec.paused,
        recreates=kind == "Deployment" and _recreates(workload),
        next_revision=_next_revision(kind, workload),
        finished=kind == "Job" and _finished(workload),
        ends=_ends(workload) if kind == "Job" else math.nan,
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


def _recreates(deployment: Workload) -> bool:
    strategy = deployment.spec.strategy if deployment.spec is not None else None
    return strategy is not None and strategy.type == "Recreate"


def _next_revision(kind: str, workload: Workload) -> str:
    strategy = workload.spec.update_strategy if workload.spec is not None else None
    on_delete = kind == "StatefulSet" and strategy is not None and strategy.type == "OnDelete"
    return workload.status.update_revision if on_delete else ""


def _finished(job: Workload) -> bool:
    return any(each.type in ("Complete", "Failed") and each.status == "True" for each in job.status.conditions or ())


def _ends(job: Workload) -> float:
    seconds = job.spec.active_deadline_seconds if job.spec is not None else None
    return math.nan if seconds is None else epoch_seconds(job.status.start_time) + float(seconds)


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
