"""Groups of pods that should be spread evenly, with this plan's moves counted in every draw.

Every allowed move makes the group more even wherever the earlier replacements landed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rebalancer.model.decisions.plan import Evenness
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.landing import Placed
from rebalancer.strategies.interface.view import Findings

MOST_BALANCED = 0.01
"""Share of the draws in which a group may be balanced already."""


@dataclass(slots=True)
class _Counts:
    """Pods of one group in each domain."""

    sure: Floats
    """(domains,) without the landings that are not certain."""
    drawn: Floats
    """(draws, domains) those landings."""
    alone: Bools
    """(domains,) of a single node."""

    def all(self) -> Floats:
        """(draws, domains)"""
        out: Floats = self.sure + self.drawn
        return out

    def copy(self) -> "_Counts":
        return _Counts(self.sure.copy(), self.drawn.copy(), self.alone)


class EvenGroups:
    """See the module. The findings are never changed."""

    def __init__(self, found: Sequence[Findings], draws: int) -> None:
        """`draws`: number of draws."""
        self._counts: dict[Evenness, _Counts] = {}
        self._groups_of: dict[int, list[Evenness]] = {}
        """Pod -> its known groups."""
        self._before: dict[Evenness, _Counts] | None = None
        for finding in (each for findings in found for each in findings.findings):
            even = finding.landing.even
            if even is None:
                continue
            if even not in self._counts:
                size = len(even.count)
                alone = np.bincount(even.domain[even.domain >= 0], minlength=size) == 1
                self._counts[even] = _Counts(even.count.astype(np.float64), np.zeros((draws, size)), alone)
            for pod in finding.candidates.tolist():
                groups = self._groups_of.setdefault(pod, [])
                if even not in groups:
                    groups.append(even)

    def better(self, even: Evenness, node: int) -> Bools:
        """(nodes,) where a pod from `node` would make the group more even, in draws in which nothing has landed on the
        node."""
        counts, source = self._counts[even], int(even.domain[node])
        inside: Bools = even.domain >= 0
        if source < 0:
            return inside
        every = counts.all()
        there = np.where(counts.alone, counts.sure, every.max(axis=0))
        mask: Bools = inside & (there + 2 <= every[:, source].min())[even.domain]
        return mask

    def better_in_draws(self, even: Evenness, node: int, draws: Rows, nodes: Rows) -> Bools:
        """(pairs,) the same of each of `nodes` in its draw."""
        source, domain = int(even.domain[node]), even.domain[nodes]
        if source < 0:
            return np.asarray(domain >= 0)
        every = self._counts[even].all()
        better: Bools = (domain >= 0) & (every[draws, domain] + 2 <= every[draws, source])
        return better

    def enough(self, even: Evenness, node: int) -> Refusal | None:
        """Why no more pods of the group have to leave the node."""
        counts, source = self._counts[even], int(even.domain[node])
        if source < 0:
            return None
        every = counts.all()
        here, fewest = every[:, source], every.min(axis=1)
        if np.count_nonzero(here - fewest <= even.skew) <= MOST_BALANCED * len(here):
            return None
        return Refusal.of(Reason.ALREADY_BALANCED, f"{here.min():.0f} here, {fewest.max():.0f} where there are fewest")

    def shared(self, pod: int, other: int) -> bool:
        """Whether both are of a known group."""
        return any(each in self._groups_of.get(other, ()) for each in self._groups_of.get(pod, ()))

    def count(self, pod: int, node: int, placed: Placed) -> None:
        """Count a move in every known group of the pod."""
        for even in self._groups_of.get(pod, ()):
            counts = self._counts[even]
            if self._before is not None:
                self._before.setdefault(even, counts.copy())
            source = int(even.domain[node])
            if source >= 0:
                counts.sure[source] -= 1
            if placed.node >= 0:
                if (domain := int(even.domain[placed.node])) >= 0:
                    counts.sure[domain] += 1
                continue
            domains = even.domain[placed.winners]
            inside = np.flatnonzero(domains >= 0)
            counts.drawn[inside, domains[inside]] += 1

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end what is counted inside."""
        assert self._before is None
        self._before = {}
        try:
            yield
        finally:
            self._counts.update(self._before)
            self._before = None
