"""Nodes of a recording from their entries."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from rebalancer.model.cluster.snapshot import Floats, NodeImages, Nodes
from rebalancer.model.cluster.steering import CORDONS, SOFT_TAINT
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


def node_columns(nodes: Sequence[NodeEntry], images: tuple[ImagesEntry, dict[int, str]] | None, today: Nodes) -> Nodes:
    """Columns of these nodes. Images of nodes that are still there are those of `today`, of the others those of
    `images`, which has the name of each number.
    """

    def figures(name: str) -> Floats:
        return np.array([getattr(each, name) for each in nodes], dtype=np.float64)

    return Nodes(
        names=tuple(each.name for each in nodes),
        cpu_capacity_millicores=figures("cpu_capacity_millicores"),
        cpu_allocatable_millicores=figures("cpu_allocatable_millicores"),
        memory_capacity_bytes=figures("memory_capacity_bytes"),
        memory_allocatable_bytes=figures("memory_allocatable_bytes"),
        pods_allocatable=figures("pods_allocatable"),
        ready=np.array([each.ready for each in nodes], dtype=np.bool_),
        unschedulable=np.array([each.unschedulable for each in nodes], dtype=np.bool_),
        created=figures("created"),
        labels=tuple(each.labels for each in nodes),
        taints=tuple(each.taints for each in nodes),
        addresses=tuple(each.addresses for each in nodes),
        extended=tuple(each.extended for each in nodes),
        images=_images_of([each.name for each in nodes], images, today),
        annotations=tuple(each.annotations for each in nodes),
    )


def _images_of(nodes: Sequence[str], entry: tuple[ImagesEntry, dict[int, str]] | None, today: Nodes) -> NodeImages:
    number = {name: at for at, name in enumerate(nodes)}
    names: dict[str, int] = {}
    sizes: list[float] = []
    pairs: list[tuple[int, int]] = []

    def add(name: str, size: float, on: Iterable[str]) -> None:
        if name not in names:
            names[name] = len(sizes)
            sizes.append(size)
        pairs.extend((names[name], number[node]) for node in on if node in number)

    of_today, bytes_of, image, node = today.images.columns()
    for name, which in of_today.items():
        first, end = np.searchsorted(image, [which, which + 1])
        add(name, float(bytes_of[which]), [today.names[at] for at in node[first:end].tolist()])
    if entry is not None:
        before, name_of = entry
        still = set(today.names)
        for which, on in zip(from_ints(before.image).tolist(), from_ints(before.node).tolist(), strict=True):
            if name_of[on] not in still:
                add(before.names[which], before.sizes[which], [name_of[on]])
    table = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return NodeImages(names, np.array(sizes, dtype=np.float64), table[:, 0], table[:, 1])
