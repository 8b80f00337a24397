"""NodeResourcesFit, NodeResourcesBalancedAllocation and NodePorts: a pod's requests against a node's free resources.

Source: Kubernetes v1.36, plugins/noderesources (`fit.go`, `resource_allocation.go`, `balanced_allocation.go`) and
plugins/nodeports. Pods with the same requests share one `Requests`; only changed nodes are ranked again.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.scheduler import SchedulerProfile
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import (
    CPU,
    MEMORY,
    POD_COUNT,
    PODS,
    SCORED_CPU,
    SCORED_MEMORY,
    Counted,
    Group,
    Kind,
)
from rebalancer.placement.cluster.nodes import EPS
from rebalancer.placement.draws.draws import Draws, grown
from rebalancer.placement.plugins.resources import MAX_SCORE, balance, balanced_allocation, fit_score

ANY_IP = "0.0.0.0"
PLAIN = {"cpu": (CPU, SCORED_CPU), "memory": (MEMORY, SCORED_MEMORY)}
PLAIN_NAMES = tuple(PLAIN)
REAL, SCORED = slice(CPU, MEMORY + 1), slice(SCORED_CPU, SCORED_MEMORY + 1)
"""Rows of `Board.counted`."""
NOT_SCALAR = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources that are scored even if the pod doesn't request them."""
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"

ALL = slice(None)


class More(NamedTuple):
    """What is requested besides, of each row of a ranking."""

    plain: Floats
    """(rows, 5) in the columns of `Board.held`."""
    groups: Mapping[object, Floats]
    """Key of a group of `Requests.matters` -> (rows,) of an extended resource, or holders of a port."""


Port = tuple[str, int, str]


class Supply:
    """Allocatable resources of nodes, and the pods that request them."""

    def __init__(self, board: Board) -> None:
        self._board = board
        nodes = board.snapshot.nodes
        self.plain: Floats = np.array([nodes.cpu_allocatable_millicores, nodes.memory_allocatable_bytes])
        """(2, nodes)"""
        self.pods: Floats = nodes.pods_allocatable
        self._extended: dict[str, Floats] = {}
        self._balance = balance(board.counted[REAL].T, self.plain.T)
        self._seen = board.changes

    def balance(self) -> Floats:
        """(nodes,) balance of CPU and memory as requested now, the same for pods of every kind."""
        rows = self._board.changed_since(self._seen)
        if rows is not None:
            self._seen = self._board.changes
            self._balance[rows] = balance(at(self._board.counted[REAL], rows).T, at(self.plain, rows).T)
        return self._balance

    def of(self, resource: str) -> Floats:
        """(nodes,) allocatable."""
        if resource in PLAIN:
            row: Floats = self.plain[PLAIN[resource][0]]
            return row
        held = self._extended.get(resource)
        if held is None:
            nodes = self._board.snapshot.nodes
            held = np.fromiter((each.get(resource, 0.0) for each in nodes.extended), float, len(nodes))
            self._extended[resource] = held
        return held

    def asking(self, resource: str) -> Group:
        """Kinds that request an extended resource, weighted by the amount."""
        return self._board.kinds.grouped(
            ("extended", resource), lambda _, template: template.extended_requests.get(resource, 0.0)
        )

    def holding(self, port: Port) -> Group:
        """Kinds in conflict with a host port; every address is in conflict with 0.0.0.0."""

        def conflicts(_: Kind, template: PodTemplate) -> float:
            return float(any(in_conflict(port, each) for each in template.host_ports))

        return self._board.kinds.grouped(("port", port), conflicts)


def in_conflict(one: Port, other: Port) -> bool:
    """Whether two host ports (protocol, port, IP) can't be on the same node."""
    same_ip = one[2] == other[2] or ANY_IP in (one[2] or ANY_IP, other[2] or ANY_IP)
    return one[:2] == other[:2] and same_ip


