"""Arguments of kube-scheduler's plugins that affect placement.

Source: Kubernetes v1.36, `pkg/scheduler/apis/config/types_pluginargs.go`, `v1/defaults.go`,
`validation/validation_pluginargs.go`.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rebalancer.model.cluster.scheduler import FitStrategy
from rebalancer.policy.schema.types import AsTuple, FieldError, NonEmpty, Section

Percentage = Annotated[int, Field(ge=0, le=100)]


class Args(Section):
    """Arguments of a plugin."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"] | None = None
    kind: str | None = None


class Resource(Section):
    """A resource and its weight."""

    name: NonEmpty
    weight: Annotated[int, Field(ge=0, le=100)] = 1


class Point(Section):
    """A point of the shape of RequestedToCapacityRatio."""

    utilization: Percentage
    score: Annotated[int, Field(ge=0, le=10)]


class Ratio(Section):
    """RequestedToCapacityRatio."""

    shape: Annotated[tuple[Point, ...], AsTuple, Field(min_length=1)]

    @model_validator(mode="after")
    def _ascending(self) -> "Ratio":
        used = [point.utilization for point in self.shape]
        if any(right <= left for left, right in pairwise(used)):
            raise FieldError("shape", f"expected ascending utilization, got {', '.join(map(str, used))}")
        return self


class ScoringStrategy(Section):
    """Scoring strategy of NodeResourcesFit."""

    type: FitStrategy
    resources: Annotated[tuple[Resource, ...], AsTuple] = ()
    requested_to_capacity_ratio: Ratio | None = None

    @model_validator(mode="after")
    def _shape_where_it_belongs(self) -> "ScoringStrategy":
        if (self.type == "RequestedToCapacityRatio") != (self.requested_to_capacity_ratio is not None):
            raise FieldError(
                "requestedToCapacityRatio", f"expected with type RequestedToCapacityRatio only, got type {self.type}"
            )
        return self


class FitArgs(Args):
    """NodeResourcesFitArgs."""

    ignored_resources: Annotated[tuple[str, ...], AsTuple] = ()
    ignored_resource_groups: Annotated[tuple[str, ...], AsTuple] = ()
    scoring_strategy: ScoringStrategy | None = None


class BalancedArgs(Args):
    """NodeResourcesBalancedAllocationArgs."""

    resources: Annotated[tuple[Resource, ...], AsTuple] = ()

    @model_validator(mode="after")
    def _once_with_weight_one(self) -> "BalancedArgs":
        names = [each.name for each in self.resources]
        if len(set(names)) < len(names):
            raise FieldError("resources", f"expected each resource once, got {', '.join(names)}")
        if any(each.weight > 1 for each in self.resources):
            raise FieldError("resources", "expected weight 1 for each resource")
        return self


class Requirement(Section):
    """A requirement of a node selector."""

    key: NonEmpty
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[tuple[str, ...], AsTuple] = ()

    @model_validator(mode="after")
    def _values_fit_the_operator(self) -> "Requirement":
        count = len(self.values)
        fits = {
            "In": count > 0,
            "NotIn": count > 0,
            "Exists": not count,
            "DoesNotExist": not count,
        }.get(self.operator, count == 1 and re.fullmatch(r"[+-]?\d+", self.values[0]) is not None)
        if not fits:
            raise FieldError("values", f"expected values that fit {self.operator}, got {list(self.values)}")
        return self


class Term(Section):
    """A term of a node selector."""

    match_expressions: Annotated[tuple[Requirement, ...], AsTuple] = ()
    match_fields: Annotated[tuple[Requirement, ...], AsTuple] = ()


class NodeSelector(Section):
    """Terms of which at least one must match."""

    node_selector_terms: Annotated[tuple[Term, ...], AsTuple]


class Preferred(Section):
    """A preference and its weight."""

    weight: int
    preference: Term


class AddedAffinity(Section):
    """Node affinity added to every pod of the profile."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[Preferred, ...], AsTuple] = ()


class AffinityArgs(Args):
    """NodeAffinityArgs."""

    added_affinity: AddedAffinity | None = None


class DefaultConstraint(Section):
    """A default constraint; its selector comes from the pod's owner."""

    max_skew: Annotated[int, Field(ge=1)]
    topology_key: NonEmpty
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, Field(ge=1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: Annotated[tuple[str, ...], AsTuple] = ()


class SpreadArgs(Args):
    """PodTopologySpreadArgs."""

    defaulting_type: Literal["System", "List"] = "System"
    default_constraints: Annotated[tuple[DefaultConstraint, ...], AsTuple] = ()

    @model_validator(mode="after")
    def _a_list_with_list_only(self) -> "SpreadArgs":
        if self.default_constraints and self.defaulting_type == "System":
            raise FieldError("defaultingType", "expected List with defaultConstraints, got System")
        pairs = [(each.topology_key, each.when_unsatisfiable) for each in self.default_constraints]
        if len(set(pairs)) < len(pairs):
            raise FieldError("defaultConstraints", "expected each topologyKey and whenUnsatisfiable once")
        return self


class InterPodArgs(Args):
    """InterPodAffinityArgs."""

    hard_pod_affinity_weight: Percentage = 1
    ignore_preferred_terms_of_existing_pods: bool = False


ARGS: Mapping[str, type[Args]] = {
    "NodeResourcesFit": FitArgs,
    "NodeResourcesBalancedAllocation": BalancedArgs,
    "NodeAffinity": AffinityArgs,
    "PodTopologySpread": SpreadArgs,
    "InterPodAffinity": InterPodArgs,
}
