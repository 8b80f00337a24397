"""kube-scheduler's cache as columns over nodes: which pods are where, and what they request.

A kind of pods is everything that the scheduler reads of a pod. A pod whose target node is not certain is booked as
fractions over its possible nodes. Only whole pods are counted: on each node floor(s)/s of all fractions booked there,
where s is the sum of their probabilities. So after one pod booked half on each of two equal nodes, the next equal pod
is again equally likely on both; with one whole pod booked on each, both count as taken. Half a pod counted on each
would make both score worse than a third node that in truth comes after them. Domains larger than a node are scored with
the fractions: a pod that is split over two nodes of a zone is in that zone for sure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.columns import Ints
from rebalancer.model.cluster.match import pairs_of, selector_matches
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate, Taint
from rebalancer.model.cluster.pods import Pods
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.placement.nodes import EPS, Bools, Floats, NodeTable, Rows, seen_cordons, seen_taints

CPU, MEMORY, SCORED_CPU, SCORED_MEMORY, PODS = range(5)
"""Columns of `Board.held`, `Board.booked` and `Board.demand`."""

MOST_TALLIES = 512
"""Size of the cache of tallies, least recently used first out; at 5,000 nodes a tally takes 120 kB."""

MANY_KINDS = 64


Spaces = frozenset[int] | None
"""Indices of namespaces; None = all."""


class Kind(NamedTuple):
    """Everything that the scheduler reads of a pod: pods of one kind are interchangeable."""

    template: int
    namespace: int
    owner: int
    """Index of its direct controlling owner, for default spreading; -1 = none."""


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


class _Shifted(NamedTuple):
    """State before one change, for `tentatively`: the kind's number, the nodes, and their values."""

    number: int
    nodes: Rows
    rows: tuple[Floats, Floats, Floats]
    """Of `held`, `booked` and `whole`."""
    tallies: list[tuple[Tally, Floats, Floats, Floats]]


