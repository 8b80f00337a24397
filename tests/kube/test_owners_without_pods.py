"""A workload whose last pod is gone is not a workload that was deleted."""

import msgspec

from rebalancer.kube.snapshot.owners import Workload, with_shared_strings
from rebalancer.model.cluster.owners import Owner
from tests.kube.builders import Cluster, a_pod, a_workload, owned_by, read


def test_deployments_and_statefulsets_without_a_pod_are_owners_too() -> None:
    snapshot = read(
        Cluster(
            pods=[
                a_pod("web-1-a", metadata=owned_by("ReplicaSet", "web-1")),
                a_pod("db-0", metadata=owned_by("StatefulSet", "db")),
            ],
            replicasets=[
                a_workload("web-1", **owned_by("Deployment", "web")),
                a_workload("api-1", **owned_by("Deployment", "api")),
            ],
            deployments=[a_workload("web"), a_workload("api", spec={"replicas": 1}, state={"readyReplicas": 0})],
            statefulsets=[a_workload("db"), a_workload("queue")],
        )
    )
    assert snapshot.listed_kinds == {"Deployment", "StatefulSet"}
    owners = {(each.kind, each.name): index for index, each in enumerate(snapshot.owners)}
    # an old ReplicaSet without pods is of no interest
    assert set(owners) == {
        ("ReplicaSet", "web-1"),
        ("Deployment", "web"),
        ("Deployment", "api"),
        ("StatefulSet", "db"),
        ("StatefulSet", "queue"),
    }
    api = owners["Deployment", "api"]
    found: Owner = snapshot.owners[api]
    assert (found.namespace, found.uid, found.parent) == ("shop", "uid-shop-api", -1)
    assert snapshot.replicas(api) == (1, 0)
    assert snapshot.pods_of(api).tolist() == []


def test_kinds_that_no_pod_names_are_not_listed_and_so_not_complete() -> None:
    snapshot = read(
        Cluster(
            pods=[a_pod("db-0", metadata=owned_by("StatefulSet", "db"))],
            statefulsets=[a_workload("db")],
            deployments=[a_workload("web")],
        )
    )
    assert snapshot.listed_kinds == {"StatefulSet"}
    assert [each.name for each in snapshot.owners] == ["db"]


def test_replicasets_of_a_deployment_share_what_they_say_of_it() -> None:
    bodies = [msgspec.json.encode(a_workload(f"web-{n}", **owned_by("Deployment", "web"))) for n in range(2)]
    read = [msgspec.json.decode(body, type=Workload) for body in bodies]
    kept = [with_shared_strings(each) for each in read]
    assert kept == read
    one, other = ((each.metadata.owner_references or [])[0] for each in kept)
    assert (one.uid, one.name) == (other.uid, other.name)
    assert one.uid is other.uid
    assert one.name is other.name
    assert kept[0].metadata.namespace is kept[1].metadata.namespace
