"""Nodes of the journal: their entries and the columns that are read back."""

from dataclasses import replace

import msgspec
import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import Taint
from rebalancer.store.journal.entries import NodeEntry
from rebalancer.store.journal.nodes import node_columns, node_entries

TAINT = Taint(key="gpu", effect="NoSchedule")
NODES = replace(
    Nodes.blank(2),
    names=("n1", "n2"),
    cpu_capacity_millicores=np.array([16_000.0, 8_000.0]),
    ready=np.array([True, False]),
    created=np.array([5.0, 6.0]),
    labels=({"zone": "a"}, {}),
    taints=((), (TAINT,)),
    addresses=(("10.0.0.7",), ()),
    extended=({}, {"nvidia.com/gpu": 2.0}),
)


def written_and_read(nodes: Nodes) -> Nodes:
    data = [msgspec.msgpack.encode(each) for each in node_entries(nodes)]
    return node_columns([msgspec.msgpack.decode(each, type=NodeEntry) for each in data], None, nodes)


def test_every_column_comes_back() -> None:
    found = written_and_read(NODES)
    for name, column in Nodes.columns.items():
        before, after = getattr(NODES, name), getattr(found, name)
        assert list(map(str, column.values(after))) == list(map(str, column.values(before)))
        assert getattr(after, "dtype", None) == getattr(before, "dtype", None)


def test_entries_of_files_from_before_a_column_are_read() -> None:
    # the fields of the first version, by their positions
    old = [
        "n1",
        16e3,
        15e3,
        64e9,
        60e9,
        110.0,
        True,
        False,
        5.0,
        {"zone": "a"},
        [],
        ["10.0.0.7"],
        {"gpu": 2.0},
        {"a": "b"},
    ]
    entry = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=NodeEntry)
    found = node_columns([entry], None, NODES)
    assert (found.names, found.pods_allocatable.tolist(), found.created.tolist()) == (("n1",), [110.0], [5.0])
    assert (found.addresses, found.extended, found.annotations) == ((("10.0.0.7",),), ({"gpu": 2.0},), ({"a": "b"},))
    assert entry.others == {}
