"""kube-scheduler's cache as columns over nodes: which pods are where, and what they request.

A pod whose target node is not certain is booked as
fractions over its possible nodes. Only whole pods are counted: on each node floor(s)/s of all fractions booked there,
where s is the sum of their probabilities. So after one pod booked half on each of two equal nodes, the next equal pod
is again equally likely on both; with one whole pod booked on each, both count as taken. Half a pod counted on each
would make both score worse than a third node that in truth comes after them. Domains larger than a node are scored with
the fractions: a pod that is split over two nodes of a zone is in that zone for sure.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.placement.cluster.kinds import (
    CPU,
    MEMORY,
    PODS,
    SCORED_CPU,
    SCORED_MEMORY,
    Group,
    Kind,
    PodKinds,
    requests_of,
)
from rebalancer.placement.cluster.nodes import EPS, NodeTable
from rebalancer.placement.cluster.taints import seen_cordons, seen_taints

MOST_TALLIES = 512
"""Size of the cache of tallies, least recently used first out; at 5,000 nodes a tally takes 120 kB."""

_Change = tuple[Rows, float, float, Floats | None]
"""Nodes, and what one pod of a kind adds there: of `held` and of `staying` of a tally, and (nodes,) of `booked`."""


@dataclass(slots=True)
class Tally:
    """Pods of a group, counted over nodes."""

    weights: Mapping[int, float]
    """Number of a kind -> amount that one pod of it adds."""
    held: Floats
    """(nodes,) of pods that are there for sure, terminating ones included."""
    staying: Floats
    """(nodes,) the same without terminating pods."""
    booked: Floats
    """(nodes,) of fractional bookings."""

    def with_landed(self, landed: "Landed") -> "Tally":
        """The same with these pods."""
        held, staying = self.held.copy(), self.staying.copy()
        held[landed.nodes] += landed.amounts
        staying[landed.nodes] += landed.amounts
        return Tally(self.weights, held, staying, self.booked)


class Landed(NamedTuple):
    """Pods of a group that have landed."""

    group: Group
    nodes: Rows
    """No repeats."""
    amounts: Floats
    """(nodes of it,) what they count."""


class _Shifted(NamedTuple):
    """State before one change, for `tentatively`: the kind's number, the nodes, and their values."""

    number: int
    nodes: Rows
    rows: tuple[Floats, Floats, Floats]
    """Of `held`, `booked` and `whole`."""
    tallies: list[tuple[Tally, Floats, Floats, Floats]]


