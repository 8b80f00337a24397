"""Groups of pods that should be spread evenly, with this plan's moves counted in.

Where a replacement lands isn't always certain. A domain that it leaves has surely one fewer; one that it may reach
counts as having one more, unless it is a single node that equal pods take in turns (as in `targets`). So, of moves that
are allowed, each leaves the group more even than before wherever the earlier ones went.
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
    """(domains,) surely there."""
    most: Floats
    """(domains,) there if everything came that may come."""
    turns: dict[tuple[Hashable, int], float] = field(default_factory=dict)
    """(kind, domain) -> sum of the shares of pods that take turns there; not in `most`."""

    def most_for(self, kind: Hashable) -> Floats:
        """(domains,) what one more of this kind would find at most."""
        most = self.most.copy()
        for (other, domain), shares in self.turns.items():
            most[domain] += math.floor(shares + 1 - SURE) if other == kind else math.ceil(shares - (1 - SURE))
        return most

    def copy(self) -> "_Counts":
        return _Counts(self.least.copy(), self.most.copy(), dict(self.turns))


class EvenGroups:
    """See the module. What strategies gave is never changed."""

    def __init__(self, found: Sequence[Findings]) -> None:
        self._counts: dict[Evenness, _Counts] = {}
        self._groups_of: dict[int, list[Evenness]] = {}
        """Pod -> the groups that it is known to be in."""
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
        """(nodes,) where a pod from `node` leaves the group more even; `kind` is the same for pods that are alike to
        the scheduler."""
        counts, source = self._counts[even], int(even.domain[node])
        inside: Bools = even.domain >= 0
        if source < 0:
            return inside
        fewer = counts.most_for(kind) + 2 <= counts.least[source]
        mask: Bools = inside & fewer[even.domain]
        return mask

    def enough(self, even: Evenness, node: int, kind: Hashable) -> Refusal | None:
        """Why nothing more of the group has to leave the node."""
        counts, source = self._counts[even], int(even.domain[node])
        if source < 0:
            return None
        here, fewest = float(counts.least[source]), float(counts.most_for(kind).min())
        if here - fewest > even.skew:
            return None
        return Refusal.of(Reason.ALREADY_BALANCED, f"{here:.0f} here, {fewest:.0f} where there are fewest")

    def count(self, pod: int, node: int, kind: Hashable, landing: Distribution) -> None:
        """Count a move in every group that the pod is known to be in."""
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
        """What is counted inside is undone at the end."""
        assert self._before is None
        self._before = {}
        try:
            yield
        finally:
            self._counts.update(self._before)
            self._before = None
