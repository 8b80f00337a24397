"""The `limits` section of the policy file: how many evictions, and how fast, in each scope."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from rebalancer.model.notation.figures import BYTE_UNITS
from rebalancer.model.notation.quantity import memory_bytes
from rebalancer.policy.schema.lists import service_glob
from rebalancer.policy.schema.types import AsTuple, CorrectableError, Count, Duration, FieldError, Section

_PERCENT = re.compile(r"([1-9]\d?|100)%")


def _count_or_percent(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        none = "0 for none" if value == "0%" else None
        raise CorrectableError("expected a whole number, or a percentage from 1% to 100%", none)
    return value


CountOrPercent = Annotated[
    int | str,
    BeforeValidator(_count_or_percent),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^([1-9]\d?|100)%$"}]}),
]


_BYTES_HINT = "a quantity of bytes such as 500Mi or 20Gi"


def _bytes(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    try:
        amount = memory_bytes(value) if isinstance(value, str) else -1.0
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 2**63:
        raise ValueError(f"expected {_BYTES_HINT}")
    return int(amount)


def _written(amount: int) -> str:
    """The inverse of `_bytes`, exact."""
    unit = 0
    while amount and amount % 1024 == 0 and unit < len(BYTE_UNITS) - 1:
        amount, unit = amount // 1024, unit + 1
    return f"{amount}{BYTE_UNITS[unit]}"


Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    PlainSerializer(_written),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}], "description": _BYTES_HINT}),
]


def resolve(limit: int | str, base: int, at_least: int = 0) -> int:
    """A count unchanged; a percentage of `base`, rounded down, but not below `at_least`."""
    if isinstance(limit, int):
        return limit
    return max(int(limit[:-1]) * base // 100, at_least)


class Rate(Section):
    """At most `max` evictions in a sliding window of this length."""

    max: CountOrPercent
    """A number, or a percentage, rounded down, of the desired replicas (namespace, level, service) or the nodes
    (cluster, pool; global: of all clusters)."""
    per: Annotated[Duration, Field(gt=0)]
    """Length of the sliding window."""
    at_least: Count = 0
    """Lower bound of a percentage."""

    @model_validator(mode="after")
    def _at_least_of_a_percentage(self) -> "Rate":
        if self.at_least and isinstance(self.max, int):
            raise FieldError("atLeast", "expected atLeast only with a percentage")
        return self


class ScopeLimits(Section):
    """Limits of one scope. Absent ones do not apply; of several scopes the most restrictive wins."""

    evictions: Annotated[tuple[Rate, ...], AsTuple] = ()
    """Maximum numbers of evictions in sliding windows; all apply."""
    spacing: Duration | None = None
    """Minimum time between two evictions."""
    in_flight: CountOrPercent | None = None
    """Maximum number of evictions whose replacement is not Ready yet."""
    in_flight_at_least: Count = 0
    """Lower bound of `inFlight` as a percentage."""


class ClusterLimits(ScopeLimits):
    """Limits of the cluster."""

    in_flight: CountOrPercent | None = 10
    """Maximum number of evictions whose replacement is not Ready yet."""


class NodeLimits(ScopeLimits):
    """Limits of each node that pods are evicted from."""

    evictions: Annotated[tuple[Rate, ...], AsTuple] = (Rate(max=4, per="10m"),)  # type: ignore[arg-type]
    """Maximum numbers of evictions in sliding windows; all apply."""

    @model_validator(mode="after")
    def _no_percentages(self) -> "NodeLimits":
        if any(isinstance(rate.max, str) for rate in self.evictions) or isinstance(self.in_flight, str):
            raise FieldError("evictions", "expected numbers: percentages do not apply to nodes")
        return self


class ServiceLimits(ScopeLimits):
    """Limits of each service."""

    in_flight: CountOrPercent | None = 1
    """Maximum number of evictions whose replacement is not Ready yet."""


class ReplacementLimits(Section):
    """Limits on replacements in flight."""

    per_node: Count | None = 3
    """Maximum number of replacements in flight to one node."""
    pull_bytes_per_pool: Bytes | None = 20 * 2**30
    """Maximum total size of images that replacements in flight to one pool still pull. A pod whose replacement alone
    needs more is not evicted. null: no limit."""


class Limits(Section):
    """Number and rate of evictions. Counted in the database, so restarts and other clusters see the same numbers."""

    per_cycle: Count = 10
    """Maximum number of evictions in one cycle."""
    global_: ScopeLimits = Field(default=ScopeLimits(), alias="global")
    """For all clusters that share the database."""
    cluster: ClusterLimits = ClusterLimits()
    """For this cluster."""
    pool: ScopeLimits = ScopeLimits()
    """For each pool; a pool's own `limits` replace it."""
    node: NodeLimits = NodeLimits()
    """For each node that pods are evicted from."""
    namespace: ScopeLimits = ScopeLimits()
    """For each namespace of the cluster."""
    service: ServiceLimits = ServiceLimits()
    """For each service, across all clusters that share the database."""
    services: dict[str, ScopeLimits] = {}
    """Limits of services by name: glob of `namespace/name` -> the fields that take the place of those in `service`. Of
    several globs that match, the first in the file wins."""
    replacements: ReplacementLimits = ReplacementLimits()
    """Limits on replacements in flight."""

    @field_validator("services")
    @classmethod
    def _are_globs(cls, services: dict[str, ScopeLimits]) -> dict[str, ScopeLimits]:
        for name in services:
            service_glob(name)
        return services
