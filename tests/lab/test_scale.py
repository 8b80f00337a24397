"""A Deployment that is scaled: by which precondition, by whom, and which pod goes."""

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.lab import Lab, workload
from rebalancer.model.cluster.annotations import DELETION_COST, LOWEST_COST
from tests.lab.conftest import Client, three_nodes

Start = Callable[..., Lab]
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
MERGE = {"Content-Type": "application/merge-patch+json"}


def web(**fields: Any) -> Any:
    return workload("web", namespace="shop", place={"a": 1}, cpu_request="200m", **fields)


def names(lab: Lab) -> set[str]:
    """Of the pods that are not terminating."""
    pods = lab.cluster.pods(workload="web")
    return {each["metadata"]["name"] for each in pods if not each["metadata"].get("deletionTimestamp")}


def scale(client: Client, replicas: int, **meta: str) -> Any:
    body = client(f"{DEPLOYMENT}/scale").body
    body["metadata"] |= meta
    body["spec"]["replicas"] = replicas
    return client(f"{DEPLOYMENT}/scale", method="PUT", body=body)


@pytest.mark.parametrize("cost", [LOWEST_COST, "-1", None, "-01", "-2147483649"])
def test_of_two_ready_pods_the_one_with_the_lower_cost_goes_though_it_is_older(start: Start, cost: str | None) -> None:
    lab = start(three_nodes(web()), stepped=True)
    client = Client(lab.url)
    (old,) = names(lab)
    patch = {"metadata": {"annotations": {DELETION_COST: cost}}}
    assert client(f"/api/v1/namespaces/shop/pods/{old}", method="PATCH", body=patch, headers=MERGE).code == 200
    assert scale(client, 2).code == 200
    lab.clock.sleep(60.0)
    (new,) = names(lab) - {old}
    assert scale(client, 1).code == 200
    lab.clock.sleep(60.0)
    counts = cost in (LOWEST_COST, "-1")
    assert names(lab) == ({new} if counts else {old})


def test_a_pod_that_is_not_ready_goes_first_whatever_the_cost(start: Start) -> None:
    lab = start(three_nodes(web(start_seconds=300.0)), stepped=True)
    client = Client(lab.url)
    (old,) = names(lab)
    patch = {"metadata": {"annotations": {DELETION_COST: LOWEST_COST}}}
    client(f"/api/v1/namespaces/shop/pods/{old}", method="PATCH", body=patch, headers=MERGE)
    scale(client, 2)
    lab.clock.sleep(30.0)
    scale(client, 1)
    lab.clock.sleep(60.0)
    assert names(lab) == {old}


@pytest.mark.parametrize("stale", [{"resourceVersion": "1"}, {"uid": "another"}])
def test_a_scale_of_another_state_is_a_conflict(start: Start, stale: dict[str, str]) -> None:
    lab = start(three_nodes(web()), stepped=True)
    client = Client(lab.url)
    assert scale(client, 2, **stale).code == 409
    assert client(f"{DEPLOYMENT}/scale").body["spec"]["replicas"] == 1


def test_the_manager_of_the_replicas_is_who_changed_them_last(start: Start) -> None:
    lab = start(three_nodes(web()), stepped=True)
    for agent, replicas in (("kubectl/v1.36", 2), ("argocd/3", 2), ("rebalancer/1 term/3", 1)):
        scale(Client(lab.url, agent=agent), replicas)
    (entry,) = Client(lab.url)(DEPLOYMENT).body["metadata"]["managedFields"]
    assert (entry["manager"], entry["fieldsV1"]) == ("rebalancer", {"f:spec": {"f:replicas": {}}})
    scale(Client(lab.url, agent="argocd/3"), 1)  # changes nothing
    (entry,) = Client(lab.url)(DEPLOYMENT).body["metadata"]["managedFields"]
    assert entry["manager"] == "rebalancer"
