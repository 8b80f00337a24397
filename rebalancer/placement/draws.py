"""Landings of a plan's replacements as one sequence, drawn many times.

kube-scheduler draws among equal scores and, above 100 nodes, scores only a sample, so where a replacement lands is
known only as a distribution, and a node that took one is less attractive to the next. Each draw is one course of the
whole sequence: the nodes on which the earlier replacements of this plan landed. A landing that is the same in every
draw is certain: it is counted on the board, and the draws hold only what differs between them.

For one more pod the probability of each node is exact within a draw, and the mean over the draws is its probability.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

import numpy as np

from rebalancer.placement.nodes import Floats, Rows
from rebalancer.placement.sampling import missed_best

DRAWS, FEW_DRAWS = 128, 32
"""Courses of a plan, and in a cluster of more than MANY_NODES: there each course spreads over so many nodes that fewer
say as much."""

MANY_NODES = 1_000

NEGLIGIBLE = 1e-4
"""Nodes are searched, best first, until the probability of a worse one is less."""

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

    def _grow(self, size: int) -> None:
        room = len(self._draw)
        if size > room:
            more = max(size, 2 * room) - room
            self._draw = np.concatenate([self._draw, np.zeros(more, dtype=np.int64)])
            self._node = np.concatenate([self._node, np.zeros(more, dtype=np.int64)])
            self._requests = np.concatenate([self._requests, np.zeros((more, COLUMNS))])
            self._stamp = np.concatenate([self._stamp, np.zeros(more, dtype=np.int64)])
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


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the scheduler sees of all nodes in some of the draws."""

    draws: Rows
    """Indices of the draws."""
    scores: Floats
    """(nodes,) total scores without the landings of the draws, -inf where not feasible."""
    slots: Rows
    """The slots of these draws."""
    drawn: Floats
    """(slots,) total scores with the landings of the draw, -inf where not feasible."""
    sample: int
    """How many feasible nodes the scheduler scores."""
    worst: float
    """The least score that is looked at, from `searched_down_to`."""


def searched_down_to(scores: Floats, sample: int, margin: int) -> float:
    """The least score of the nodes that may win: `margin` more than a sample needs; -inf for all."""
    total = int(np.count_nonzero(scores > -np.inf))
    needed = _needed(total, sample) + margin
    if needed >= total:
        return -np.inf
    return float(np.partition(scores, len(scores) - needed)[len(scores) - needed])


def _needed(total: int, sample: int) -> int:
    """How many of the best nodes are searched."""
    return int(np.searchsorted(-missed_best(total, sample), -NEGLIGIBLE))


