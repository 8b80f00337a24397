"""A node's taints through the API: patches, preconditions, permissions, and the lab's account of them."""

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.lab import Lab, node, workload
from tests.lab.conftest import Answer, Client, three_nodes

Start = Callable[..., Lab]

STEER = {"key": "rebalancer.dev/steer", "value": "hot", "effect": "PreferNoSchedule"}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def patch(client: Client, kind: str, body: Any) -> Answer:
    headers = {"Content-Type": f"application/{kind}-patch+json"}
    return client("/api/v1/nodes/a", method="PATCH", body=body, headers=headers)


def may(client: Client, verb: str, resource: str, subresource: str = "") -> bool:
    attributes = {"verb": verb, "resource": resource, **({"subresource": subresource} if subresource else {})}
    answer = client(REVIEWS, method="POST", body={"spec": {"resourceAttributes": attributes}})
    assert answer.code == 201
    return bool(answer.body["status"]["allowed"])


@pytest.mark.parametrize("kind", ["merge", "strategic-merge"])
def test_a_patch_of_taints_replaces_the_whole_list(lab: Lab, client: Client, kind: str) -> None:
    lab.cluster.taint("a", "other", value="x")
    answer = patch(client, kind, {"spec": {"taints": [STEER]}})
    assert (answer.code, answer.body["spec"]["taints"]) == (200, [STEER])


@pytest.mark.parametrize("kind", ["merge", "strategic-merge"])
def test_a_patch_with_a_stale_resource_version_is_409_and_changes_nothing(lab: Lab, client: Client, kind: str) -> None:
    seen = client("/api/v1/nodes/a").body["metadata"]["resourceVersion"]
    lab.cluster.taint("a", "other", value="x")
    body = {"metadata": {"resourceVersion": seen}, "spec": {"taints": [STEER]}}
    answer = patch(client, kind, body)
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    body["metadata"]["resourceVersion"] = client("/api/v1/nodes/a").body["metadata"]["resourceVersion"]
    assert patch(client, kind, body).code == 200
    assert client("/api/v1/nodes/a").body["spec"]["taints"] == [STEER]


def test_a_json_patch_that_tests_the_resource_version_is_refused_when_it_is_stale(client: Client) -> None:
    seen = client("/api/v1/nodes/a").body["metadata"]["resourceVersion"]
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": seen},
        {"op": "add", "path": "/spec/taints", "value": [STEER]},
    ]
    assert patch(client, "json", operations).code == 200
    assert patch(client, "json", operations).code == 422


@pytest.mark.parametrize(
    ("taints", "error"),
    [
        ([{"key": "k", "effect": "Sometimes"}], "Unsupported value"),
        ([{"effect": "NoSchedule"}], "Required value"),
        ([STEER, {**STEER, "value": "other"}], "unique by key and effect"),
    ],
)
def test_taints_that_the_api_server_refuses_are_422(client: Client, taints: list[Any], error: str) -> None:
    answer = patch(client, "merge", {"spec": {"taints": taints}})
    assert answer.code == 422
    assert error in answer.body["message"]


def test_a_cordoned_node_keeps_its_taint_when_others_are_patched(lab: Lab, client: Client) -> None:
    lab.cluster.cordon("a")
    answer = patch(client, "merge", {"spec": {"taints": [STEER]}})
    assert {taint["key"] for taint in answer.body["spec"]["taints"]} == {
        STEER["key"],
        "node.kubernetes.io/unschedulable",
    }


def test_every_change_of_a_taint_is_in_the_log_with_who_did_it(lab: Lab) -> None:
    client = Client(lab.url, agent="rebalancer/1.0 term=3")
    patch(client, "merge", {"spec": {"taints": [STEER]}})
    patch(client, "merge", {"spec": {"taints": [{**STEER, "value": "no-room"}]}})
    patch(client, "merge", {"metadata": {"labels": {"x": "y"}}})
    patch(client, "merge", {"spec": {"taints": None}})
    lab.cluster.taint("b", "ToBeDeletedByClusterAutoscaler", value="1700000000")
    lab.cluster.untaint("b", "ToBeDeletedByClusterAutoscaler")
    soft_tainted = [(entry.event, entry.value, entry.effect, entry.user_agent) for entry in lab.log.taints("a")]
    assert soft_tainted == [
        ("tainted", "hot", "PreferNoSchedule", "rebalancer/1.0 term=3"),
        ("untainted", "hot", "PreferNoSchedule", "rebalancer/1.0 term=3"),
        ("tainted", "no-room", "PreferNoSchedule", "rebalancer/1.0 term=3"),
        ("untainted", "no-room", "PreferNoSchedule", "rebalancer/1.0 term=3"),
    ]
    scaler = [(entry.event, entry.key, entry.user_agent) for entry in lab.log.taints("b")]
    assert scaler == [(each, "ToBeDeletedByClusterAutoscaler", "") for each in ("tainted", "untainted")]


def test_what_is_denied_is_403_and_the_access_review_says_so(lab: Lab, client: Client) -> None:
    assert may(client, "patch", "nodes")
    lab.faults.set(denied=(("patch", "nodes"), ("create", "pods/eviction")))
    assert not may(client, "patch", "nodes")
    assert not may(client, "create", "pods", "eviction")
    assert may(client, "get", "nodes")
    answer = patch(client, "merge", {"spec": {"taints": [STEER]}})
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert 'cannot patch resource "nodes"' in answer.body["message"]
    assert client.evict(lab.cluster.pods()[0]).code == 403
    assert client("/api/v1/nodes/a").code == 200
    assert lab.log.taints() == ()
    lab.faults.clear()
    assert patch(client, "merge", {"spec": {"taints": [STEER]}}).code == 200


def test_what_is_denied_can_be_set_from_outside(client: Client) -> None:
    assert client("/lab/faults", method="PUT", body={"denied": [["list", "nodes"]]}).code == 200
    assert client("/api/v1/nodes").code == 403
    assert client("/api/v1/nodes/a").code == 200


def test_a_node_that_is_added_later_is_new_and_gets_its_daemons(start: Start) -> None:
    agent = workload("agent", kind="DaemonSet", cpu_request="100m", cpu=0.1)
    lab = start(three_nodes(agent))
    began = lab.clock.now()
    lab.cluster.add_node(node("late", cpu=8))
    lab.cluster.wait_until(lambda: any(entry.node == "late" for entry in lab.log.entries("ready")))
    found = lab.cluster.store.get("nodes", "", "late")
    assert (
        found["metadata"]["creationTimestamp"]
        >= lab.cluster.store.get("nodes", "", "a")["metadata"]["creationTimestamp"]
    )
    assert lab.log.entries("ready")[0].at >= began
    assert lab.truth.node_cpu_share_instant()["late"] > 0
