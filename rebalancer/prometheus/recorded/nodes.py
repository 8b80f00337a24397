"""Nodes of a recording: those of today, then those that are gone, completed by the most similar node of today."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.notation.figures import counted
from rebalancer.model.recordings.recording import CAME_BACK, Gap, is_passing
from rebalancer.prometheus.recorded.kube_state import NodeHistory

_HOSTNAME = "kubernetes.io/hostname"
_EXPORTED = "label_"


@dataclass(frozen=True, kw_only=True)
class RecordedNodes:
    """As the fields of `Recording`."""

    nodes: Nodes
    joined: Floats
    left: Floats
    ready: Bools
    unschedulable: Bools
    absent: Bools
    """Steps of nodes that came back under their name: not Ready, and unschedulable."""
    gone: int
    """Nodes that are gone today: the last ones."""
    gaps: tuple[Gap, ...]


class _Gone(NamedTuple):
    """A node that is gone today."""

    name: str
    amounts: Mapping[str, float]
    """Column of `Nodes` -> its value."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    address: tuple[str, ...]
    extended: Mapping[str, float]


_AMOUNTS = {
    "cpu_capacity_millicores": ("capacity", "cpu", 1000.0),
    "cpu_allocatable_millicores": ("allocatable", "cpu", 1000.0),
    "memory_capacity_bytes": ("capacity", "memory", 1.0),
    "memory_allocatable_bytes": ("allocatable", "memory", 1.0),
    "pods_allocatable": ("allocatable", "pods", 1.0),
}
"""Column -> kind of amount, resource, and units of the column in one of Prometheus'."""


def recorded_nodes(history: NodeHistory, today: Nodes, *, start: float, steps: int) -> RecordedNodes:
    """`today`'s nodes keep their indices."""
    known = set(today.names)
    gone = sorted(name for name in history.address if name and name not in known)
    used = Counter(history.address[name] for name in gone)
    used.update(address for each in today.addresses for address in each)
    similar = _Similar(today)
    rows = [_gone(name, history, similar, shared=used[history.address[name]] > 1) for name in gone]
    nodes = _joined(today, rows, np.array([history.joined.get(name, start) for name in gone]))
    end = start + steps * STEP_SECONDS
    created = np.concatenate((today.created, np.array([history.joined.get(name, -np.inf) for name in gone])))
    for row, name in enumerate(nodes.names):
        created[row] = history.returned.get(name, created[row])
    there = np.array([name in history.at_start for name in nodes.names], dtype=np.bool_)
    joined = np.where(there | (created <= start), -np.inf, created)
    left = np.full(len(nodes), np.inf)
    left[len(today) :] = [history.left.get(name, end) for name in gone]
    middles = start + (np.arange(steps) + 0.5) * STEP_SECONDS
    ready: Bools = (joined[:, None] <= middles) & (middles < left[:, None])
    unschedulable: Bools = np.zeros_like(ready)
    absent: Bools = np.zeros_like(ready)
    for row, name in enumerate(nodes.names):
        if (not_ready := history.not_ready.get(name)) is not None:
            ready[row] &= ~not_ready
        if (cordoned := history.unschedulable.get(name)) is not None:
            unschedulable[row] = cordoned
        if (away := history.absent.get(name)) is not None:
            absent[row] = away
    return RecordedNodes(
        nodes=nodes,
        joined=joined,
        left=left,
        ready=ready & ~absent,
        unschedulable=unschedulable | absent,
        absent=absent,
        gone=len(gone),
        gaps=tuple(_gaps(history, gone, rows)),
    )


def _gaps(history: NodeHistory, gone: Sequence[str], rows: Sequence[_Gone]) -> list[Gap]:
    out = []
    if gone:
        exported = sum(any(key.startswith(_EXPORTED) for key in history.labels.get(name, ())) for name in gone)
        rest = "what kube_node_labels exports of them, and otherwise those" if exported else "those"
        out.append(
            Gap(
                f"{counted(len(gone), 'node')} gone today: labels are {rest} of the node with the most similar name "
                "and equal capacity",
                0,
            )
        )
    if history.absent:
        out.append(Gap(CAME_BACK.format(counted(len(history.absent), "node")), 0))
    hidden = sum(not each.address and bool(history.address[each.name]) for each in rows)
    if hidden:
        of = counted(hidden, "node")
        out.append(Gap(f"{of} gone today with an address that another node has too: no CPU of theirs is known", 0))
    return out


def _gone(name: str, history: NodeHistory, similar: "_Similar", *, shared: bool) -> _Gone:
    amounts = {
        column: value * unit
        for column, (kind, resource, unit) in _AMOUNTS.items()
        if (value := history.amounts.get((name, kind, resource))) is not None
    }
    index = similar.to(name, amounts.get("cpu_capacity_millicores"))
    nodes = similar.nodes
    labels: dict[str, str] = {}
    if index is not None:
        labels |= nodes.labels[index]
        amounts = {column: float(getattr(nodes, column)[index]) for column in _AMOUNTS} | amounts
    labels |= {
        similar.keys[exported]: value
        for exported, value in history.labels.get(name, {}).items()
        if exported in similar.keys
    }
    labels[_HOSTNAME] = name
    address = history.address[name]
    return _Gone(
        name=name,
        amounts=amounts,
        labels=labels,
        taints=_lasting(
            Taint(key=key, value=value, effect=effect) for key, value, effect in history.taints.get(name, ())
        ),
        address=() if shared or not address else (address,),
        extended=nodes.extended[index] if index is not None else {},
    )


def _lasting(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    return tuple(each for each in taints if not is_passing(each.key))


class _Similar:
    """Finds the node of today that a node that is gone was most like."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.keys = {
            _EXPORTED + "".join(each if each.isalnum() else "_" for each in key): key
            for labels in nodes.labels
            for key in labels
        }
        """Label as kube-state-metrics spells it -> the label."""
        self._sorted: dict[int | None, list[tuple[str, int]]] = {}
        for index, (name, cpu) in enumerate(zip(nodes.names, nodes.cpu_capacity_millicores.tolist(), strict=True)):
            for key in (round(cpu / 100.0), None):
                self._sorted.setdefault(key, []).append((name, index))
        for each in self._sorted.values():
            each.sort()

    def to(self, name: str, cpu_millicores: float | None) -> int | None:
        """The longest common beginning of the names decides, among nodes of equal CPU capacity if there are any."""
        of_all = self._sorted.get(None, [])
        names = of_all if cpu_millicores is None else self._sorted.get(round(cpu_millicores / 100.0), of_all)
        at = bisect_left(names, (name, -1))
        near = names[max(at - 1, 0) : at + 1]
        return max(near, key=lambda each: _alike(name, each[0]))[1] if near else None


def _alike(one: str, other: str) -> int:
    """Length of the common beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _joined(today: Nodes, gone: Sequence[_Gone], created: Floats) -> Nodes:
    amounts: dict[str, Any] = {name: np.array([each.amounts.get(name, 0.0) for each in gone]) for name in _AMOUNTS}
    known = replace(
        Nodes.blank(len(gone)),
        names=tuple(each.name for each in gone),
        created=created,
        labels=tuple(each.labels for each in gone),
        taints=tuple(each.taints for each in gone),
        addresses=tuple(each.address for each in gone),
        extended=tuple(each.extended for each in gone),
        **amounts,
    )
    return replace(today, taints=tuple(map(_lasting, today.taints))).concat(known)
