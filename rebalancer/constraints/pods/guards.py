"""Guards: rules that protect a pod regardless of the plan. One function each, in order; the first refusal counts.

A guard sees one pod and the snapshot. It can only refuse. One annotation lifts a protection: EVICT_JOB, which the
creator of a Job gives its pods. Shields that the policy doesn't trust a namespace with (`trust`) don't count.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from rebalancer.constraints.pods.autoscalers import ServicesInChange
from rebalancer.constraints.pods.trust import Lifted
from rebalancer.model.cluster.annotations import (
    EVICT_JOB,
    EVICTION_IN_PROGRESS,
    FOR_A_TIME,
    MIRROR,
    OPT,
    parse_flag,
    protected_for,
    run_by_kubelet,
    vetoed_by,
)
from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate
from rebalancer.model.cluster.owners import REVISION_LABEL
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.replacement import AT_ONCE, newest_siblings
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.notation import figures
from rebalancer.model.notation.arrays import Ints
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.reason.shields import SHIELD_OF
from rebalancer.policy.schema.guards import Guards
from rebalancer.policy.schema.types import format_duration
from rebalancer.projection.projection import Projection

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
"""Priority of system-cluster-critical; source: k8s.io/kubernetes/pkg/apis/scheduling/types.go."""

RECREATING_KINDS = ("ReplicaSet", "StatefulSet", "ReplicationController")


@dataclass(frozen=True, kw_only=True)
class GuardView:
    """Input of guards besides the pod."""

    snapshot: ClusterSnapshot
    guards: Guards
    now: float
    """Seconds since the epoch."""
    own_pod: tuple[str, str] | None = None
    """(namespace, name) of the pod that this process runs in."""
    protected: tuple[tuple[Reason, LabelSelector], ...]
    priority_limit: int | None
    labels_included: LabelSelector
    labels_excluded: LabelSelector | None
    like: Ints
    """(pods,) as `newest_siblings`."""
    in_change: ServicesInChange
    projection: Projection
    lifted: Lifted = frozenset()
    """Shields of the pod that don't count."""

    @classmethod
    def of(
        cls, *, projection: Projection, guards: Guards, now: float, own_pod: tuple[str, str] | None = None
    ) -> "GuardView":
        """Compile the policy's guards for the snapshot of a projection.

        If the cluster doesn't have `priorityClassBelow`, every pod counts as at the threshold.
        """
        snapshot = projection.snapshot
        like = newest_siblings(snapshot)
        limit = guards.priority_below
        if guards.priority_class_below is not None:
            lowest = -(2**31)
            limit = snapshot.priority_classes.get(guards.priority_class_below, lowest)
        return cls(
            snapshot=snapshot,
            guards=guards,
            now=now,
            own_pod=own_pod,
            protected=(
                (Reason.OURSELVES, guards.ours.rebalancer.compiled()),
                (Reason.OUR_PROMETHEUS, guards.ours.prometheus.compiled()),
                (Reason.OUR_DATABASE, guards.ours.database.compiled()),
            ),
            priority_limit=limit,
            labels_included=guards.labels.include.compiled(),
            labels_excluded=guards.labels.exclude.compiled() if guards.labels.exclude is not None else None,
            like=like,
            in_change=ServicesInChange(snapshot, like),
            projection=projection,
        )

    def without(self, lifted: Lifted) -> "GuardView":
        """The guards of a pod whose shields `lifted` don't count."""
        if not lifted:
            return self
        changed: dict[str, object] = {}
        if "Volume" in lifted:
            changed |= {"host_path": True, "disk_empty_dir": True, "persistent_volumes": True}
        if "Group" in lifted:
            changed["group_labels"] = ()
        return replace(
            self,
            guards=self.guards.model_copy(update=changed),
            protected=() if "Name" in lifted else self.protected,
            priority_limit=None if "Priority" in lifted else self.priority_limit,
            labels_excluded=None if "Label" in lifted else self.labels_excluded,
            lifted=lifted,
        )


