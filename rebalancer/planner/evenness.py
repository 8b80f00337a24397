"""Groups of pods that should be spread evenly, with this plan's moves counted.

The domain that a pod leaves has one pod less for sure; a domain that its replacement may reach counts as having one
more, unless it is a single node that equal pods take in turns (as in `targets`). So every allowed move makes the group
more even wherever the earlier replacements landed.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.plan import Evenness
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing import Distribution
from rebalancer.planner.targets import SURE
from rebalancer.strategies.view import Findings

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(slots=True)
class _Counts:
    """Pods of one group in each domain."""

    least: Floats
    """(domains,) there for sure."""
    most: Floats
    """(domains,) there if every replacement that may land there does."""
    turns: dict[tuple[Hashable, int], float] = field(default_factory=dict)
    """(kind, domain) -> sum of the probabilities of pods that take turns there; not in `most`."""

    def most_for(self, kind: Hashable) -> Floats:
        """(domains,) the most that one more pod of this kind would find."""
        most = self.most.copy()
        for (other, domain), shares in self.turns.items():
            most[domain] += math.floor(shares + 1 - SURE) if other == kind else math.ceil(shares - (1 - SURE))
        return most

    def copy(self) -> "_Counts":
        return _Counts(self.least.copy(), self.most.copy(), dict(self.turns))


class EvenGroups:
    """See the module. The findings are never changed."""

    def __init__(self, found: Sequence[Findings]) -> None:
        self._counts: dict[Evenness, _Counts] = {}
        self._groups_of: dict[int, list[Evenness]] = {}
        """Pod -> its known groups."""
        self._before: dict[Evenness, _Counts] | None = None
        for finding in (each for findings in found for each in findings.findings):
            even = finding.landing.even
            if even is None:
                continue
            if even not in self._counts:
                self._counts[even] = _Counts(even.count.astype(np.float64), even.count.astype(np.float64))
            for pod in finding.candidates.tolist():
                groups = self._groups_of.setdefault(pod, [])
                if even not in groups:
                    groups.append(even)

    def better(self, even: Evenness, node: int, kind: Hashable) -> Bools:
        """(nodes,) where a pod from `node` would make the group more even; `kind` as in `Landings.kind`."""
        counts, source = self._counts[even], int(even.domain[node])
        inside: Bools = even.domain >= 0
        if source < 0:
            return inside
        fewer = counts.most_for(kind) + 2 <= counts.least[source]
        mask: Bools = inside & fewer[even.domain]
        return mask

    def enough(self, even: Evenness, node: int, kind: Hashable) -> Refusal | None:
        """Why no more pods of the group have to leave the node."""
        counts, source = self._counts[even], int(even.domain[node])
        if source < 0:
            return None
        here, fewest = float(counts.least[source]), float(counts.most_for(kind).min())
        if here - fewest > even.skew:
            return None
        return Refusal.of(Reason.ALREADY_BALANCED, f"{here:.0f} here, {fewest:.0f} where there are fewest")

    def count(self, pod: int, node: int, kind: Hashable, landing: Distribution) -> None:
        """Count a move in every known group of the pod."""
        for even in self._groups_of.get(pod, ()):
            counts = self._counts[even]
            if self._before is not None:
                self._before.setdefault(even, counts.copy())
            source = int(even.domain[node])
            if source >= 0:
                counts.least[source] -= 1
                counts.most[source] -= 1
            reached = even.domain[landing.nodes]
            for domain in np.unique(reached[reached >= 0]).tolist():
                here = reached == domain
                share = float(landing.shares[here].sum())
                if share >= SURE:
                    counts.least[domain] += 1
                    counts.most[domain] += 1
                elif landing.exclusive[here].all() and np.count_nonzero(even.domain == domain) == 1:
                    counts.turns[kind, domain] = counts.turns.get((kind, domain), 0.0) + share
                else:
                    counts.most[domain] += 1

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
