"""Memory leaks: pods whose memory grows steadily since they started, and when the growth will end them.

A pod is looked at over its last 2, 4, 8, 16 and 24 hours, and over its last 8 days; the longest time over which it has
grown steadily counts. That is growth in nearly all of 12 equal parts, to a level that the pod did not have before: so
neither a daily pattern nor garbage collection is one. Growth that slows down counts only if it still reaches the limit,
and a pod that is no larger than older siblings that don't grow is warming up.

Nothing is evicted for a leak: the replacement would grow as well.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.memory.former_pods import FormerPods, former_pods
from rebalancer.forecast.memory.memory_growth import Growth, growing
from rebalancer.forecast.memory.memory_runs import MemoryRuns, memory_runs
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import HOUR_SECONDS, STEP_SECONDS, DayBlock
from rebalancer.model.notation.figures import clock_time

REACH = 12.0
"""A kill is expected at most so many times as far ahead as growth has been seen."""
LATEST_HOURS = 365 * 24.0
"""A kill later than this is none: slow growth that is extrapolated so far gives no date."""
OLDER, WARM_SHARE = 1.5, 1.1
"""A pod that is at most 1.1 times as large as a sibling that is 1.5 times as old, and doesn't grow, is warming up. The
same goes for former pods of its service."""
STALE_SECONDS = 3600.0
"""Without newer samples nothing is found."""
MIB = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLeak:
    """A pod with steadily growing memory."""

    pod: str
    """`namespace/name`"""
    service: str
    """`namespace/name` of its top owner; empty for a bare pod."""
    node: str
    mebibytes: float
    """Now."""
    mebibytes_per_hour: float
    since: float
    """It has grown at least since then, seconds since the epoch."""
    limit_mebibytes: float | None
    """Memory limit that it reaches; None where it has none: then its node's memory ends."""
    kill_at: float
    """When it is expected to be OOM-killed, seconds since the epoch."""
    kill_from: float
    """The earliest time, at the fastest growth seen."""
    kill_until: float
    """The latest, at the slowest; infinite if that is more than a year ahead, or never."""
    ended_before: int = 0
    """Restarts and former pods of its service, in the known days, that ended such growth."""

    @property
    def sentence(self) -> str:
        """`grows by 60 MiB an hour and has 904 MiB; its limit of 1024 MiB is reached at 2026-02-28 14:05 UTC ...`"""
        what = "the memory of its node is used up" if self.limit_mebibytes is None else "is reached"
        limit = "" if self.limit_mebibytes is None else f"its limit of {self.limit_mebibytes:.0f} MiB "
        until = "or never" if math.isinf(self.kill_until) else f"at the latest {clock_time(self.kill_until)}"
        return (
            f"grows by {self.mebibytes_per_hour:.0f} MiB an hour and has {self.mebibytes:.0f} MiB; {limit}{what} at "
            f"{clock_time(self.kill_at)} (at the earliest {clock_time(self.kill_from)}, {until}){self._before}"
        )

    @property
    def _before(self) -> str:
        if not self.ended_before:
            return ""
        times = "once" if self.ended_before == 1 else f"{self.ended_before} times"
        return f"; growth of its service ended like this {times} in the last days"


def leaks_note(leaks: Sequence[MemoryLeak]) -> str | None:
    """How many there are, and the first; None without any."""
    if not leaks:
        return None
    first = min(leaks, key=lambda each: each.kill_at)
    pods = "1 pod leaks" if len(leaks) == 1 else f"{len(leaks)} pods leak"
    of = "," if len(leaks) == 1 else ", first"
    return f"{pods} memory{of} {first.pod} on {first.node}: it {first.sentence}"


def find_leaks(days: Sequence[DayBlock], snapshot: ClusterSnapshot, *, now: float) -> tuple[MemoryLeak, ...]:
    """Leaking pods of a snapshot that will be OOM-killed, the earliest first.

    `days` are day blocks of memory, the last is today; they may be lazy. None is found where the newest sample is older
    than an hour.
    """
    pods = snapshot.pods
    chosen = np.flatnonzero(snapshot.active & ~pods.terminating)
    spaces = snapshot.namespaces
    names = [
        f"{spaces[space]}/{pods.names[index]}"
        for space, index in zip(pods.namespace[chosen].tolist(), chosen.tolist(), strict=True)
    ]
    runs = memory_runs(days, names, started=pods.started[chosen], restarts=pods.restarts[chosen])
    if runs is None or now - runs.end * STEP_SECONDS > STALE_SECONDS:
        return ()
    tops = _top_owners(snapshot, chosen)
    grows = growing(runs)
    for pod in _warming(grows, runs, snapshot, chosen, tops):
        del grows[pod]
    service = {top: str(snapshot.service_of(top)) for top in {int(tops[pod]) for pod in grows} - {-1}}
    former = former_pods(days, frozenset(service.values()), dict(zip(names, runs.first.tolist(), strict=True)))
    limits = _limits(snapshot)
    by_node: dict[int, list[_Candidate]] = {}
    for pod, growth in grows.items():
        index, top = int(chosen[pod]), int(tops[pod])
        before = former.get(service.get(top, ""), FormerPods())
        if growth.level <= WARM_SHARE * before.level(OLDER * float(runs.end - runs.began[pod])):
            continue
        siblings = tops == top if top >= 0 else [pod]
        candidate = _Candidate(
            name=names[pod],
            service=service.get(top, ""),
            growth=growth,
            bounds=limits(int(pods.template[index])),
            ended_before=before.grown + int(runs.falls[siblings].sum()),
        )
        by_node.setdefault(int(pods.node[index]), []).append(candidate)
    leaks = []
    for node, on_it in by_node.items():
        name = snapshot.nodes.names[node]
        free = float(snapshot.nodes.memory_capacity_bytes[node]) / MIB - runs.node_mebibytes.get(name, math.nan)
        leaks += list(_of_node(on_it, name, free, at=runs.end * float(STEP_SECONDS)))
    return tuple(sorted(leaks, key=lambda each: (each.kill_at, each.pod)))


