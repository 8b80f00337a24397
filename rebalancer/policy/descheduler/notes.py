"""The differences of an imported DeschedulerPolicy, and the keys that were converted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rebalancer.policy.document import Document

FieldPath = tuple[str | int, ...]

DIFFERENT = "different"
"""Converted, with a different meaning."""
UNSUPPORTED = "not supported"
"""Not converted."""
DECIDE = "decide"
"""The user must decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One line of the list of differences."""

    field: str
    """Path in the DeschedulerPolicy; empty for the whole file."""
    line: int
    kind: str
    ours: str
    """Path in the RebalancerPolicy; empty for none."""
    why: str


class Notes:
    """Collects the differences and the converted keys."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._differences: dict[tuple[str, str], Difference] = {}
        self._covered: set[FieldPath] = set()

    def add(self, at: FieldPath, kind: str, why: str, ours: str = "") -> None:
        """Record a difference at `at`."""
        if at:
            self.took(at)
        field, line = self._document.place(at)
        new = Difference(field=field, line=line, kind=kind, ours=ours, why=why)
        self._differences.setdefault((field, why), new)

    def took(self, at: FieldPath) -> None:
        """Mark the key at `at` and all below it as converted."""
        self._covered.add(at)

    def close(self, value: Any) -> None:
        """Record all keys that were not read, so that none is lost."""
        for at in _leaves(value, ()):
            if not any(at[:length] in self._covered for length in range(1, len(at) + 1)):
                self.add(at, UNSUPPORTED, "no equivalent")

    def sorted(self) -> tuple[Difference, ...]:
        """In file order; differences of the whole file come first."""
        return tuple(sorted(self._differences.values(), key=lambda each: (each.field != "", each.line, each.field)))


class Keys:
    """A mapping that records the keys read from it as converted."""

    def __init__(self, value: dict[str, Any], at: FieldPath, notes: Notes) -> None:
        self._value, self.at, self._notes = value, at, notes

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def get(self, key: str, default: Any = None) -> Any:
        """The value; the key counts as converted."""
        if key in self._value:
            self._notes.took((*self.at, key))
        return self._value.get(key, default)

    def peek(self, key: str, default: Any = None) -> Any:
        """The value; the keys inside are still to be converted."""
        return self._value.get(key, default)

    def section(self, key: str) -> "Keys":
        """The mapping inside; empty if absent."""
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
