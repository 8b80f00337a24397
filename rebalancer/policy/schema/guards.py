"""The `guards` section of the policy file: which pods are never evicted, and where nothing may land."""

from typing import Annotated

from pydantic import model_validator

from rebalancer.policy.schema.lists import EVERYTHING, ListRule
from rebalancer.policy.schema.lists import Globs as SomeGlobs
from rebalancer.policy.schema.types import (
    AsTuple,
    Count,
    Duration,
    FieldError,
    Globs,
    Names,
    NonEmpty,
    PercentagePoints,
    Section,
    Selector,
)


class NamespaceFilter(Section):
    """Globs; `exclude` wins."""

    include: Globs = ("*",)
    """Namespaces whose pods may be evicted."""
    exclude: Globs = ("kube-system",)
    """Namespaces whose pods are never evicted."""


class LabelFilter(Section):
    """Label selectors on pods; `exclude` wins."""

    include: Selector = Selector()
    """Pods that may be evicted."""
    exclude: Selector | None = None
    """Pods that are never evicted."""


class Ours(Section):
    """Pods that rebalancer depends on. They are never evicted."""

    rebalancer: Selector = Selector.model_validate({"matchLabels": {"app.kubernetes.io/name": "rebalancer"}})
    """rebalancer itself."""
    prometheus: Selector = Selector.model_validate({"matchLabels": {"app.kubernetes.io/name": "prometheus"}})
    """The Prometheus that rebalancer reads."""
    database: Selector = Selector.model_validate(
        {
            "matchExpressions": [
                {"key": "app.kubernetes.io/name", "operator": "In", "values": ["postgresql", "postgres"]}
            ]
        }
    )
    """The database of rebalancer."""


class ReplacementFirstRule(ListRule):
    """Matches a pod as a rule of `lists` does, and by its service level."""

    levels: SomeGlobs = EVERYTHING
    """Globs of names of service levels."""


class GuardOverride(Section):
    """Other values of guards, for the evictions of some strategies or in some pools."""

    strategies: Names = ()
    """Names of strategies; empty: all."""
    pools: Names = ()
    """Names of pools that the pod's node is in; empty: all."""
    job_pods: bool | None = None
    """As in `guards`; so are the following."""
    host_path: bool | None = None
    """Pods with hostPath volumes."""
    disk_empty_dir: bool | None = None
    """Pods with an emptyDir on disk."""
    persistent_volumes: bool | None = None
    """Pods with PersistentVolumeClaims."""
    needed_pods: bool | None = None
    """Pods that others need by required podAffinity."""
    min_age: Duration | None = None
    """Younger pods are not evicted."""
    min_scale_age: Duration | None = None
    """Services that an autoscaler changed less long ago are left alone."""
    min_replicas: Count | None = None
    """Services with fewer desired replicas are left alone."""
    require_opt_in: bool | None = None
    """Only pods that opted in."""

    @model_validator(mode="after")
    def _names_something(self) -> "GuardOverride":
        if not (self.strategies or self.pools):
            raise FieldError("strategies", "expected strategies or pools, or the value in guards itself")
        return self

    def holds(self, *, strategy: str, pool: str) -> bool:
        """Whether it holds for evictions of this strategy in this pool."""
        return strategy in (self.strategies or (strategy,)) and pool in (self.pools or (pool,))


class Guards(Section):
    """Rules that protect pods from eviction. These cannot be disabled: mirror, static, DaemonSet, terminating,
    finished, not Ready and bare pods, `ours`, system-critical priorities, rollouts, disruption budgets, vetoes by
    annotation, evictions in progress."""

    job_pods: bool = False
    """Whether Job pods may be evicted; even then only if the Job's podFailurePolicy ignores DisruptionTarget. Pods with
    the annotation `rebalancer.dev/evict-job: "true"` may be, whatever this and `minReplicas` are."""
    owner_kinds: Annotated[tuple[str, ...], AsTuple] = ()
    """Owner kinds besides the built-in ones whose controllers recreate pods, for example CloneSet."""
    priority_below: int | None = None
    """Only pods with a lower priority may be evicted."""
    priority_class_below: NonEmpty | None = None
    """The same, by the name of a PriorityClass."""
    host_path: bool = False
    """Whether pods with hostPath volumes may be evicted."""
    disk_empty_dir: bool = False
    """Whether pods with an emptyDir on disk may be evicted and lose it. An emptyDir in memory is not protected."""
    persistent_volumes: bool = False
    """Whether pods with PersistentVolumeClaims may be evicted. Pods with local volumes never are."""
    needed_pods: bool = False
    """Whether a pod may be evicted that is the only one to meet the required podAffinity of other pods of its namespace
    where they run."""
    min_age: Duration = 300.0
    """Younger pods are not evicted."""
    min_scale_age: Duration = 180.0
    """Services that a HorizontalPodAutoscaler or a VerticalPodAutoscaler changed less long ago are left alone; 0s: only
    while it is changing them. A change by up to a tenth of the replicas doesn't count."""
    min_replicas: Count = 2
    """Services with fewer desired replicas are left alone."""
    replacement_first: Annotated[tuple[ReplacementFirstRule, ...], AsTuple] = ()
    """Pods that match one of these rules are moved although their service has one replica, fewer than `minReplicas`, or
    a PodDisruptionBudget that allows no disruption at its size: its Deployment runs one pod more until that one is
    Ready, then the pod goes."""
    group_labels: Names = (
        "leaderworkerset.sigs.k8s.io/name",
        "jobset.sigs.k8s.io/jobset-name",
        "volcano.sh/job-name",
        "scheduling.x-k8s.io/pod-group",
        "kueue.x-k8s.io/pod-group-name",
    )
    """Labels of pods whose eviction restarts a whole group, as in a LeaderWorkerSet. Such pods are not evicted."""
    require_opt_in: bool = False
    """Only pods with the label or annotation `rebalancer.dev/evict: "true"`, or with that label on their namespace or
    node, may be evicted."""
    namespaces: NamespaceFilter = NamespaceFilter()
    """Filter by namespace."""
    labels: LabelFilter = LabelFilter()
    """Filter by pod labels."""
    min_memory_available: PercentagePoints = 10.0
    """No replacement lands on a node where less than this percentage of its real memory would stay available; 0: nodes
    may be filled. Replacements count with what the evicted pod or their siblings use, whichever is more."""
    ours: Ours = Ours()
    """Pods that rebalancer depends on."""
    overrides: Annotated[tuple[GuardOverride, ...], AsTuple] = ()
    """Other values for some strategies or pools; of several that hold, the last one wins."""

    @model_validator(mode="after")
    def _one_threshold(self) -> "Guards":
        if self.priority_below is not None and self.priority_class_below is not None:
            raise FieldError("priorityClassBelow", "expected priorityBelow or priorityClassBelow, not both")
        return self

    def of(self, *, strategy: str, pool: str) -> "Guards":
        """The guards of evictions of this strategy in this pool."""
        changed: dict[str, object] = {}
        for each in self.overrides:
            if each.holds(strategy=strategy, pool=pool):
                values = ((name, value) for name, value in each if name not in ("strategies", "pools"))
                changed |= {name: value for name, value in values if value is not None}
        return self.model_copy(update=changed) if changed else self
