"""Outlooks of one more pod, one for each group of draws that look alike to it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace

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


@dataclass(frozen=True, slots=True)
class _Look:
    """What the scheduler sees in a group of draws, and how far down it is searched."""

    members: Rows
    """Indices of the draws; the board counts what landed in the first."""
    inside: Bools | None
    """(draws,) their mask; None for all."""
    scores: Floats
    rest: Floats
    """Both (nodes,): total scores, -inf where not feasible; and without the part of the pod's own requests."""
    _: KW_ONLY
    sample: int
    most_gain: float
    """Both of the pod, as in `Engine` and `Requests`."""
    worst: float = -np.inf
    """The least score that is looked at."""
    slots: Rows = field(default_factory=lambda: NOTHING)
    """Slots of these draws that may reach it."""

    def down_to(self, margin: int, draws: Draws) -> "_Look":
        """Searched as far as `searched_down_to`."""
        worst = searched_down_to(self.scores, self.sample, margin)
        if not draws.size:
            return replace(self, worst=worst)
        close = (self.scores >= max(worst - self.most_gain, LEAST))[draws.node]
        slots = np.flatnonzero(close if self.inside is None else close & self.inside[draws.draw])
        return replace(self, worst=worst, slots=slots)


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
        looks = []
        for members in groups:
            with self._seen_as_in(int(members[0]), kind, landed):
                looks.append(self._look(kind, departure, members))
        # all at once: the requests of a slot are its own draw's, whatever the group
        points = np.full(draws.size, -np.inf)
        if len(slots := np.concatenate([each.slots for each in looks])):
            points[slots] = self._engine.in_draws(kind, draws, slots, departure)
        for look in looks:
            yield self._outlook(kind, departure, look, points, () if exact else landed), len(look.members) / draws.count

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

    def _look(self, kind: Kind, departure: Departure | None, members: Rows) -> _Look:
        """The board as it is, for the draws `members`."""
        engine, draws = self._engine, self._draws
        count = engine.feasible_count(kind, departure)
        if not count:
            none = np.full(len(self._name_rank), -np.inf)
            return _Look(members, None, none, none, sample=0, most_gain=0.0, worst=0.0, slots=NOTHING)
        inside = None
        if len(members) < draws.count:
            inside = np.zeros(draws.count, dtype=np.bool_)
            inside[members] = True
        look = _Look(
            members,
            inside,
            engine.scores(kind, departure),
            engine.without_requests(kind, departure) if draws.size else NO_SHARES,
            sample=engine.sample_size(kind, count),
            most_gain=engine.rules(kind).requests.most_gain if draws.size else 0.0,
        )
        return look.down_to(MARGIN, draws)

    def _outlook(
        self, kind: Kind, departure: Departure | None, look: _Look, points: Floats, unseen: Sequence[Matter]
    ) -> Outlook:
        """`points` (slots,) of the look's slots, as in `Engine.in_draws`. `unseen` is what may have landed elsewhere in
        others than the first of its draws."""
        draws, margin = self._draws, MARGIN
        while True:
            node, draw = draws.node[look.slots], draws.draw[look.slots]
            drawn = look.rest[node] + points[look.slots] if len(node) else NO_SHARES
            for _, counts in unseen:
                # in a draw that another one stands for, such a pod's node is taken as closed to the next
                drawn[counts.more_than_in(int(look.members[0]), draw, node)] = -np.inf
            view = View(
                draws=look.members,
                scores=look.scores,
                slots=look.slots,
                drawn=drawn,
                sample=look.sample,
                worst=look.worst,
            )
            outlook = Outlook(view, draws, self._name_rank)
            if outlook.complete:
                return outlook
            margin *= 4
            look = look.down_to(margin, draws)
            points[look.slots] = self._engine.in_draws(kind, draws, look.slots, departure)