Guard = Callable[[Pod, GuardView], Refusal | None]


MISSING_SHARE = 0.25
"""Of the desired replicas, rounded down: so many may be missing at once while those on leaving nodes move, the evicted
pod among them. As `maxUnavailable` of a Deployment by default."""
WAIVED_IF_UNHEALTHY = (Reason.FINISHED, Reason.NOT_READY, Reason.MIN_REPLICAS, Reason.OWNER_NOT_HEALTHY)
"""Guards of a pod's work; a pod that does none has nothing to lose."""


def guarded(pod: Pod, view: GuardView, *, broken: bool = False) -> Refusal | None:
    """The first reason that protects `pod`, or None. `broken`: it does no work as it is."""
    refusals = (refusal for guard in GUARDS if (refusal := guard(pod, view)) is not None)
    return next((each for each in refusals if not (broken and each.code in WAIVED_IF_UNHEALTHY)), None)


def shielded(pod: Pod, view: GuardView) -> bool:
    """Whether a guard refuses by what the pod's creator wrote."""
    return any((refusal := guard(pod, view)) is not None and SHIELD_OF.get(refusal.code) for guard in OF_SHIELDS)


def _unreadable(pod: Pod, view: GuardView) -> Refusal | None:
    if (obstacle := view.snapshot.obstacle_of(pod.index)) is not None:
        return Refusal.of(Reason.UNREADABLE_OBJECT, str(obstacle))
    # of a recording, which has no causes
    return Refusal.of(Reason.UNREADABLE_OBJECT) if view.snapshot.pods.unreadable[pod.index] else None


def _mirror(pod: Pod, view: GuardView) -> Refusal | None:
    if MIRROR in pod.template.annotations:
        return Refusal.of(Reason.MIRROR_POD)
    if run_by_kubelet(pod.template.annotations) or (pod.owner is not None and pod.owner.kind == "Node"):
        return Refusal.of(Reason.STATIC_POD)
    return None


def _terminating(pod: Pod, view: GuardView) -> Refusal | None:
    return Refusal.of(Reason.TERMINATING) if pod.terminating else None


def _finished(pod: Pod, view: GuardView) -> Refusal | None:
    return Refusal.of(Reason.FINISHED) if pod.phase in (SUCCEEDED, FAILED) else None


def _owner_kind(pod: Pod, view: GuardView) -> Refusal | None:
    owner = pod.owner
    if owner is None or owner.kind == "Pod":
        return Refusal.of(Reason.BARE_POD)
    if owner.kind == "DaemonSet":
        return Refusal.of(Reason.DAEMONSET_POD)
    if owner.kind == "Job":
        if not view.guards.job_pods and not _is_evictable_job(pod):
            value = pod.template.annotations.get(EVICT_JOB)
            return Refusal.of(Reason.JOB_POD, "" if value is None else f'{EVICT_JOB} is "{value}"')
        if not owner.spares_disruptions:
            return Refusal.of(Reason.JOB_POD, f"the podFailurePolicy of {owner.name} doesn't ignore DisruptionTarget")
        return None
    if owner.kind not in RECREATING_KINDS and owner.kind not in view.guards.owner_kinds:
        return Refusal.of(Reason.UNKNOWN_OWNER_KIND, owner.kind)
    return None


def _is_evictable_job(pod: Pod) -> bool:
    """A pod of a Job that continues from a checkpoint, by its annotation."""
    of_job = pod.owner is not None and pod.owner.kind == "Job"
    return of_job and parse_flag(pod.template.annotations.get(EVICT_JOB, "")) is True


def _ours(pod: Pod, view: GuardView) -> Refusal | None:
    if view.own_pod == (pod.namespace, pod.name):
        return Refusal.of(Reason.OURSELVES)
    for reason, selector in view.protected:
        if selector_matches(selector, pod.template.labels):
            return Refusal.of(reason)
    return None


