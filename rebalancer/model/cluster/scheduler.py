"""The configuration of kube-scheduler: the fields of a `KubeSchedulerConfiguration` that affect where a pod lands.

Source: Kubernetes v1.36, `pkg/scheduler/apis/config/v1/default_plugins.go` and `defaults.go`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rebalancer.model.cluster.objects import NodeAffinity, SpreadConstraint

DEFAULT_SCHEDULER = "default-scheduler"

DEFAULT_WEIGHTS: Mapping[str, int] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""Score plugins of this model, with their default weights."""

FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeVolumeLimits",
    "VolumeBinding",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
)
"""Filter plugins of this model, in the order in which the scheduler runs them."""

FitStrategy = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerProfile:
    """One profile: the placement rules of pods with this `schedulerName`."""

    name: str = DEFAULT_SCHEDULER
    weights: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    """Score plugin -> weight; one that is missing is off."""
    filters: frozenset[str] = frozenset(FILTERS)
    fit_strategy: FitStrategy = "LeastAllocated"
    fit_resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    """(resource, weight) that NodeResourcesFit scores."""
    fit_shape: tuple[tuple[int, int], ...] = ()
    """RequestedToCapacityRatio: (utilization 0..100, score 0..10), ascending."""
    balanced_resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    added_affinity: NodeAffinity | None = None
    """NodeAffinityArgs.addedAffinity."""
    default_constraints: tuple[SpreadConstraint, ...] | None = None
    """PodTopologySpreadArgs.defaultConstraints with `defaultingType: List`; None = the system's own."""
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    percentage_of_nodes_to_score: int | None = None
    """Its own; None = the configuration's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """The scheduler of a cluster."""

    profiles: Mapping[str, SchedulerProfile] = field(
        default_factory=lambda: {DEFAULT_SCHEDULER: SchedulerProfile()},
    )
    """By `schedulerName`. The placement of pods that name another scheduler is unknown."""
    percentage_of_nodes_to_score: int = 0
    """0 = adaptive."""
    unknown: tuple[str, ...] = ()
    """Enabled parts of the file that this model doesn't cover: other plugins, extenders, resources that are not
    checked."""
