"""The stores of the kinds besides pods: `kube.watch.Store`s, safe to read while they change."""

import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from rebalancer.kube.snapshot.columns import node_columns, without_bulk
from rebalancer.kube.snapshot.images import ImageNumbers
from rebalancer.kube.snapshot.quarantine import obstacle_of, try_keep
from rebalancer.kube.snapshot.records import Node, Object
from rebalancer.kube.watch.watch import Change
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.obstacles import Obstacle

N = TypeVar("N", bound=Object)
V = TypeVar("V")


class Records(Generic[N, V]):
    """The records of a kind by uid, each reduced by `keep`. One at which `keep` raises is an obstacle."""

    def __init__(self, keep: Callable[[N], V], kind: str = "Object") -> None:
        """`kind` names the obstacles."""
        self._kind = kind
        self._keep = keep
        self._lock = threading.Lock()
        self._by_uid: dict[str, V] = {}
        self._obstacles: dict[str, Obstacle] = {}
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
                uid = item.identity[2]
                value, cause = (None, "") if gone else try_keep(item, self._keep)
                if value is None:
                    self._by_uid.pop(uid, None)
                else:
                    self._by_uid[uid] = value
                if cause:
                    self._obstacles[uid] = obstacle_of(self._kind, item, cause)
                elif self._obstacles:
                    self._obstacles.pop(uid, None)

    def get(self, uid: str, /) -> V | None:
        """The record with this uid."""
        return self._by_uid.get(uid)

    def by_uid(self) -> dict[str, V]:
        """A copy of all."""
        with self._lock:
            return dict(self._by_uid)

    def obstacles(self) -> list[Obstacle]:
        """Those that can't be read."""
        with self._lock:
            return list(self._obstacles.values())

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
        self._taken: Nodes | None = None
        """The last columns, while no node came or went."""
        self._changed: set[str] = set()
        """Names of the nodes that have changed since."""
        self._same_images = False
        """Whether all of them have the images that they had."""

    def add(self, nodes: Sequence[Node], /) -> None:
        """Add one page of a list."""
        self.apply([(False, node) for node in nodes])

    def apply(self, changes: Sequence[Change[Node]], /) -> None:
        """Apply events."""
        with self._lock:
            for gone, node in changes:
                name = node.metadata.name
                known = self._by_name.get(name)
                if gone:
                    self._by_name.pop(name, None)
                else:
                    images = self._images.numbers(node.status.images or ())
                    self._by_name[name] = without_bulk(node), images
                    self._same_images = self._same_images and known is not None and known[1] == images
                if gone or known is None:
                    self._taken = None
                self._changed.add(name)
            if self._images.is_tidying_due():
                kept = [images for _, images in self._by_name.values()]
                for (name, (node, _)), images in zip(
                    list(self._by_name.items()), self._images.tidied(kept), strict=True
                ):
                    self._by_name[name] = node, images

    def columns(self) -> Nodes:
        """The snapshot's nodes, by name; the same object until a node changes."""
        with self._lock:
            before = self._taken
            if before is None:
                found = [self._by_name[name] for name in sorted(self._by_name)]
                self._taken = node_columns([node for node, _ in found], self._images.table([each for _, each in found]))
            elif self._changed:
                images = before.images
                if not self._same_images:
                    images = self._images.table([self._by_name[name][1] for name in before.names])
                rows = [at for at, name in enumerate(before.names) if name in self._changed]
                changed = node_columns([self._by_name[before.names[at]][0] for at in rows], images)
                self._taken = replace(before.put(rows, changed), images=images)
            self._changed, self._same_images = set(), True
            assert self._taken is not None
            return self._taken
