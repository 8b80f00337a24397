"""The stores of the kinds besides pods: `kube.watch.Store`s, safe to read while they change."""

import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rebalancer.kube.snapshot.columns import node_columns, without_bulk
from rebalancer.kube.snapshot.images import ImageNumbers
from rebalancer.kube.snapshot.records import Node
from rebalancer.kube.watch.watch import Change
from rebalancer.model.snapshot import Nodes


class _Named(Protocol):
    @property
    def metadata(self) -> Any: ...


N = TypeVar("N", bound=_Named)
V = TypeVar("V")


class Records(Generic[N, V]):
    """The records of a kind by uid, each reduced by `keep`."""

    def __init__(self, keep: Callable[[N], V]) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._by_uid: dict[str, V] = {}
        self.version = 0
        """Grows with every change."""

    def add(self, items: Sequence[N], /) -> None:
        """Add one page of a list."""
        self.apply([(False, item) for item in items])

    def apply(self, changes: Sequence[Change[N]], /) -> None:
        """Apply events."""
        with self._lock:
            self.version += len(changes)
            for gone, item in changes:
                if gone:
                    self._by_uid.pop(item.metadata.uid, None)
                else:
                    self._by_uid[item.metadata.uid] = self._keep(item)

    def get(self, uid: str, /) -> V | None:
        """The record with this uid."""
        return self._by_uid.get(uid)

    def by_uid(self) -> dict[str, V]:
        """A copy of all."""
        with self._lock:
            return dict(self._by_uid)

    def all(self) -> list[V]:
        """All, in any order."""
        with self._lock:
            return list(self._by_uid.values())


class NodeRecords:
    """Nodes by name. Their images, most of a node's size, are kept as numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, tuple[Node, array[int]]] = {}
        self._images = ImageNumbers()

    def add(self, nodes: Sequence[Node], /) -> None:
        """Add one page of a list."""
        self.apply([(False, node) for node in nodes])

    def apply(self, changes: Sequence[Change[Node]], /) -> None:
        """Apply events."""
        with self._lock:
            for gone, node in changes:
                if gone:
                    self._by_name.pop(node.metadata.name, None)
                else:
                    images = self._images.numbers(node.status.images or ())
                    self._by_name[node.metadata.name] = without_bulk(node), images
            if self._images.is_tidying_due():
                kept = [images for _, images in self._by_name.values()]
                for (name, (node, _)), images in zip(
                    list(self._by_name.items()), self._images.tidied(kept), strict=True
                ):
                    self._by_name[name] = node, images

    def columns(self) -> Nodes:
        """The snapshot's nodes, by name. Raises ValueError when a figure is no quantity."""
        with self._lock:
            found = [self._by_name[name] for name in sorted(self._by_name)]
            images = self._images.table([images for _, images in found])
        return node_columns([node for node, _ in found], images)
