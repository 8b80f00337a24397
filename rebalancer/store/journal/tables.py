"""What a state that reads the journal is made of: growing columns, and numbers of the journal to its indices."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K", bound=Hashable)

POD = np.dtype(
    [
        ("namespace", np.int32),
        ("owner", np.int32),
        ("template", np.int32),
        ("node", np.int32),
        ("created", np.float64),
        ("bound", np.float64),
        ("ready", np.float64),
        ("ended", np.float64),
        ("priority", np.int64),
    ]
)
"""A pod as `RecordedPods` has it."""


@dataclass(slots=True)
class Tables:
    """Number in the journal, since the last keyframe -> index in the recording."""

    namespace: list[int] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    template: list[int] = field(default_factory=list)
    node: dict[int, int] = field(default_factory=dict)
    pod: "Growing" = field(default_factory=lambda: Growing(np.dtype(np.int64)))


class Growing:
    """An array that is appended to."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._all = np.empty(1024, dtype=dtype)
        self._count = 0

    @property
    def rows(self) -> NDArray[Any]:
        """A view of what there is."""
        return self._all[: self._count]

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        count = self._count + len(rows)
        if count > len(self._all):
            self._all = np.concatenate([self.rows, np.empty(max(count, len(self._all)), dtype=self._all.dtype)])
        self._all[self._count : count] = rows
        self._count = count


class Indexed(dict[K, int]):
    """Keys in the order of their arrival."""

    def __missing__(self, key: K) -> int:
        number = self[key] = len(self)
        return number
