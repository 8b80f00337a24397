"""Headroom under the targets: the load that each node may still take and stay at or under its target."""

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.plan import Loads
from rebalancer.placement.landing import Distribution

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDING = 1e-9
"""Relative slack for sums of floats: a node filled to exactly its target is not over it."""

PERCENTILE = 0.99
"""Percentile of the load that may land on a node."""

DEVIATIONS = 2.4
"""For many draws: mean + so many standard deviations + the largest pod is never less than the 99th percentile of a sum
of whole pods (2.326, a normal distribution's, falls short of it by up to a pod)."""

FEW_DRAWS = 8
"""Up to so many draws (2^8 outcomes) the percentile is enumerated."""

SURE = 1.0 - 1e-9


@dataclass(slots=True)
class _Ties:
    """Pods of one kind of which each makes the node less attractive to the next: they take turns."""

    shares: float
    mean: Floats
    """(resources,) sum of share x load"""
    largest: Floats
    """(resources,)"""

    def whole(self) -> tuple[int, float]:
        """How many are there for sure, and the probability of one more."""
        count = math.floor(self.shares + 1 - SURE)
        return count, max(self.shares - count, 0.0)

    def load(self, count: int) -> Floats:
        """(resources,) of so many of them, the largest among them."""
        if not count:
            return np.zeros_like(self.mean)
        usual = self.mean / self.shares
        load: Floats = usual * count + np.maximum(self.largest - usual, 0.0)
        return load

    def copy(self) -> "_Ties":
        """A copy that later additions don't change."""
        return replace(self, mean=self.mean.copy())


@dataclass(slots=True)
class _Row:
    """Everything that is counted on one node."""

    sure: Floats
    mean: Floats
    left: Floats
    drawn: list[tuple[float, Floats]]
    ties: dict[Hashable, _Ties]
    left_for: dict[Hashable, Floats]


