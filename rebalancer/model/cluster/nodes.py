"""Nodes as columns, and the images on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.columns import Columns, Empty
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.notation.arrays import Bools, Floats, Ints


class NodeImages:
    """Container images on nodes, by every name that a node reports for them."""

    def __init__(self, names: Mapping[str, int], size_bytes: Floats, image: Ints, node: Ints) -> None:
        """`names` numbers the image names; `size_bytes` (names,) is the first reporting node's; `image` and `node`
        (pairs,) are the pairs of name and node, in any order, without repeats."""
        self._names = names
        self._size_bytes = size_bytes
        order = np.argsort(image, kind="stable")
        self._node = node[order]
        self._starts = np.searchsorted(image[order], np.arange(len(size_bytes) + 1))

    @classmethod
    def none(cls) -> "NodeImages":
        """No node reports any image."""
        nothing = np.empty(0, dtype=np.int32)
        return cls({}, np.empty(0), nothing, nothing)

    def take(self, nodes: NDArray[Any]) -> "NodeImages":
        """The images of these nodes, numbered from 0 in their order."""
        count = int(max(self._node.max(initial=-1), nodes.max(initial=-1))) + 1
        if np.array_equal(nodes, np.arange(count)):
            return self
        place = np.full(count, -1, dtype=np.int32)
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        names, sizes, image, node = self.columns()
        kept = place[node] >= 0
        return NodeImages(names, sizes, image[kept], place[node[kept]])

    def concat(self, other: "NodeImages", *, after: int) -> "NodeImages":
        """Also the images of other nodes, which are numbered from `after` on. Of an image that both have, this size
        counts."""
        names, sizes = dict(self._names), self._size_bytes.tolist()
        others, size_bytes, image, node = other.columns()
        number = np.full(len(size_bytes), -1, dtype=np.int32)
        there = set(image.tolist())
        for name, which in others.items():
            if which in there:
                number[which] = names.setdefault(name, len(names))
                if len(sizes) < len(names):
                    sizes.append(float(size_bytes[which]))
        own = self.columns()
        nodes = np.concatenate([own[3], node + np.int32(after)])
        return NodeImages(names, np.array(sizes), np.concatenate([own[2], number[image]]), nodes)

    def size_of(self, name: str) -> float | None:
        """Bytes of an image; None where no node has it. `name` must be normalised (with its tag)."""
        number = self._names.get(name)
        return None if number is None else float(self._size_bytes[number])

    def nodes_with(self, name: str) -> Ints:
        """Indices of the nodes that have the image."""
        number = self._names.get(name)
        if number is None:
            return self._node[:0]
        return self._node[self._starts[number] : self._starts[number + 1]]

    def columns(self) -> tuple[Mapping[str, int], Floats, Ints, Ints]:
        """The arguments that make the same table, pairs by image."""
        image = np.repeat(np.arange(len(self._size_bytes), dtype=np.int32), np.diff(self._starts))
        return self._names, self._size_bytes, image, self._node


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes(Columns):
    """Nodes; labels, taints and extended resources are per-node tuples."""

    names: Annotated[tuple[str, ...], Empty("")]
    cpu_capacity_millicores: Annotated[Floats, Empty(0.0)]
    cpu_allocatable_millicores: Annotated[Floats, Empty(0.0)]
    memory_capacity_bytes: Annotated[Floats, Empty(0.0)]
    memory_allocatable_bytes: Annotated[Floats, Empty(0.0)]
    pods_allocatable: Annotated[Floats, Empty(0.0)]
    ready: Annotated[Bools, Empty(False)]
    unready_since: Annotated[Floats, Empty(np.nan)]
    """Seconds since the epoch when the condition Ready changed last, of a node that isn't Ready; NaN for others, and
    where it isn't known."""
    conditions: Annotated[tuple[tuple[str, ...], ...], Empty(())]
    """Types of the conditions that are True, Ready left out, in order."""
    unschedulable: Annotated[Bools, Empty(False)]
    created: Annotated[Floats, Empty(0.0)]
    """Seconds since the epoch."""
    unreadable: Annotated[tuple[str, ...], Empty("")]
    """Why it can't be read in full; empty for a node that can. Such a node is in no pool and not Ready here."""
    labels: Annotated[tuple[Mapping[str, str], ...], Empty({})]
    taints: Annotated[tuple[tuple[Taint, ...], ...], Empty(())]
    declared_features: Annotated[tuple[tuple[str, ...], ...], Empty(())]
    addresses: Annotated[tuple[tuple[str, ...], ...], Empty(())]
    """Internal IPs and hostnames: possible values of an `instance` label."""
    extended: Annotated[tuple[Mapping[str, float], ...], Empty({})]
    """Allocatable of every resource besides cpu, memory and pods."""
    annotations: Annotated[tuple[Mapping[str, str], ...], Empty({})]
    images: NodeImages = field(default_factory=NodeImages.none)

    def take(self, rows: NDArray[Any]) -> "Nodes":
        """As of all columns; with the images of these nodes."""
        return replace(Columns.take(self, rows), images=self.images.take(rows))

    def concat(self, *others: "Nodes") -> "Nodes":
        """As of all columns; with the images of all nodes."""
        images, count = self.images, len(self)
        for each in others:
            images, count = images.concat(each.images, after=count), count + len(each)
        return replace(Columns.concat(self, *others), images=images)
