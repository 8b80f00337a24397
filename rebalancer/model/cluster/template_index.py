"""Templates by what selects them: label pairs, affinity and topology spread constraints.

The index of a table is kept when templates are added to it, and only these are read. Label pairs are numbers (hashes):
the strings of 80,000 distinct pairs would take more memory than all pods.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from rebalancer.model.notation.arrays import Rows


class PodTemplateOutline(NamedTuple):
    """The fields that are read of every template of a cluster, not only of those that a decision inspects."""

    labels: Mapping[str, str]
    affinity: bytes
    """JSON of its `Affinity`; empty where it has none. Templates with equal bytes have equal affinity."""
    spreads: bool
    """It has topology spread constraints."""


class TemplateIndex:
    """Over the first templates of a table. Immutable."""

    def __init__(
        self,
        *,
        count: int = 0,
        pairs: Rows | None = None,
        holders: Rows | None = None,
        affinities: Mapping[bytes, tuple[int, ...]] | None = None,
        spreading: tuple[int, ...] = (),
    ) -> None:
        nothing = np.zeros(0, dtype=np.int64)
        self.count = count
        """Number of templates."""
        self._pairs = nothing if pairs is None else pairs
        """Hashes of label pairs, ascending."""
        self._holders = nothing if holders is None else holders
        """The template of each."""
        self.affinities: Mapping[bytes, tuple[int, ...]] = affinities or {}
        """Affinity, as in `PodTemplateOutline` -> templates, ascending."""
        self.spreading = spreading
        """Templates with topology spread constraints, ascending."""

    def extended(self, outlines: Iterable[PodTemplateOutline]) -> "TemplateIndex":
        """With the templates that follow."""
        pairs: list[int] = []
        holders: list[int] = []
        affinities: dict[bytes, list[int]] = {}
        spreading: list[int] = []
        count = self.count
        for labels, affinity, spreads in outlines:
            pairs += map(hash, labels.items())
            holders += [count] * len(labels)
            if affinity:
                affinities.setdefault(affinity, []).append(count)
            if spreads:
                spreading.append(count)
            count += 1
        all_pairs = np.concatenate([self._pairs, np.array(pairs, dtype=np.int64)])
        order = np.argsort(all_pairs, kind="stable")
        old = self.affinities
        return TemplateIndex(
            count=count,
            pairs=all_pairs[order],
            holders=np.concatenate([self._holders, np.array(holders, dtype=np.int64)])[order],
            affinities={**old, **{text: (*old.get(text, ()), *found) for text, found in affinities.items()}},
            spreading=(*self.spreading, *spreading),
        )

    def may_have(self, pair: tuple[str, str]) -> Rows:
        """The templates with this label, and rarely one without it, ascending."""
        wanted = hash(pair)
        first, last = np.searchsorted(self._pairs, wanted, "left"), np.searchsorted(self._pairs, wanted, "right")
        return self._holders[first:last]
