"""Columns that are kept between snapshots equal those that are made of everything."""

import random
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.kube.snapshot.owners import Owners, Workload
from rebalancer.kube.snapshot.records import Node, OwnerReference
from rebalancer.kube.watch.stores import NodeRecords
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.owners import Owner
from tests.kube.builders import a_node, a_workload, owned_by

IMAGES = [{"names": [f"app:{number}", f"app@sha256:{number}"], "sizeBytes": 1000 * number} for number in range(1, 6)]
NAMES = [image["names"][0] for image in IMAGES]  # type: ignore[index]


def random_node(chance: random.Random) -> Node:
    name = f"n{chance.randrange(12):02}"
    node: Any = a_node(name, ready=chance.random() < 0.8, unschedulable=chance.random() < 0.2)
    node["metadata"]["labels"]["zone"] = chance.choice("abc")
    node["status"]["allocatable"]["cpu"] = str(chance.randrange(1, 16))
    node["status"]["images"] = chance.sample(IMAGES, chance.randrange(4)) if chance.random() < 0.3 else IMAGES[:2]
    return msgspec.json.decode(msgspec.json.encode(node), type=Node)


def shown(nodes: Nodes) -> dict[str, Any]:
    columns = {each.name: getattr(nodes, each.name) for each in fields(Nodes) if each.name != "images"}
    plain = {
        name: [str(value) for value in each.tolist()] if isinstance(each, np.ndarray) else each
        for name, each in columns.items()
    }
    images = {name: (nodes.images.size_of(name), nodes.images.nodes_with(name).tolist()) for name in NAMES}
    return plain | {"images": images}


def test_nodes_after_10000_random_events_equal_the_rebuild() -> None:
    chance, kept, there = random.Random(20), NodeRecords(), dict[str, Node]()
    for _ in range(10_000):
        node = random_node(chance)
        gone = chance.random() < 0.1
        kept.apply([(gone, node)])
        there.pop(node.metadata.name, None)
        if not gone:
            there[node.metadata.name] = node
        if chance.random() < 0.2:
            fresh = NodeRecords()
            fresh.add([there[name] for name in sorted(there)])
            assert shown(kept.columns()) == shown(fresh.columns())


def test_nodes_that_have_not_changed_are_the_same_object() -> None:
    kept = NodeRecords()
    kept.add([msgspec.convert(a_node(name), Node) for name in ("a", "b")])
    first = kept.columns()
    assert kept.columns() is first
    kept.apply([(False, msgspec.convert(a_node("b", unschedulable=True), Node))])
    second = kept.columns()
    assert (first.unschedulable.tolist(), second.unschedulable.tolist()) == ([False, False], [False, True])
    assert second.labels[0] is first.labels[0]


# ---- owners


def workload(name: str, *, ready: int, parent: str = "") -> Workload:
    more = owned_by("Deployment", parent) if parent else {}
    return msgspec.convert(a_workload(name, state={"readyReplicas": ready}, **more), Workload)


def by_name(owners: Owners, records: list[Owner]) -> dict[str, tuple[Owner, str]]:
    parents = [records[each.parent].name if each.parent >= 0 else "" for each in records]
    return {each.name: (replace(each, parent=0), up) for each, up in zip(records, parents, strict=True)}


def test_owners_after_10000_random_events_equal_the_rebuild() -> None:
    chance = random.Random(21)
    references = [
        OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=f"rs{n}", uid=f"uid-shop-rs{n}", controller=True)
        for n in range(6)
    ]
    listed: dict[str, tuple[str, Workload]] = {}
    kept: Owners | None = None
    updates = 0
    for _ in range(10_000):
        kind, name = chance.choice(
            [("ReplicaSet", f"rs{chance.randrange(8)}"), ("Deployment", f"d{chance.randrange(3)}")]
        )
        parent = f"d{chance.randrange(3)}" if kind == "ReplicaSet" and chance.random() < 0.1 else "d0"
        made = workload(name, ready=chance.randrange(3), parent=parent if kind == "ReplicaSet" else "")
        listed = dict(listed)
        if chance.random() < 0.02:
            listed.pop(made.metadata.uid, None)
        else:
            listed[made.metadata.uid] = kind, made
        fresh = Owners(workloads=listed)
        for each in references:
            fresh.number("shop", each)
        fresh.add_those_without_pods()
        updated = kept.with_workloads(listed) if kept is not None else None
        if updated is not None:
            updates += 1
            assert by_name(updated, updated.records) == by_name(fresh, fresh.records)
        kept = updated or fresh
    assert updates > 5_000