def _priority(pod: Pod, view: GuardView) -> Refusal | None:
    if "Priority" in view.lifted:
        return None
    if pod.priority >= SYSTEM_CRITICAL_PRIORITY or pod.template.priority_class.startswith("system-"):
        return Refusal.of(Reason.SYSTEM_CRITICAL)
    if view.priority_limit is not None and pod.priority >= view.priority_limit:
        return Refusal.of(Reason.PRIORITY_THRESHOLD, f"{pod.priority} >= {view.priority_limit}")
    return None


def _namespace(pod: Pod, view: GuardView) -> Refusal | None:
    rules = view.guards.namespaces
    inside = any(fnmatchcase(pod.namespace, glob) for glob in rules.include)
    if not inside or any(fnmatchcase(pod.namespace, glob) for glob in rules.exclude):
        return Refusal.of(Reason.NAMESPACE_EXCLUDED, pod.namespace)
    return None


def _labels(pod: Pod, view: GuardView) -> Refusal | None:
    if not selector_matches(view.labels_included, pod.template.labels):
        return Refusal.of(Reason.LABEL_EXCLUDED, "not among the included")
    if selector_matches(view.labels_excluded, pod.template.labels):
        return Refusal.of(Reason.LABEL_EXCLUDED)
    return None


def _opted(pod: Pod, view: GuardView) -> Refusal | None:
    namespace = view.snapshot.namespace_labels.get(pod.namespace, {})
    places: tuple[tuple[str, Mapping[str, str]], ...] = (
        ("the pod's annotation", pod.template.annotations),
        ("the pod's label", pod.template.labels),
        ("the namespace's label", namespace),
    )
    refusal = None if "OptOut" in view.lifted else next(filter(None, (_out(*place) for place in places)), None)
    if refusal is None and view.guards.require_opt_in:
        on_node = view.snapshot.nodes.labels[pod.node] if pod.node >= 0 else {}
        flags = (parse_flag(found.get(OPT, "")) for found in (*(found for _, found in places), on_node))
        refusal = None if any(flags) else Refusal.of(Reason.NOT_OPTED_IN, OPT)
    return refusal


def _opted_by_node(pod: Pod, view: GuardView) -> Refusal | None:
    return _out("the node's label", view.snapshot.nodes.labels[pod.node]) if pod.node >= 0 else None


def _out(where: str, found: Mapping[str, str]) -> Refusal | None:
    value = found.get(OPT)
    flag = True if value is None else parse_flag(value)
    if flag is None:
        return Refusal.of(Reason.INVALID_OPT_OUT, f'{where} {OPT} is "{value}", neither true nor false')
    return None if flag else Refusal.of(Reason.OPTED_OUT, f"{where} {OPT}")


def _group(pod: Pod, view: GuardView) -> Refusal | None:
    found = next((label for label in view.guards.group_labels if label in pod.template.labels), None)
    return None if found is None else Refusal.of(Reason.POD_GROUP, f"{found}={pod.template.labels[found]}")


def _in_progress(pod: Pod, view: GuardView) -> Refusal | None:
    # its presence counts, whatever its value: KubeVirt writes its own name there
    found = EVICTION_IN_PROGRESS in pod.template.annotations and "InProgress" not in view.lifted
    return Refusal.of(Reason.EVICTION_IN_PROGRESS, EVICTION_IN_PROGRESS) if found else None


def _vetoes(pod: Pod, view: GuardView) -> Refusal | None:
    found = vetoed_by(pod.template.annotations, age=view.now - pod.started)
    if found is None or "Veto" in view.lifted:
        return None
    value = pod.template.annotations[found]
    until = pod.started + protected_for(value) if found == FOR_A_TIME else math.inf
    if not math.isfinite(until):
        return Refusal.of(Reason.ANNOTATION_VETO, f'{found} is "{value}"')
    detail = f'{found} is "{value}", until {figures.clock_time(until)}'
    return Refusal.of(Reason.ANNOTATION_VETO, detail, next_at=until)


