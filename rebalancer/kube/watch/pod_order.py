"""Pods by namespace and name: sorted once after a list, then kept so by binary search.

Sorting 150,000 pods in each cycle would cost more than placing those that came.
"""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

Key = tuple[str, str, str]
"""(namespace, name, uid)"""


class PodOrder:
    """Row numbers in the order of their keys. What it returns is not changed later, and is the same object while no pod
    comes or goes."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._rows: list[int] = []
        self._is_sorted = True
        self._taken: tuple[NDArray[np.int64], list[str], list[str]] | None = None

    def add(self, key: Key, row: int) -> None:
        """Place a new pod; when the last ones were appended without order, so is this one."""
        self._taken = None
        if not self._is_sorted or not self._keys or key > self._keys[-1]:
            self._keys.append(key)
            self._rows.append(row)
            return
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._rows.insert(at, row)

    def append(self, key: Key, row: int) -> None:
        """Add a pod of a page; they are sorted when they are taken."""
        self._is_sorted = self._is_sorted and (not self._keys or key > self._keys[-1])
        self.add(key, row)

    def remove(self, key: Key) -> None:
        """Remove a pod."""
        self._sort()
        at = bisect_left(self._keys, key)
        assert self._keys[at] == key
        del self._keys[at], self._rows[at]
        self._taken = None

    def taken(self) -> tuple[NDArray[np.int64], list[str], list[str]]:
        """(pods,) rows, names and uids."""
        if self._taken is None:
            self._sort()
            self._taken = (
                np.array(self._rows, dtype=np.int64),
                [name for _, name, _ in self._keys],
                [uid for _, _, uid in self._keys],
            )
        return self._taken

    def _sort(self) -> None:
        if not self._is_sorted:
            order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
            self._keys = [self._keys[at] for at in order]
            self._rows = [self._rows[at] for at in order]
            self._is_sorted = True
