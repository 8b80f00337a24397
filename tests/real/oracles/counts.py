"""Counts per node of a real sequence of landings against those in the draws of the same sequence."""

from dataclasses import dataclass

import numpy as np

from rebalancer.model.notation.arrays import Floats
from rebalancer.placement.landing.landing import Landing
from rebalancer.placement.landing.model import PlacementModel
from tests.real.readers.sequence import Sequence

GROUPS = 10


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Replacements per node."""

    real: Floats
    """(nodes,)"""
    drawn: Floats
    """(draws, nodes)"""
    alone: Floats
    """(nodes,) mean where every replacement is placed as if it were the only one."""

    @property
    def distance(self) -> float:
        """Chi-square of the real counts from the draws' mean, with the draws' variance of each node."""
        return float(self._distances(self.real[None, :])[0])

    @property
    def p_value(self) -> float:
        """Share of the draws that are at least as far from the mean of the others; the real one counts as one."""
        each = [self._distances(self.drawn[[at]], without=at)[0] for at in range(len(self.drawn))]
        return (1 + sum(bool(found >= self.distance) for found in each)) / (1 + len(each))

    def _distances(self, counts: Floats, *, without: int | None = None) -> Floats:
        drawn = self.drawn if without is None else np.delete(self.drawn, without, axis=0)
        # nodes that hardly ever get one don't weigh more than one pod is worth
        spread = np.maximum(drawn.var(axis=0), 1.0 / len(drawn))
        out: Floats = ((counts - drawn.mean(axis=0)) ** 2 / spread).sum(axis=1)
        return out

    @property
    def distance_alone(self) -> float:
        """The same from the mean without the landings before, with its own variance."""
        spread = np.maximum(self.alone, 1.0 / len(self.drawn))
        return float(((self.real - self.alone) ** 2 / spread).sum())

    @property
    def groups(self) -> list[tuple[float, float, float]]:
        """(real count, mean, standard deviation in the draws) of each tenth of the nodes, the most attractive last."""
        order = np.argsort(self.drawn.mean(axis=0), kind="stable")
        out = []
        for nodes in np.array_split(order, GROUPS):
            sums = self.drawn[:, nodes].sum(axis=1)
            out.append((float(self.real[nodes].sum()), float(sums.mean()), float(sums.std(ddof=1))))
        return out


def counts_of(sequence: Sequence) -> Counts:
    """Draw the same sequence with the program's model."""
    snapshot = sequence.snapshot
    size = len(snapshot.nodes)
    model = PlacementModel(snapshot)
    alone = np.zeros(size)
    for index in sequence.evicted:
        landing = model.landings(snapshot.pod(index))
        assert isinstance(landing, Landing)
        alone[landing.nodes] += landing.shares
    drawn = np.zeros((model.draws.count, size))
    for index in sequence.evicted:
        pod = snapshot.pod(index)
        landing = model.landings(pod)
        assert isinstance(landing, Landing)
        winners = model.winners(pod, landing)
        drawn[np.arange(len(winners)), winners] += 1
        model.commit(pod, winners)
    real = np.bincount(np.array(sequence.nodes), minlength=size).astype(np.float64)
    return Counts(real=real, drawn=drawn, alone=alone)
