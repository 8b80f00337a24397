"""Images on nodes, collected while the nodes are read.

Source: `addNodeImageStates` of kube-scheduler's cache, v1.36: every reported name is an image of its own, of the size
that the first node reports for it. Nodes report the same images in the same bytes, which are decoded once.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec
import numpy as np

from rebalancer.kube.snapshot.records import ContainerImage
from rebalancer.model.cluster.nodes import NodeImages
from rebalancer.model.notation.decoding import json_decoder

_NOTHING = ContainerImage()


def _decode(blob: msgspec.Raw | bytes) -> ContainerImage:
    """An image; one without names where it can't be read: where an image is decides a score alone."""
    try:
        return json_decoder(ContainerImage).decode(blob)
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING


class ImageTable:
    """The table under construction: each name is stored once and is a number everywhere else."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._sizes = array("d")
        self._images = array("i")
        self._on_node = array("i")
        self._known: dict[bytes, tuple[int, ...]] = {}
        """Reported image -> the numbers of its names."""

    def add_node(self, images: Iterable[msgspec.Raw]) -> None:
        """Add the images of the next node."""
        known = self._known
        here: set[int] = set()
        for blob in map(bytes, images):
            numbers = known.get(blob)
            if numbers is None:
                numbers = known[blob] = tuple(self._number(blob))
            here.update(numbers)
        self._images.extend(here)
        self._on_node.append(len(here))

    def _number(self, blob: bytes) -> Iterator[int]:
        image = _decode(blob)
        for name in image.names or ():
            number = self._numbers.get(name)
            if number is None:
                number = self._numbers[name] = len(self._sizes)
                self._sizes.append(image.size_bytes)
            yield number

    def finish(self) -> NodeImages:
        """The table; nodes are numbered in the order in which they were added."""
        nodes = np.arange(len(self._on_node), dtype=np.int32)
        return NodeImages(
            self._numbers,
            np.array(self._sizes, dtype=np.float64),
            np.array(self._images, dtype=np.int32),
            np.repeat(nodes, np.array(self._on_node, dtype=np.int32)),
        )


class ImageNumbers:
    """Images of a changing set of nodes: each pair of name and size is stored once, and a node has their numbers."""

    FIRST_TIDYING = 4096

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._tidy_at = self.FIRST_TIDYING

    def numbers(self, images: Iterable[msgspec.Raw]) -> "array[int]":
        """Numbers of the images that a node reports; of a repeated name, the first."""
        here: dict[str, int] = {}
        for image in map(_decode, images):
            for name in image.names or ():
                if name not in here:
                    here[name] = self._numbers.setdefault((name, image.size_bytes), len(self._numbers))
        return array("i", here.values())

    def is_tidying_due(self) -> bool:
        """Whether the pairs have doubled since the last compaction."""
        return len(self._numbers) >= self._tidy_at

    def tidied(self, nodes: Sequence["array[int]"]) -> list["array[int]"]:
        """Drop the pairs that no node has; returns the nodes' new numbers."""
        pairs = list(self._numbers)
        self._numbers = {}
        for old in sorted(set(chain.from_iterable(nodes))):
            self._numbers[pairs[old]] = len(self._numbers)
        self._tidy_at = max(self.FIRST_TIDYING, 2 * len(self._numbers))
        return [array("i", [self._numbers[pairs[old]] for old in node]) for node in nodes]

    def table(self, nodes: Sequence["array[int]"]) -> NodeImages:
        """The table of these nodes, in this order."""
        flat = np.concatenate([np.zeros(0, dtype=np.int32), *(np.frombuffer(node, dtype=np.int32) for node in nodes)])
        names: dict[str, int] = {}
        pairs = list(self._numbers)
        name_of, used = np.full(len(pairs), -1, dtype=np.int32), np.zeros(len(pairs), dtype=np.bool_)
        used[flat] = True
        for pair in np.flatnonzero(used).tolist():
            name_of[pair] = names.setdefault(pairs[pair][0], len(names))
        image = name_of[flat]
        sizes = np.zeros(len(names))
        # Backwards, so that the first node's size wins.
        sizes[image[::-1]] = np.array([size for _, size in pairs], dtype=np.float64)[flat[::-1]]
        node = np.repeat(np.arange(len(nodes), dtype=np.int32), [len(each) for each in nodes])
        return NodeImages(names, sizes, image, node)
