"""Outlooks of one more pod, one for each group of draws that look alike to it."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np

from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Kind
from rebalancer.placement.draws.draws import Draws, views
from rebalancer.placement.draws.outlook import Outlook, View, searched_down_to
from rebalancer.placement.scheduler.engine import Departure, Engine

LARGE = 64_000
FEWEST_VIEWS = 12
"""Draws in which pods of one service landed differently are looked at one by one as far as nodes x draws are no more
than LARGE, at least so many."""
LEAST = float(np.finfo(np.float64).min)
MARGIN = 16
"""Nodes that are searched beyond those that a sample needs, at first; in some draws the best ones are taken."""

NOTHING: Rows = np.zeros(0, dtype=np.int64)
NO_SHARES: Floats = np.zeros(0)


class Outlooks:
    """Outlooks over a board and the draws of a plan."""

    def __init__(self, board: Board, engine: Engine, draws: Draws, name_rank: Rows) -> None:
        """`name_rank` (nodes,) as in `Outlook`."""
        self._board, self._engine, self._draws, self._name_rank = board, engine, draws, name_rank

    def of(self, kind: Kind, departure: Departure | None) -> Iterator[tuple[Outlook, float]]:
        """The outlook of each group of draws, with the group's share of the draws."""
        rules, draws = self._engine.rules(kind), self._draws
        landed: list[tuple[int, Rows]] = []
        if draws.landed and not draws.kinds.isdisjoint(rules.matters):
            landed = [each for each in draws.landed if each[0] in rules.matters]
        domains = [self._board.nodes.domains(key).at for key in sorted(rules.domain_keys)] if landed else []
        groups = views(draws.count, landed, domains, max(LARGE // len(self._name_rank), FEWEST_VIEWS), self._name_rank)
        for changes, members in groups:
            inside = None
            if len(groups) > 1:
                inside = np.zeros(draws.count, dtype=np.bool_)
                inside[members] = True
            unseen = [(winners, counted) for (_, winners), (_, counted) in zip(landed, changes, strict=True)]
            with self._board.seen_with(changes) if changes else nullcontext():
                outlook = self._outlook(kind, departure, members, inside, unseen)
            yield outlook, len(members) / draws.count

    def _outlook(
        self,
        kind: Kind,
        departure: Departure | None,
        members: Rows,
        inside: Bools | None,
        unseen: Sequence[tuple[Rows, int]],
    ) -> Outlook:
        """Of the draws `members`; `inside` (draws,) is their mask, None for all. `unseen`: for each landing the node in
        each draw, and that on which the board counts it."""
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
                for winners, counted in unseen:
                    # in a draw that another one stands for, such a pod's node is taken as closed to the next
                    drawn[(node == winners[draw]) & (winners[draw] != counted)] = -np.inf
            view = View(draws=members, scores=scores, slots=slots, drawn=drawn, sample=sample, worst=worst)
            outlook = Outlook(view, draws, self._name_rank)
            if outlook.complete:
                return outlook
            margin *= 4
