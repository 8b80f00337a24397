"""Memory of each pod from the last restart of its containers on: its latest day step by step, its days, its highs.

A run begins with the pod, or where its memory has fallen to less than half within an hour and a container has restarted
since. Falls without a restart are memory that the pod has given back: they begin no run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import SLOTS, STEP_SECONDS, DayBlock, Grid
from rebalancer.model.notation.arrays import Ints

Floats = NDArray[np.float32]

CHUNK_PODS = 8192
PART_STEPS = 6
"""Steps of which one mean is taken for highs and falls: half an hour."""
PARTS_OF_DAY = SLOTS // PART_STEPS
DAYS = 8
WINDOWS_STEPS = (24, 48, 96, 192, SLOTS)
"""The last 2, 4, 8, 16 and 24 hours."""
FALL_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class MemoryRuns:
    """Columns of pods. NaN where unknown."""

    end: int
    """Step after the newest with a sample, counted from the epoch."""
    latest: Grid
    """(pods, 288) MiB in the 24 hours before `end`."""
    daily: Floats
    """(pods, 8) mean MiB of the last days of 24 hours, the oldest first."""
    high: Floats
    """(pods,) highest half hour of the run, MiB."""
    high_before: Floats
    """(pods, windows) the same before each window."""
    began: Ints
    """(pods,) step in which the run began, counted from the epoch."""
    first: Ints
    """(pods,) first step of which the pod has a whole one, counted from the epoch."""
    falls: Ints
    """(pods,) falls to less than half with a restart, in the known days."""
    node_mebibytes: Mapping[str, float]
    """Node -> MiB in use in its newest sample, of the last half hour."""


def memory_runs(
    days: Sequence[DayBlock], pods: Sequence[str], *, started: NDArray[np.float64], restarts: Ints
) -> MemoryRuns | None:
    """Runs of these pods. `days` may be lazy: each is read once. None without any sample today or yesterday.

    `pods` are `namespace/name`; `started` (pods,) seconds since the epoch; `restarts` (pods,) of their containers.
    """
    end = _end(days)
    if end is None:
        return None
    sums = _Sums(pods, end, started)
    nodes: dict[str, float] = {}
    for block in days:
        sums.add(block)
        nodes.update(_latest_of_nodes(block, end))
    return sums.runs(restarts, nodes)


def part_means(values: Grid, parts: int) -> Floats:
    """(rows, steps) MiB as (rows, parts) means of the known ones; NaN where less than half of a part is known."""
    steps = values.shape[1]
    size = steps // parts
    each = np.repeat(np.eye(parts, dtype=np.float32), size, axis=0)
    means: Floats = values @ (each / np.float32(size))  # a matrix product is faster than a mean
    incomplete = np.flatnonzero(np.isnan(means).any(axis=1))
    if len(incomplete):
        known = np.isfinite(values[incomplete])
        count = known.astype(np.float32) @ each
        total = np.where(known, values[incomplete], np.float32(0)) @ each
        means[incomplete] = np.where(2 * count >= size, total / np.maximum(count, 1), np.float32(np.nan))
    return means


class _Sums:
    """What is kept of the days read so far."""

    def __init__(self, pods: Sequence[str], end: int, started: NDArray[np.float64]) -> None:
        count = len(pods)
        self.index = {name: at for at, name in enumerate(pods)}
        self.end = end
        # the step in which the pod starts shows a part of it
        self.first = np.where(np.isfinite(started), started // STEP_SECONDS + 1, 0).astype(np.int64)
        self.latest: Grid = np.full((count, SLOTS), np.nan, dtype=np.float32)
        self.total = np.zeros((count, DAYS), dtype=np.float64)
        self.known = np.zeros((count, DAYS), dtype=np.int32)
        self.falls = np.zeros(count, dtype=np.int32)
        self.falling = np.zeros(count, dtype=np.bool_)
        self.high: Floats = np.full(count, np.nan, dtype=np.float32)
        self.ever: Floats = self.high.copy()
        """Highest of all runs."""
        self.last, self.before = self.high.copy(), self.high.copy()
        """The newest known half hour, and the one before it."""
        self.high_before: Floats = np.full((count, len(WINDOWS_STEPS)), np.nan, dtype=np.float32)
        self.ever_before: Floats = self.high_before.copy()
        self.began = self.first.copy()

    def add(self, block: DayBlock) -> None:
        """Add the next day."""
        first = block.day * SLOTS
        pods = np.fromiter(map(self.index.get, block.pods, repeat(-1)), dtype=np.int64, count=len(block.pods))
        rows = np.flatnonzero(pods >= 0)
        rows = rows[np.argsort(pods[rows])]
        for begin in range(0, len(rows), CHUNK_PODS):
            chunk = rows[begin : begin + CHUNK_PODS]
            values = block.pod_millicores[chunk]
            self._add(pods[chunk], values, first)

    def _add(self, pods: NDArray[np.int64], values: Grid, first: int) -> None:
        steps = np.arange(first, first + SLOTS)
        late = np.flatnonzero(self.first[pods] > first)
        values[late] = np.where(steps >= self.first[pods[late]][:, None], values[late], np.float32(np.nan))
        back = first - (self.end - SLOTS)
        """Column of `latest` that the day begins in."""
        into, of = slice(max(back, 0), max(back + SLOTS, 0)), slice(max(-back, 0), max(SLOTS - max(back, 0), 0))
        if -SLOTS < back < SLOTS:
            self.latest[pods, into] = values[:, of]
        parts = part_means(values, PARTS_OF_DAY)
        starts = steps[::PART_STEPS]
        day = DAYS - 1 - (self.end - 1 - starts) // SLOTS
        for number in np.unique(day[(day >= 0) & (starts < self.end)]).tolist():
            of_day = parts[:, day == number]
            self.known[pods, number] += np.isfinite(of_day).sum(axis=1)
            self.total[pods, number] += np.nan_to_num(of_day).sum(axis=1)
        falls, falling, began = self.falls[pods], self.falling[pods], self.began[pods]
        high, ever = self.high[pods], self.ever[pods]
        before, last = self.before[pods], self.last[pods]
        for now, start in zip(np.ascontiguousarray(parts.T), starts.tolist(), strict=True):
            for at, window in enumerate(WINDOWS_STEPS):
                if start <= self.end - window < start + PART_STEPS:
                    self.high_before[pods, at], self.ever_before[pods, at] = high, ever
            with np.errstate(invalid="ignore"):
                known = np.isfinite(now)
                fall = now < FALL_SHARE * np.fmax(before, last)
            falls += fall & ~falling
            # a fall that ends within the next half hour is the same one
            falling = np.where(known, fall, falling)
            before, last = np.where(known, last, before), np.where(known, now, last)
            began = np.where(fall, start, began)
            high = np.where(fall, now, np.fmax(high, now))
            ever = np.fmax(ever, now)
        self.falls[pods], self.falling[pods], self.began[pods] = falls, falling, began
        self.high[pods], self.ever[pods] = high, ever
        self.before[pods], self.last[pods] = before, last

    def runs(self, restarts: Ints, nodes: Mapping[str, float]) -> MemoryRuns:
        """The columns."""
        gave_back = self.falls > restarts
        began = np.where(gave_back, self.first, self.began)
        enough = self.known >= PARTS_OF_DAY // 2
        return MemoryRuns(
            end=self.end,
            latest=self.latest,
            daily=np.where(enough, self.total / np.maximum(self.known, 1), np.nan).astype(np.float32),
            high=np.where(gave_back, self.ever, self.high),
            high_before=np.where(gave_back[:, None], self.ever_before, self.high_before),
            began=began.astype(np.int32),
            first=self.first.astype(np.int32),
            falls=np.where(gave_back, 0, self.falls).astype(np.int32),
            node_mebibytes=nodes,
        )


def _end(days: Sequence[DayBlock]) -> int | None:
    for back in range(1, min(len(days), 2) + 1):
        block = days[len(days) - back]
        for grid in (block.node_millicores, block.pod_millicores):
            known = np.flatnonzero(np.isfinite(grid).any(axis=0))
            if len(known):
                return block.day * SLOTS + int(known[-1]) + 1
    return None


def _latest_of_nodes(block: DayBlock, end: int) -> Iterable[tuple[str, float]]:
    last = min(end - block.day * SLOTS, SLOTS)
    if end - block.day * SLOTS > SLOTS + PART_STEPS or last <= 0:
        return ()
    tail = block.node_millicores[:, max(last - PART_STEPS, 0) : last]
    known = np.isfinite(tail)
    newest = tail.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    rows = np.flatnonzero(known[np.arange(len(tail)), newest]).tolist()
    return [(block.nodes[row], float(tail[row, newest[row]])) for row in rows]
