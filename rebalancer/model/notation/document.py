"""How fields of records appear in JSON documents, their JSON Schema and CSV."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """Metadata of a field's type."""

    schema: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of JSON Schema besides those of the Python type."""
    name: str = ""
    """Name in the document, in snake_case; empty for the field's own."""
    inline: bool = False
    """The fields of the record stand in the outer object."""
    left_out: bool = False
    """The field is in no document."""
    empty_is_null: bool = False


INLINE = Shown(inline=True)
LEFT_OUT = Shown(left_out=True)
TextOrNull = Annotated[str, Shown(empty_is_null=True)]
Count = Annotated[int, Shown(schema={"minimum": 0})]
Amount = Annotated[float, Shown(schema={"minimum": 0})]
Share = Annotated[float, Shown(schema={"minimum": 0, "maximum": 1})]
Instant = Annotated[float, Shown(schema={"type": "string", "format": "date-time"})]
"""Seconds since the epoch; RFC 3339 in the document."""
InstantOrNull = Annotated[float | None, Shown(schema={"type": "string", "format": "date-time"})]
Day = Annotated[int, Shown(schema={"type": "string", "format": "date"})]
"""Days since the epoch, UTC; a date in the document."""

Dimension = Literal["cluster", "pool", "strategy", "trigger"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("cluster", "pool", "strategy", "trigger")
"""Dimensions of the lines of a report."""
