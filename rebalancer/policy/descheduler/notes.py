"""What differs after an import, and which keys were looked at."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rebalancer.policy.loader import Document

FieldPath = tuple[str | int, ...]

DIFFERENT = "different"
"""Taken over, but it means something else here."""
UNSUPPORTED = "not supported"
"""Not taken over."""
DECIDE = "decide"
"""A person must look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One line of the list."""

    field: str
    """Where it stands in their file; empty for the whole of it."""
    line: int
    kind: str
    ours: str
    """Where it stands in ours, empty for nowhere."""
    why: str


class Notes:
    """Collects the list, and which keys were taken over."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._differences: dict[tuple[str, str], Difference] = {}
        self._covered: set[FieldPath] = set()

    def add(self, at: FieldPath, kind: str, why: str, ours: str = "") -> None:
        """List the key at `at`."""
        if at:
            self.took(at)
        field, line = self._document.place(at)
        new = Difference(field=field, line=line, kind=kind, ours=ours, why=why)
        self._differences.setdefault((field, why), new)

    def took(self, at: FieldPath) -> None:
        """The key at `at`, and all below it, was taken over."""
        self._covered.add(at)

    def close(self, value: Any) -> None:
        """Whatever nobody looked at is listed: a key must not be lost by an oversight of ours."""
        for at in _leaves(value, ()):
            if not any(at[:length] in self._covered for length in range(1, len(at) + 1)):
                self.add(at, UNSUPPORTED, "there is nothing like it here")

    def sorted(self) -> tuple[Difference, ...]:
        """In the order of their file; what concerns the whole of it comes first."""
        return tuple(sorted(self._differences.values(), key=lambda each: (each.field != "", each.line, each.field)))


class Keys:
    """A mapping that remembers which of its keys were asked for."""

    def __init__(self, value: dict[str, Any], at: FieldPath, notes: Notes) -> None:
        self._value, self.at, self._notes = value, at, notes

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def get(self, key: str, default: Any = None) -> Any:
        """The value; it counts as taken over."""
        if key in self._value:
            self._notes.took((*self.at, key))
        return self._value.get(key, default)

    def peek(self, key: str, default: Any = None) -> Any:
        """The value; what is inside is still to be taken over."""
        return self._value.get(key, default)

    def section(self, key: str) -> "Keys":
        """The mapping inside, empty where there is none."""
        inside = self._value.get(key, {})
        if key in self._value and not inside:
            self._notes.took((*self.at, key))
        return Keys(inside, (*self.at, key), self._notes)


def _leaves(value: Any, at: FieldPath) -> Iterator[FieldPath]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not value or not inside:
        yield at
        return
    for key, each in inside:
        yield from _leaves(each, (*at, key))
