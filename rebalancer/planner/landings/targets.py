"""Headroom under the targets: the load that each node may still take and stay at or under its target.

Certain landings are counted on their nodes. Landings that differ between the draws are counted in each draw's slot
(`placement.draws`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from rebalancer.model.decisions.plan import Loads
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.placement.draws.draws import Draws
from rebalancer.placement.landing.landing import Placed
from rebalancer.placement.landing.pending import DisplacedLandings

ROUNDING = 1e-9
"""Relative slack for sums of floats: a node filled to exactly its target is not over it."""

DIVERTED_ROOM = 4.0
"""Headroom that nodes must have for pods that a soft taint sends to them, in units of the pods' load: kube-scheduler
places by requests, not where the headroom is."""


class TargetHeadroom:
    """Loads with this plan's moves counted. A resource without a threshold (NaN) isn't evaluated on that node. A node
    without any threshold is no target for the strategy of these loads, and open to all others."""

    def __init__(
        self,
        loads: Loads,
        closed: Bools,
        *,
        coming: Floats | None = None,
        due: DisplacedLandings | None = None,
    ) -> None:
        """`closed` (nodes,) are no targets, whatever their load. `coming` (pods, resources) is the added load of a
        landing; None = `loads.pod`. `due`: landings that are none of the plan's; they take headroom, and are no load
        to be relieved."""
        self.loads = loads
        self.coming = loads.pod if coming is None else coming
        self.balances = bool(np.isfinite(loads.high).any())
        """Whether a node can be hot by these loads. If not, thresholds hold for the strategy's own moves alone."""
        self._load: Floats = np.nan_to_num(self.coming)
        self.relief: Floats = np.nan_to_num(loads.relieved)
        """Both (pods, resources); what isn't known counts 0 once a move is made."""
        self._sure = loads.node.copy()
        self._drawn: Floats = np.zeros((0, loads.node.shape[1]))
        """(slots, resources) load that landed there in the slot's draw."""
        self._marked: Bools = np.isfinite(loads.target)
        self._unmarked: Bools = ~self._marked
        known = _in_all(np.isfinite(loads.node) | self._unmarked)
        cool = ~_in_any(loads.node > loads.high)
        self._open: Bools = known & cool & ~closed
        self._eligible: Bools = self._open & _in_any(self._marked)
        self.low: Bools = self._eligible & _in_all((loads.node < loads.low) | self._unmarked)
        self._goal: Floats = loads.target * (1 + ROUNDING)
        self._limit = self._goal
        """What a landing may fill a node to."""
        self._awaited: Floats | None = None
        """(nodes, resources) loads of `due`; None = none."""
        if due is not None and len(due.pods):
            self._awaited = np.zeros(loads.node.shape)
            np.add.at(self._awaited, due.nodes, due.expected[:, None] * self._load[due.pods])
            for pods, number, share in due.others:
                self._awaited += share[:, None] * (number * self._load[pods].sum(axis=0))
            self._limit = self._goal - self._awaited

    def shares_left(self, pod_load: Floats) -> Floats:
        """(nodes,) the smallest share of a node, of all resources, that is left with `pod_load` (resources,) added,
        where no draw has a landing."""
        out: Floats = (1.0 - (self._sure + pod_load) / self.loads.room).min(axis=1)
        return out

    def overshoot(self, pod_load: Floats) -> Floats:
        """(nodes, resources) load over the target with `pod_load` (resources,) added, as a share of the node, where no
        draw has a landing; -inf without a target."""
        over = (self._sure + pod_load - self._limit) / self.loads.room
        return np.where(np.isfinite(over), over, -np.inf)

    def most(self, node: int, draws: Draws) -> Floats:
        """(resources,) the greatest load of the node in any draw."""
        drawn = self._in_slots(draws.size)[draws.node == node]
        out: Floats = self._sure[node] + drawn.max(axis=0, initial=0.0)
        return out

    def takes_in_any_draw(self, pod_load: Floats, node: int, draws: Draws) -> bool:
        """Whether the node stays at or under its target with `pod_load` (resources,) added, whatever the draw."""
        return not bool((self.most(node, draws) + pod_load > self._limit[node]).any())

    def expected(self, draws: Draws) -> Floats:
        """(nodes, resources) mean loads over the draws."""
        out = self._sure.copy()
        np.add.at(out, draws.node, self._in_slots(draws.size) / draws.count)
        return out

    def takes(self, pod_load: Floats, nodes: Rows | None = None, *, strict: bool = True) -> Bools:
        """(nodes,) of all nodes, or of `nodes`: at or under the target with `pod_load` (resources,) added, where no
        draw has a landing. `strict`: nodes without thresholds take nothing, otherwise everything."""
        opened = self._eligible if strict else self._open
        if nodes is None:
            return _in_all((self._sure + pod_load <= self._limit) | self._unmarked) & opened
        fits = (self._sure[nodes] + pod_load <= self._limit[nodes]) | self._unmarked[nodes]
        return _in_all(fits) & opened[nodes]

    def slots_take(self, pod_load: Floats, nodes: Rows, slots: Rows, *, strict: bool = True) -> Bools:
        """(slots,) the same of slots on these nodes, with what landed there."""
        opened = self._eligible if strict else self._open
        load = self._sure[nodes] + self._in_slots(int(slots.max(initial=-1)) + 1)[slots] + pod_load
        return _in_all((load <= self._limit[nodes]) | self._unmarked[nodes]) & opened[nodes]

    def may_divert(self, nodes: list[int]) -> bool:
        """Whether the pods of `due` may be sent to other nodes than these: the others have room for them."""
        if self._awaited is None:
            return True
        left = np.where(self._eligible[:, None], np.clip(np.nan_to_num(self._limit - self._sure), 0.0, None), 0.0)
        left[nodes] = 0.0
        return bool(
            (self._awaited[nodes].sum(axis=0) * DIVERTED_ROOM <= left.sum(axis=0))[self._marked.any(axis=0)].all()
        )

    def excess(self, node: int) -> Floats:
        """(resources,) load over target; negative or zero where the goal is reached, NaN without a threshold."""
        over: Floats = self._sure[node] - self.loads.target[node]
        return over

    def reached(self, node: int) -> bool:
        """Whether the node is at or under its target in every resource with a threshold."""
        return not bool((self._sure[node] > self._goal[node]).any())

    def over_high(self, node: int) -> Floats:
        """(resources,) load over `high`; negative or zero where it is not, NaN without a threshold."""
        over: Floats = self._sure[node] - self.loads.high[node] * (1 + ROUNDING)
        return over

    def over(self, node: int) -> tuple[float, float]:
        """Load over `high` and over `target`, summed over the resources in shares of the node."""
        load, room = self._sure[node], self.loads.room[node]
        shares = [
            np.nansum(np.maximum(load - marks[node] * (1 + ROUNDING), 0.0) / room)
            for marks in (self.loads.high, self.loads.target)
        ]
        return float(shares[0]), float(shares[1])

    def shift(self, pod: int, source: int, placed: Placed) -> None:
        """Count a move."""
        self._sure[source] -= self.relief[pod]
        pod_load = self._load[pod]
        if placed.node >= 0:
            self._sure[placed.node] += pod_load
        else:
            self._in_slots(int(placed.slots.max()) + 1)
            self._drawn[placed.slots] += pod_load

    def _in_slots(self, size: int) -> Floats:
        if len(self._drawn) < size:
            more = max(size, 2 * len(self._drawn)) - len(self._drawn)
            self._drawn = np.concatenate([self._drawn, np.zeros((more, self._drawn.shape[1]))])
        return self._drawn[:size]

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end what is counted inside, to the last bit."""
        sure, drawn = self._sure.copy(), self._drawn.copy()
        try:
            yield
        finally:
            self._sure = sure
            # slots that were made inside are empty when they are made again
            self._drawn = np.zeros_like(self._drawn)
            self._drawn[: len(drawn)] = drawn


def _in_all(each: Bools) -> Bools:
    """(nodes,) True in every resource."""
    out: Bools = np.asarray(each.all(axis=1), dtype=np.bool_)
    return out


def _in_any(each: Bools) -> Bools:
    """(nodes,) True in any resource."""
    out: Bools = np.asarray(each.any(axis=1), dtype=np.bool_)
    return out


def coming_loads(loads: Loads, base: Loads | None) -> Floats:
    """(pods, resources) added load of a landing; the base's where the strategy has none."""
    if base is None:
        return loads.pod
    coming = loads.pod.copy()
    for at, resource in enumerate(loads.resources):
        if resource in base.resources:
            other = base.pod[:, base.resources.index(resource)]
            coming[:, at] = np.where(np.isfinite(coming[:, at]), coming[:, at], other)
    return coming
