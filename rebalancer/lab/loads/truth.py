"""Ground truth: hot nodes, their times and causes, computed by plain loops.

It shares nothing with the planner or the effect rooms, nor with the array code behind the Prometheus API; so each can
be checked against the other.
"""

import math
from dataclasses import dataclass

from rebalancer.lab.clock import LabClock
from rebalancer.lab.loads.history import Columns, History, Stay

SAMPLE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCpu:
    """CPU of one pod."""

    namespace: str
    name: str
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HotNode:
    """A node over a threshold, and its pods' CPU."""

    name: str
    share: float
    cores: float
    pods: tuple[PodCpu, ...]
    """Largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One node, from becoming hot until it is cool again (or until the end of the period)."""

    node: str
    start: float
    end: float
    peak_share: float
    over: bool
    """Whether it had ended by the end of the period."""


class Truth:
    """Values at any moment; `at` is lab time in seconds since the epoch, now when absent."""

    def __init__(self, *, history: History, clock: LabClock, window_seconds: float) -> None:
        self._history = history
        self._clock = clock
        self._origin = history.origin
        self._window_seconds = window_seconds

    def node_cpu_share(self, at: float | None = None) -> dict[str, float]:
        """Node -> used cores / capacity, the mean over the rate window."""
        moments = self._moments(at)
        sums: dict[str, float] = {}
        for moment in moments:
            for name, share in self._shares(moment).items():
                sums[name] = sums.get(name, 0.0) + share
        alive = self._shares(moments[-1])
        return {name: total / len(moments) for name, total in sums.items() if name in alive}

    def node_cpu_share_instant(self, at: float | None = None) -> dict[str, float]:
        """Node -> used cores / capacity, at that very moment."""
        return self._shares(self._clock.now() if at is None else at)

    def pod_cpu_cores(self, at: float | None = None) -> dict[tuple[str, str], float]:
        """(namespace, name) -> cores, the mean over the rate window."""
        moments = self._moments(at)
        sums: dict[tuple[str, str], float] = {}
        for moment in moments:
            for _, used in self._used(moment).values():
                for stay, cores in used:
                    key = (stay.namespace, stay.pod)
                    sums[key] = sums.get(key, 0.0) + cores
        return {key: total / len(moments) for key, total in sums.items()}

    def hot(self, threshold: float, at: float | None = None) -> dict[str, HotNode]:
        """Nodes whose mean over the rate window is above `threshold`, with their pods at that moment."""
        moment = self._clock.now() if at is None else at
        shares = self.node_cpu_share(moment)
        used = self._used(moment)
        found: dict[str, HotNode] = {}
        for name, share in shares.items():
            if share > threshold:
                total, pods = used[name]
                ranked = sorted(pods, key=lambda pair: (-pair[1], pair[0].namespace, pair[0].pod))
                found[name] = HotNode(
                    name=name,
                    share=share,
                    cores=total,
                    pods=tuple(PodCpu(namespace=s.namespace, name=s.pod, cores=cores) for s, cores in ranked),
                )
        return found

    def timeline(self, *, start: float, end: float, step_seconds: float = 60.0) -> list[tuple[float, dict[str, float]]]:
        """(time, node -> mean share) from `start` to `end`."""
        count = max(1, math.floor((end - start) / step_seconds) + 1)
        moments = [start + step_seconds * index for index in range(count)]
        return [(moment, self.node_cpu_share(moment)) for moment in moments]

    def episodes(
        self, *, high: float, target: float | None = None, start: float, end: float, step_seconds: float = 60.0
    ) -> list[Episode]:
        """Node-episodes: from above `high` until at or below `target` (`high` when absent)."""
        cool = high if target is None else target
        open_: dict[str, tuple[float, float]] = {}
        found: list[Episode] = []
        for moment, shares in self.timeline(start=start, end=end, step_seconds=step_seconds):
            for name, share in shares.items():
                since, peak = open_.get(name, (moment, 0.0))
                if name in open_ and share <= cool:
                    del open_[name]
                    found.append(Episode(node=name, start=since, end=moment, peak_share=peak, over=True))
                elif name in open_ or share > high:
                    open_[name] = (since, max(peak, share))
        for name, (since, peak) in open_.items():
            found.append(Episode(node=name, start=since, end=end, peak_share=peak, over=False))
        return sorted(found, key=lambda each: (each.start, each.node))

    def _moments(self, at: float | None) -> list[float]:
        last = math.floor((self._clock.now() if at is None else at) / SAMPLE_SECONDS) * SAMPLE_SECONDS
        count = max(1, round(self._window_seconds / SAMPLE_SECONDS))
        return [last - SAMPLE_SECONDS * back for back in range(count - 1, -1, -1)]

    def _shares(self, moment: float) -> dict[str, float]:
        columns = self._history.columns()
        cores = {machine.name: machine.cores for machine in columns.machines}
        return {name: total / cores[name] for name, (total, _) in self._used(moment).items()}

    def _used(self, moment: float) -> dict[str, tuple[float, list[tuple[Stay, float]]]]:
        columns = self._history.columns()
        serving = self._serving(columns, moment)
        demand: dict[str, list[tuple[Stay, float]]] = {}
        for stay in columns.stays:
            if not stay.start <= moment < stay.end:
                continue
            cores = stay.curve.at(moment - self._origin)
            if stay.behaviour.group:
                cores = cores / serving[stay.behaviour.group] if stay.ready <= moment < stay.leaving else 0.0
            demand.setdefault(stay.node, []).append((stay, cores))
        used: dict[str, tuple[float, list[tuple[Stay, float]]]] = {}
        for machine in columns.machines:
            if not machine.start <= moment < machine.end:
                continue
            pods = demand.get(machine.name, [])
            total = machine.overhead_cores + sum(cores for _, cores in pods)
            factor = min(1.0, machine.cores / total) if total > 0 else 1.0
            used[machine.name] = (total * factor, [(stay, cores * factor) for stay, cores in pods])
        return used

    def _serving(self, columns: Columns, moment: float) -> dict[str, int]:
        counts: dict[str, int] = {}
        for stay in columns.stays:
            if stay.behaviour.group and stay.ready <= moment < stay.leaving:
                counts[stay.behaviour.group] = counts.get(stay.behaviour.group, 0) + 1
        return counts
