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
from datetime import UTC, datetime
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.memory_runs import PARTS_OF_DAY, WINDOWS_STEPS, MemoryRuns, memory_runs, part_means
from rebalancer.model.history import HOUR_SECONDS, SLOTS, STEP_SECONDS, DayBlock
from rebalancer.model.snapshot import ClusterSnapshot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = 12
"""Equal parts of a time, of which means are compared."""
RISING_SHARE = 0.8
"""Share of the parts that must be above the one before, and of the growth in all changes up and down."""
LEAST_MEBIBYTES, LEAST_SHARE = 16.0, 0.05
"""Smaller growth over a time is not looked at; the share is of the level before."""
NEW_SHARE = 0.5
"""Share of the growth that lies above the highest level of the run before."""
EVEN_SHARE = 0.5
"""Growth in the first third of a time, at least, as a share of that in its last: otherwise a shorter time counts."""
REACH = 12.0
"""A kill is expected at most so many times as far ahead as growth has been seen."""
OLDER, WARM_SHARE = 1.5, 1.1
"""A pod that is at most 1.1 times as large as a sibling that is 1.5 times as old, and doesn't grow, is warming up."""
STALE_SECONDS = 3600.0
"""Without newer samples nothing is found."""
SPREAD = (0.1, 0.9)
"""Quantiles of the slopes between parts that bound the growth."""
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
    """The latest, at the slowest; infinite if it may never be."""

    @property
    def sentence(self) -> str:
        """`grows by 60 MiB an hour and has 904 MiB; its limit of 1024 MiB is reached at 2026-02-28 14:05 UTC ...`"""
        what = "the memory of its node is used up" if self.limit_mebibytes is None else "is reached"
        limit = "" if self.limit_mebibytes is None else f"its limit of {self.limit_mebibytes:.0f} MiB "
        until = "or never" if math.isinf(self.kill_until) else f"at the latest {utc(self.kill_until)}"
        return (
            f"grows by {self.mebibytes_per_hour:.0f} MiB an hour and has {self.mebibytes:.0f} MiB; {limit}{what} at "
            f"{utc(self.kill_at)} UTC (at the earliest {utc(self.kill_from)}, {until})"
        )


def leaks_note(leaks: Sequence[MemoryLeak]) -> str | None:
    """How many there are, and the first; None without any."""
    if not leaks:
        return None
    first = min(leaks, key=lambda each: each.kill_at)
    pods = "1 pod leaks" if len(leaks) == 1 else f"{len(leaks)} pods leak"
    of = "," if len(leaks) == 1 else ", first"
    return f"{pods} memory{of} {first.pod} on {first.node}: it {first.sentence}"


def utc(seconds: float) -> str:
    """`2026-02-28 14:05`"""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


@dataclass(slots=True, kw_only=True)
class _Growth:
    """Growth of one pod (an index into the columns of runs)."""

    pod: int
    level: float
    """MiB at the end."""
    slope: float
    """MiB an hour, median."""
    slow: float
    fast: float
    left: float
    """MiB by which it still grows if it slows down as before; infinite if it doesn't slow down."""
    hours: float
    """It has been seen for."""


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
    growing = _growing(runs)
    warming = _warming(growing, runs, snapshot, chosen)
    limits = _limits(snapshot)
    by_node: dict[int, list[_Candidate]] = {}
    for each in growing.values():
        if each.pod in warming:
            continue
        index = int(chosen[each.pod])
        bounds = limits(int(pods.template[index]))
        by_node.setdefault(int(pods.node[index]), []).append(_Candidate(index, names[each.pod], each, bounds))
    leaks = []
    for node, on_it in by_node.items():
        name = snapshot.nodes.names[node]
        free = float(snapshot.nodes.memory_allocatable_bytes[node]) / MIB - runs.node_mebibytes.get(name, math.nan)
        leaks += list(_of_node(on_it, snapshot, name, free, at=runs.end * float(STEP_SECONDS)))
    return tuple(sorted(leaks, key=lambda each: (each.kill_at, each.pod)))