def _of_node(candidates: Sequence["_Candidate"], node: str, free: float, *, at: float) -> Iterator[MemoryLeak]:
    """The leaks among the growing pods of a node with `free` MiB, NaN where unknown. `at`: end of the newest sample."""
    rooms = [each.most_room for each in candidates]
    growths = [each.growth for each in candidates]
    filled = (
        _fills(free, [each.slope for each in growths], rooms),
        _fills(free, [each.fast for each in growths], rooms),
        _fills(free, [each.slow for each in growths], rooms),
    )
    for each in candidates:
        growth, own = each.growth, each.own_kill()
        first, limit = own, each.limit
        if (own is None or filled[0] < own[0]) and filled[0] <= REACH * growth.hours:
            first, limit = filled, None
        if first is None:
            continue
        yield MemoryLeak(
            pod=each.name,
            service=each.service,
            node=node,
            mebibytes=growth.level,
            mebibytes_per_hour=growth.slope,
            since=at - growth.hours * HOUR_SECONDS,
            limit_mebibytes=limit,
            kill_at=at + first[0] * HOUR_SECONDS,
            kill_from=at + first[1] * HOUR_SECONDS,
            kill_until=at + first[2] * HOUR_SECONDS if first[2] <= LATEST_HOURS else math.inf,
            ended_before=each.ended_before,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A growing pod."""

    name: str
    service: str
    growth: Growth
    bounds: tuple[float, float] | None
    """MiB: largest limit of a container, sum of them; None without a limit."""
    ended_before: int

    @property
    def limit(self) -> float | None:
        """MiB at which it may be killed: the largest limit of a container, or their sum where it is above that."""
        if self.bounds is None:
            return None
        return self.bounds[0] if self.growth.level < self.bounds[0] else self.bounds[1]

    @property
    def most_room(self) -> float:
        """MiB by which it can grow at most."""
        if self.bounds is None:
            return self.growth.left
        return min(max(self.bounds[1] - self.growth.level, 0.0), self.growth.left)

    def own_kill(self) -> tuple[float, float, float] | None:
        """Hours to its limit: expected, earliest, latest; None if it won't reach it, or too late to tell."""
        growth, limit = self.growth, self.limit
        if limit is None or self.bounds is None:
            return None
        room, most = max(limit - growth.level, 0.0), max(self.bounds[1] - growth.level, 0.0)
        if room > growth.left or room > REACH * growth.hours * growth.slope:
            return None
        latest = _slowing(most, growth.slow, growth.left)
        return room / growth.slope, room / growth.fast, max(latest, room / growth.slope)


def _slowing(room: float, slope: float, left: float) -> float:
    """Hours to grow by `room` MiB from `slope` MiB/h on, if the growth slows down towards `left` MiB."""
    if room >= left or slope <= 0:
        return math.inf if room > 0 else 0.0
    return room / slope if math.isinf(left) else -math.log1p(-room / left) * left / slope


def _fills(free: float, slopes: Sequence[float], rooms: Sequence[float]) -> float:
    """Hours until pods that grow by `slopes`, each up to its room, have used `free` MiB; infinite if they don't."""
    if math.isnan(free):
        return math.inf
    growing = [(room / slope, slope) for slope, room in zip(slopes, rooms, strict=True) if slope > 0]
    at, left, rate = 0.0, max(free, 0.0), sum(slope for _, slope in growing)
    for until, slope in sorted(growing):
        if left <= rate * (until - at):
            return at + left / rate
        left -= rate * (until - at)
        at, rate = until, rate - slope
    return math.inf


def _limits(snapshot: ClusterSnapshot) -> Callable[[int], tuple[float, float] | None]:
    """Template -> largest and sum of the memory limits of its containers, MiB; None where one has none."""

    @cache
    def of(template: int) -> tuple[float, float] | None:
        limits = snapshot.pod_templates[template].memory_limits
        return (max(limits) / MIB, sum(limits) / MIB) if limits else None

    return of


def _top_owners(snapshot: ClusterSnapshot, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the top owner of each chosen pod, -1 for a bare pod."""
    owner = snapshot.pods.owner[chosen].astype(np.int64)
    tops = np.full(len(chosen), -1, dtype=np.int64)
    tops[owner >= 0] = snapshot.top_owner[owner[owner >= 0]]
    return tops


def _warming(
    grows: Mapping[int, Growth],
    runs: MemoryRuns,
    snapshot: ClusterSnapshot,
    chosen: NDArray[np.int64],
    tops: NDArray[np.int64],
) -> set[int]:
    """Growing pods that are no larger than older siblings that don't grow."""
    age = (runs.end - runs.began).astype(np.float64)
    calm = np.ones(len(chosen), dtype=np.bool_)
    calm[list(grows)] = False
    row_of = np.full(len(snapshot.pods), -1, dtype=np.int64)
    row_of[chosen] = np.arange(len(chosen))
    found = set()
    for pod, growth in grows.items():
        if tops[pod] < 0:
            continue
        rows = row_of[snapshot.pods_of(int(tops[pod]))]
        rows = rows[rows >= 0]
        older = rows[calm[rows] & (age[rows] >= OLDER * age[pod])]
        if len(older) and growth.level <= WARM_SHARE * float(np.max(np.nan_to_num(runs.high[older]))):
            found.add(pod)
    return found
