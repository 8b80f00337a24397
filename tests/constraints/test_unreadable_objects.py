"""What can't be read stays, and so does what it concerns; everything else goes as before."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.constraints.pods.guards import guarded
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason, Refusal
from tests.builders import a_node, a_pod, cluster
from tests.constraints.builders import view_of


def a_cluster(*obstacles: Obstacle) -> ClusterSnapshot:
    """Two services in two namespaces, each with three pods; `web` has a Deployment above its ReplicaSet."""
    owners = [
        Owner(kind="Deployment", namespace="shop", name="web-top", uid="d", desired=3, ready=3),
        Owner(kind="ReplicaSet", namespace="shop", name="web", uid="r", parent=0),
    ]
    pods = [
        a_pod(f"{name}-{number}", node="n1", owner=name, namespace=namespace)
        for name, namespace in (("web", "shop"), ("cart", "other"))
        for number in range(3)
    ]
    return replace(cluster([a_node("n1")], pods, owners=owners), obstacles=obstacles)


def refusals(snapshot: ClusterSnapshot, **options: Any) -> dict[str, Refusal]:
    """Pod -> why it stays."""
    view = view_of(snapshot)
    found = {snapshot.pods.names[row]: guarded(snapshot.pod(row), view, **options) for row in range(len(snapshot.pods))}
    return {name: why for name, why in found.items() if why is not None}


def an_obstacle(kind: str, name: str, namespace: str = "shop") -> Obstacle:
    return Obstacle(kind=kind, namespace=namespace, name=name, cause="spec: odd")


WEB = {"web-0", "web-1", "web-2"}
CONCERNED = {
    "the pod": (an_obstacle("Pod", "web-0"), {"web-0"}),
    "its owner": (an_obstacle("ReplicaSet", "web"), WEB),
    "its top owner": (an_obstacle("Deployment", "web-top"), WEB),
    "a budget": (an_obstacle("PodDisruptionBudget", "b"), WEB),
    "a quota": (an_obstacle("ResourceQuota", "q"), WEB),
    "an autoscaler": (an_obstacle("HorizontalPodAutoscaler", "h"), WEB),
    "its namespace": (an_obstacle("Namespace", "shop", ""), WEB),
    "another's owner": (an_obstacle("ReplicaSet", "web", "elsewhere"), set()),
    "a node": (an_obstacle("Node", "n1", ""), set()),
    "a priority class": (an_obstacle("PriorityClass", "high", ""), set()),
}


@pytest.mark.parametrize("case", CONCERNED)
def test_only_what_an_obstacle_concerns_stays(case: str) -> None:
    obstacle, concerned = CONCERNED[case]
    found = refusals(a_cluster(obstacle))
    assert set(found) == concerned
    assert {each.code for each in found.values()} <= {Reason.UNREADABLE_OBJECT}
    assert all(each.message.endswith(f": {obstacle}") for each in found.values())


def test_nothing_stays_without_obstacles() -> None:
    assert refusals(a_cluster()) == {}


def test_a_pod_of_a_recording_that_could_not_be_read_stays_without_its_cause() -> None:
    made = a_cluster()
    made = replace(made, pods=replace(made.pods, unreadable=np.arange(6) == 0))
    assert {name: each.code for name, each in refusals(made).items()} == {"web-0": Reason.UNREADABLE_OBJECT}


def test_it_stays_also_where_it_does_no_work() -> None:
    obstacle, _ = CONCERNED["the pod"]
    assert set(refusals(a_cluster(obstacle), broken=True)) == {"web-0"}
