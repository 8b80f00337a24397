"""Every odd object that a real API server accepted becomes a record or an obstacle, and clean ones stay the same.

`tests/faults/programs/odd_objects.py` made the data.
"""

from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest

from rebalancer.kube.snapshot.quarantine import read_object
from rebalancer.kube.snapshot.records import Pod
from rebalancer.kube.watch.rows import PodRows
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.faults.programs.odd_objects import PATHS, kept
from tests.kube.builders import Cluster, Json, read
from tests.kube.test_quarantine import CLEAN, a_clean_cluster, facts

OBJECTS = kept()
ABSURD = ("10e399", "100e306")


def plural(kind: str) -> str:
    return PATHS[kind].rpartition("/")[2]


def with_clean(*objects: Json) -> ClusterSnapshot:
    """The snapshot of these beside the clean cluster."""
    lists: dict[str, list[Json]] = defaultdict(list)
    for each in objects:
        lists[plural(each["kind"])].append(
            {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
        )
    for name, clean in a_clean_cluster().items():
        theirs = {each["metadata"]["name"] for each in clean}
        # its own nodes and namespaces have these names too
        lists[name] = [*(each for each in lists[name] if each["metadata"]["name"] not in theirs), *clean]
    return read(Cluster(page_size=1000, **lists))


def readable(snapshot: ClusterSnapshot) -> None:
    """Everything that decisions read lazily."""
    for row in range(len(snapshot.pods)):
        snapshot.pod(row)
        snapshot.obstacle_of(row)
        if snapshot.pods.owner[row] >= 0:
            snapshot.replicas(int(snapshot.pods.owner[row]))
    for template in range(len(snapshot.pod_templates)):
        snapshot.pod_templates.outline(template)
    assert snapshot.in_two_revisions is not None


def test_there_are_many_of_many_kinds() -> None:
    kinds = Counter(each["kind"] for each in OBJECTS)
    assert 300 <= len(OBJECTS) <= 800
    assert set(kinds) == set(PATHS)
    assert kinds["Pod"] > 80
    text = str(OBJECTS)
    assert all(amount in text for amount in ABSURD)
    assert any(owned_by_itself(each) for each in OBJECTS)


def owned_by_itself(each: Json) -> bool:
    return any(owner["uid"] == each["metadata"]["uid"] for owner in each["metadata"].get("ownerReferences", ()))


@pytest.mark.parametrize("index", range(len(OBJECTS)))
def test_each_object_alone_costs_the_clean_ones_nothing(index: int) -> None:
    odd = OBJECTS[index]
    snapshot = with_clean(odd)
    readable(snapshot)
    if odd["metadata"].get("namespace", odd["metadata"]["name"]) != "shop":
        assert facts(snapshot) == CLEAN
    if odd["kind"] == "Pod":
        rows, record = PodRows(), read_object(msgspec.json.encode(odd), Pod)
        rows.add([record])
        rows.apply([(False, record)])
        assert rows.taken().names == [odd["metadata"]["name"]]


def test_all_together_cost_the_clean_ones_nothing() -> None:
    others = [each for each in OBJECTS if each["metadata"].get("namespace", each["metadata"]["name"]) != "shop"]
    snapshot = with_clean(*others)
    readable(snapshot)
    assert facts(snapshot) == CLEAN
    kinds = Counter(each.kind for each in snapshot.obstacles)
    assert {"Pod", "Node", "ReplicaSet"} <= set(kinds)
    named = {(each.kind, each.namespace, each.name) for each in snapshot.obstacles}
    for each in others:
        if each["kind"] == "Pod" and any(f"'{amount}'" in str(each["spec"]) for amount in ABSURD):
            meta: Any = each["metadata"]
            volumes = str(each["spec"].get("volumes"))
            if not any(amount in volumes for amount in ABSURD):
                assert ("Pod", meta["namespace"], meta["name"]) in named
