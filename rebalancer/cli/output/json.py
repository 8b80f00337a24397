"""The encoder of all JSON documents. Fields are only ever added within a schema version."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.document import Day, Instant, Shown

SCHEMA_VERSION: Final = "2"


def print_json(document: Mapping[str, Any], *, version: str = SCHEMA_VERSION) -> None:
    """Writes the document to stdout, with its schemaVersion first."""
    sys.stdout.write(as_text({"schemaVersion": version, **document}))


def as_text(document: Mapping[str, Any]) -> str:
    """The encoded document, indented, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(encode(document)), indent=2).decode() + "\n"


def encode(value: Any) -> Any:
    """A value in the types of JSON.

    A dataclass without a `__str__` becomes an object with the fields of `document_fields`, a sequence an array, an
    unknown number (NaN or infinite) null, and anything else a string.
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): encode(each) for key, each in value.items()}
        case list() | tuple():
            return [encode(each) for each in value]
        case _ if is_dataclass(value) and type(value).__str__ is object.__str__:
            return _object(value)
    return str(value)


def _object(record: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    kind: type = type(record)
    for each in document_fields(kind):
        value = getattr(record, each.attribute)
        if each.shown.inline:
            out |= _object(value)
        elif each.shown.schema == INSTANT.schema:
            out[camel(each.name)] = at(value)
        elif each.shown.schema == DAY.schema:
            out[camel(each.name)] = date(value)
        elif each.shown.empty_is_null:
            out[camel(each.name)] = value or None
        else:
            out[camel(each.name)] = encode(value)
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentField:
    """A dataclass's field in documents."""

    attribute: str
    name: str
    """In snake_case."""
    type: Any
    """Without metadata."""
    shown: Shown


@cache
def document_fields(record: type) -> tuple[DocumentField, ...]:
    """The fields of a dataclass in its documents."""
    hints = get_type_hints(record, include_extras=True)
    out = []
    for each in fields(record):
        plain, shown = described(hints[each.name])
        if not shown.left_out:
            out.append(DocumentField(attribute=each.name, name=shown.name or each.name, type=plain, shown=shown))
    return tuple(out)


def described(hint: Any) -> tuple[Any, Shown]:
    """A type without its metadata, and the metadata."""
    if get_origin(hint) is not Annotated:
        return hint, Shown()
    plain, *metadata = get_args(hint)
    found = [each for each in metadata if isinstance(each, Shown)]
    return plain, Shown(
        schema={key: value for each in found for key, value in each.schema.items()},
        name="".join(each.name for each in found),
        inline=any(each.inline for each in found),
        left_out=any(each.left_out for each in found),
        empty_is_null=any(each.empty_is_null for each in found),
    )


INSTANT, DAY = described(Instant)[1], described(Day)[1]


def pick(record: object, *names: str) -> dict[str, Any]:
    """Some attributes of a record, as fields in camelCase."""
    return {camel(name): getattr(record, name) for name in names}


def at(seconds: float | None, timespec: str = "seconds") -> str | None:
    """RFC 3339 in UTC from seconds since the epoch; None for an unknown time."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec)


def date(day: int) -> str:
    """Days since the epoch as an ISO date, UTC."""
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date().isoformat()


def camel(name: str) -> str:
    """`cpu_share` -> `cpuShare`"""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
