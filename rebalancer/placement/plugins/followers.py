"""Followers of a pod: pods whose required affinity only that pod meets where they run.

kube-scheduler looks at required affinity when it binds a pod and never again: a follower keeps running without the pod
that it needs. Only followers of the pod's own namespace count, so that no tenant keeps the pods of another one
where they are.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rebalancer.model.notation.arrays import Ints, Rows
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Group
from rebalancer.placement.cluster.nodes import EPS
from rebalancer.placement.plugins.affinity import Terms


class Followers(NamedTuple):
    """Pods that a move would leave without the pod that they need."""

    pods: int
    where: str
    """The topology domain in which they need it, as key=value."""


class _Rule(NamedTuple):
    """One set of required affinity terms."""

    keys: tuple[str, ...]
    holders: Group
    selected: Group
    """The pods that match all its terms."""


class Following:
    """The required affinity of a board's pods, with the moves of a plan counted."""

    def __init__(self, board: Board, terms: Callable[[], Terms]) -> None:
        self._board, self._terms = board, terms

    @cached_property
    def _rules(self) -> dict[int, list[_Rule]]:
        """Number of a kind -> the rules of its own namespace that its pods meet."""
        out: dict[int, list[_Rule]] = {}
        kinds = self._board.kinds
        if not kinds.affinities:
            return out
        for namespace, keys, holders, selected in self._terms().required_near():
            for number in selected.weights:
                if kinds[number].namespace == namespace:
                    out.setdefault(number, []).append(_Rule(keys, holders, selected))
        return out

    def left_by(self, pod: int, node: int, targets: Rows | None, *, leaving: Ints) -> Followers | None:
        """The pods that a pod's eviction from `node` leaves without it, or None. `targets`: nodes on which its
        replacement may land; None: any other node. `leaving`: other pods that leave the node as well, as it is
        emptied."""
        board = self._board
        number = int(board.kinds.numbers_of(np.array([pod]))[0])
        for rule in self._rules.get(number, ()):
            also_gone = sum(
                each in rule.holders.weights for each in board.kinds.numbers_of(leaving.astype(np.int64)).tolist()
            )
            itself = int(number in rule.holders.weights)
            for key in rule.keys:
                domains = board.nodes.domains(key)
                mine = int(domains.at[node])
                outside = domains.alone if targets is None else bool((domains.at[targets] != mine).any())
                if not (domains.here[node] and outside):
                    continue
                inside = domains.at == mine
                left = float(board.present_staying(board.tally(rule.selected))[inside].sum()) - 1.0
                count = float(board.present_staying(board.tally(rule.holders))[inside].sum()) - itself - also_gone
                if left < 1.0 - EPS and count > 1.0 - EPS:
                    return Followers(round(count), f"{key}={domains.values[mine]}")
        return None
