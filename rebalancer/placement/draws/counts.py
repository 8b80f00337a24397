"""Pods that landed in the draws, counted by node: what the rules of the next pod may tell apart.

The counts are carried from one landing of a plan to the next.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rebalancer.model.notation.arrays import Bools, Floats, Rows

FIRST_COLUMNS = 8


class NodeCounts:
    """Pods of some kinds that landed in each draw. Only nodes that took one in any draw have a column."""

    def __init__(self, draws: int, nodes: int, weights: Mapping[int, float]) -> None:
        """`weights`: number of a kind -> what one pod of it counts."""
        self._weights = weights
        self._every = np.arange(draws)
        self.nodes: Rows = np.zeros(0, dtype=np.int64)
        """(columns,) in the order of their first pods."""
        self._column = np.full(nodes, -1, dtype=np.int32)
        self._counts: Floats = np.zeros((draws, FIRST_COLUMNS))
        self.seen = 0
        """Number of landings that are counted."""

    @property
    def counts(self) -> Floats:
        """(draws, columns)"""
        return self._counts[:, : len(self.nodes)]

    def see(self, landed: Sequence[tuple[int, Rows]]) -> None:
        """Count the landings that are not counted yet; `landed` as in `Draws`."""
        for number, winners in landed[self.seen :]:
            if weight := self._weights.get(number):
                self._add(winners, weight)
        self.seen = len(landed)

    def _add(self, winners: Rows, weight: float) -> None:
        new = np.unique(winners[self._column[winners] < 0])
        if len(new):
            before = len(self.nodes)
            self.nodes = np.concatenate([self.nodes, new])
            self._column[new] = np.arange(before, len(self.nodes))
            if len(self.nodes) > (room := self._counts.shape[1]):
                more = max(len(self.nodes), 2 * room) - room
                self._counts = np.concatenate([self._counts, np.zeros((len(self._every), more))], axis=1)
        self._counts[self._every, self._column[winners]] += weight

    def of(self, draw: int) -> tuple[Rows, Floats]:
        """Nodes that took a pod in one draw, and what it counts there."""
        row = self.counts[draw]
        columns = np.flatnonzero(row)
        return self.nodes[columns], row[columns]

    def by(self, domain: Rows, counted: Bools) -> Floats:
        """(draws, domains) sums over the domains of these nodes. `domain` (nodes,) is the number of each one's domain;
        only nodes in `counted` (nodes,) count, and only domains with one have a column."""
        columns = np.flatnonzero(counted[self.nodes])
        if not len(columns):
            return self.counts[:, :0]
        of = domain[self.nodes[columns]]
        order = np.argsort(of, kind="stable")
        of = of[order]
        starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
        out: Floats = np.add.reduceat(self.counts[:, columns[order]], starts, axis=1)
        return out

    def at(self, draws: Rows, nodes: Rows) -> Floats:
        """(pairs,) what is counted on these nodes in these draws."""
        column = self._column[nodes]
        return np.where(column >= 0, self._counts[draws, column], 0.0)

    def more_than_in(self, draw: int, draws: Rows, nodes: Rows) -> Bools:
        """(pairs,) whether more is counted on `nodes` in `draws` than in one draw."""
        out: Bools = self.at(draws, nodes) > self.at(np.array(draw), nodes)
        return out


def alike(draws: int, seen: Sequence[Floats]) -> list[Rows]:
    """Groups of draws that have the same counts: the indices of each, in the order of their first. `seen`: arrays
    (draws, any number)."""
    table = np.ascontiguousarray(np.concatenate(seen, axis=1)) if seen else np.zeros((draws, 0))
    if not table.shape[1]:
        return [np.arange(draws)]
    groups: dict[bytes, list[int]] = {}
    for draw, row in enumerate(table):
        groups.setdefault(row.tobytes(), []).append(draw)
    return [np.array(members) for members in groups.values()]


def neighbours(draws: int, seen: Sequence[Floats], most: int) -> list[Rows]:
    """`most` groups of draws of which each has similar counts; `seen` as in `alike`."""
    # sorted both ways, so that the order in which nodes are listed changes nothing
    table = np.unique(np.concatenate(seen, axis=1), axis=1)
    _, group = np.unique(table, axis=0, return_inverse=True)
    group = group.reshape(-1)
    chosen = np.linspace(0, int(group.max()), most, endpoint=False).astype(np.int64)
    group = np.searchsorted(chosen, group, side="right") - 1
    return [np.flatnonzero(group == each) for each in range(most)]
