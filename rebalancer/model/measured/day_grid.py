"""A part of a day under construction: rows by name, in the order in which the names were first seen."""

import numpy as np

from rebalancer.model.measured.history import SLOTS, Grid

_FIRST_ROWS = 1024


class DayGrid:
    """Rows for some slots of a day, NaN without data."""

    def __init__(self, *, first: int = 0, end: int = SLOTS, rows: int = _FIRST_ROWS) -> None:
        """Slots from `first` up to, not including, `end`. There is room for `rows`; it grows when there are more."""
        self.first, self.end = first, end
        self._values: Grid = self._room(max(rows, 1))
        self._row: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._row)

    @property
    def values(self) -> Grid:
        """(rows, slots), a view that holds until the next row is added."""
        return self._values[: len(self._row)]

    def part(self, name: str, first: int, count: int) -> Grid:
        """(count,) slots of a row from `first` on, to write into until the next row is added."""
        index = self._row.get(name)
        if index is None:
            index = self._row[name] = len(self._row)
            if index == len(self._values):
                self._grow()
            self._values[index] = np.nan
        found: Grid = self._values[index, first - self.first : first - self.first + count]
        return found

    def onto(self, names: tuple[str, ...], values: Grid) -> tuple[tuple[str, ...], Grid]:
        """Names and rows of a whole day (rows, 288): these values where they are known, the given ones elsewhere."""
        if not names and (self.first, self.end) == (0, SLOTS):
            return tuple(self._row), self.values
        row = {name: index for index, name in enumerate(names)}
        mine = np.array([row.setdefault(name, len(row)) for name in self._row], dtype=np.int64)
        out: Grid = np.full((len(row), SLOTS), np.nan, dtype=np.float32)
        out[: len(values)] = values
        had = out[mine, self.first : self.end]
        out[mine, self.first : self.end] = np.where(np.isnan(self.values), had, self.values)
        return tuple(row), out

    def _room(self, rows: int) -> Grid:
        # Not filled: rows that are never added take no memory, because the system provides a page when it is written.
        return np.empty((rows, self.end - self.first), dtype=np.float32)

    def _grow(self) -> None:
        had = len(self._values)
        bigger = self._room(had + max(had // 4, _FIRST_ROWS))
        bigger[:had] = self._values
        self._values = bigger