def _volumes(pod: Pod, view: GuardView) -> Refusal | None:
    guards, snapshot = view.guards, view.snapshot
    for volume in pod.template.volumes:
        if volume.host_path is not None and not guards.host_path:
            return Refusal.of(Reason.HOST_PATH, volume.host_path.get("path", ""))
        if volume.empty_dir is not None and volume.empty_dir.get("medium", "") == "" and not guards.disk_empty_dir:
            return Refusal.of(Reason.LOCAL_STORAGE)
        if volume.persistent_volume_claim is None and volume.ephemeral is None:
            continue
        if not guards.persistent_volumes:
            return Refusal.of(Reason.PERSISTENT_VOLUME)
        claim = str((volume.persistent_volume_claim or {}).get("claimName", ""))
        if not snapshot.claims_known:
            return Refusal.of(Reason.LOCAL_VOLUME, "PersistentVolumes can't be read, so all count as local")
        # a generic ephemeral volume's claim is named <pod>-<volume>
        local = (
            (pod.namespace, claim) in snapshot.local_claims
            if claim
            else any(ns == pod.namespace and name.startswith(f"{pod.name}-") for ns, name in snapshot.local_claims)
        )
        if local:
            return Refusal.of(Reason.LOCAL_VOLUME, claim)
    return None


def _claims(pod: Pod, view: GuardView) -> Refusal | None:
    """Claims, and groups, whose effect on the replacement's target node isn't modelled."""
    if pod.template.not_modelled:
        return Refusal.of(Reason.PLACEMENT_NOT_MODELLED, pod.template.not_modelled)
    snapshot = view.snapshot
    for name in _claim_names(pod.template):
        claim = (pod.namespace, name)
        if snapshot.bound_claims is not None and claim not in snapshot.bound_claims and snapshot.claims_known:
            return Refusal.of(
                Reason.PLACEMENT_NOT_MODELLED, f"its claim {name} is not bound: where its volume will be isn't known"
            )
        if snapshot.volume_limits is None and claim in snapshot.claim_drivers:
            return Refusal.of(
                Reason.PLACEMENT_NOT_MODELLED, "CSINodes can't be read, so the nodes' volume limits aren't known"
            )
        if claim in snapshot.one_node_claims and (other := _other_user(pod, name, snapshot)) is not None:
            return Refusal.of(Reason.VOLUME_IN_USE, f"{name}, used by {other}")
    return None


def _resized(pod: Pod, view: GuardView) -> Refusal | None:
    """A pod whose replacement requests something else than it does, where that can't be modelled."""
    newest = int(view.like[pod.index])
    if newest == pod.index or (pod.owner is not None and pod.owner.kind in AT_ONCE):
        return None
    pods = view.snapshot.pods
    cpu, memory = (
        f"{column[newest]:g} instead of {column[pod.index]:g}"
        for column in (pods.cpu_request_millicores, pods.memory_request_bytes)
    )
    return Refusal.of(
        Reason.PLACEMENT_NOT_MODELLED,
        f"its replacement will request as {pods.names[newest]} does: CPU {cpu} millicores, memory {memory} bytes",
    )


def _claim_names(template: PodTemplate) -> list[str]:
    return [
        str(volume.persistent_volume_claim.get("claimName", ""))
        for volume in template.volumes
        if volume.persistent_volume_claim is not None
    ]


def _other_user(pod: Pod, claim: str, snapshot: ClusterSnapshot) -> str | None:
    """Another pod on the same node that uses the claim."""
    pods = snapshot.pods
    for other in snapshot.pods_on(pod.node).tolist() if pod.node >= 0 else ():
        same = other != pod.index and pods.namespace[other] == pods.namespace[pod.index]
        if same and snapshot.active[other] and claim in _claim_names(snapshot.pod_templates[pods.template[other]]):
            return str(pods.names[other])
    return None


def _not_ready(pod: Pod, view: GuardView) -> Refusal | None:
    return None if pod.ready or "Health" in view.lifted else Refusal.of(Reason.NOT_READY)


