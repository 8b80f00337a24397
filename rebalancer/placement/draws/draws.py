"""Landings of a plan's replacements as one sequence, drawn many times.

kube-scheduler draws among equal scores and, above 100 nodes, scores only a sample, so where a replacement lands is
known only as a distribution, and a node that took one is less attractive to the next. Each draw is one course of the
whole sequence: the nodes on which the earlier replacements of this plan landed. A landing that is the same in every
draw is certain: it is counted on the board, and the draws hold only what differs between them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.placement.draws.counts import NodeCounts

T = TypeVar("T", bound=np.generic)

DRAWS, FEW_DRAWS = 128, 32
"""Courses of a plan, and in a cluster of more than MANY_NODES: there each course spreads over so many nodes that fewer
say as much."""

MANY_NODES = 1_000

COLUMNS = 5
"""Columns of `Board.held`."""


class Draws:
    """The uncertain landings counted so far: a slot for each draw and node that took any. Not thread-safe."""

    def __init__(self, nodes: int) -> None:
        self.count = DRAWS if nodes <= MANY_NODES else FEW_DRAWS
        """Number of draws."""
        self.size = 0
        """Number of slots."""
        self.kinds: set[int] = set()
        """Numbers of the kinds that landed; some may have been undone."""
        self.landed: list[tuple[int, Rows]] = []
        """(number of the kind, (draws,) its node in each draw), in the order of the plan."""
        self._slot = np.full((self.count, nodes), -1, dtype=np.int32)
        self._draw: Rows = np.zeros(0, dtype=np.int64)
        self._node: Rows = np.zeros(0, dtype=np.int64)
        self._requests: Floats = np.zeros((0, COLUMNS))
        self._stamp: Rows = np.zeros(0, dtype=np.int64)
        self._undo: list[tuple[Rows, Rows, Floats]] | None = None
        self._counts: dict[object, NodeCounts] = {}

    @property
    def draw(self) -> Rows:
        """(slots,) the draw of each."""
        return self._draw[: self.size]

    @property
    def node(self) -> Rows:
        """(slots,) the node of each."""
        return self._node[: self.size]

    @property
    def requests(self) -> Floats:
        """(slots, 5) what landed there requests, in the columns of `Board.held`."""
        return self._requests[: self.size]

    @property
    def stamp(self) -> Rows:
        """(slots,) `Board.changes` when each changed last."""
        return self._stamp[: self.size]

    def slots(self, draws: Rows, nodes: Rows) -> Rows:
        """The slots of pairs of draws and nodes; -1 for none."""
        found: Rows = self._slot[draws, nodes].astype(np.int64)
        return found

    def land(self, number: int, nodes: Rows, requests: Floats, *, stamp: int) -> Rows:
        """A pod of a kind (its number) landed on `nodes` (draws,). Returns the slot of each draw."""
        draws = np.arange(self.count)
        slots = self.slots(draws, nodes)
        new = slots < 0
        before = self.size
        self._grow(before + int(np.count_nonzero(new)))
        slots[new] = np.arange(before, self.size)
        self._slot[draws[new], nodes[new]] = slots[new]
        self._draw[slots[new]], self._node[slots[new]], self._requests[slots[new]] = draws[new], nodes[new], 0.0
        self._requests[slots] += requests
        self._stamp[slots] = stamp
        self.landed.append((number, nodes))
        self.kinds.add(number)
        if self._undo is not None:
            self._undo.append((slots, slots[new], requests))
        return slots

    def counts(self, key: object, weights: Mapping[int, float]) -> NodeCounts:
        """The pods of a group that landed; `weights`: number of a kind -> what one pod of it counts."""
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = NodeCounts(*self._slot.shape, weights)
        found.see(self.landed)
        return found

    def _grow(self, size: int) -> None:
        self._draw, self._node = grown(self._draw, size), grown(self._node, size)
        self._requests, self._stamp = grown(self._requests, size), grown(self._stamp, size)
        self.size = size

    @contextmanager
    def tentatively(self, stamp: Callable[[], int]) -> Iterator[None]:
        """Undo at the end every landing counted inside; `stamp` gives `Board.changes` then."""
        assert self._undo is None
        self._undo = []
        try:
            yield
        finally:
            undo, self._undo = self._undo, None
            for slots, new, requests in reversed(undo):
                self._slot[self._draw[new], self._node[new]] = -1
                self._requests[slots] -= requests
                self._stamp[slots] = stamp()
                self.size -= len(new)
                self.landed.pop()
            self._counts = {key: each for key, each in self._counts.items() if each.seen <= len(self.landed)}


def grown(values: NDArray[T], size: int) -> NDArray[T]:
    """The same array where it has at least `size` rows; otherwise a larger one, to be filled: new rows are 0."""
    if (room := len(values)) >= size:
        return values
    more = np.zeros((max(size, 2 * room) - room, *values.shape[1:]), dtype=values.dtype)
    return np.concatenate([values, more])


def seeded(seed: int, name: str) -> np.random.Generator:
    """Random numbers of one pod: the same for the same name, whatever was asked before."""
    return np.random.default_rng([seed, *name.encode()])