class Board:
    """The scheduler's cache over a snapshot. Not thread-safe."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        *,
        soft_tainted: Bools | None = None,
        cordoned: Bools | None = None,
        steering_taint: Taint | None = None,
    ) -> None:
        """`soft_tainted` and `cordoned` (nodes,): nodes with our soft taint and our cordon, instead of those in the
        snapshot; None = as in the snapshot. Cordons of others stay."""
        self.snapshot = snapshot
        self.nodes = NodeTable(snapshot.nodes)
        self._steering_taint = steering_taint or Taint(key=SOFT_TAINT, effect="PreferNoSchedule")
        self._look(soft_tainted, cordoned)
        self.version = 0
        """Changes with every change of the board."""
        self._stamps = count(1)
        self.changes = 0
        """Number of changes of requests or ports; see `changed_since`."""
        self._changed_at: Rows = np.zeros(len(snapshot.nodes), dtype=np.int64)
        """(nodes,) `changes` at the last change of the row."""
        self.kinds = PodKinds(snapshot)
        size = len(snapshot.nodes)
        self.held: Floats = np.column_stack([snapshot.per_node(column) for column in requests_of(snapshot.pods)])
        """(nodes, 5) of pods that are there for sure. One that can't be read holds all that its node has."""
        _fill(self.held, snapshot)
        self._held_at_first = self.held.copy()
        self.booked: Floats = np.zeros((size, 5))
        """(nodes, 5) of fractional bookings."""
        self.whole: Floats = np.zeros(size)
        """(nodes,) share of the fractional bookings that counts as whole pods."""
        self.counted: Floats = self.held.T.copy()
        """(5, nodes) pods that are there for sure, and whole pods of the bookings."""
        self._tallies: dict[object, Tally] = {}
        self._counting: dict[int, list[Tally]] = {}
        """Number of a kind -> the tallies that count it."""
        self._changes: dict[int, list[_Change]] = {}
        self._undo: list[_Shifted] | None = None
        """Changes inside `tentatively`; None outside it."""
        self._landed: Mapping[object, Landed] = {}
        """Key of a group -> its pods that have landed, inside `seen_with`."""

    def _look(self, soft_tainted: Bools | None, cordoned: Bools | None) -> None:
        self.taints = list(seen_taints(self.snapshot, soft_tainted, cordoned, self._steering_taint))
        """(nodes,) as the scheduler sees them."""
        self.unschedulable: Bools = seen_cordons(self.snapshot, cordoned)
        """(nodes,) as the scheduler sees them."""

    def start_over(self, *, soft_tainted: Bools | None = None, cordoned: Bools | None = None) -> None:
        """Undo every change since the snapshot; the board equals a new one with these arguments, to the last bit."""
        assert self._undo is None
        self._look(soft_tainted, cordoned)
        changed = {number for number, changes in self._changes.items() if changes}
        rows = np.flatnonzero(self._changed_at)
        self.held[rows], self.booked[rows], self.whole[rows] = self._held_at_first[rows], 0.0, 0.0
        self._recount(rows)
        self._changes.clear()
        # tallies of changed kinds are counted again when needed
        self._tallies = {key: each for key, each in self._tallies.items() if changed.isdisjoint(each.weights)}
        self._counting.clear()
        for tally in self._tallies.values():
            for kind in tally.weights:
                self._counting.setdefault(kind, []).append(tally)
        self.touch()

    def tally(self, group: Group) -> Tally:
        """The group counted over nodes, kept up to date."""
        tally = self._tallies.get(group.key)
        if tally is None:
            if len(self._tallies) >= MOST_TALLIES:
                self._forget(next(iter(self._tallies)))
            tally = self._tallies[group.key] = self._count(group.weights)
            for kind in group.weights:
                self._counting.setdefault(kind, []).append(tally)
        else:
            self._tallies[group.key] = self._tallies.pop(group.key)
        landed = self._landed.get(group.key)
        return tally if landed is None else tally.with_landed(landed)

    def _count(self, weights: Mapping[int, float]) -> Tally:
        size = len(self.nodes)
        tally = Tally(weights, *self.kinds.over_nodes(weights, size), np.zeros(size))
        for kind in weights:
            for change in self._changes.get(kind, ()):
                _apply(tally, weights[kind], *change)
        return tally

    def present(self, tally: Tally) -> Floats:
        """(nodes,) pods that are there for sure, and whole pods of the bookings."""
        total: Floats = tally.held + tally.booked * self.whole
        return total

    def present_staying(self, tally: Tally) -> Floats:
        """(nodes,) the same without terminating pods."""
        total: Floats = tally.staying + tally.booked * self.whole
        return total

    # ---- changes

    def put(self, kind: Kind, nodes: Rows, shares: Floats) -> None:
        """One pod lands on `nodes` (no repeats) with these probabilities (sum 1)."""
        if len(nodes) == 1 and shares[0] >= 1.0 - EPS:
            self._shift(self.kinds.number_of(kind), nodes, 1.0, 1.0, None)
        else:
            self._shift(self.kinds.number_of(kind), nodes, 0.0, 0.0, shares)

    def take_out(self, kind: Kind, node: int, *, terminating: bool = False) -> None:
        """Remove one pod of this kind from `node`; `terminating`: one that was terminating already."""
        self._shift(self.kinds.number_of(kind), np.array([node]), -1.0, 0.0 if terminating else -1.0, None)

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end every change made inside, to the last bit."""
        assert self._undo is None
        self._undo = []
        tallies = dict(self._tallies)
        try:
            yield
        finally:
            shifted, self._undo = self._undo, None
            changed = {each.number for each in shifted}
            # a tally counted inside includes the changes
            for key in [key for key, tally in self._tallies.items() if tally is not tallies.get(key)]:
                if not changed.isdisjoint(self._tallies[key].weights):
                    self._forget(key)
            for each in reversed(shifted):
                self.held[each.nodes], self.booked[each.nodes], self.whole[each.nodes] = each.rows
                for tally, held, staying, booked in each.tallies:
                    tally.held[each.nodes], tally.staying[each.nodes], tally.booked[each.nodes] = held, staying, booked
                self._changes[each.number].pop()
                self._recount(each.nodes)
            self.touch()

    def stamp(self) -> int:
        """A new value of `changes`, for a change that is counted outside the board."""
        self.changes += 1
        self.touch()
        return self.changes

    def touch(self) -> None:
        """Mark the board as changed."""
        self.version = next(self._stamps)

    def steer(self, nodes: Sequence[int], *, away: bool = True) -> None:
        """See these nodes with our soft taint from now on, or without it."""
        for node in nodes:
            others = tuple(each for each in self.taints[node] if each.key != SOFT_TAINT)
            self.taints[node] = (*others, self._steering_taint) if away else others
        self.touch()

    @contextmanager
    def seen_without(self, kind: Kind, node: int, *, terminating: bool = False) -> Iterator[None]:
        """Inside, one pod of this kind is gone from `node`, or with `terminating` is terminating there."""
        number, row, version = self.kinds.number_of(kind), np.array([node]), self.version
        before, held = self.held[node].copy(), 0.0 if terminating else 1.0
        self._shift(number, row, -held, -1.0, None)
        try:
            yield
        finally:
            self._shift(number, row, held, 1.0, None)
            if held:
                self.held[node] = before
                self._recount(row)
            del self._changes[number][-2:]
            if self._undo is not None:
                del self._undo[-2:]
            self.version = version

    @contextmanager
    def seen_with(self, landed: Sequence[Landed], ranked: Rows) -> Iterator[None]:
        """Inside, these pods have landed, for everything but plain requests: one entry for each group. `ranked`: nodes
        on which they hold ports or extended resources."""
        version = self.version
        self._landed = {each.group.key: each for each in landed}
        self._mark(ranked)
        self.touch()
        try:
            yield
        finally:
            self._landed = {}
            self._mark(ranked)
            self.version = version

    def _enter(self, number: int, change: _Change) -> None:
        for tally in self._counting.get(number, ()):
            _apply(tally, tally.weights[number], *change)
        self._changes.setdefault(number, []).append(change)

    def _shift(self, number: int, nodes: Rows, held: float, staying: float, shares: Floats | None) -> None:
        demand = self.kinds.demand[number]
        if self._undo is not None:
            self._undo.append(self._as_is(number, nodes))
        if held:
            self.held[nodes] += held * demand
        if shares is not None:
            booked = self.booked.take(nodes, axis=0) + shares[:, None] * demand
            self.booked[nodes] = booked
            self.whole[nodes] = np.floor(booked[:, PODS] + EPS) / np.maximum(booked[:, PODS], EPS)
        if held or shares is not None:
            self._recount(nodes)
        self._enter(number, (nodes, held, staying, shares))
        self.touch()

    def _as_is(self, number: int, nodes: Rows) -> _Shifted:
        tallies = [
            (tally, tally.held[nodes], tally.staying[nodes], tally.booked[nodes])
            for tally in self._counting.get(number, ())
        ]
        return _Shifted(number, nodes, (self.held[nodes], self.booked[nodes], self.whole[nodes]), tallies)

    def _forget(self, key: object) -> None:
        """Drop a tally; it is counted again when needed."""
        dropped = self._tallies.pop(key)
        for kind in dropped.weights:
            self._counting[kind] = [each for each in self._counting[kind] if each is not dropped]

    def _recount(self, nodes: Rows) -> None:
        held, booked = self.held.take(nodes, axis=0), self.booked.take(nodes, axis=0)
        self.counted[:, nodes] = np.ascontiguousarray((held + booked * self.whole.take(nodes)[:, None]).T)
        self._mark(nodes)

    def _mark(self, nodes: Rows) -> None:
        if len(nodes):
            self.changes += 1
            self._changed_at[nodes] = self.changes

    def changed_at(self, nodes: Rows) -> Rows:
        """`changes` at the last change of each of these nodes."""
        stamps: Rows = self._changed_at[nodes]
        return stamps

    def changed_since(self, seen: int) -> Rows | slice | None:
        """The rows whose requests or ports changed after `changes` was `seen`; None for none, a full slice for most."""
        if seen == self.changes:
            return None
        rows = np.flatnonzero(self._changed_at > seen)
        return slice(None) if 2 * len(rows) > len(self.nodes) else rows


def _fill(held: Floats, snapshot: ClusterSnapshot) -> None:
    """Count the whole of a node (nodes, 5) on which a pod that can't be read runs: only what requests nothing fits."""
    nodes, there = snapshot.nodes, snapshot.active & snapshot.pods.unreadable
    rows = np.unique(snapshot.pods.node[there])
    for column, whole in (
        (CPU, nodes.cpu_allocatable_millicores),
        (MEMORY, nodes.memory_allocatable_bytes),
        (SCORED_CPU, nodes.cpu_allocatable_millicores),
        (SCORED_MEMORY, nodes.memory_allocatable_bytes),
    ):
        held[rows, column] = np.maximum(held[rows, column], whole[rows])


def _apply(tally: Tally, weight: float, nodes: Rows, held: float, staying: float, shares: Floats | None) -> None:
    tally.held[nodes] += held * weight
    tally.staying[nodes] += staying * weight
    if shares is not None:
        tally.booked[nodes] += shares * weight
