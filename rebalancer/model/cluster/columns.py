"""Records of columns: every column has a value for each row, that is each node or each pod.

The annotation of a column has its empty value: `Annotated[Floats, Empty(0.0)]`. A column without one is an error when
its module is imported; one that is longer or shorter than the others is an error when the record is made. Rows are
taken, put, appended and made empty here, for all columns of a record alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import get_annotations
from itertools import chain
from math import isnan
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Empty:
    """The value of a column in a row of which nothing is known."""

    value: object


@dataclass(frozen=True, slots=True)
class Column:
    """A column as its annotation declares it."""

    empty: Any
    type: Any
    """Of one value: a type of numpy in an array, else of Python."""
    kind: Any
    """numpy.ndarray, tuple or list."""

    @classmethod
    def declared(cls, name: str, annotation: Any) -> "Column":
        """Raises TypeError for an annotation without an empty value, or of another type."""
        column, empty = get_args(annotation)[:2] if get_origin(annotation) is Annotated else (annotation, None)
        kind, types = get_origin(column), get_args(column)
        if not isinstance(empty, Empty) or kind not in (np.ndarray, tuple, list):
            raise TypeError(f"{name}: expected Annotated[an array, a tuple or a list, Empty(...)], got {annotation}")
        return cls(empty.value, get_args(types[1])[0] if kind is np.ndarray else types[0], kind)

    def of(self, values: Sequence[Any]) -> Any:
        """The column of these values."""
        return np.array(values, dtype=self.type) if self.kind is np.ndarray else self.kind(values)

    def blank(self, count: int) -> Any:
        """The column of some empty rows."""
        if self.kind is np.ndarray:
            return np.full(count, self.empty, dtype=self.type)
        return self.kind([self.empty]) * count

    def values(self, column: Any) -> Sequence[Any]:
        """The values of a column in types of Python."""
        found: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
        return found

    def is_empty(self, value: Any) -> bool:
        """Whether a value says nothing: it is the empty one, or NaN."""
        return bool(value == self.empty) or (isinstance(value, float) and isnan(value))

    def take(self, column: Any, rows: NDArray[Any]) -> Any:
        """The values of some rows."""
        return column[rows] if isinstance(column, np.ndarray) else self.of([column[row] for row in rows.tolist()])

    def put(self, column: Any, rows: Sequence[int], new: Any) -> Any:
        """The column with the values of `new` in some rows."""
        if isinstance(column, np.ndarray):
            changed = column.copy()
            changed[rows] = new
            return changed
        by_row = dict(zip(rows, new, strict=True))
        return self.of([by_row.get(row, value) for row, value in enumerate(column)])

    def joined(self, parts: Sequence[Any]) -> Any:
        """Several columns, one after the other."""
        return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else self.of([*chain.from_iterable(parts)])


class Columns:
    """Base of frozen dataclasses of columns. A field with a default is no column, and is kept as it is."""

    __slots__ = ()

    columns: ClassVar[Mapping[str, Column]]
    names: Sequence[str]

    def __init_subclass__(cls) -> None:
        # `dataclass(slots=True)` makes the class a second time, when every field is an attribute of it
        if "columns" not in cls.__dict__:
            hints = get_annotations(cls).items()
            cls.columns = {name: Column.declared(name, hint) for name, hint in hints if name not in cls.__dict__}

    def __post_init__(self) -> None:
        rows = len(self.names)
        for name in self.columns:
            if len(getattr(self, name)) != rows:
                raise ValueError(f"{name}: expected {rows} rows, got {len(getattr(self, name))}")

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def blank(cls, count: int) -> Self:
        """Empty rows; `replace` sets what is known of them."""
        return cls(**{name: each.blank(count) for name, each in cls.columns.items()})

    def row(self, index: int, names: Iterable[str]) -> dict[str, Any]:
        """The values of some columns in one row, in types of Python."""
        return {name: self.columns[name].values(getattr(self, name)[index : index + 1])[0] for name in names}

    def take(self, rows: NDArray[Any]) -> Self:
        """The rows with these indices, in their order."""
        return self._with({name: each.take(getattr(self, name), rows) for name, each in self.columns.items()})

    def put(self, rows: Sequence[int], new: Self) -> Self:
        """These rows, with the values of `new` (rows,) in those with these indices."""
        columns = self.columns.items()
        return self._with({name: each.put(getattr(self, name), rows, getattr(new, name)) for name, each in columns})

    def concat(self, *others: Self) -> Self:
        """These rows, then those of the others."""
        parts, columns = (self, *others), self.columns.items()
        return self._with({name: each.joined([getattr(part, name) for part in parts]) for name, each in columns})

    def _with(self, columns: Mapping[str, Any]) -> Self:
        record: Any = self
        changed: Self = replace(record, **columns)
        return changed