class TargetHeadroom:
    """Loads with this plan's moves counted. A resource without a threshold (NaN) isn't judged on that node. A node
    without any threshold is no target for the strategy of these loads, and open to all others.

    A replacement that may land on several nodes is counted on each of them: a node holds the 99th percentile of the
    load that may have landed, each pod drawn independently. Pods of one kind for which a node is less attractive with
    one of them on it (`exclusive`) take turns instead: their number is the sum of their probabilities, rounded up or
    down, and the next of the same kind lands only where it is rounded down.
    """

    def __init__(self, loads: Loads, closed: Bools, *, coming: Floats | None = None) -> None:
        """`closed` (nodes,) are no targets, whatever their load. `coming` (pods, resources) is the added load of a
        landing; None = `loads.pod`."""
        self.loads = loads
        self.coming = loads.pod if coming is None else coming
        self.balances = bool(np.isfinite(loads.high).any())
        """Whether a node can be hot by these loads. If not, thresholds hold for the strategy's own moves alone."""
        self._sure = loads.node.copy()
        self._mean = np.zeros(loads.node.shape)
        self._drawn: dict[int, list[tuple[float, Floats]]] = {}
        """Node -> (share, load) of each pod that is drawn independently."""
        self._ties: dict[int, dict[Hashable, _Ties]] = {}
        self._nodes_of: dict[Hashable, list[int]] = {}
        self._marked: Bools = np.isfinite(loads.target)
        known = _in_all(np.isfinite(loads.node) | ~self._marked)
        cool = ~_in_any(loads.node > loads.high)
        self._open: Bools = known & cool & ~closed
        self._judged: Bools = self._open & _in_any(self._marked)
        self.low: Bools = self._judged & _in_all((loads.node < loads.low) | ~self._marked)
        self._limit: Floats = loads.target * (1 + ROUNDING)
        self._left = self._limit - loads.node
        """Free load up to the target for a pod that takes no turns."""
        self._left_for: dict[tuple[Hashable, int], Floats] = {}
        """(kind, node) -> the same for one more of a kind that takes turns there."""
        self._before: dict[int, _Row] | None = None
        """State that `tentatively` restores; None outside it."""

    @property
    def expected(self) -> Floats:
        """(nodes, resources) loads with every replacement spread by its probabilities."""
        out: Floats = self._sure + self._mean
        return out

    def takes(
        self,
        pod_load: Floats,
        nodes: NDArray[np.int64] | None = None,
        *,
        kind: Hashable = None,
        strict: bool = True,
    ) -> Bools:
        """(nodes,) of all nodes, or of `nodes`: at or under the target with `pod_load` (resources,) added.

        `kind` as in `Landings.kind`; None = takes no turns. `strict`: nodes without thresholds take nothing, otherwise
        everything.
        """
        left, opened = self._left, self._judged if strict else self._open
        if own := self._nodes_of.get(kind):
            left = left.copy()
            for node in own:
                left[node] = self._left_for[kind, node]
        if nodes is None:
            return _in_all((pod_load <= left) | ~self._marked) & opened
        return _in_all((pod_load <= left[nodes]) | ~self._marked[nodes]) & opened[nodes]

    def excess(self, node: int) -> Floats:
        """(resources,) load over target; negative or zero where the goal is reached, NaN without a threshold."""
        over: Floats = self._sure[node] - self.loads.target[node]
        return over

    def reached(self, node: int) -> bool:
        """Whether the node is at or under its target in every resource with a threshold."""
        return not bool((self._sure[node] > self._limit[node]).any())

    def shift(
        self,
        pod_load: Floats,
        source: int,
        landing: Distribution,
        *,
        kind: Hashable = None,
        relief: Floats | None = None,
    ) -> None:
        """Count a move; `kind` as in `takes`. `relief` (resources,) leaves the source; None = `pod_load`."""
        if self._before is not None:
            self._keep({source, *landing.nodes.tolist()}, self._before)
        self._sure[source] -= pod_load if relief is None else relief
        for node, share, exclusive in zip(
            landing.nodes.tolist(), landing.shares.tolist(), landing.exclusive.tolist(), strict=True
        ):
            if share >= SURE:
                self._sure[node] += pod_load
                continue
            self._mean[node] += share * pod_load
            if exclusive and kind is not None:
                ties = self._ties.setdefault(node, {}).get(kind)
                if ties is None:
                    ties = self._ties[node][kind] = _Ties(0.0, np.zeros_like(pod_load), np.zeros_like(pod_load))
                    self._nodes_of.setdefault(kind, []).append(node)
                ties.shares += share
                ties.mean += share * pod_load
                ties.largest = np.maximum(ties.largest, pod_load)
            else:
                self._drawn.setdefault(node, []).append((share, pod_load))
        for node in {source, *landing.nodes.tolist()}:
            self._count(node)

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end what is counted inside, to the last bit."""
        assert self._before is None
        self._before = {}
        kinds = {kind: list(nodes) for kind, nodes in self._nodes_of.items()}
        try:
            yield
        finally:
            rows, self._before, self._nodes_of = self._before, None, kinds
            for node, row in rows.items():
                self._sure[node], self._mean[node], self._left[node] = row.sure, row.mean, row.left
                self._drawn[node], self._ties[node] = row.drawn, row.ties
                self._left_for.update({(kind, node): left for kind, left in row.left_for.items()})

    def _keep(self, nodes: set[int], rows: dict[int, _Row]) -> None:
        for node in nodes - rows.keys():
            ties = self._ties.get(node, {})
            rows[node] = _Row(
                sure=self._sure[node].copy(),
                mean=self._mean[node].copy(),
                left=self._left[node].copy(),
                drawn=list(self._drawn.get(node, ())),
                ties={kind: each.copy() for kind, each in ties.items()},
                left_for={kind: self._left_for[kind, node] for kind in ties},
            )

    def _count(self, node: int) -> None:
        """Update the free load of one node."""
        drawn, ties = self._drawn.get(node, []), self._ties.get(node, {})
        sure = self._sure[node].copy()
        chances = {}
        for kind, each in ties.items():
            count, chance = each.whole()
            sure += each.load(count)
            chances[kind] = (chance, each.load(count + 1) - each.load(count))
        self._left[node] = self._limit[node] - sure - percentile([*drawn, *chances.values()], len(sure))
        for kind in ties:
            others = [each for other, each in chances.items() if other != kind]
            self._left_for[kind, node] = self._limit[node] - sure - percentile([*drawn, *others], len(sure))


def percentile(draws: Sequence[tuple[float, Floats]], resources: int) -> Floats:
    """(resources,) 99th percentile of the sum of independent draws (probability, load)."""
    draws = [(chance, load) for chance, load in draws if chance > 1 - SURE]
    if not draws:
        return np.zeros(resources)
    chances, loads = np.array([chance for chance, _ in draws]), np.array([load for _, load in draws])
    if len(draws) > FEW_DRAWS:
        mean, variance = chances @ loads, (chances * (1 - chances)) @ loads**2
        many: Floats = np.minimum(loads.sum(axis=0), mean + DEVIATIONS * np.sqrt(variance) + loads.max(axis=0))
        return many
    sums, odds = np.zeros((1, resources)), np.ones(1)
    for chance, load in zip(chances.tolist(), loads, strict=True):
        sums = np.concatenate([sums, sums + load])
        odds = np.concatenate([odds * (1 - chance), odds * chance])
    order = np.argsort(sums, axis=0, kind="stable")
    out = np.empty(resources)
    for resource in range(resources):
        row = order[:, resource]
        at = int(np.searchsorted(np.cumsum(odds[row]), PERCENTILE - 1e-12))
        out[resource] = sums[row[min(at, len(row) - 1)], resource]
    return out


def _in_all(each: Bools) -> Bools:
    """(nodes,) True in every resource."""
    out: Bools = np.asarray(each.all(axis=1), dtype=np.bool_)
    return out


def _in_any(each: Bools) -> Bools:
    """(nodes,) True in any resource."""
    out: Bools = np.asarray(each.any(axis=1), dtype=np.bool_)
    return out
