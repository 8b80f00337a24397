"""Labels of pod series, interned: a series that comes again is recognized by the bytes of its labels.

A cycle's answer has the series of the one before, but for some pods. Looking up the bytes costs much less than decoding
the labels of 150,000 series and looking each pod up by its name.
"""

import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot

Ints = NDArray[np.int64]
MOST_ANSWERS, SPARE_SERIES = 4, 65_536
"""A new table is begun when one has more series than so many of the largest answers, and so many more: most are of pods
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


class SharedPodSeries:
    """The table of all readers with the same labels, for several threads at once: a cluster's series take 60 MiB."""

    def __init__(self, labels_of: Callable[[msgspec.Raw], PodLabels]) -> None:
        self._labels_of = labels_of
        self._lock = threading.Lock()
        self._table = PodSeries(labels_of, self._lock)

    def numbers(self, series: Sequence[msgspec.Raw]) -> tuple["PodSeries", Ints]:
        """The table, and (series,) the number of each in it; new ones are added."""
        with self._lock:
            if self._table.is_outgrown:
                self._table = PodSeries(self._labels_of, self._lock)
            return self._table, self._table.numbers(series)


class PodSeries:
    """One table: for each series the numbers of its (namespace, pod), of its label of a node and of its container."""

    def __init__(self, labels_of: Callable[[msgspec.Raw], PodLabels], lock: threading.Lock) -> None:
        """`lock` is held by the caller of `numbers`, and taken by the other methods."""
        self._labels_of = labels_of
        self._lock = lock
        self._numbers: dict[bytes, int] = {}
        self._columns = array("i"), array("i"), array("i")
        self._pods: dict[str, dict[str, int]] = {}
        """Namespace -> pod -> its number."""
        self._count = 0
        """Of pods."""
        self._nodes: dict[str, int] = {"": 0}
        self._containers: dict[str, int] = {"": 0}
        self._of_names: list[str] | None = None
        self._index: Ints = np.empty(0, dtype=np.int64)
        self._largest = 0
        """Series of the largest answer."""

    @property
    def is_outgrown(self) -> bool:
        """Whether most series are of pods that are gone."""
        return len(self._numbers) > MOST_ANSWERS * self._largest + SPARE_SERIES

    def numbers(self, series: Sequence[msgspec.Raw]) -> Ints:
        """(series,) the number of each; new ones are added."""
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
        pods.append(self._pod(each.namespace, each.pod))
        nodes.append(self._nodes.setdefault(each.node, len(self._nodes)))
        containers.append(self._containers.setdefault(each.container, len(self._containers)))
        self._numbers[blob] = number = len(pods) - 1
        return number

    def _pod(self, namespace: str, name: str) -> int:
        of_namespace = self._pods.setdefault(namespace, {})
        found = of_namespace.get(name)
        if found is None:
            found = of_namespace[name] = self._count
            self._count += 1
        return found

    def columns(self, series: Ints) -> tuple[Ints, Ints, Ints]:
        """(series,) numbers of their pods, node labels and containers; 0 is the empty label."""
        with self._lock:
            pods, nodes, containers = (np.array(column, dtype=np.int64)[series] for column in self._columns)
        return pods, nodes, containers

    def node_labels(self) -> Sequence[str]:
        """The labels of nodes, by number."""
        with self._lock:
            return list(self._nodes)

    def pods_of(self, snapshot: ClusterSnapshot) -> Ints:
        """(pods of the table,) their indices in the snapshot, -1 for none. `names` that are the same list as before are
        the same pods."""
        pods = snapshot.pods
        with self._lock:
            if pods.names is not self._of_names or len(self._index) < self._count:
                index = np.full(self._count, -1, dtype=np.int64)
                nothing = dict[str, int]()
                tables = [self._pods.get(namespace, nothing) for namespace in snapshot.namespaces]
                spaces = pods.namespace.tolist()
                found = [tables[space].get(name, -1) for space, name in zip(spaces, pods.names, strict=True)]
                numbers = np.array(found, dtype=np.int64)
                known = np.flatnonzero(numbers >= 0)
                index[numbers[known]] = known
                self._of_names, self._index = pods.names, index
            return self._index
