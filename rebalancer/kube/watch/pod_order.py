"""Pods by namespace and name: sorted once after a list, then kept so by binary search.

Sorting 150,000 pods in each cycle would cost more than placing those that came.
"""

from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Key = tuple[str, str, str]
"""(namespace, name, uid)"""


class PodOrder:
    """Row numbers in the order of their keys. The keys are made when they are compared: kept, they would take as much
    memory as the rows."""

    def __init__(self, key_of: Callable[[int], Key]) -> None:
        """`key_of` returns the key of a row."""
        self._key_of = key_of
        self._rows: list[int] = []
        self._is_sorted = True

    def add(self, row: int) -> None:
        """Place a new pod; while others wait to be sorted, it waits too."""
        at = bisect_left(self._rows, self._key_of(row), key=self._key_of) if self._is_sorted else len(self._rows)
        self._rows.insert(at, row)

    def append(self, row: int) -> None:
        """Add a pod of a page; they are sorted when they are taken."""
        self._is_sorted = False
        self._rows.append(row)

    def remove(self, row: int) -> None:
        """Remove a pod. Its key must be what it was."""
        self._sort()
        at = bisect_left(self._rows, self._key_of(row), key=self._key_of)
        assert self._rows[at] == row
        del self._rows[at]

    def taken(self) -> NDArray[np.int64]:
        """(pods,) rows."""
        self._sort()
        return np.array(self._rows, dtype=np.int64)

    def _sort(self) -> None:
        if not self._is_sorted:
            self._rows.sort(key=self._key_of)
            self._is_sorted = True
