"""CPU as cycles read it: usage to entries of the journal, and entries to the readings of a recording.

All nodes are kept, and of the hottest ones their samples and pods. Figures are tenths of millicores, as differences
from the last ones of the same node or pod.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.journal import ReadUsage
from rebalancer.model.recording import RecordedReadings
from rebalancer.model.snapshot import Bools, Floats, Ints
from rebalancer.store.journal.entries import ReadingEntry

MOST_PODS = 5_000
"""Pods of a reading. Of smaller clusters all are kept; of larger ones those of the hottest nodes."""

_UNITS = 10.0
"""In a millicore."""

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


class _Reading(NamedTuple):
    """One reading; indices are those of the state that reads the journal."""

    at: float
    window_seconds: float
    cycle: bool
    node: Ints
    millicores: Floats
    departed: Floats
    pod: Wide
    pod_millicores: Floats


class Readings:
    """Entries to the readings of a recording."""

    def __init__(self) -> None:
        self._found: list[_Reading] = []
        self._nodes, self._pods = _Last(), _Last()

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
        at, window, none = entry.at, entry.window_seconds, np.zeros(0, dtype=np.int64)
        for back, sample in zip(range(entry.rows, 0, -1), samples, strict=True):
            earlier = at - back * entry.sample_seconds
            nothing = np.zeros(len(hottest))
            self._found.append(
                _Reading(earlier, window, False, nodes[hottest], sample / _UNITS, nothing, none, np.zeros(0))
            )
        gone = unpacked(entry.departed, len(number)) / _UNITS
        self._found.append(_Reading(at, window, True, nodes[number], now / _UNITS, gone, pods[pod], of_pods / _UNITS))

    def recorded(self, *, start: float, end: float, nodes: Ints, pods: Ints) -> RecordedReadings | None:
        """Those of [start, end), None without any. `nodes`, `pods`: index -> index in the recording, -1 for none."""
        found = sorted((each for each in self._found if start <= each.at < end), key=lambda each: (each.at, each.cycle))
        if not found:
            return None
        return RecordedReadings(
            at=np.array([each.at for each in found]),
            window_seconds=np.array([each.window_seconds for each in found]),
            cycle=np.array([each.cycle for each in found]),
            node_start=_starts([each.node for each in found]),
            node=_joined([each.node for each in found], np.int32),
            node_millicores=_joined([each.millicores for each in found], np.float32),
            departed_millicores=_joined([each.departed for each in found], np.float32),
            pod_start=_starts([each.pod for each in found]),
            pod=_joined([each.pod for each in found], np.int32),
            pod_millicores=_joined([each.pod_millicores for each in found], np.float32),
        ).only(nodes, pods)


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


def _starts(columns: Sequence[NDArray[Any]]) -> Wide:
    return np.concatenate([[0], np.cumsum([len(each) for each in columns])]).astype(np.int64)


def _joined(columns: Sequence[NDArray[Any]], type_: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(columns).astype(type_)
