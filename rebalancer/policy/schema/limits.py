"""How many evictions, how fast, at every scope: the `limits` sections of the policy file."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from rebalancer.model.quantity import memory_bytes
from rebalancer.policy.schema.types import AsTuple, Count, Duration, FieldError, Section

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


_BYTES_HINT = "a quantity of bytes such as 500Mi or 20Gi"
_BYTE_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


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


def format_bytes(amount: float) -> str:
    """`3.1Gi`: rounded to one digit, in the largest fitting unit; without the digit where nothing is behind it."""
    unit = 0
    while abs(amount) >= 1024 and unit < len(_BYTE_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f}".removesuffix(".0") + _BYTE_UNITS[unit]


def _written(amount: int) -> str:
    """The inverse of reading, nothing rounded."""
    unit = 0
    while amount and amount % 1024 == 0 and unit < len(_BYTE_UNITS) - 1:
        amount, unit = amount // 1024, unit + 1
    return f"{amount}{_BYTE_UNITS[unit]}"


Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    PlainSerializer(_written),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}], "description": _BYTES_HINT}),
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


class ReplacementLimits(Section):
    """How much may arrive at once."""

    per_node: Count | None = 3
    """Replacements on their way to one node."""
    pull_bytes_per_pool: Bytes | None = 20 * 2**30
    """Images that replacements on their way to one pool still have to pull, together. A replacement that needs more by
    itself is not made. null: not limited."""


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
    replacements: ReplacementLimits = ReplacementLimits()
    """What is on its way."""
