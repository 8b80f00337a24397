"""One day's responses, mapped to pods and nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.day_grid import DayGrid
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock, Grid
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.figures import clock_time
from rebalancer.prometheus.promql.decode import Lines, PodLines
from rebalancer.prometheus.readings.nodes import NodeMap, host_of, same_target, shown

_SHOWN_GAPS = 3
_SHORT_GAP = 2
"""Slots: a shorter gap is a failed scrape."""
_HANDOVER = 2
"""Slots in which two series of one node may overlap, when its exporter was replaced."""

Row = NDArray[np.float32]

_NOTHING: tuple[tuple[str, ...], Grid] = ((), np.empty((0, SLOTS), dtype=np.float32))


@dataclass(kw_only=True)
class _Claims:
    """The series of one node."""

    first: Mapping[str, str]
    conflicts: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(SLOTS, dtype=np.bool_))
    other: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """From the units of the queries to those of day blocks."""

    node: Floats
    """(nodes,) units of a block in one unit of the node query; NaN where unknown."""
    pod: float
    """The same of the pod query."""
    most: Floats
    """(nodes,) the largest plausible amount of a node, in units of a block; NaN where unknown."""


class DayOfSeries:
    """Collects the responses of a day."""

    def __init__(
        self,
        day: int,
        *,
        first: int,
        end: int,
        snapshot: ClusterSnapshot,
        node_map: NodeMap,
        units: "Units",
        merge_target_on: str | None,
    ) -> None:
        """For the slots from `first` up to, not including, `end`.

        With `merge_target_on` (a label), node series with that label and the cluster
        in common are two jobs' scrapes of one target.
        """
        self._day, self._first, self._end = day, first, end
        self._pods = DayGrid(first=first, end=end, rows=len(snapshot.pods) + len(snapshot.pods) // 8)
        self._nodes = DayGrid(first=first, end=end, rows=len(snapshot.nodes))
        self._names = snapshot.nodes.names
        self._units = units
        most = units.most
        self._most_of_a_pod = float(np.nanmax(most)) if np.isfinite(most).any() else np.inf
        self._born = _first_slots(snapshot.nodes.created, day)
        self._node_map = node_map
        self._merge_target_on = merge_target_on
        self._claims: dict[int, _Claims] = {}
        self._node_of: dict[str, int] = {"": 0}
        self._odd = 0
        self._unmatched: Mapping[str, str] | None = None

    def add_nodes(self, lines: Lines, values: Grid, first: int) -> None:
        """`values` (series, slots) in the query's unit, from slot `first` on."""
        for labels, row in zip(lines.labels, values, strict=True):
            found = self._node_map.find(labels)
            if not found:
                self._unmatched = labels
            for index in found:
                millicores = self._sound(row * np.float32(self._units.node[index]), self._units.most[index])
                if not self._names_it(labels, index):
                    # an address is reused by another machine once its own is gone
                    millicores[: max(self._born[index] - first, 0)] = np.nan
                self._claim(index, labels, millicores, first, several=len(found) > 1)

    def add_pods(self, lines: PodLines, values: Grid, first: int) -> None:
        """`values` (series, slots) in the query's unit, from slot `first` on."""
        millicores = self._sound(values * np.float32(self._units.pod), self._most_of_a_pod)
        elsewhere = []
        for namespace, pod, node, row in _views(lines, millicores):
            if not (namespace and pod):
                continue
            if self._is_node(node):
                into = self._pods.part(f"{namespace}/{pod}", first, len(row))
                np.fmax(into, row, out=into)
            else:
                elsewhere.append((f"{namespace}/{pod}", row))
        for name, row in elsewhere:
            # a node that is gone, or of another cluster with a pod of the same name: only where no other value is known
            into = self._pods.part(name, first, len(row))
            np.copyto(into, row, where=np.isnan(into))

    def onto(self, old: DayBlock | None) -> DayBlock | None:
        """The collected day, completed by the previously known one; None without any sample."""
        for index, claims in self._claims.items():
            part = self._nodes.part(self._names[index], self._first, self._end - self._first)
            part[claims.conflicts[self._first : self._end]] = np.nan
        known = _any_known(self._nodes.values) | _any_known(self._pods.values)
        if not known.any():
            return None
        pods, pod_values = self._pods.onto(*((old.pods, old.pod_millicores) if old else _NOTHING))
        nodes, node_values = self._nodes.onto(*((old.nodes, old.node_millicores) if old else _NOTHING))
        return DayBlock(
            day=self._day,
            pods=pods,
            pod_millicores=pod_values,
            nodes=nodes,
            node_millicores=node_values,
            notes=tuple(dict.fromkeys((*(old.notes if old else ()), *self._notes(known)))),
        )

    def _clock(self, slot: int) -> str:
        return clock_time(self._day * DAY_SECONDS + slot * STEP_SECONDS)

    def _notes(self, known: NDArray[np.bool_]) -> Iterator[str]:
        if gaps := [gap for gap in _gaps(known, self._first) if gap[1] - gap[0] >= _SHORT_GAP]:
            text = ", ".join(f"{self._clock(start)} to {self._clock(stop)}" for start, stop in gaps[:_SHOWN_GAPS])
            yield f"no samples from {text}" + (f" and {len(gaps) - _SHOWN_GAPS} more" * (len(gaps) > _SHOWN_GAPS))
        if self._odd:
            yield f"{self._odd} figures are left out: negative, not finite, or more than a node has"
        contested = {i: each for i, each in self._claims.items() if each.conflicts.sum() > _HANDOVER}
        if contested:
            index, claims = next(iter(contested.items()))
            more = f"; {len(contested) - 1} more nodes are claimed twice" if len(contested) > 1 else ""
            text = f"{shown(claims.first)} and {claims.other}"
            yield f"the series of {self._names[index]} are ambiguous: {text}{more}"
        if not len(self._nodes) and self._unmatched is not None:
            yield f"no series names a node of this cluster, for example {shown(self._unmatched)}"
        elif not len(self._nodes):
            yield "no series of nodes"
        if not len(self._pods):
            yield "no series of pods"

    def _sound(self, values: Grid, most: float) -> Grid:
        """The values without those that can't be usage."""
        with np.errstate(invalid="ignore"):
            bad = ~np.isnan(values) & ~((values >= 0) & (values <= most if np.isfinite(most) else np.isfinite(values)))
        self._odd += int(np.count_nonzero(bad))
        return np.where(bad, np.float32(np.nan), values)

    def _claim(self, index: int, labels: Mapping[str, str], row: Row, first: int, *, several: bool) -> None:
        claims = self._claims.get(index)
        if claims is None:
            claims = self._claims[index] = _Claims(first=labels)
        into = self._nodes.part(self._names[index], first, len(row))
        clash = np.isfinite(row) if several else np.isfinite(row) & np.isfinite(into)
        merges = self._merge_target_on is not None and same_target(claims.first, labels, self._merge_target_on)
        if several:
            claims.other = f"it fits {len(self._node_map.find(labels))} nodes"
        elif not merges and clash.any():
            clash &= ~np.isclose(row, into, rtol=1e-6, atol=0.0)
            claims.other = shown(labels) if clash.any() else claims.other
        else:
            clash[:] = False
        claims.conflicts[first : first + len(row)] |= clash
        np.fmax(into, row, out=into)

    def _names_it(self, labels: Mapping[str, str], index: int) -> bool:
        """Whether the series names its node, and not only an address of it."""
        label = self._node_map.label
        return self._names[index] in (labels.get("node"), labels.get(label), host_of(labels.get(label, "")))

    def _is_node(self, label: str) -> bool:
        """A series without the label counts as one of this cluster."""
        index = self._node_of.get(label)
        if index is None:
            index = self._node_of[label] = self._node_map.named(label)
        return index >= 0


