"""CPU as cycles read it: usage to entries of the journal, and entries to the readings of a recording.

All nodes are kept, and of the hottest ones their samples and pods. Figures are tenths of millicores, as differences
from the last ones of the same node or pod.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.model.recordings.journal import ReadUsage
from rebalancer.model.recordings.recording import RecordedReadings
from rebalancer.store.journal.entries import ReadingEntry

MOST_PODS = 5_000
"""Pods of a reading. Of smaller clusters all are kept; of larger ones those of the hottest nodes."""

_UNITS = 10.0
"""In a millicore."""

_SPARE = 1 << 18
"""Values by which a column grows."""

Wide = NDArray[np.int64]


class _Last:
    """The last figure of each number."""

    def __init__(self) -> None:
        self._values: Wide = np.zeros(1024, dtype=np.int64)

    def differences(self, numbers: Ints | Wide, values: Wide) -> Wide:
        """Of these figures from the last ones; they are the last ones from then on."""
        self._grow(numbers)
        out: Wide = values - self._values[numbers]
        self._values[numbers] = values
        return out

    def values(self, numbers: Ints | Wide, differences: Wide) -> Wide:
        """The figures again."""
        self._grow(numbers)
        self._values[numbers] += differences
        return self.last(numbers)

    def last(self, numbers: Ints | Wide) -> Wide:
        """The last figures."""
        out: Wide = self._values[numbers]
        return out

    def _grow(self, numbers: Ints | Wide) -> None:
        missing = int(numbers.max(initial=-1)) + 1 - len(self._values)
        if missing > 0:
            self._values = np.concatenate([self._values, np.zeros(max(missing, len(self._values)), dtype=np.int64)])


class ReadingChanges:
    """Usage to entries. A new one begins with a keyframe."""

    def __init__(self) -> None:
        self._nodes, self._pods = _Last(), _Last()

    def entry(self, read: ReadUsage, *, nodes: Ints, pods: Ints) -> ReadingEntry:
        """`nodes`, `pods`: number of each of the snapshot, -1 for those that are left out."""
        usage = read.usage
        known = np.flatnonzero(np.isfinite(usage.node_cpu_millicores) & (nodes >= 0))
        now = _figures(usage.node_cpu_millicores[known])
        gone = np.zeros(len(known)) if usage.departed_millicores is None else usage.departed_millicores[known]
        hottest, of_hottest = _hottest(read, nodes >= 0, pods >= 0)
        if not usage.sample_seconds:
            hottest = hottest[:0]
        samples = _figures(np.vstack([usage.samples[:-1], usage.node_cpu_millicores])[:, hottest])
        return ReadingEntry(
            usage.at,
            usage.window_seconds,
            usage.sample_seconds,
            _numbers(nodes[known]),
            packed(self._nodes.differences(nodes[known], now)),
            packed(_figures(np.nan_to_num(gone))),
            _numbers(nodes[hottest]),
            len(samples) - 1 if usage.sample_seconds else 0,
            packed(np.diff(samples, axis=0).ravel()),
            _numbers(pods[of_hottest]),
            packed(self._pods.differences(pods[of_hottest], _figures(usage.pod_cpu_millicores[of_hottest]))),
        )


def _hottest(read: ReadUsage, nodes_there: Bools, pods_there: Bools) -> tuple[Wide, Wide]:
    """The hottest nodes, as many as have MOST_PODS, and their pods; both in the snapshot's order."""
    snapshot, usage = read
    measured = (snapshot.pods.node >= 0) & np.isfinite(usage.pod_cpu_millicores) & pods_there
    share = usage.node_cpu_millicores / snapshot.nodes.cpu_capacity_millicores
    usable = nodes_there & np.isfinite(share) & np.isfinite(usage.samples).all(axis=0)
    by_share = np.argsort(np.where(usable, -share, np.inf), kind="stable")[: np.count_nonzero(usable)]
    counts = np.bincount(snapshot.pods.node[measured], minlength=len(snapshot.nodes))
    nodes = by_share[np.cumsum(counts[by_share]) <= MOST_PODS]
    chosen = np.zeros(len(snapshot.nodes) + 1, dtype=np.bool_)
    chosen[nodes] = True
    return np.sort(nodes), np.flatnonzero(measured & chosen[snapshot.pods.node])


