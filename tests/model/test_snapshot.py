"""The cluster as columns: owners, replicas, sums and single pods."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.owners import REVISION_LABEL, Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import FAILED, PENDING, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.builders import a_node, a_pod, cluster, pods_in, replicas, usage_of


def an_owner(kind: str, name: str, parent: int = -1, **fields: Any) -> Owner:
    return Owner(kind=kind, namespace="shop", name=name, uid=name, parent=parent, **fields)


def test_pods_are_found_by_their_node_in_the_order_of_listing() -> None:
    pods = [a_pod("a", "n2"), a_pod("b", "n1"), a_pod("c", ""), a_pod("d", "n2"), a_pod("e", "gone")]
    made = cluster([a_node("n1"), a_node("n2"), a_node("n3")], pods)
    assert [made.pods_on(node).tolist() for node in range(3)] == [[1], [0, 3], []]


def test_pods_hold_their_requests_while_they_are_bound_and_not_finished() -> None:
    pods = [
        a_pod("running", "n", cpu=1),
        a_pod("leaving", "n", cpu=10, terminating=True),
        a_pod("starting", "n", cpu=100, phase=PENDING, ready=False),
        a_pod("done", "n", cpu=1_000, phase=SUCCEEDED),
        a_pod("failed", "n", cpu=1_000, phase=FAILED),
        a_pod("waiting", "", cpu=1_000, phase=PENDING),
    ]
    made = cluster([a_node("n"), a_node("m")], pods)
    assert made.active.tolist() == [True, True, True, False, False, False]
    assert made.per_node(made.pods.cpu_request_millicores).tolist() == [111.0, 0.0]


def test_the_service_is_the_top_owner() -> None:
    owners = [
        an_owner("ReplicaSet", "web-1", parent=1),
        an_owner("Deployment", "web", parent=2),
        an_owner("App", "shop"),
    ]
    made = cluster([a_node("n")], [a_pod("a", "n", owner="web-1")], owners=owners)
    assert made.top_owner.tolist() == [2, 2, 2]
    service = made.service_of(0)
    assert service is not None
    assert (service.kind, str(service)) == ("App", "shop/shop")
    assert made.service_of(-1) is None


def test_owners_that_own_each_other_do_not_hang_it() -> None:
    owners = [an_owner("A", "a", parent=1), an_owner("B", "b", parent=0), an_owner("C", "c", parent=2)]
    assert cluster([a_node("n")], [], owners=owners).top_owner.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("owner", "third", "expected"),
    [
        ({}, {}, (3, 3)),
        ({}, {"ready": False}, (3, 2)),
        ({}, {"terminating": True}, (3, 2)),
        ({}, {"phase": FAILED, "ready": False}, (2, 2)),
        ({"desired": 5}, {}, (5, 3)),
        ({"desired": 5, "ready": 4}, {}, (5, 3)),
        ({"desired": 3, "ready": 1}, {}, (3, 1)),
        ({"desired": 3, "ready": 3}, {"terminating": True}, (3, 2)),
        ({"desired": 0, "ready": 0}, {}, (0, 0)),
    ],
)
def test_replicas_are_what_the_controller_wants_and_the_worse_of_its_count_and_ours(
    owner: dict[str, Any], third: dict[str, Any], expected: tuple[int, int]
) -> None:
    pods = [*replicas("web", {"n": 2}), a_pod("third", "n", owner="web", **third)]
    made = cluster([a_node("n")], pods, owners=[an_owner("ReplicaSet", "web", **owner)])
    assert made.replicas(0) == expected


def test_pods_are_counted_over_all_owners_below_the_top() -> None:
    owners = [an_owner("Deployment", "web"), an_owner("ReplicaSet", "web-1", 0), an_owner("ReplicaSet", "web-2", 0)]
    pods = [a_pod("a", "n", owner="web-1"), a_pod("b", "n", owner="web-2"), a_pod("c", "n", owner="web-2", ready=False)]
    made = cluster([a_node("n")], pods, owners=owners)
    assert [made.replicas(owner) for owner in range(3)] == [(3, 2)] * 3
    assert [made.pods_of(owner).tolist() for owner in range(3)] == [[0, 1, 2]] * 3


def test_a_cluster_without_pods_or_owners_is_a_cluster() -> None:
    made = cluster([a_node("n")], [])
    assert made.service_of(-1) is None
    assert made.pods_on(0).tolist() == []
    assert made.per_node(made.pods.cpu_request_millicores).tolist() == [0.0]
    assert pods_in(made) == []


def one() -> ClusterSnapshot:
    return cluster(
        [a_node("n")], [a_pod("a", "n", owner="web", priority=7), a_pod("b", ""), a_pod("c", "n", started=False)]
    )


def test_a_pod_as_an_object_says_what_its_columns_say() -> None:
    a, b, c = pods_in(one())
    assert (str(a), a.uid, a.node_name, a.priority, str(a.service)) == ("shop/a", "uid-shop-a", "n", 7, "shop/web")
    assert a.owner is not None
    assert a.owner.kind == "ReplicaSet"
    assert (b.node, b.node_name, b.owner, b.service) == (-1, "", None, None)
    assert np.isnan(c.started)


def test_shapes_are_decoded_once() -> None:
    made = one()
    assert made.pod(0).template is made.pod(0).template
    assert made.pod(0).template.labels == {"app": "web"}


def test_coverage_is_the_share_of_nodes_with_usage() -> None:
    nodes = [a_node("a", used=1.0), a_node("b", used=float("nan"))]
    assert usage_of(cluster(nodes, []), nodes, []).coverage == 0.5
    assert usage_of(cluster([], []), [], []).coverage == 0.0


def test_jobs_have_no_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 100,000 may have a pod template of its own: none is read."""
    pods = [
        *(a_pod(f"job-{at}", "n", owner=f"job-{at}", owner_kind="Job", labels={"job": str(at)}) for at in range(20)),
        *(a_pod(f"r-{at}", "n", owner="r", owner_kind="CloneSet", labels={REVISION_LABEL: str(at)}) for at in range(2)),
    ]
    snapshot = cluster([a_node("n")], pods)
    read: list[int] = []
    outline = PodTemplateTable.outline

    def reading(table: PodTemplateTable, index: int) -> Any:
        read.append(index)
        return outline(table, index)

    monkeypatch.setattr(PodTemplateTable, "outline", reading)
    assert [snapshot.owners[top].name for top in snapshot.in_two_revisions] == ["r"]
    assert len(read) == 2