def _views(lines: PodLines, millicores: Grid) -> Iterator[tuple[str, str, str, Row]]:
    """Each pod's series merged into one: several series of one container are views of the same, and the larger counts;
    containers are summed."""
    if not any(lines.containers):
        yield from zip(lines.namespaces, lines.pods, lines.nodes, millicores, strict=True)
        return
    wholes: dict[tuple[str, str, str], dict[str, Row]] = {}
    for namespace, pod, node, container, row in zip(
        lines.namespaces, lines.pods, lines.nodes, lines.containers, millicores, strict=True
    ):
        parts = wholes.setdefault((namespace, pod, node), {})
        parts[container] = np.fmax(parts[container], row) if container in parts else row
    for (namespace, pod, node), parts in wholes.items():
        whole = parts.pop("", None)
        rows = np.array(list(parts.values())) if parts else None
        if rows is not None:
            summed: Row = np.where(np.isnan(rows).all(axis=0), np.float32(np.nan), np.nansum(rows, axis=0))
            whole = summed if whole is None else np.fmax(whole, summed)
        if whole is not None:
            yield namespace, pod, node, whole


def _first_slots(created: NDArray[np.float64], day: int) -> list[int]:
    """(nodes,) the first slot of the day that begins after each node was created; 0 where that isn't known."""
    slots = np.ceil((np.nan_to_num(created) - day * DAY_SECONDS) / STEP_SECONDS)
    return [int(slot) for slot in np.clip(slots, 0, SLOTS)]


def _any_known(values: Grid) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(values).any(axis=0))


def _gaps(known: NDArray[np.bool_], first: int) -> list[tuple[int, int]]:
    """Runs of slots without data."""
    missing = np.concatenate(([False], ~known, [False]))
    edges = np.flatnonzero(missing[1:] != missing[:-1]) + first
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
