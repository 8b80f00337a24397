"""Nodes of a recording from their entries."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from rebalancer.model.cluster.nodes import NodeImages, Nodes
from rebalancer.model.cluster.steering import CORDONS, SOFT_TAINT
from rebalancer.model.notation.decoding import convert
from rebalancer.model.recordings.recording import is_passing
from rebalancer.store.journal.entries import ImagesEntry, NodeEntry, from_ints

_CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""Set by the node controller on every cordoned node."""


def has_soft_taint(node: NodeEntry) -> bool:
    """Whether a node has our soft taint, or a cordon of ours."""
    return any(each.key == SOFT_TAINT for each in node.taints)


def without_ours(node: NodeEntry) -> NodeEntry:
    """A node without our soft taint and cordon: they are decisions, which a replay makes itself."""
    ours = [each for each in node.taints if each.key == SOFT_TAINT]
    if not ours:
        return node
    cordoned = node.unschedulable and not any(each.value in CORDONS for each in ours)
    taints = tuple(each for each in node.taints if each not in ours and (cordoned or each.key != _CORDON_TAINT))
    return msgspec.structs.replace(node, taints=taints, unschedulable=cordoned)


_APART = (SOFT_TAINT, _CORDON_TAINT, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Passing taints whose causes a recording has as columns."""


def is_closed(node: NodeEntry) -> bool:
    """Whether nothing is placed on a node because of a taint that passes."""
    return any(
        is_passing(each.key) and each.key not in _APART and each.effect != "PreferNoSchedule" for each in node.taints
    )


class NodeTimes:
    """For how long a node had which labels and taints."""

    def __init__(self) -> None:
        self.was_closed = False
        self._seconds: dict[object, float] = {}
        self._entries: dict[object, NodeEntry] = {}
        self._now: tuple[object, float] | None = None

    @property
    def has_changed(self) -> bool:
        """Labels or lasting taints were others at some time."""
        return len(self._entries) > 1

    def had(self, node: NodeEntry, since: float) -> None:
        """It is so from then on."""
        self.ended(since)
        taints = tuple(each for each in node.taints if not is_passing(each.key))
        key = tuple(sorted(node.labels.items())), tuple((each.key, each.value, each.effect) for each in taints)
        self._entries[key] = msgspec.structs.replace(node, taints=taints)
        self._now = key, since
        self.was_closed |= is_closed(node)

    def ended(self, at: float) -> None:
        """It is gone, or the recording has ended."""
        if self._now is not None:
            key, since = self._now
            self._seconds[key] = self._seconds.get(key, 0.0) + at - since
        self._now = None

    def lasting(self, last: NodeEntry) -> NodeEntry:
        """The node with the labels and taints that it had for the longest time; passing ones are left out."""
        most = self._entries[max(self._seconds, key=self._seconds.__getitem__)]
        return msgspec.structs.replace(last, labels=most.labels, taints=most.taints)


_FIELDS = {"names" if each == "name" else each: each for each in NodeEntry.__struct_fields__ if each != "others"}
"""Column of `Nodes` -> field of an entry, of the columns that have one."""
_OTHERS = {name: each for name, each in Nodes.columns.items() if name not in _FIELDS}


def node_entries(nodes: Nodes) -> Iterator[NodeEntry]:
    """The entry of each node."""
    values = {name: each.values(getattr(nodes, name)) for name, each in Nodes.columns.items()}
    for row, fields in enumerate(zip(*(values[name] for name in _FIELDS), strict=True)):
        others = {name: values[name][row] for name, each in _OTHERS.items() if not each.is_empty(values[name][row])}
        entry: tuple[Any, ...] = (*fields, others)
        yield NodeEntry(*entry)


def node_columns(nodes: Sequence[NodeEntry], images: tuple[ImagesEntry, dict[int, str]] | None, today: Nodes) -> Nodes:
    """Columns of these nodes. Images of nodes that are still there are those of `today`, of the others those of
    `images`, which has the name of each number.
    """
    columns = {
        name: Nodes.columns[name].of([getattr(each, field) for each in nodes]) for name, field in _FIELDS.items()
    }
    for name, column in _OTHERS.items():
        values = [each.others.get(name, column.empty) for each in nodes]
        if column.kind is not np.ndarray:
            values = [convert(value, column.type) for value in values]
        columns[name] = column.of(values)
    return Nodes(**columns, images=_images_of([each.name for each in nodes], images, today))


def _images_of(nodes: Sequence[str], entry: tuple[ImagesEntry, dict[int, str]] | None, today: Nodes) -> NodeImages:
    still = {name: at for at, name in enumerate(today.names)}
    # of a node that is gone, a number that no node of today has
    numbers = [still.get(name, len(today) + at) for at, name in enumerate(nodes)]
    images = today.images.take(np.array(numbers, dtype=np.int32))
    if entry is None:
        return images
    before, name_of = entry
    gone = {name: at for at, name in enumerate(nodes) if name not in still}
    node = np.array([gone.get(name_of[each], -1) for each in from_ints(before.node).tolist()], dtype=np.int32)
    names = {name: at for at, name in enumerate(before.names)}
    pairs = from_ints(before.image)[node >= 0], node[node >= 0]
    return images.concat(NodeImages(names, np.array(before.sizes, dtype=np.float64), *pairs), after=0)
