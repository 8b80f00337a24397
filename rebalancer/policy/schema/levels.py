"""The `serviceLevels` section of the policy file: classes of services, and which pods belong to each."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from rebalancer.model.cluster.annotations import OWN_PREFIX
from rebalancer.policy.schema.limits import ScopeLimits
from rebalancer.policy.schema.lists import ServiceGlobs
from rebalancer.policy.schema.types import AsTuple, FieldError, Format, NonEmpty, Section
from rebalancer.policy.schema.windows import Window

LEVEL_KEY = f"{OWN_PREFIX}level"


class Level(Section):
    """One service level."""

    name: Annotated[
        str,
        Format(
            r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
            "a label value such as gold: letters, digits, -, _ and ., at most 63 characters",
        ),
    ]
    """Name; a valid label value."""
    evict: bool = True
    """Whether its services may be evicted."""
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Relative cost of evicting one of its pods. Of moves that help equally, the cheaper one comes first."""
    limits: ScopeLimits = ScopeLimits()
    """Limits of all services of the level together, in this cluster."""
    windows: Annotated[tuple[Window, ...], AsTuple] = ()
    """Change windows of its services."""


class ServiceLevels(Section):
    """Service levels, and how a pod's level is determined. The first match wins: annotation, label, `services`,
    `priorityClasses`, `default`. A pod whose annotation or label names an unknown level is not evicted."""

    annotation: NonEmpty | None = LEVEL_KEY
    """Pod annotation that names the level; must start with `rebalancer.dev/`. null: not used."""
    label: NonEmpty | None = LEVEL_KEY
    """Pod label that names the level. null: not used."""
    services: dict[str, ServiceGlobs] = {}
    """Level name -> globs of `namespace/name` of its services. Of several that match, the first in the file wins."""
    priority_classes: dict[str, str] = {}
    """PriorityClass name -> level name."""
    default: NonEmpty | None = None
    """Level of all other services. Required if there are levels."""
    levels: Annotated[tuple[Level, ...], AsTuple] = ()
    """The levels."""

    @field_validator("annotation")
    @classmethod
    def _is_read(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(OWN_PREFIX):
            raise ValueError(f"expected an annotation that starts with {OWN_PREFIX}: others are not read")
        return value

    @field_validator("levels")
    @classmethod
    def _distinct_names(cls, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        names = [level.name for level in levels]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected distinct level names, got {', '.join(twice)} more than once")
        return levels

    @model_validator(mode="after")
    def _levels_exist(self) -> "ServiceLevels":
        if self.levels and self.default is None:
            raise FieldError("default", f"expected the level of unknown services, {self._one_of()}")
        self._check("default", () if self.default is None else (self.default,))
        self._check("services", self.services)
        self._check("priorityClasses", self.priority_classes.values())
        return self

    def _check(self, field: str, names: Iterable[str]) -> None:
        for name in names:
            if self.named(name) is None:
                raise FieldError(field, f"expected {self._one_of()}, got {name!r}")

    def _one_of(self) -> str:
        return f"one of {', '.join(level.name for level in self.levels)}" if self.levels else "levels under levels"

    def named(self, name: str) -> Level | None:
        """The level of that name, or None."""
        return next((level for level in self.levels if level.name == name), None)
