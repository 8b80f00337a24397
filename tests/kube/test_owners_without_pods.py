"""A workload whose last pod is gone is not a workload that was deleted."""

from rebalancer.model.snapshot import Owner
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
    # an old ReplicaSet without pods is nobody's business
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