@dataclass(frozen=True, slots=True)
class Group:
    """A set of kinds with weights; `key` is that of its tally."""

    key: object
    weights: Mapping[int, float]


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
        self._intern_kinds()
        size = len(snapshot.nodes)
        self.held: Floats = np.column_stack([snapshot.per_node(column) for column in _requests(snapshot.pods)])
        """(nodes, 5) of pods that are there for sure."""
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
        self._selected: dict[object, Group] = {}
        self._changes: dict[int, list[tuple[Rows, float, float, Floats | None]]] = {}
        self._undo: list[_Shifted] | None = None
        """Changes inside `tentatively`; None outside it."""

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

    # ---- kinds

    def _intern_kinds(self) -> None:
        pods, snapshot = self.snapshot.pods, self.snapshot
        owners, templates = len(snapshot.owners) + 1, max(len(snapshot.pod_templates), 1)
        codes = (pods.namespace.astype(np.int64) * owners + (pods.owner + 1)) * templates + pods.template
        _, first, number = np.unique(codes, return_index=True, return_inverse=True)
        self._templates, self._owners = pods.template[first], pods.owner[first]
        self.kinds = list(map(Kind, self._templates.tolist(), pods.namespace[first].tolist(), self._owners.tolist()))
        """In ascending order."""
        self._kind_of_pod = number.reshape(-1)
        self.demand: Floats = np.column_stack([column[first] for column in _requests(pods)])
        """(kinds, 5) requests of one pod of a kind."""
        active = np.flatnonzero(snapshot.active)
        # numpy sorts integers of 16 bits ten times as fast
        small = self._kind_of_pod[active].astype(np.min_scalar_type(len(self.kinds)))
        active = active[np.argsort(small, kind="stable")]
        self._active = active
        self._active_kind = self._kind_of_pod[active]
        self._active_node = pods.node[active].astype(np.int64)
        self._active_stays = (~pods.terminating[active]).astype(np.float64)
        self._starts = np.searchsorted(self._active_kind, np.arange(len(self.kinds) + 1)).tolist()

    @cached_property
    def _number(self) -> Mapping[Kind, int]:
        return {kind: index for index, kind in enumerate(self.kinds)}

    @cached_property
    def _kinds_of_template(self) -> Mapping[int, list[int]]:
        return _numbered(self._templates)

    @cached_property
    def _kinds_of_owner(self) -> Mapping[int, list[int]]:
        return _numbered(self._owners)

    @cached_property
    def affinities(self) -> Mapping[bytes, list[int]]:
        """Affinity, as in `PodTemplateOutline` -> numbers of its kinds, ascending."""
        return {
            text: self._kinds_of(templates) for text, templates in self.snapshot.pod_templates.index.affinities.items()
        }

    @cached_property
    def spreading(self) -> list[int]:
        """Numbers of the kinds with topology spread constraints of their own, ascending."""
        return self._kinds_of(self.snapshot.pod_templates.index.spreading)

    def _kinds_of(self, templates: Iterable[int]) -> list[int]:
        kinds = self._kinds_of_template
        return sorted(number for template in templates for number in kinds.get(template, ()))

    def kind_of(self, pod: int) -> Kind:
        """The kind of one of the snapshot's pods."""
        return self.kinds[int(self._kind_of_pod[pod])]

    def numbers_of(self, pods: Rows) -> Rows:
        """Indices in `kinds` of the kinds of these pods."""
        numbers: Rows = self._kind_of_pod[pods]
        return numbers

    def active_by_kind(self, chosen: Bools) -> tuple[Rows, list[int]]:
        """The snapshot's active pods among `chosen` (pods,) by kind, those of a kind in the snapshot's order; and
        (kinds + 1,) the position at which each kind begins."""
        kept = chosen[self._active]
        starts = np.concatenate([[0], np.cumsum(kept)])[self._starts]
        return self._active[kept], starts.tolist()

    def number_of(self, kind: Kind) -> int:
        """Index of a kind in `kinds` and `demand`."""
        return self._number[kind]

    def template_of(self, kind: Kind) -> PodTemplate:
        """The template of a kind."""
        return self.snapshot.pod_templates[kind.template]

    # ---- groups of kinds

    def selected(self, selectors: tuple[LabelSelector | None, ...], namespaces: tuple[Spaces, ...]) -> Group:
        """The kinds that every selector selects, each within its namespaces (None = all)."""
        key = ("selected", tuple(map(_content, selectors)), namespaces)
        group = self._selected.get(key)
        if group is None:
            members: set[int] | None = None
            for selector, spaces in zip(selectors, namespaces, strict=True):
                found = self._matching(selector, spaces)
                members = found if members is None else members & found
            group = self._selected[key] = Group(key, dict.fromkeys(sorted(members or ()), 1.0))
        return group

    def _matching(self, selector: LabelSelector | None, namespaces: Spaces) -> set[int]:
        if selector is None:
            return set()
        return {
            kind
            for template in self._candidates(selector)
            if selector_matches(selector, self.snapshot.pod_templates[template].labels)
            for kind in self._kinds_of_template.get(template, ())
            if namespaces is None or self.kinds[kind].namespace in namespaces
        }

    def _candidates(self, selector: LabelSelector) -> Iterable[int]:
        """Templates that may match: those with the rarest label pair that the selector requires."""
        pairs = pairs_of(selector)
        if not pairs:
            return self._kinds_of_template
        found: list[int] = min(map(self.snapshot.pod_templates.index.may_have, pairs), key=len).tolist()
        return found

    def owned_by(self, owner: int) -> Group:
        """The kinds of one direct controlling owner."""
        key = ("owner", owner)
        group = self._selected.get(key)
        if group is None:
            group = self._selected[key] = Group(key, dict.fromkeys(self._kinds_of_owner.get(owner, ()), 1.0))
        return group

    def grouped(self, key: object, weight_of: Callable[[Kind, PodTemplate], float]) -> Group:
        """The kinds with a weight other than 0; `weight_of` is called once for each kind."""
        group = self._selected.get(key)
        if group is None:
            weights = {}
            for number, kind in enumerate(self.kinds):
                if weight := weight_of(kind, self.snapshot.pod_templates[kind.template]):
                    weights[number] = weight
            group = self._selected[key] = Group(key, weights)
        return group

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
        return tally

    def _count(self, weights: Mapping[int, float]) -> Tally:
        size = len(self.nodes)
        if len(weights) > MANY_KINDS:
            by_kind = np.zeros(len(self.kinds))
            by_kind[list(weights)] = list(weights.values())
            nodes, values, stays = self._active_node, by_kind[self._active_kind], self._active_stays
        else:
            starts = self._starts
            slices = [slice(starts[kind], starts[kind + 1]) for kind in weights] or [slice(0, 0)]
            if len(slices) == 1:
                nodes, stays = self._active_node[slices[0]], self._active_stays[slices[0]]
                values = np.full(len(nodes), next(iter(weights.values()), 0.0))
            else:
                nodes = np.concatenate([self._active_node[each] for each in slices])
                stays = np.concatenate([self._active_stays[each] for each in slices])
                values = np.repeat(list(weights.values()), [each.stop - each.start for each in slices])
        # the sum of no rows has integer type
        held = np.bincount(nodes, weights=values, minlength=size).astype(np.float64, copy=False)
        staying = held.copy()
        if not stays.all():
            staying -= np.bincount(nodes, weights=values * (1.0 - stays), minlength=size)
        tally = Tally(weights=weights, held=held, staying=staying, booked=np.zeros(size))
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
            self._shift(self._number[kind], nodes, 1.0, 1.0, None)
        else:
            self._shift(self._number[kind], nodes, 0.0, 0.0, shares)

    def take_out(self, kind: Kind, node: int, *, terminating: bool = False) -> None:
        """Remove one pod of this kind from `node`; `terminating`: one that was terminating already."""
        self._shift(self._number[kind], np.array([node]), -1.0, 0.0 if terminating else -1.0, None)

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
        self.version = next(self._stamps)

    @contextmanager
    def seen_without(self, kind: Kind, node: int, *, terminating: bool = False) -> Iterator[None]:
        """Inside, one pod of this kind is gone from `node`, or with `terminating` is terminating there."""
        number, row, version = self._number[kind], np.array([node]), self.version
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
    def seen_with(self, landed: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Inside, pods of these kinds (numbers) have landed on these nodes, for everything but plain requests."""
        version = self.version
        rows = np.array([node for _, node in landed], dtype=np.int64)
        for number, node in landed:
            self._tell(number, np.array([node]), 1.0)
        self._recount(rows)
        self.version = next(self._stamps)
        try:
            yield
        finally:
            for number, node in reversed(landed):
                self._tell(number, np.array([node]), -1.0)
                del self._changes[number][-2:]
            self._recount(rows)
            self.version = version

    def _tell(self, number: int, node: Rows, count: float) -> None:
        change = (node, count, count, None)
        for tally in self._counting.get(number, ()):
            _apply(tally, tally.weights[number], *change)
        self._changes.setdefault(number, []).append(change)

    def _shift(self, number: int, nodes: Rows, held: float, staying: float, shares: Floats | None) -> None:
        demand = self.demand[number]
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
        change = (nodes, held, staying, shares)
        for tally in self._counting.get(number, ()):
            _apply(tally, tally.weights[number], *change)
        self._changes.setdefault(number, []).append(change)
        self.version = next(self._stamps)

    def _as_is(self, number: int, nodes: Rows) -> "_Shifted":
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


def _requests(pods: Pods) -> tuple[Floats, ...]:
    """Each (pods,), in the order of the columns of `Board.held`."""
    return (
        pods.cpu_request_millicores,
        pods.memory_request_bytes,
        pods.cpu_scored_millicores,
        pods.memory_scored_bytes,
        np.ones(len(pods)),
    )


def _numbered(column: Ints) -> dict[int, list[int]]:
    """Value -> its rows, ascending."""
    out: dict[int, list[int]] = {}
    for row, value in enumerate(column.tolist()):
        out.setdefault(value, []).append(row)
    return out


def _content(selector: LabelSelector | None) -> object:
    """A selector in a hashable form."""
    return None if selector is None else (tuple(selector.match_labels.items()), selector.match_expressions)


def _apply(tally: Tally, weight: float, nodes: Rows, held: float, staying: float, shares: Floats | None) -> None:
    tally.held[nodes] += held * weight
    tally.staying[nodes] += staying * weight
    if shares is not None:
        tally.booked[nodes] += shares * weight
