"""Memory of the pods that services had before: whether they grew until they ended, or lived long and stayed level."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.forecast.memory_growth import PARTS, steady
from rebalancer.forecast.memory_runs import FALL_SHARE, PARTS_OF_DAY, part_means
from rebalancer.model.history import SLOTS, DayBlock, Grid

DAYS = 3
"""Days that are read again for it, today included."""
_LEAST_STEPS = 2 * PARTS


@dataclass(slots=True)
class FormerPod:
    """A pod that is gone, or a pod before its containers were replaced under the same name."""

    steps: int = 0
    """With a sample."""
    high: float = 0.0
    """MiB in its highest half hour."""
    grew: bool = False
    """Whether it grew steadily until its end, or fell to less than half within an hour."""


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
    found: dict[str, FormerPods] = {}
    if not services:
        return found
    for at in range(max(len(days) - DAYS, 0), len(days)):
        block = days[at]
        begin = block.day * SLOTS
        for row, service in _of_services(block.pods, services):
            name = block.pods[row]
            until = min(first.get(name, begin + SLOTS) - begin, SLOTS)
            if until > 0:
                pod = found.setdefault(service, FormerPods()).pods.setdefault(name, FormerPod())
                _add(pod, block.pod_millicores[row : row + 1, :until])
    return found


def _of_services(pods: Sequence[str], services: Collection[str]) -> Iterator[tuple[int, str]]:
    """Rows of pods with their services: the name less one part, or two."""
    for row, name in enumerate(pods):
        one = name.rpartition("-")[0]
        two = one.rpartition("-")[0]
        if one in services or two in services:
            yield row, one if one in services else two


def _add(pod: FormerPod, values: Grid) -> None:
    """Add (1, steps) samples of one day."""
    known = np.flatnonzero(np.isfinite(values[0]))
    if len(known) < _LEAST_STEPS:
        return
    life = values[:, known[0] : known[-1] + 1]
    day = np.full((1, SLOTS), np.nan, dtype=np.float32)
    day[:, SLOTS - life.shape[1] :] = life
    parts = part_means(day, PARTS_OF_DAY)[0]
    parts = parts[np.isfinite(parts)]
    fell = bool((parts[2:] < FALL_SHARE * parts[:-2]).any())
    means = part_means(life[:, life.shape[1] % PARTS :], PARTS).astype(np.float64)
    grown = steady(means, before=np.array([pod.high], dtype=np.float32))
    pod.steps += len(known)
    pod.high = max(pod.high, float(parts.max(initial=0.0)))
    pod.grew = fell or bool(grown[0])