class Outlook:
    """Where one pod lands in the draws of a view: exact probabilities, and one node for each draw."""

    def __init__(self, view: View, state: Draws, name_rank: Rows) -> None:
        """`name_rank` (nodes,): rank by name, so that the order in which nodes are listed changes nothing."""
        self._view, self._state, self._rank = view, state, name_rank
        self.draws = view.draws
        """Indices of the view's draws."""
        self.total = int(np.count_nonzero(view.scores > -np.inf))
        """Number of feasible nodes."""
        self.nodes: Rows = np.zeros(0, dtype=np.int64)
        """Nodes that may win, best first and equal ones by name."""
        self.shares: Floats = np.zeros(0)
        """(nodes,) mean over the draws of the probability of each in draws without a slot there."""
        self.slots: Rows = np.zeros(0, dtype=np.int64)
        """Slots that may win."""
        self.slot_shares: Floats = np.zeros(0)
        """(slots,) their part of the mean."""
        self.complete = True
        """Whether the nodes left out are negligible."""
        if self.total:
            self._rate_all()

    def among(self, state: Draws) -> "Outlook":
        """The same with the landings of another plan, which are the same up to here."""
        out = copy(self)
        out._state = state
        return out

    def _rate_all(self) -> None:
        view, state = self._view, self._state
        count, scores = len(view.draws), view.scores
        draw, node = state.draw[view.slots], state.node[view.slots]
        if count < state.count:
            place = np.full(state.count, -1, dtype=np.int64)
            place[view.draws] = np.arange(count)
            draw = place[draw]
        worst = view.worst
        listed = np.flatnonzero(scores >= worst) if worst > -np.inf else np.flatnonzero(scores > -np.inf)
        found = scores[listed]
        into = view.drawn >= worst if worst > -np.inf else view.drawn > -np.inf
        top = max(float(found.max()), float(view.drawn.max(initial=-np.inf)))
        level = (top - found).astype(np.int64)
        order = np.lexsort((self._rank[listed], level))
        self.nodes, self._level = listed[order], level[order]
        now = (top - view.drawn[into]).astype(np.int64)
        levels = int(max(self._level[-1], now.max(initial=0))) + 1
        sizes = np.bincount(self._level, minlength=levels)
        self._starts, self._sizes = np.cumsum(sizes) - sizes, sizes

        before = scores[node]
        out = before >= worst if worst > -np.inf else before > -np.inf
        was = (top - before[out]).astype(np.int64)
        counts = np.broadcast_to(sizes, (count, levels)).copy()
        flat = counts.reshape(-1)
        flat -= np.bincount(draw[out] * levels + was, minlength=count * levels)
        flat += np.bincount(draw[into] * levels + now, minlength=count * levels)
        missed = missed_best(self.total, view.sample)
        ahead = np.minimum(np.cumsum(counts, axis=1), self.total)
        chance = -np.diff(missed[ahead], axis=1, prepend=1.0)
        rate = chance / np.maximum(counts, 1)
        self._ahead, self._missed, self._counts = ahead, missed, counts
        self.complete = worst == -np.inf or float(missed[ahead[:, -1]].mean()) <= 10 * NEGLIGIBLE
        self.shares = rate.sum(axis=0)[self._level]
        if out.any():
            lost = np.bincount(node[out], weights=rate[draw[out], was], minlength=len(scores))
            self.shares = (self.shares - lost[self.nodes]).clip(min=0.0)
        self.shares = self.shares / count
        self.slots, self.slot_shares = view.slots[into], rate[draw[into], now] / count
        self._slot_draw, self._slot_level = draw[into], now

    def land(self, random: np.random.Generator) -> Rows:
        """(draws of the view,) the node in each draw; -1 where none is feasible."""
        count = len(self._view.draws)
        if not self.total:
            return np.full(count, -1, dtype=np.int64)
        parts, ties = _stratified(random, count), _stratified(random, count)
        place = np.searchsorted(-self._missed, -(1.0 - parts), side="right") - 1
        level = (self._ahead <= place[:, None]).sum(axis=1)
        levels = self._counts.shape[1]
        none = (level >= levels) & (self._ahead[:, -1] == 0)
        level = np.minimum(level, levels - 1)
        # beyond the searched levels, which is negligible: the worst of them that has a node
        empty = self._counts[np.arange(count), level] <= 0
        for at in np.flatnonzero(empty & ~none):
            level[at] = int(np.flatnonzero(self._counts[at] > 0)[-1])
        tied = self._counts[np.arange(count), level]
        pick = (ties * tied).astype(np.int64)
        drawn = self._slot_level == level[self._slot_draw]
        of, slot = self._slot_draw[drawn], self.slots[drawn]
        own = np.bincount(of, minlength=count)
        first = np.cumsum(own) - own
        by_draw = np.argsort(of, kind="stable")
        winners = np.full(count, -1, dtype=np.int64)
        from_slot = ~none & (pick < own)
        winners[from_slot] = self._state.node[slot[by_draw[first[from_slot] + pick[from_slot]]]]
        left = np.flatnonzero(~none & ~from_slot)
        others = (ties * tied - own) / np.maximum(tied - own, 1)
        self._from_board(winners, left, level, others[left].clip(0.0, 1.0 - 1e-12), random)
        return winners

    def _from_board(self, winners: Rows, left: Rows, level: Rows, part: Floats, random: np.random.Generator) -> None:
        """Fill in a node of each draw's level on which nothing has landed in that draw. `part` (left,) 0..1 of the
        level's nodes is tried first."""
        draws = self._view.draws
        for _ in range(64):
            if not len(left):
                return
            at = level[left]
            pick = self._starts[at] + (part * self._sizes[at]).astype(np.int64)
            nodes = self.nodes[np.minimum(pick, len(self.nodes) - 1)]
            free = (self._state.slots(draws[left], nodes) < 0) & (self._sizes[at] > 0)
            winners[left[free]] = nodes[free]
            left = left[~free]
            part = random.random(len(left))
        for at in left.tolist():
            mine = self.nodes[self._level == level[at]]
            free = mine[self._state.slots(np.full(len(mine), draws[at]), mine) < 0]
            if len(free):
                winners[at] = free[int(random.integers(len(free)))]


def _stratified(random: np.random.Generator, count: int) -> Floats:
    """(count,) one number from each of as many equal parts of 0..1, in any order."""
    out: Floats = (random.permutation(count) + random.random(count)) / count
    return out


def views(
    draws: int, landed: Sequence[tuple[int, Rows]], domains: Sequence[Rows], most: int, name_rank: Rows
) -> list[tuple[list[tuple[int, int]], Rows]]:
    """Draws with the same landings of these kinds: ((number, node) of each landing, indices of the draws).

    Of more than `most` such groups, those with the same domains are one, and if these are still more, neighbours are.
    `domains`: for each topology key (nodes,) the number of the node's domain. `name_rank` (nodes,) as in `Outlook`: the
    groups are in the order of the names."""
    if not landed:
        return [([], np.arange(draws))]
    nodes = np.stack([each for _, each in landed], axis=1)
    different, first, group = np.unique(name_rank[nodes], axis=0, return_index=True, return_inverse=True)
    if len(different) > most:
        by_domain = np.concatenate([each[nodes] for each in domains] or [np.zeros((draws, 1), dtype=np.int64)], axis=1)
        different, first, group = np.unique(by_domain, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    if len(different) > most:
        chosen = np.linspace(0, len(different) - 1, most).astype(np.int64)
        group, first = np.searchsorted(chosen, group, side="right") - 1, first[chosen]
    numbers = [number for number, _ in landed]
    return [
        (list(zip(numbers, nodes[at].tolist(), strict=True)), np.flatnonzero(group == number))
        for number, at in enumerate(first.tolist())
    ]


def seeded(seed: int, name: str) -> np.random.Generator:
    """Random numbers of one pod: the same for the same name, whatever was asked before."""
    return np.random.default_rng([seed, *name.encode()])