def _of_node(
    candidates: Sequence["_Candidate"], snapshot: ClusterSnapshot, node: str, free: float, *, at: float
) -> Iterator[MemoryLeak]:
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
        owner = snapshot.service_of(int(snapshot.pods.owner[each.index]))
        yield MemoryLeak(
            pod=each.name,
            service="" if owner is None else str(owner),
            node=node,
            mebibytes=growth.level,
            mebibytes_per_hour=growth.slope,
            since=at - growth.hours * HOUR_SECONDS,
            limit_mebibytes=limit,
            kill_at=at + first[0] * HOUR_SECONDS,
            kill_from=at + first[1] * HOUR_SECONDS,
            kill_until=at + first[2] * HOUR_SECONDS,
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A growing pod."""

    index: int
    """In the snapshot."""
    name: str
    growth: _Growth
    bounds: tuple[float, float] | None
    """MiB: largest limit of a container, sum of them; None without a limit."""

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


def _growing(runs: MemoryRuns) -> dict[int, _Growth]:
    """Pod -> its steady growth over the longest time."""
    found: dict[int, _Growth] = {}
    level, least = _levels(runs)
    with np.errstate(invalid="ignore"):
        grown = np.flatnonzero(level - least >= np.maximum(LEAST_MEBIBYTES, LEAST_SHARE * least))
    for at, window in enumerate(WINDOWS_STEPS):
        # the part in which a run begins shows a start, not growth
        inside = grown[runs.end - window >= runs.began[grown]]
        means = part_means(runs.latest[inside, SLOTS - window :], PARTS).astype(np.float64)
        steady = _steady(means, before=runs.high_before[inside, at], even=at > 0)
        hours = window * STEP_SECONDS / HOUR_SECONDS
        found |= _growths(inside[steady], means[steady], level[inside[steady]], hours)
    daily = runs.daily.astype(np.float64)
    steady = _steady(daily, rising=1.0)
    pods = np.flatnonzero(steady & np.isfinite(level))
    return found | _growths(pods, daily[pods], level[pods], daily.shape[1] * 24.0)


def _levels(runs: MemoryRuns) -> tuple[Floats, Floats]:
    """(pods,) newest mean of half an hour, and the least one within a day; NaN where unknown."""
    means = part_means(runs.latest, PARTS_OF_DAY)
    return means[:, -1].astype(np.float64), np.fmin.reduce(means, axis=1).astype(np.float64)


def _steady(
    means: Floats, *, before: NDArray[np.float32] | None = None, rising: float = RISING_SHARE, even: bool = True
) -> NDArray[np.bool_]:
    """(pods,) whether they grow in nearly all parts, by enough, above the level `before` (pods,), and, if `even`, from
    the first part on. Unknown parts count as no growth."""
    steps = np.diff(means, axis=1)
    growth, third = means[:, -1] - means[:, 0], means.shape[1] // 3
    above = means[:, -1] - np.fmax(before, means[:, 0]) if before is not None else growth
    early, late = means[:, third] - means[:, 0], means[:, -1] - means[:, -1 - third]
    with np.errstate(invalid="ignore"):
        steady: NDArray[np.bool_] = (
            (growth >= np.maximum(LEAST_MEBIBYTES, LEAST_SHARE * means[:, 0]))
            & (above >= NEW_SHARE * growth)
            & ((steps > 0).mean(axis=1) >= rising)
            & (growth >= RISING_SHARE * np.abs(steps).sum(axis=1))
            & ((early >= EVEN_SHARE * late) | (not even))
        )
    return steady


def _growths(pods: Ints, means: Floats, level: Floats, hours: float) -> dict[int, _Growth]:
    """Growth of steadily growing pods with (pods, parts) means over `hours`."""
    if not len(pods):
        return {}
    parts = means.shape[1]
    third, part_hours = parts // 3, hours / parts
    # Theil-Sen, of pairs that end in the later half: the present growth
    pairs = [(a, b) for a, b in combinations(range(parts), 2) if b - a >= third and 2 * b >= parts]
    first, last = np.array(pairs).T
    slopes = (means[:, last] - means[:, first]) / ((last - first) * part_hours)
    slope = np.median(slopes, axis=1)
    slowest, fastest = np.quantile(slopes, SPREAD, axis=1)
    early, late = means[:, third] - means[:, 0], means[:, -1] - means[:, -1 - third]
    recent = late / (third * part_hours)
    # v(t) = top - gap e^(-rate t): the two thirds give the rate, and what is still to come
    with np.errstate(divide="ignore", invalid="ignore"):
        decay = np.log(early / late) * third / (parts - 1 - third)
        left = np.where((late > 0) & (decay > 0), late / np.expm1(decay), np.inf)
    left = np.where(late <= 0, 0.0, left)
    # the mean of the last part is half a part old
    now = np.fmax(level, means[:, -1] + recent * part_hours / 2)
    return {
        pod: _Growth(pod=pod, level=at, slope=mid, slow=slow, fast=fast, left=rest, hours=hours)
        for pod, at, mid, slow, fast, rest in zip(
            pods.tolist(),
            now.tolist(),
            slope.tolist(),
            np.fmin(slowest, recent).tolist(),
            np.fmax(fastest, recent).tolist(),
            left.tolist(),
            strict=True,
        )
    }


def _warming(
    growing: Mapping[int, _Growth], runs: MemoryRuns, snapshot: ClusterSnapshot, chosen: NDArray[np.int64]
) -> set[int]:
    """Growing pods that are no larger than older siblings that don't grow."""
    owner = snapshot.pods.owner[chosen]
    tops = np.where(owner >= 0, snapshot.top_owner[owner] if len(snapshot.top_owner) else -1, -1)
    age = (runs.end - runs.began).astype(np.float64)
    calm = np.ones(len(chosen), dtype=np.bool_)
    calm[list(growing)] = False
    row_of = np.full(len(snapshot.pods), -1, dtype=np.int64)
    row_of[chosen] = np.arange(len(chosen))
    found = set()
    for pod, growth in growing.items():
        if tops[pod] < 0:
            continue
        rows = row_of[snapshot.pods_of(int(tops[pod]))]
        rows = rows[rows >= 0]
        older = rows[calm[rows] & (runs.began[rows] >= 0) & (age[rows] >= OLDER * age[pod])]
        if len(older) and growth.level <= WARM_SHARE * float(np.max(np.nan_to_num(runs.high[older]))):
            found.add(pod)
    return found
