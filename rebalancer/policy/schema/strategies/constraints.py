"""Strategies for pods that break a rule about where they may run."""

from typing import Annotated, Literal

from pydantic import Field

from rebalancer.policy.schema.strategies.base import ARGS, NAME, PodArgs, StrategyBase
from rebalancer.policy.schema.types import AsTuple, Names

SpreadMode = Literal["DoNotSchedule", "ScheduleAnyway"]
AffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]


class DuplicatesArgs(PodArgs):
    """Arguments of RemoveDuplicates."""

    exclude_owner_kinds: Names = ()
    """Kinds of direct owners whose pods may share a node."""


class AntiAffinityArgs(PodArgs):
    """Arguments of RemovePodsViolatingInterPodAntiAffinity."""


class NodeAffinityArgs(PodArgs):
    """Arguments of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[tuple[AffinityType, ...], AsTuple, Field(min_length=1)] = (
        "requiredDuringSchedulingIgnoredDuringExecution",
    )
    """Kinds of rules. For a preferred one a pod is evicted only if a better node is certain to take it."""


class NodeTaintsArgs(PodArgs):
    """Arguments of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    """Whether PreferNoSchedule taints count, in addition to NoSchedule."""
    excluded_taints: Names = ()
    """Taints that do not count, as `key` or `key=value`."""
    included_taints: Names = ()
    """If set, only these taints count."""


class TopologySpreadArgs(PodArgs):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: Annotated[tuple[SpreadMode, ...], AsTuple, Field(min_length=1)] = ("DoNotSchedule",)
    """Kinds of constraints that count."""


class RemoveDuplicates(StrategyBase):
    """Evicts pods of one owner that share a node while other nodes have fewer of them."""

    MODULE = "constraints.remove_duplicates"

    name: Annotated[Literal["RemoveDuplicates"], NAME]
    args: Annotated[DuplicatesArgs, ARGS] = DuplicatesArgs()


class RemovePodsViolatingInterPodAntiAffinity(StrategyBase):
    """Evicts pods that share a topology domain against the required anti-affinity of one of them. Of pods of two
    namespaces only the one with the anti-affinity is evicted, and only where the other could be evicted too."""

    MODULE = "constraints.inter_pod_anti_affinity"

    name: Annotated[Literal["RemovePodsViolatingInterPodAntiAffinity"], NAME]
    args: Annotated[AntiAffinityArgs, ARGS] = AntiAffinityArgs()


class RemovePodsViolatingNodeAffinity(StrategyBase):
    """Evicts pods from nodes that no longer match their node affinity or node selector."""

    MODULE = "constraints.node_affinity"

    name: Annotated[Literal["RemovePodsViolatingNodeAffinity"], NAME]
    args: Annotated[NodeAffinityArgs, ARGS] = NodeAffinityArgs()


class RemovePodsViolatingNodeTaints(StrategyBase):
    """Evicts pods from nodes with a taint that they do not tolerate."""

    MODULE = "constraints.node_taints"

    name: Annotated[Literal["RemovePodsViolatingNodeTaints"], NAME]
    args: Annotated[NodeTaintsArgs, ARGS] = NodeTaintsArgs()


class RemovePodsViolatingTopologySpreadConstraint(StrategyBase):
    """Evicts pods from topology domains that exceed the maximum skew of their spread constraint."""

    MODULE = "constraints.topology_spread"

    name: Annotated[Literal["RemovePodsViolatingTopologySpreadConstraint"], NAME]
    args: Annotated[TopologySpreadArgs, ARGS] = TopologySpreadArgs()


CONSTRAINTS = (
    RemoveDuplicates,
    RemovePodsViolatingInterPodAntiAffinity,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
    RemovePodsViolatingTopologySpreadConstraint,
)
