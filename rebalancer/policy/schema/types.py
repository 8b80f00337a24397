"""Common types of the policy file: durations, percentages, label selectors, the base of all sections."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from rebalancer.model.cluster.objects import LabelSelector, Requirement


class CorrectableError(ValueError):
    """A wrong value whose meaning is clear. `write` is what to type instead, after `write `."""

    def __init__(self, expected: str, write: str | None) -> None:
        super().__init__(expected)
        self.write = write


class FieldError(ValueError):
    """A failed check over several fields, attributed to one of them by its key or its path."""

    def __init__(self, field: str | tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.way: tuple[str | int, ...] = (field,) if isinstance(field, str) else field


@dataclass(frozen=True, slots=True)
class Format:
    """A pattern of a text field, with the words that describe it in messages."""

    pattern: str
    """Regular expression of the whole text, shown in the JSON Schema only."""
    expected: str
    """Noun phrase, for example `a name of lower-case letters`."""

    def _check(self, value: str) -> str:
        if re.fullmatch(self.pattern, value) is None:
            raise ValueError(f"expected {self.expected}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": self.pattern}


def _off(value: Any) -> Any:
    # YAML 1.1 reads an unquoted Off as false; so do kubectl and Helm
    return "Off" if value is False else value


Switch = BeforeValidator(_off)
"""For choices with `Off`: it may be written without quotes."""


class Section(BaseModel):
    """Base of all sections: camelCase keys, no unknown keys, no coercion, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=False,
        use_attribute_docstrings=True,
        defer_build=True,  # one validator of the whole file instead of one for each section
    )


_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
DURATION_PATTERN = r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?$"
"""The same as a JSON Schema pattern."""
_DURATION_HINT = "a duration such as 90s, 5m, 1h30m or 8d"


def parse_duration(value: Any) -> float:
    """`"1h30m"` -> 5400.0 seconds. Raises ValueError."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None or not any(match.groups()):
        number = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9
        raise CorrectableError(f"expected {_DURATION_HINT}", f"{value}s for seconds" if number else None)
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


_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)(%?)")


def _within(value: Any, lowest: int, expected: str) -> float:
    text = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    number = float(text[1]) if text else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(expected)
    if text and not text[2]:
        raise CorrectableError(expected, f"{value} without quotes")
    if not lowest <= number <= 100:
        # 0.75 meant as 75 % would otherwise be a threshold under which every node is hot
        raise CorrectableError(expected, f"{number * 100:g} for {number * 100:g}%" if 0.01 <= number < 1 else None)
    return float(number)


def _percent(value: Any) -> float:
    return _within(value, 1, "expected a percentage between 1 and 100")


def _offset(value: Any) -> float:
    return _within(value, 0, "expected percentage points between 0 and 100")


def _percent_schema(lowest: int) -> WithJsonSchema:
    number = {"type": "number", "minimum": lowest, "maximum": 100}
    return WithJsonSchema({"anyOf": [number, {"type": "string", "pattern": r"^\d{1,3}(\.\d{1,6})?%$"}]})


Percent = Annotated[float, BeforeValidator(_percent), _percent_schema(1)]
"""75 or `75%`."""
PercentagePoints = Annotated[float, BeforeValidator(_offset), _percent_schema(0)]
Mode = Literal["DryRun", "Approve", "Act"]
"""Whether evictions are planned and recorded only, made after an approval, or made. The strictest comes first."""
MODES: tuple[Mode, ...] = ("DryRun", "Approve", "Act")
TriggerName = Literal["Periodic", "Alert", "Forecast"]
"""What starts a strategy by itself."""
TRIGGERS: tuple[TriggerName, ...] = ("Periodic", "Alert", "Forecast")
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
Globs = Annotated[tuple[str, ...], AsTuple]
Names = Annotated[tuple[NonEmpty, ...], AsTuple]


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
