"""Entries of a journal file, one after the other, each a member that can be read on its own:

    magic and version | length of the rest | CRC-32 of the rest | zlib of an `Entry` in MessagePack

A member that is cut off or damaged is skipped: the next one begins at the next magic. Tables (nodes, namespaces,
owners, pod templates, pods) are numbered in the order of their arrival since the last keyframe, from 0 on.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.objects import LabelSelector, Taint
from rebalancer.model.notation.decoding import msgpack_decoder

MAGIC = b"RBJ\x01"
"""The last byte is the version."""
_START = struct.Struct("<4sII")

READY, FINISHED = 1, 2
"""Bits of the state of a pod."""

FIELDS: dict[str, str] = {"node": "<i4", "owner": "<i4", "template": "<i4", "state": "<u1", "started": "<f8"}
"""Columns of a pod that may change, and their types. `node`, `owner` and `template` are numbers, -1 for none; `started`
is NaN while it has not."""


class OwnerEntry(NamedTuple):
    """A controlling owner."""

    kind: str
    namespace: str
    name: str
    uid: str
    parent: int
    """Number of its own owner, -1 at the top."""


class NodeEntry(msgspec.Struct, frozen=True, array_like=True):
    """One node as it is now: its values in the columns of `Nodes`. Its images are in `ImagesEntry`."""

    name: str
    cpu_capacity_millicores: float
    cpu_allocatable_millicores: float
    memory_capacity_bytes: float
    memory_allocatable_bytes: float
    pods_allocatable: float
    ready: bool
    unschedulable: bool
    created: float
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    addresses: tuple[str, ...]
    extended: dict[str, float]
    annotations: dict[str, str]
    others: dict[str, Any] = {}
    """Column without a field here -> its value, unless that is the empty one."""


class ImagesEntry(msgspec.Struct, frozen=True, array_like=True):
    """Images on nodes: pairs of numbers."""

    names: list[str]
    sizes: list[float]
    """Bytes of each."""
    image: bytes
    node: bytes


class NewPodsEntry(msgspec.Struct, frozen=True, array_like=True):
    """Columns of the pods that came."""

    count: int
    names: str
    """One a line, as `uids`."""
    uids: str
    namespace: bytes
    created: bytes
    priority: bytes


class BudgetEntry(msgspec.Struct, frozen=True, array_like=True):
    """A PodDisruptionBudget as it is now."""

    namespace: str
    name: str
    selector: LabelSelector | None
    desired_healthy: int
    evicts_unhealthy: bool


class EvictionEntry(msgspec.Struct, frozen=True, array_like=True):
    """An eviction, with its replacement once that is Ready."""

    namespace: str
    pod: str
    uid: str
    node: str
    at: float
    outcome: str
    strategy: str
    reason: str
    replacement_uid: str = ""
    replaced_at: float | None = None


class AlertEntry(msgspec.Struct, frozen=True, array_like=True):
    """An alert that fires."""

    id: int
    received_at: float
    labels: dict[str, str]
    annotations: dict[str, str]


class ReadingEntry(msgspec.Struct, frozen=True, array_like=True):
    """CPU as a cycle read it: see `readings`. Of nodes and pods it has their count and their numbers."""

    at: float
    window_seconds: float
    sample_seconds: float
    """Between two rows of samples."""
    nodes: tuple[int, bytes]
    millicores: bytes
    departed: bytes
    """Of pods that had left, by node."""
    hottest: tuple[int, bytes]
    rows: int
    """Samples before now."""
    samples: bytes
    """(rows, hottest) rise until the next one."""
    pods: tuple[int, bytes]
    pod_millicores: bytes


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changes since the entry before it. In a keyframe everything is new."""

    at: float
    previous: int | None = None
    """Checksum of the entry that it continues; None for a keyframe."""
    cut: bool = False
    """The day is full: nothing follows."""
    namespaces: tuple[str, ...] = ()
    """New ones, as `owners` and `templates`."""
    owners: tuple[OwnerEntry, ...] = ()
    templates: tuple[bytes, ...] = ()
    """`PodTemplate` in JSON."""
    nodes: dict[int, NodeEntry] = {}
    """Number -> a node that is new or has changed."""
    nodes_left: tuple[int, ...] = ()
    images: ImagesEntry | None = None
    """Keyframes only: images change too often for what they are worth."""
    new: NewPodsEntry | None = None
    changed: bytes = b""
    """Numbers of the pods that have changed."""
    columns: dict[str, bytes] = {}
    """Field of FIELDS -> values of the pods in `changed`, then of those in `new`."""
    ended: bytes = b""
    """Numbers of the pods that are gone."""
    budgets: tuple[BudgetEntry, ...] = ()
    """New or changed ones."""
    budgets_ended: tuple[tuple[str, str], ...] = ()
    """(namespace, name)"""
    evictions: tuple[EvictionEntry, ...] = ()
    alerts: tuple[AlertEntry, ...] = ()
    """Those that have begun to fire."""
    alerts_ended: tuple[int, ...] = ()
    reading: ReadingEntry | None = None
    """What a cycle has read since the entry before."""


_decoder = msgpack_decoder(Entry)


class Read(NamedTuple):
    """An entry as it was read."""

    entry: Entry
    checksum: int


def encoded(entry: Entry) -> tuple[bytes, int]:
    """The member of an entry, and its checksum."""
    packed = zlib.compress(msgspec.msgpack.encode(entry))
    checksum = zlib.crc32(packed)
    return _START.pack(MAGIC, len(packed), checksum) + packed, checksum


def decoded(data: bytes) -> Iterator[Read | int]:
    """All entries of a file in their order; for a part that can't be read, the number of its bytes."""
    at = 0
    while at < len(data):
        found = _member(data, at)
        if found is not None:
            read, at = found
            yield read
            continue
        following = data.find(MAGIC, at + 1)
        end = len(data) if following < 0 else following
        yield end - at
        at = end


def _member(data: bytes, at: int) -> tuple[Read, int] | None:
    if len(data) - at < _START.size:
        return None
    magic, length, checksum = _START.unpack_from(data, at)
    packed = data[at + _START.size : at + _START.size + length]
    if magic != MAGIC or len(packed) < length or zlib.crc32(packed) != checksum:
        return None
    try:
        return Read(_decoder.decode(zlib.decompress(packed)), checksum), at + _START.size + length
    except (msgspec.DecodeError, zlib.error):
        return None


def ints(numbers: NDArray[np.generic]) -> bytes:
    """Numbers as `Entry` has them."""
    return numbers.astype("<i4").tobytes()


def from_ints(data: bytes) -> NDArray[np.int32]:
    """The same back."""
    return np.frombuffer(data, dtype="<i4")
