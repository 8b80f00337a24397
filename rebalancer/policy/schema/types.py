"""Common types of the policy file: durations, percentages, label selectors, the base of all sections."""

import re
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from rebalancer.model.objects import LabelSelector, Requirement


class FieldError(ValueError):
    """A failed check over several fields, attributed to one of them by its key or its path."""

    def __init__(self, field: str | tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.way: tuple[str | int, ...] = (field,) if isinstance(field, str) else field


class Section(BaseModel):
    """Base of all sections: camelCase keys, no unknown keys, no coercion, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=False,
        use_attribute_docstrings=True,
    )


_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
DURATION_PATTERN = r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?$"
"""The same as a JSON Schema pattern."""
_DURATION_HINT = "a duration such as 90s, 5m, 1h30m or 8d"


def parse_duration(value: Any) -> float:
    """`"1h30m"` -> 5400.0 seconds. Raises ValueError."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None or not any(match.groups()):
        raise ValueError(f"expected {_DURATION_HINT}")
    if len(value) > 20:  # more digits than any sensible duration
        raise ValueError(f"expected {_DURATION_HINT}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def format_duration(seconds: float) -> str:
    """The inverse, in the largest fitting units: 5400.0 -> `"1h30m"`."""
    rest = round(seconds)
    out = ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        out += f"{count}{unit}" if count else ""
    return out or "0s"


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "description": _DURATION_HINT}),
]


def at_least(seconds: float) -> AfterValidator:
    """A lower bound of a Duration; the message shows it as a duration."""

    def check(value: float) -> float:
        if value < seconds:
            raise ValueError(f"expected at least {format_duration(seconds)}")
        return value

    return AfterValidator(check)


def at_most(seconds: float) -> AfterValidator:
    """An upper bound of a Duration; the message shows it as a duration."""

    def check(value: float) -> float:
        if value > seconds:
            raise ValueError(f"expected at most {format_duration(seconds)}")
        return value

    return AfterValidator(check)


def _percent(value: Any) -> float:
    # 0.75 meant as 75 % would otherwise be a threshold under which every node is hot
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 100:
        raise ValueError("expected a percentage between 1 and 100")
    return float(value)


def _offset(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise ValueError("expected percentage points between 0 and 100")
    return float(value)


Percent = Annotated[float, BeforeValidator(_percent), WithJsonSchema({"type": "number", "minimum": 1, "maximum": 100})]
PercentagePoints = Annotated[
    float, BeforeValidator(_offset), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 100})
]
Count = Annotated[int, Field(ge=0)]
NonEmpty = Annotated[str, Field(min_length=1)]


def _zone(value: str) -> str:
    try:
        # right/ counts leap seconds, and localtime depends on the host
        if not value.startswith(("posix", "right/")) and value != "localtime":
            ZoneInfo(value)
            return value
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise ValueError("expected an IANA time zone such as Europe/Berlin")


ZoneName = Annotated[NonEmpty, AfterValidator(_zone)]
"""Name of an IANA time zone."""


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


AsTuple = BeforeValidator(_as_tuple)


def _one_of_operators(value: Any) -> Any:
    if value not in ("In", "NotIn", "Exists", "DoesNotExist"):
        raise ValueError("expected In, NotIn, Exists or DoesNotExist")
    return value


class Expression(Section):
    """One expression of a label selector."""

    key: NonEmpty
    """Label key."""
    operator: Annotated[
        str, BeforeValidator(_one_of_operators), WithJsonSchema({"enum": ["In", "NotIn", "Exists", "DoesNotExist"]})
    ]
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[str, ...], AsTuple] = ()
    """Values for In and NotIn."""

    @model_validator(mode="after")
    def _values_fit_the_operator(self) -> "Expression":
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(f"expected values with In and NotIn only, got {self.operator} with {len(self.values)}")
        return self


class Selector(Section):
    """A Kubernetes label selector. An empty one matches everything."""

    match_labels: dict[str, str] = {}
    """Label key -> required value."""
    match_expressions: Annotated[tuple[Expression, ...], AsTuple] = ()
    """Expressions that must all hold."""

    def compiled(self) -> LabelSelector:
        """The same selector as a model type."""
        return LabelSelector(
            match_labels=dict(self.match_labels),
            match_expressions=tuple(
                Requirement(key=each.key, operator=each.operator, values=each.values) for each in self.match_expressions
            ),
        )

    @property
    def is_empty(self) -> bool:
        return not self.match_labels and not self.match_expressions
