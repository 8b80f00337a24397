"""Outlooks of one more pod, one for each group of draws that look alike to it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.placement.cluster.board import Board, Landed
from rebalancer.placement.cluster.kinds import Counted, Kind
from rebalancer.placement.cluster.nodes import HOSTNAME
from rebalancer.placement.draws.counts import NodeCounts, alike, neighbours
from rebalancer.placement.draws.draws import Draws
from rebalancer.placement.draws.outlook import Outlook, View, searched_down_to
from rebalancer.placement.scheduler.engine import Departure, Engine

LARGE = 64_000
FEWEST_VIEWS = 12
"""Groups of draws that the pod's rules can tell apart are looked at one by one as far as nodes x groups are no more
than LARGE, at least so many."""
LEAST = float(np.finfo(np.float64).min)
MARGIN = 16
"""Nodes that are searched beyond those that a sample needs, at first; in some draws the best ones are taken."""

NOTHING: Rows = np.zeros(0, dtype=np.int64)
NO_SHARES: Floats = np.zeros(0)


Matter = tuple[Counted, NodeCounts]
"""Pods that matter to a kind, and how many of them landed where."""


class Outlooks:
    """Outlooks over a board and the draws of a plan."""

    def __init__(self, board: Board, engine: Engine, draws: Draws, name_rank: Rows) -> None:
        """`name_rank` (nodes,) as in `Outlook`."""
        self._board, self._engine, self._draws, self._name_rank = board, engine, draws, name_rank
        self._most = max(LARGE // max(len(name_rank), 1), FEWEST_VIEWS)

    def of(self, kind: Kind, departure: Departure | None) -> Iterator[tuple[Outlook, float]]:
        """The outlook of each group of draws, with the group's share of the draws."""
        draws, landed = self._draws, self._landed(kind)
        groups, exact = self._groups(landed)
        for members in groups:
            inside = None
            if len(groups) > 1:
                inside = np.zeros(draws.count, dtype=np.bool_)
                inside[members] = True
            with self._seen_as_in(int(members[0]), kind, landed):
                outlook = self._outlook(kind, departure, members, inside, () if exact else landed)
            yield outlook, len(members) / draws.count

    def _landed(self, kind: Kind) -> list[Matter]:
        """What landed of the pods that matter to a kind."""
        draws = self._draws
        if not draws.landed:
            return []
        matters = [
            each for each in self._engine.rules(kind).matters if not each.group.weights.keys().isdisjoint(draws.kinds)
        ]
        return [(each, draws.counts(each.group.key, each.group.weights)) for each in matters]

    def _groups(self, landed: Sequence[Matter]) -> tuple[list[Rows], bool]:
        """Draws that look alike, and whether each group's do so in every respect. Of more than `_most` groups those
        with the same counts by domain are one, and if these are still more, neighbours are."""
        count, by_node, by_domain = self._draws.count, [], []
        for each, counts in landed:
            if each.key == HOSTNAME:
                by_node.append(counts.counts)
            else:
                domains = self._board.nodes.domains(each.key)
                counted = domains.here if each.eligible is None else domains.here & each.eligible
                by_domain.append(counts.by(domains.at, counted))
        groups = alike(count, [*by_node, *by_domain])
        if len(groups) <= self._most:
            return groups, True
        groups = alike(count, by_domain)
        return (groups if len(groups) <= self._most else neighbours(count, by_domain, self._most)), False

    def _seen_as_in(self, draw: int, kind: Kind, landed: Sequence[Matter]) -> AbstractContextManager[None]:
        """The board with what landed in one draw."""
        if not landed:
            return nullcontext()
        there = {each.group.key: Landed(each.group, *counts.of(draw)) for each, counts in landed}
        requested = {each.group.key for each in self._engine.rules(kind).requests.matters}
        ranked = [each.nodes for key, each in there.items() if key in requested]
        return self._board.seen_with(list(there.values()), np.concatenate([*ranked, NOTHING]))

    def _outlook(
        self,
        kind: Kind,
        departure: Departure | None,
        members: Rows,
        inside: Bools | None,
        unseen: Sequence[Matter],
    ) -> Outlook:
        """Of the draws `members`; `inside` (draws,) is their mask, None for all. The board counts what landed in the
        first; `unseen` is what may have landed elsewhere in the others."""
        engine, draws, margin = self._engine, self._draws, MARGIN
        count = engine.feasible_count(kind, departure)
        if not count:
            none = np.full(len(self._name_rank), -np.inf)
            nothing = View(draws=members, scores=none, slots=NOTHING, drawn=NO_SHARES, sample=0, worst=0.0)
            return Outlook(nothing, draws, self._name_rank)
        scores, sample = engine.scores(kind, departure), engine.sample_size(kind, count)
        while True:
            slots, drawn = NOTHING, NO_SHARES
            worst = searched_down_to(scores, sample, margin)
            if draws.size:
                close = (scores >= max(worst - engine.rules(kind).requests.most_gain, LEAST))[draws.node]
                slots = np.flatnonzero(close if inside is None else close & inside[draws.draw])
                drawn = engine.with_draws(kind, draws, slots, departure)
                node, draw = draws.node[slots], draws.draw[slots]
                for _, counts in unseen:
                    # in a draw that another one stands for, such a pod's node is taken as closed to the next
                    drawn[counts.more_than_in(int(members[0]), draw, node)] = -np.inf
            view = View(draws=members, scores=scores, slots=slots, drawn=drawn, sample=sample, worst=worst)
            outlook = Outlook(view, draws, self._name_rank)
            if outlook.complete:
                return outlook
            margin *= 4
