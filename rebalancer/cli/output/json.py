"""The encoder of all JSON documents. Fields are only ever added within a schema version."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final

SCHEMA_VERSION: Final = "2"


def print_json(document: Mapping[str, Any], *, version: str = SCHEMA_VERSION) -> None:
    """Writes the document to stdout, with its schemaVersion first."""
    sys.stdout.write(as_text({"schemaVersion": version, **document}))


def as_text(document: Mapping[str, Any]) -> str:
    """The encoded document, indented, with a newline at its end."""
    return json.dumps(encode(document), indent=2, allow_nan=False) + "\n"


def encode(value: Any) -> Any:
    """A value in the types of JSON.

    A dataclass becomes an object with names in camelCase, a sequence an array, an unknown number (NaN or infinite)
    null, and anything else a string.
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
        case _ if is_dataclass(value):
            return {camel(each.name): encode(getattr(value, each.name)) for each in fields(value)}
    return str(value)


def pick(record: object, *names: str) -> dict[str, Any]:
    """Some attributes of a record, as fields in camelCase."""
    return {camel(name): getattr(record, name) for name in names}


def at(seconds: float | None, timespec: str = "seconds") -> str | None:
    """RFC 3339 in UTC from seconds since the epoch; None for an unknown time."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec)


def camel(name: str) -> str:
    """`cpu_share` -> `cpuShare`"""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
