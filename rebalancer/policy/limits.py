"""How many evictions, how fast, at every scope: the `limits` sections of the policy file."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from rebalancer.policy.types import AsTuple, Count, Duration, FieldError, Section

_PERCENT = re.compile(r"(\d{1,3})%")


def _count_or_percent(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) > 100:
        raise ValueError("expected a whole number, or a percentage such as 10%")
    return value


CountOrPercent = Annotated[
    int | str,
    BeforeValidator(_count_or_percent),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d{1,3}%$"}]}),
]


def resolve(limit: int | str, base: int, at_least: int = 0) -> int:
    """A count as it is; a percentage of `base`, rounded down, but not under `at_least`."""
    if isinstance(limit, int):
        return limit
    return max(int(limit[:-1]) * base // 100, at_least)


class Rate(Section):
    """At most `max` evictions in any window of this length; the window slides."""

    max: CountOrPercent
    """A number, or a percentage, rounded down: of the wanted replicas (namespace, level, service) or the nodes (global,
    cluster, pool)."""
    per: Annotated[Duration, Field(gt=0)]
    """Length of the window."""
    at_least: Count = 0
    """A percentage never means less than this."""

    @model_validator(mode="after")
    def _at_least_of_a_percentage(self) -> "Rate":
        if self.at_least and isinstance(self.max, int):
            raise FieldError("atLeast", "expected atLeast only with a percentage")
        return self


class ScopeLimits(Section):
    """Limits of one scope. What is absent is not limited here; the most restrictive scope wins."""

    evictions: Annotated[tuple[Rate, ...], AsTuple] = ()
    """Each: at most so many in a sliding window."""
    spacing: Duration | None = None
    """Between two evictions."""
    in_flight: CountOrPercent | None = None
    """Evicted, replacement not yet Ready."""
    in_flight_at_least: Count = 0
    """A percentage of `inFlight` never means less than this."""


class ClusterLimits(ScopeLimits):
    """Of the cluster."""

    in_flight: CountOrPercent | None = 10
    """Evicted, replacement not yet Ready."""


class NodeLimits(ScopeLimits):
    """Of each node, as the one that pods leave."""

    evictions: Annotated[tuple[Rate, ...], AsTuple] = (Rate(max=4, per="10m"),)  # type: ignore[arg-type]
    """Each: at most so many in a sliding window."""

    @model_validator(mode="after")
    def _no_percentages(self) -> "NodeLimits":
        if any(isinstance(rate.max, str) for rate in self.evictions) or isinstance(self.in_flight, str):
            raise FieldError("evictions", "expected numbers: a node has nothing to take a percentage of")
        return self


class ServiceLimits(ScopeLimits):
    """Of each service."""

    in_flight: CountOrPercent | None = 1
    """Evicted, replacement not yet Ready."""


class LandingLimits(Section):
    """How much may arrive at once."""

    per_node: Count | None = 3
    """Replacements on their way to one node."""


class Limits(Section):
    """How many evictions, how fast. Counted in the database, so a restart or another cluster sees the same numbers."""

    per_cycle: Count = 10
    """In one cycle."""
    global_: ScopeLimits = Field(default=ScopeLimits(), alias="global")
    """All clusters that share the database."""
    cluster: ClusterLimits = ClusterLimits()
    """This cluster."""
    pool: ScopeLimits = ScopeLimits()
    """Each pool; a pool's own `limits` replace it."""
    node: NodeLimits = NodeLimits()
    """Each node that pods leave."""
    namespace: ScopeLimits = ScopeLimits()
    """Each namespace of the cluster."""
    service: ServiceLimits = ServiceLimits()
    """Each service, over all clusters that share the database."""
    landings: LandingLimits = LandingLimits()
    """What is on its way."""