class _Column:
    """An array that is appended to. It isn't copied while it grows: of a week it takes a hundred megabytes."""

    def __init__(self, type_: type[np.generic]) -> None:
        self._all: NDArray[Any] = np.empty(0, dtype=type_)
        self._count = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Append values."""
        count = self._count + len(values)
        if count > len(self._all):
            # there is no view of it, so it may move
            self._all.resize(count + _SPARE, refcheck=False)
        self._all[self._count : count] = values
        self._count = count

    def taken(self) -> NDArray[Any]:
        """All values. Nothing may be appended after it."""
        self._all.resize(self._count, refcheck=False)
        return self._all

    def clear(self) -> None:
        """Forget all values."""
        self._all, self._count = self._all[:0].copy(), 0


class Readings:
    """Entries to the readings of a recording."""

    def __init__(self, *, start: float, end: float) -> None:
        """Those of [start, end) are kept."""
        self._start, self._end = start, end
        self._nodes, self._pods = _Last(), _Last()
        self._at: list[float] = []
        self._window: list[float] = []
        self._cycle: list[bool] = []
        self._node_counts: list[int] = []
        self._pod_counts: list[int] = []
        # indices are those of the state that reads the journal
        self._node, self._pod = _Column(np.int32), _Column(np.int32)
        self._millicores, self._departed, self._pod_millicores = (_Column(np.float32) for _ in range(3))

    def restart(self) -> None:
        """A keyframe follows."""
        self._nodes, self._pods = _Last(), _Last()

    def apply(self, entry: ReadingEntry, *, nodes: Ints, pods: Wide) -> None:
        """The next one. `nodes`, `pods`: number -> index."""
        number, pod, hottest = (_from_numbers(each) for each in (entry.nodes, entry.pods, entry.hottest))
        now = self._nodes.values(number, unpacked(entry.millicores, len(number)))
        of_pods = self._pods.values(pod, unpacked(entry.pod_millicores, len(pod)))
        rises = unpacked(entry.samples, entry.rows * len(hottest)).reshape(entry.rows, len(hottest))
        samples = self._nodes.last(hottest) - np.cumsum(rises[::-1], axis=0)[::-1]
        nothing = np.zeros(len(hottest))
        for back, sample in zip(range(entry.rows, 0, -1), samples, strict=True):
            if self._begin(entry, back=back):
                self._add_nodes(nodes[hottest], sample / _UNITS, nothing)
                self._pod_counts.append(0)
        if self._begin(entry, back=0):
            self._add_nodes(nodes[number], now / _UNITS, unpacked(entry.departed, len(number)) / _UNITS)
            self._pod.extend(pods[pod])
            self._pod_millicores.extend(of_pods / _UNITS)
            self._pod_counts.append(len(pod))

    def _begin(self, entry: ReadingEntry, *, back: int) -> bool:
        """Whether the reading of so many samples before now is kept."""
        at = entry.at - back * entry.sample_seconds
        if not self._start <= at < self._end:
            return False
        self._at.append(at)
        self._window.append(entry.window_seconds)
        self._cycle.append(not back)
        return True

    def _add_nodes(self, nodes: Ints, millicores: Floats, departed: Floats) -> None:
        self._node.extend(nodes)
        self._millicores.extend(millicores)
        self._departed.extend(departed)
        self._node_counts.append(len(nodes))

    def recorded(self, *, nodes: Ints, pods: Ints) -> RecordedReadings | None:
        """Those that are kept, None without any. `nodes`, `pods`: index -> index in the recording, -1 for none.
        Nothing may be applied after it."""
        if not self._at:
            return None
        at, cycle = np.array(self._at), np.array(self._cycle)
        order = np.lexsort((cycle, at))
        of_node, of_pod = np.array(self._node_counts), np.array(self._pod_counts)
        _replace(self._node.taken(), nodes)
        _replace(self._pod.taken(), pods)
        found = RecordedReadings(
            at=at[order],
            window_seconds=np.array(self._window)[order],
            cycle=cycle[order],
            node_start=_starts(of_node[order]),
            node=_ordered(self._node, of_node, order),
            node_millicores=_ordered(self._millicores, of_node, order),
            departed_millicores=_ordered(self._departed, of_node, order),
            pod_start=_starts(of_pod[order]),
            pod=_ordered(self._pod, of_pod, order),
            pod_millicores=_ordered(self._pod_millicores, of_pod, order),
        )
        if min(found.node.min(initial=0), found.pod.min(initial=0)) < 0:
            return found.only(_themselves(nodes), _themselves(pods))
        return found


def _replace(indices: NDArray[Any], by: Ints) -> None:
    """Replace each index in place, part by part."""
    for first in range(0, len(indices), _SPARE):
        part = slice(first, first + _SPARE)
        indices[part] = by[indices[part]]


def _themselves(indices: Ints) -> Ints:
    """Each index, and -1 for -1."""
    return np.append(np.arange(len(indices), dtype=np.int32), np.int32(-1))


def _ordered(column: _Column, counts: Wide, order: NDArray[np.intp]) -> NDArray[Any]:
    """The column with its readings in this order; `counts` are theirs in the order of their arrival."""
    values, starts = column.taken(), _starts(counts)
    shown = order[counts[order] > 0]
    if (np.diff(shown) > 0).all():
        return values
    out, end = np.empty_like(values), 0
    for each in shown.tolist():
        part = values[starts[each] : starts[each + 1]]
        out[end : end + len(part)] = part
        end += len(part)
    column.clear()
    return out


def packed(numbers: Wide) -> bytes:
    """Whole numbers, small ones in little room: all lowest bytes, then all second ones, as far as any has them."""
    folded = ((numbers << 1) ^ (numbers >> 63)).astype("<u8")  # -1 is 1, 1 is 2, -2 is 3
    planes = folded.view(np.uint8).reshape(-1, 8).T
    used = np.flatnonzero(planes.any(axis=1))
    return planes[: int(used[-1]) + 1 if len(used) else 0].tobytes()


def unpacked(data: bytes, count: int) -> Wide:
    """The same back."""
    planes = np.zeros((8, count), dtype=np.uint8)
    if data:
        given = np.frombuffer(data, dtype=np.uint8).reshape(-1, count)
        planes[: len(given)] = given
    folded = np.ascontiguousarray(planes.T).view("<u8").ravel()
    return (folded >> np.uint64(1)).astype(np.int64) ^ -(folded & np.uint64(1)).astype(np.int64)


def _numbers(numbers: Ints | Wide) -> tuple[int, bytes]:
    return len(numbers), packed(numbers - np.concatenate([[0], numbers[:-1]]))


def _from_numbers(data: tuple[int, bytes]) -> Wide:
    return np.cumsum(unpacked(data[1], data[0]))


def _figures(millicores: Floats) -> Wide:
    return np.rint(millicores * _UNITS).astype(np.int64)


def _starts(counts: Wide) -> Wide:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
