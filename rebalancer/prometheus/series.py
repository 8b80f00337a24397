"""Labels of pod series, interned: a series that comes again is recognized by the bytes of its labels.

A cycle's answer has the series of the one before, but for some pods. Looking up the bytes costs much less than decoding
the labels of 150,000 series and looking each pod up by its name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.model.snapshot import ClusterSnapshot

Ints = NDArray[np.int64]
MOST_ANSWERS, SPARE_SERIES = 4, 65_536
"""The table is cleared when it has more series than so many of the largest answers, and so many more: most are of pods
that are gone. Several queries with labels of their own share it."""


class PodLabels(Protocol):
    """The labels of one series; a missing one is an empty string."""

    @property
    def namespace(self) -> str: ...
    @property
    def pod(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def container(self) -> str: ...


class PodSeries:
    """The table: for each series the numbers of its (namespace, pod), of its label of a node and of its container. Not
    for several threads at once."""

    def __init__(self, labels_of: Callable[[msgspec.Raw], PodLabels]) -> None:
        self._labels_of = labels_of
        self._clear()

    def _clear(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._columns: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._pods: dict[tuple[str, str], int] = {}
        self._nodes: dict[str, int] = {"": 0}
        self._containers: dict[str, int] = {"": 0}
        self._of_names: list[str] | None = None
        self._index: list[int] = []
        self._largest = 0
        """Series of the largest answer."""

    def numbers(self, series: Sequence[msgspec.Raw]) -> Ints:
        """(series,) the number of each; new ones are added."""
        if len(self._numbers) > MOST_ANSWERS * self._largest + SPARE_SERIES:
            self._clear()
        self._largest = max(self._largest, len(series))
        known = self._numbers
        found = [known.get(labels, -1) for labels in map(bytes, series)]
        out = np.array(found, dtype=np.int64)
        for at in np.flatnonzero(out < 0).tolist():
            out[at] = self._number(series[at])
        return out

    def _number(self, labels: msgspec.Raw) -> int:
        blob = bytes(labels)
        known = self._numbers.get(blob)
        if known is not None:
            return known
        each = self._labels_of(labels)
        pods, nodes, containers = self._columns
        pods.append(self._pods.setdefault((each.namespace, each.pod), len(self._pods)))
        nodes.append(self._nodes.setdefault(each.node, len(self._nodes)))
        containers.append(self._containers.setdefault(each.container, len(self._containers)))
        self._numbers[blob] = number = len(pods) - 1
        return number

    def columns(self, series: Ints) -> tuple[Ints, Ints, Ints]:
        """(series,) numbers of their pods, node labels and containers; 0 is the empty label."""
        pods, nodes, containers = (np.array(column, dtype=np.int64)[series] for column in self._columns)
        return pods, nodes, containers

    def node_labels(self) -> Sequence[str]:
        """The labels of nodes, by number."""
        return list(self._nodes)

    def pods_of(self, snapshot: ClusterSnapshot) -> Ints:
        """(pods of the table,) their indices in the snapshot, -1 for none. `names` that are the same list as before are
        the same pods."""
        names = snapshot.pods.names
        if names is not self._of_names:
            self._of_names, self._index = names, []
        if len(self._index) < len(self._pods):
            new = list(self._pods)[len(self._index) :]
            tables, none = _tables(snapshot), dict[str, int]()
            self._index += [tables.get(namespace, none).get(name, -1) for namespace, name in new]
        return np.array(self._index, dtype=np.int64)


def _tables(snapshot: ClusterSnapshot) -> Mapping[str, Mapping[str, int]]:
    """Namespace -> pod name -> index."""
    tables: list[dict[str, int]] = [{} for _ in snapshot.namespaces]
    for index, (namespace, name) in enumerate(zip(snapshot.pods.namespace.tolist(), snapshot.pods.names, strict=True)):
        tables[namespace][name] = index
    return dict(zip(snapshot.namespaces, tables, strict=True))
