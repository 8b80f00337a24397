"""The hot node-hours that no eviction can remove: a lower bound for every policy, known afterwards.

At each step the pods may lie anywhere, in the pools or across them, and move for nothing: guards, limits, requests and
reaction time are left out, so every policy leaves at least as much. Two things keep nodes hot all the same. Pods that
use more than any node has left under `high` beside its own processes and DaemonSets need hot nodes to lie on. And where
all pods together use more than all nodes have left, some nodes are hot. A hot node may be filled to its capacity, and
pods may be cut into parts unless they are larger than the room of any node.

It is counted in whole steps, by the mean of each.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import HotBound
from rebalancer.strategies.interface.selection import BOUND_KINDS

CHUNK = 4_000_000
"""Values of pods that are looked at together."""


class _Values(NamedTuple):
    """CPU of pods that may move, in millicores over whole steps."""

    node: np.ndarray
    step: np.ndarray
    used: Floats


class Rooms(NamedTuple):
    """What some nodes have left beside their own processes and DaemonSets, and the pods that may move among them;
    millicores. Arrays are (nodes, steps) or (steps,)."""

    full: Floats
    """Up to the capacity; 0 where the node isn't there."""
    cool: Floats
    """Up to `high`."""
    forced: np.ndarray
    """Nodes that are over `high` by themselves."""
    movable: Floats
    """All pods."""
    large: Floats
    """Pods that use more than any `cool`."""

    def bound(self) -> HotBound:
        """Hot node-minutes that no eviction can remove."""
        for_large = np.maximum(_fewest(self.full, self.large), self.forced)
        in_all = _fewest(self.full - self.cool, self.movable - self.cool.sum(axis=0))
        minutes = STEP_SECONDS / 60.0
        by_size = for_large >= in_all
        return HotBound(
            large_pods=np.where(by_size, for_large, 0) * minutes, capacity=np.where(by_size, 0, in_all) * minutes
        )


def bound_of(recording: Recording, high: Floats) -> HotBound:
    """`high` (nodes,) millicores over which a node is hot; NaN = never."""
    (rooms,) = rooms_of(recording, high, np.zeros(len(recording.nodes), dtype=np.int64), groups=1)
    return rooms.bound()


def rooms_of(recording: Recording, high: Floats, group: Rows, *, groups: int) -> list[Rooms]:
    """(groups,) the rooms of each group of nodes, whose pods stay in it. `group` (nodes,): -1 for a node in none."""
    capacity = recording.nodes.cpu_capacity_millicores[:, None]
    own = recording.usage[CPU].node.astype(np.float64)
    there, steps = np.isfinite(own), recording.steps
    movable = np.zeros(groups * steps)
    for node, step, used in _movable(recording):
        np.subtract.at(own, (node, step), used)
        inside = group[node] >= 0
        cell = group[node[inside]] * steps + step[inside]
        movable += np.bincount(cell, weights=used[inside], minlength=groups * steps)
    full = np.where(there, np.maximum(capacity - own, 0.0), 0.0)
    limit = np.where(np.isfinite(high), high, np.inf)[:, None]
    cool = np.where(there, np.minimum(limit, capacity) - own, 0.0)
    forced = there & (own > limit)
    cool = np.maximum(cool, 0.0)
    rows = [np.flatnonzero(group == number) for number in range(groups)]
    most = np.array([cool[of].max(axis=0, initial=0.0) for of in rows]).reshape(groups * steps)
    large = np.zeros(groups * steps)
    for node, step, used in _movable(recording):
        inside = group[node] >= 0
        cell, load = group[node[inside]] * steps + step[inside], used[inside]
        too_large = load > most[cell]
        large += np.bincount(cell[too_large], weights=load[too_large], minlength=groups * steps)
    return [
        Rooms(
            full=full[of],
            cool=cool[of],
            forced=np.count_nonzero(forced[of], axis=0),
            movable=movable[number * steps : (number + 1) * steps],
            large=large[number * steps : (number + 1) * steps],
        )
        for number, of in enumerate(rows)
    ]


def _fewest(room: Floats, load: Floats) -> np.ndarray:
    """(steps,) the fewest nodes whose `room` (nodes, steps) takes the load of each step; all where none do."""
    reached = np.cumsum(-np.sort(-room, axis=0), axis=0) >= load * (1 - 1e-9)
    fewest = np.where(reached.any(axis=0), reached.argmax(axis=0) + 1, len(room))
    out: np.ndarray = np.where(load > 1e-6, fewest, 0)
    return out


def _movable(recording: Recording) -> Iterator[_Values]:
    """All pods but those that their owners bind to a node, some at a time."""
    pods, usage = recording.pods, recording.usage[CPU]
    kinds = np.array([*(owner.kind in BOUND_KINDS for owner in recording.owners), False], dtype=np.bool_)
    chosen = np.flatnonzero(~kinds[pods.owner] & (pods.node >= 0))
    counts = (usage.pod_start[1:] - usage.pod_start[:-1])[chosen]
    chunk_of = np.cumsum(counts) // CHUNK
    for number in np.unique(chunk_of).tolist():
        some = chosen[chunk_of == number]
        length = counts[chunk_of == number]
        pod = np.repeat(some, length)
        within = np.arange(len(pod)) - np.repeat(np.cumsum(length) - length, length)
        step = usage.pod_first[pod] + within
        values = np.nan_to_num(usage.pod_values[usage.pod_start[pod] + within].astype(np.float64))
        starts = recording.start + STEP_SECONDS * step
        ran = np.minimum(starts + STEP_SECONDS, pods.ended[pod]) - np.maximum(starts, pods.bound[pod])
        yield _Values(pods.node[pod], step, values * np.clip(ran, 0.0, STEP_SECONDS) / STEP_SECONDS)
