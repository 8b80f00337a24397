"""Memory of the pods that services had before: whether they grew until they ended, or lived long and stayed level."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rebalancer.forecast.memory.memory_growth import PARTS, steady
from rebalancer.forecast.memory.memory_runs import FALL_SHARE, PART_STEPS, part_means
from rebalancer.model.measured.history import SLOTS, DayBlock, Grid

DAYS = 3
"""Days that are read again for it, today included."""
_LEAST_STEPS = 2 * PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPod:
    """A pod that is gone, or a pod before its containers were replaced under the same name."""

    steps: int
    """With a sample."""
    high: float
    """MiB in its highest half hour."""
    grew: bool
    """Whether it grew steadily until its end, or until it fell to less than half within an hour."""


@dataclass(slots=True)
class FormerPods:
    """Of one service."""

    pods: dict[str, FormerPod] = field(default_factory=dict)

    @property
    def grown(self) -> int:
        """How many grew until they ended."""
        return sum(each.grew for each in self.pods.values())

    def level(self, steps: float) -> float:
        """MiB of the largest that lived for so many steps and didn't grow; 0 without any."""
        return max((each.high for each in self.pods.values() if each.steps >= steps and not each.grew), default=0.0)


def former_pods(
    days: Sequence[DayBlock], services: Collection[str], first: Mapping[str, int]
) -> Mapping[str, FormerPods]:
    """Service (`namespace/name`) -> its former pods of the last days, by the naming rules of controllers.

    `first`: the pods that are there now, with the step in which each started.
    """
    lives: dict[str, dict[str, list[Grid]]] = {}
    if not services:
        return {}
    for at in range(max(len(days) - DAYS, 0), len(days)):
        block = days[at]
        begin = block.day * SLOTS
        for row, service in _of_services(block.pods, services):
            name = block.pods[row]
            until = min(first.get(name, begin + SLOTS) - begin, SLOTS)
            if until > 0:
                days_of = lives.setdefault(service, {}).setdefault(name, [])
                days_of.append(block.pod_millicores[row : row + 1, :until].copy())  # else the day stays in memory
    return {
        service: FormerPods(pods={name: _former_pod(np.hstack(parts)) for name, parts in pods.items()})
        for service, pods in lives.items()
    }


def _of_services(pods: Sequence[str], services: Collection[str]) -> Iterator[tuple[int, str]]:
    """Rows of pods with their services: the name less one part, or two."""
    for row, name in enumerate(pods):
        one = name.rpartition("-")[0]
        two = one.rpartition("-")[0]
        if one in services or two in services:
            yield row, one if one in services else two


def _former_pod(values: Grid) -> FormerPod:
    """A pod by the (1, steps) samples of its last days."""
    known = np.flatnonzero(np.isfinite(values[0]))
    if len(known) < _LEAST_STEPS:
        return FormerPod(steps=len(known), high=0.0, grew=False)
    life = values[:, known[0] : known[-1] + 1]
    life = life[:, life.shape[1] % PART_STEPS :]
    parts = part_means(life, life.shape[1] // PART_STEPS)[0]
    falls = (2 + np.flatnonzero(parts[2:] < FALL_SHARE * parts[:-2])).tolist()
    # the half hour before a fall may contain a part of it
    runs = [life[:, begin * PART_STEPS : (end - 1) * PART_STEPS] for begin, end in pairwise([0, *falls])]
    last = falls[-1] if falls else 0
    before = float(np.fmax.reduce(parts[:last], initial=0.0))
    return FormerPod(
        steps=len(known),
        high=float(np.fmax.reduce(parts, initial=0.0)),
        grew=any(map(_grew, runs)) or _grew(life[:, last * PART_STEPS :], before=before),
    )


def _grew(run: Grid, *, before: float = 0.0) -> bool:
    """Whether memory grew steadily in these (1, steps), to above the level `before`."""
    if run.shape[1] < _LEAST_STEPS:
        return False
    means = part_means(run[:, run.shape[1] % PARTS :], PARTS).astype(np.float64)
    return bool(steady(means, before=np.array([before], dtype=np.float32))[0])