class Requests:
    """Fit and scores of pods with the same requests and host ports, updated row by row."""

    def __init__(
        self, board: Board, supply: Supply, profile: SchedulerProfile, demand: Floats, template: PodTemplate
    ) -> None:
        self._board, self._supply, self._profile = board, supply, profile
        self._demand = demand
        self._extended = {name: amount for name, amount in template.extended_requests.items() if amount}
        self._ports = template.host_ports
        self._checks_fit = "NodeResourcesFit" in profile.filters
        self._checks_ports = "NodePorts" in profile.filters
        self._scores_fit = bool(profile.weights.get("NodeResourcesFit"))
        self._wanted = demand[[CPU, MEMORY]]
        self._on_arrival = dict(
            zip(PLAIN, template.scored_on_arrival or demand[[SCORED_CPU, SCORED_MEMORY]], strict=True)
        )
        self.balances = bool(profile.weights.get("NodeResourcesBalancedAllocation")) and any(
            self._amount(name, scored=False) for name, _ in profile.balanced_resources
        )
        self.fits, self.points = self._rank(ALL)
        """(nodes,) whether it passes the filters; weighted sum of NodeResourcesFit and BalancedAllocation."""
        self._seen = board.changes
        self._share: float | None = None
        self._draws: Draws | None = None
        self._slot_fits: Bools = np.zeros(0, dtype=np.bool_)
        self._slot_points: Floats = np.zeros(0)
        self._slots_seen: Rows = np.zeros(0, dtype=np.int64)
        """(slots,) `Board.changes` when each was ranked; 0 = not yet."""

    def refresh(self) -> None:
        """Rank the rows that have changed."""
        rows = self._board.changed_since(self._seen)
        if rows is None:
            return
        self._seen = self._board.changes
        if isinstance(rows, slice):
            self.fits, self.points = self._rank(rows)
        else:
            self.fits[rows], self.points[rows] = self._rank(rows)

    def fits_on(self, node: int) -> bool:
        """Whether it fits on one node now."""
        row = np.array([node])
        return bool(self._fits(row)[0] & self._ports_free(row)[0])

    @property
    def matters(self) -> list[Counted]:
        """Pods that matter to it by more than plain requests."""
        asking, holding = self._supply.asking, self._supply.holding
        return [*map(Counted, map(asking, self._extended)), *map(Counted, map(holding, self._ports))]

    @property
    def most_gain(self) -> float:
        """The most points that a node may gain by what lands there."""
        weights = self._profile.weights
        gain = MAX_SCORE * weights.get("NodeResourcesFit", 0) if self._profile.fit_strategy != "LeastAllocated" else 0.0
        if not self.balances:
            return gain
        if self._share is None:
            # the pod changes the balance by its own share of a node at most, rounded
            plain = _names(self._profile.balanced_resources) == PLAIN_NAMES
            least = self._supply.plain.min(axis=1, where=self._supply.plain > 0, initial=np.inf)
            share = float((self._wanted / least).max()) if plain else 1.0
            self._share = min(share, 0.5)
        return gain + (MAX_SCORE * self._share + 1.0) * weights["NodeResourcesBalancedAllocation"]

    def with_draws(self, draws: Draws, slots: Rows) -> tuple[Bools, Floats]:
        """(slots,) whether it fits on the slot's node with what landed there in the slot's draw, and its weighted
        points."""
        board, size = self._board, draws.size
        if self._draws is not draws:
            self._draws = draws
            self._slots_seen[:] = 0
        self._slot_fits, self._slot_points = grown(self._slot_fits, size), grown(self._slot_points, size)
        self._slots_seen = grown(self._slots_seen, size)
        nodes = draws.node[slots]
        changed = np.maximum(draws.stamp[slots], board.changed_at(nodes)) > self._slots_seen[slots]
        if changed.any():
            stale, rows = slots[changed], nodes[changed]
            groups = {
                each.group.key: draws.counts(each.group.key, each.group.weights).at(draws.draw[stale], rows)
                for each in self.matters
                if not each.group.weights.keys().isdisjoint(draws.kinds)
            }
            self._slot_fits[stale], self._slot_points[stale] = self._rank(rows, More(draws.requests[stale], groups))
            self._slots_seen[stale] = board.changes
        return self._slot_fits[slots], self._slot_points[slots]

    def fit_points(self) -> tuple[Floats, Floats]:
        """(nodes,) NodeResourcesFit, raw and normalised, which is the same."""
        points = self._fit_points(ALL)
        return points, points

    def balance_points(self) -> tuple[Floats, Floats]:
        """(nodes,) the same of NodeResourcesBalancedAllocation."""
        points = self._balance_points(ALL)
        return points, points

    # ---- rows

    def _rank(self, rows: Rows | slice, more: More | None = None) -> tuple[Bools, Floats]:
        """(rows,) `fits` and `points`; `more` is requested there too."""
        fits = self._fits(rows, more)
        if self._ports:
            fits &= self._ports_free(rows, more)
        points = self._fit_points(rows, more) * self._profile.weights.get("NodeResourcesFit", 0)
        if self.balances:
            points += self._balance_points(rows, more) * self._profile.weights["NodeResourcesBalancedAllocation"]
        return fits, points

    def lacking_on(self, node: int) -> dict[str, float]:
        """Resource that it requests -> how much is missing on the node; `pods` is one of them."""
        row, supply = np.array([node]), self._supply
        counted = self._board.counted
        out = {POD_COUNT: float(counted[PODS, node] + 1.0 - supply.pods[node])}
        for name, (column, _) in PLAIN.items():
            if (amount := float(self._wanted[column])) > 0:
                out[name] = float(counted[column, node] + amount - supply.plain[column, node])
        for name, amount in self._extended.items():
            out[name] = float(self._held(supply.asking(name), row, None)[0] + amount - supply.of(name)[node])
        return out

    def lacking(self) -> list[tuple[str, Bools, str]]:
        """Each filter with (nodes,) where the pod passes and its message, for explanations."""
        checks = [("NodePorts", self._ports_free(ALL), NO_PORTS)]
        if self._checks_fit:
            for words, short in self._shortages(ALL):
                checks.append(("NodeResourcesFit", ~short, words))
        return checks

    def _fits(self, rows: Rows | slice, more: More | None = None) -> Bools:
        short = np.zeros(len(self._supply.pods[rows]), dtype=np.bool_)
        if self._checks_fit:
            for _, each in self._shortages(rows, more):
                short |= each
        return ~short

    def _shortages(self, rows: Rows | slice, more: More | None = None) -> list[tuple[str, Bools]]:
        """Message and (rows,) where there is too little of a requested resource."""
        board, supply = self._board, self._supply

        def short(there: Floats, amount: float, allocatable: Floats) -> Bools:
            over: Bools = there + amount > allocatable + EPS
            return over

        def there(column: int) -> Floats:
            held = at(board.counted[column], rows)
            return held if more is None else held + more.plain[:, column]

        out = [("Too many pods", short(there(PODS), 1.0, supply.pods[rows]))]
        for name, (column, _) in PLAIN.items():
            if (amount := float(self._wanted[column])) > 0:
                out.append((f"Insufficient {name}", short(there(column), amount, at(supply.plain[column], rows))))
        for name, amount in self._extended.items():
            held = self._held(supply.asking(name), rows, more)
            out.append((f"Insufficient {name}", short(held, amount, supply.of(name)[rows])))
        return out

    def _held(self, group: Group, rows: Rows | slice, more: More | None, *, whole: bool = True) -> Floats:
        """(rows,) what a group holds; of bookings what counts as whole pods, or all."""
        tally = self._board.tally(group)
        booked = tally.booked[rows]
        held: Floats = tally.held[rows] + (booked * self._board.whole[rows] if whole else booked)
        return held if more is None or group.key not in more.groups else held + more.groups[group.key]

    def _ports_free(self, rows: Rows | slice, more: More | None = None) -> Bools:
        free = np.ones(len(self._supply.pods[rows]), dtype=np.bool_)
        if self._checks_ports:
            for port in self._ports:
                free &= self._held(self._supply.holding(port), rows, more) <= EPS
        return free

    def _fit_points(self, rows: Rows | slice, more: More | None = None) -> Floats:
        if not self._scores_fit:
            return np.zeros(len(self._supply.pods[rows]))
        before, pod, allocatable = self._columns(rows, self._profile.fit_resources, more, scored=True)
        return fit_score(self._profile, before + pod, allocatable)

    def _balance_points(self, rows: Rows | slice, more: More | None = None) -> Floats:
        if not self.balances:
            return np.zeros(len(self._supply.pods[rows]))
        resources = self._profile.balanced_resources
        before, pod, allocatable = self._columns(rows, resources, more, scored=False)
        known = self._supply.balance()[rows] if more is None and _names(resources) == PLAIN_NAMES else None
        return balanced_allocation(before, pod, allocatable, balance_before=known)

    def _columns(
        self, rows: Rows | slice, resources: tuple[tuple[str, int], ...], more: More | None, *, scored: bool
    ) -> tuple[Floats, Floats, Floats]:
        """(rows, resources) requested without the pod, (resources,) the pod's, (rows, resources) allocatable.

        An extended resource that the pod doesn't request isn't counted: its allocatable amount is 0.
        """
        board = self._board
        pod = np.array([self._amount(name, scored=scored) for name, _ in resources])
        if _names(resources) == PLAIN_NAMES:
            columns = SCORED if scored else REAL
            before, allocatable = at(board.counted[columns], rows).T, at(self._supply.plain, rows).T
            return before if more is None else before + more.plain[:, columns], pod, allocatable
        size = len(self._supply.pods[rows])
        before, allocatable = np.zeros((size, len(resources))), np.zeros((size, len(resources)))
        for index, (name, _) in enumerate(resources):
            if name in PLAIN:
                column = PLAIN[name][scored]
                before[:, index] = board.counted[column, rows]
                if more is not None:
                    before[:, index] += more.plain[:, column]
            elif pod[index] or name in NOT_SCALAR:
                before[:, index] = self._held(self._supply.asking(name), rows, more, whole=False)
            else:
                continue
            allocatable[:, index] = self._supply.of(name)[rows]
        return before, pod, allocatable

    def _amount(self, name: str, *, scored: bool) -> float:
        """What one incoming pod counts."""
        return float(self._on_arrival[name]) if scored and name in PLAIN else self._counted(name, scored=scored)

    def _counted(self, name: str, *, scored: bool) -> float:
        """What one scheduled pod counts on its node."""
        if name in PLAIN:
            return float(self._demand[PLAIN[name][scored]])
        return self._extended.get(name, 0.0)


def at(columns: Floats, rows: Rows | slice) -> Floats:
    """(..., rows) of (..., nodes); quicker than indexing for few rows of several columns."""
    return columns[..., rows] if isinstance(rows, slice) else columns.take(rows, axis=-1)


def _names(resources: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    return tuple(name for name, _ in resources)