def _age(pod: Pod, view: GuardView) -> Refusal | None:
    if view.guards.min_age <= 0:
        return None
    if math.isnan(pod.started):
        return Refusal.of(Reason.TOO_YOUNG, "it has no start time")
    age = view.now - pod.started
    if age < view.guards.min_age:
        wanted = format_duration(view.guards.min_age)
        due = pod.started + view.guards.min_age
        return Refusal.of(Reason.TOO_YOUNG, f"{figures.age(age)} of {wanted}", next_at=due)
    return None


def _replicas(pod: Pod, view: GuardView) -> Refusal | None:
    desired, _ = view.projection.replicas(pod.index)
    # a Job serves no requests that another replica would have to take
    if desired >= view.guards.min_replicas or _is_evictable_job(pod):
        return None
    return Refusal.of(
        Reason.MIN_REPLICAS, f"{pod.service} has {desired}, guards.minReplicas is {view.guards.min_replicas}"
    )


def _spares_service(pod: Pod, view: GuardView) -> bool:
    """Whether the state of its service doesn't count, because the pod does no work or enough others do."""
    if "Health" not in view.lifted:
        return False
    _, ready = view.projection.replicas(pod.index)
    return not pod.ready or ready >= max(view.guards.min_replicas, 1)


def _rollout(pod: Pod, view: GuardView) -> Refusal | None:
    if _spares_service(pod, view):
        return None
    snapshot = view.snapshot
    owner = int(snapshot.pods.owner[pod.index])
    top = snapshot.owners[int(snapshot.top_owner[owner])]
    rolling_out = top.rolling_out or snapshot.owners[owner].rolling_out
    if rolling_out:
        return Refusal.of(Reason.ROLLOUT_IN_PROGRESS, str(pod.service))
    if int(snapshot.top_owner[owner]) in snapshot.in_two_revisions:
        return Refusal.of(Reason.ROLLOUT_IN_PROGRESS, f"{pod.service} has pods of two revisions")
    if top.next_revision and pod.template.labels.get(REVISION_LABEL, top.next_revision) != top.next_revision:
        return Refusal.of(
            Reason.ROLLOUT_IN_PROGRESS, f"{pod.service} is OnDelete, and would replace it by a pod of its next revision"
        )
    return None


def _autoscaled(pod: Pod, view: GuardView) -> Refusal | None:
    if _spares_service(pod, view):
        return None
    return view.in_change.refuses(pod, settles=view.guards.min_scale_age, now=view.now)


def _owner_health(pod: Pod, view: GuardView) -> Refusal | None:
    desired, ready = view.projection.replicas(pod.index)
    if ready >= desired or _spares_service(pod, view):
        return None
    missing = view.projection.why_missing(pod.index)
    if not missing:
        return Refusal.of(Reason.OWNER_NOT_HEALTHY, f"{pod.service} has {ready} of {desired} ready")
    _, now = view.snapshot.replicas(int(view.snapshot.pods.owner[pod.index]))
    if now >= desired and desired - ready < int(MISSING_SHARE * desired):
        return None
    return Refusal.of(
        Reason.OWNER_NOT_HEALTHY, f"{ready} of {desired} ready pods of {pod.service} will stay; {missing}"
    )


GUARDS: tuple[Guard, ...] = (
    _unreadable,
    _mirror,
    _terminating,
    _finished,
    _owner_kind,
    _ours,
    _priority,
    _namespace,
    _labels,
    _opted,
    _opted_by_node,
    _group,
    _in_progress,
    _vetoes,
    _volumes,
    _claims,
    _resized,
    _not_ready,
    _age,
    _replicas,
    _rollout,
    _autoscaled,
    _owner_health,
)

OF_SHIELDS: tuple[Guard, ...] = (_ours, _priority, _labels, _opted, _group, _in_progress, _vetoes, _volumes)
"""Guards that read what a pod's creator wrote."""
