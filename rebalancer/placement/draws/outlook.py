"""Where one more pod lands. The probability of each node is exact within a draw; its mean over the draws counts."""

from copy import copy
from dataclasses import dataclass

import numpy as np

from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.placement.draws.draws import Draws
from rebalancer.placement.draws.sampling import missed_best

NEGLIGIBLE = 1e-4
"""Nodes are searched, best first, until the probability of a worse one is less."""


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
        # by name within a draw: equal parts then fall to the same node in all draws that have it
        by_draw = np.lexsort((self._rank[self._state.node[slot]], of))
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
