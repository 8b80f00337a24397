"""The Kubernetes API, as a client sees it."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from rebalancer.lab import Lab, workload
from tests.lab.conftest import Client, three_nodes

Start = Callable[..., Lab]


def watch(lab: Lab, path: str, *, events: int, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Read that many events, or what there is when the stream ends."""
    connection = http.client.HTTPConnection(urlsplit(lab.url).netloc, timeout=10)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        found: list[dict[str, Any]] = []
        while len(found) < events and (line := response.readline()):
            found.append(json.loads(line))
        return found
    finally:
        response.close()
        connection.close()


def test_pages_together_are_the_list_of_one_moment(lab: Lab, client: Client) -> None:
    first = client("/api/v1/pods?limit=3").body
    lab.cluster.add_workload(workload("late", place={"b": 2}))
    rest = client(f"/api/v1/pods?limit=3&continue={first['metadata']['continue']}").body
    names = [pod["metadata"]["name"] for page in (first, rest) for pod in page["items"]]
    assert len(names) == 4
    assert all(name.startswith("web-") for name in names)
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in rest["metadata"]


def test_an_expired_continue_token_is_410(lab: Lab, client: Client) -> None:
    token = client("/api/v1/pods?limit=1").body["metadata"]["continue"]
    lab.faults.set(expire_continue=True)
    answer = client(f"/api/v1/pods?limit=1&continue={token}")
    assert (answer.code, answer.body["reason"]) == (410, "Expired")


def test_items_of_a_list_do_not_say_what_they_are(client: Client) -> None:
    items = client("/api/v1/nodes").body["items"]
    assert len(items) == 3
    assert all("kind" not in item for item in items)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("fieldSelector=spec.nodeName%3Da", 4),
        ("fieldSelector=spec.nodeName%3Db", 0),
        ("fieldSelector=status.phase!%3DRunning", 0),
        ("labelSelector=app.kubernetes.io/name%20in%20(web,api)", 4),
        ("labelSelector=app.kubernetes.io/name!%3Dweb", 0),
        ("labelSelector=!missing,app.kubernetes.io/name", 4),
    ],
)
def test_selectors_choose_what_a_list_shows(client: Client, query: str, count: int) -> None:
    assert len(client(f"/api/v1/pods?{query}").body["items"]) == count


def test_a_selector_that_cannot_be_read_is_400(client: Client) -> None:
    assert client("/api/v1/pods?labelSelector=a%20b").code == 400
    assert client("/api/v1/pods?fieldSelector=spec.color%3Dred").code == 400


def test_a_watch_sees_an_eviction_from_mark_to_end_and_the_replacement(lab: Lab, client: Client) -> None:
    version = client("/api/v1/pods").body["metadata"]["resourceVersion"]
    victim = lab.cluster.pods()[0]
    assert client.evict(victim).code == 201
    path = f"/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=5"
    seen = watch(lab, path, events=6)
    ours = [each["type"] for each in seen if each["object"]["metadata"]["name"] == victim["metadata"]["name"]]
    others = [each["type"] for each in seen if each["object"]["metadata"]["name"] != victim["metadata"]["name"]]
    assert ours == ["MODIFIED", "DELETED"]
    assert others == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED"]  # created, bound, running, ready


def test_a_filtered_watch_sees_a_pod_come_into_its_selector(lab: Lab, client: Client) -> None:
    version = lab.cluster.store.version
    client.evict(lab.cluster.pods()[0])
    path = f"/api/v1/pods?watch=1&resourceVersion={version}&fieldSelector=spec.nodeName!%3Da,spec.nodeName!%3D"
    (event,) = watch(lab, path, events=1)
    assert event["type"] == "ADDED"
    assert event["object"]["spec"]["nodeName"] in ("b", "c")


def test_a_watch_from_too_far_back_ends_with_410(lab: Lab) -> None:
    lab.cluster.store.compact()
    (event,) = watch(lab, "/api/v1/pods?watch=1&resourceVersion=1", events=2)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_watch_says_goodbye_with_a_bookmark(lab: Lab) -> None:
    version = lab.cluster.store.version
    path = f"/api/v1/nodes?watch=1&resourceVersion={version}&timeoutSeconds=1&allowWatchBookmarks=true"
    (event,) = watch(lab, path, events=5)
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) >= version


def test_a_streamed_list_marks_its_end(start: Start) -> None:
    path = "/api/v1/nodes?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    events = watch(start(), path, events=4)
    assert [each["type"] for each in events] == ["ADDED"] * 3 + ["BOOKMARK"]
    assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_stale_resource_version_is_a_conflict_for_update_and_for_patch(client: Client) -> None:
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "one"}}
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    made = client(path, method="POST", body=lease)
    assert made.code == 201
    assert client(path, method="POST", body=lease).body["reason"] == "AlreadyExists"
    renewed = {**made.body, "spec": {"holderIdentity": "two"}}
    assert client(f"{path}/leader", method="PUT", body=renewed).code == 200
    assert client(f"{path}/leader", method="PUT", body={**made.body, "spec": {"holderIdentity": "3"}}).code == 409
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"unschedulable": True}}
    merge = {"Content-Type": "application/merge-patch+json"}
    assert client("/api/v1/nodes/a", method="PATCH", body=stale, headers=merge).code == 409


def test_a_json_patch_with_a_failed_test_changes_nothing(client: Client) -> None:
    content = {"Content-Type": "application/json-patch+json"}
    operations = [
        {"op": "test", "path": "/metadata/labels/pool", "value": "other"},
        {"op": "replace", "path": "/metadata/labels/pool", "value": "x"},
    ]
    assert client("/api/v1/nodes/a", method="PATCH", body=operations, headers=content).code == 422
    assert client("/api/v1/nodes/a", method="PATCH", body=operations[1:], headers=content).code == 200
    assert client("/api/v1/nodes/a").body["metadata"]["labels"]["pool"] == "x"


def test_scaling_by_the_subresource_changes_the_pods(lab: Lab, client: Client) -> None:
    content = {"Content-Type": "application/merge-patch+json"}
    path = "/apis/apps/v1/namespaces/shop/deployments/web"
    answer = client(f"{path}/scale", method="PATCH", body={"spec": {"replicas": 1}}, headers=content)
    assert answer.body["spec"]["replicas"] == 1
    lab.cluster.wait_until(lambda: len(lab.cluster.pods(workload="web")) == 1)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/api/v1/namespaces/shop/pods", {"metadata": {"name": "x"}}, 422),
        ("/api/v1/namespaces/shop/pods", {"metadata": {}}, 422),
        ("/api/v1/namespaces/nowhere/pods", {"metadata": {"name": "x"}}, 404),
        ("/api/v1/namespaces/shop/pods", [], 400),
        ("/apis/apps/v1/namespaces/shop/deployments", {"metadata": {"name": "x"}, "spec": {}}, 422),
        ("/apis/policy/v1/namespaces/shop/poddisruptionbudgets", {"metadata": {"name": "x"}, "spec": {}}, 422),
        ("/apis/nothing/v1/things", {}, 404),
    ],
)
def test_an_object_that_cannot_work_is_refused(client: Client, path: str, body: Any, code: int) -> None:
    answer = client(path, method="POST", body=body)
    assert (answer.code, answer.body["status"]) == (code, "Failure")


def test_a_node_and_a_deployment_made_through_the_api_come_to_life(lab: Lab, client: Client) -> None:
    assert client("/api/v1/nodes", method="POST", body={"metadata": {"name": "bare"}}).code == 201
    behaviour = {"lab.rebalancer.dev/behaviour": '{"cpu":{"base":2.0}}'}
    template = {
        "metadata": {"labels": {"app": "new"}, "annotations": behaviour},
        "spec": {"containers": [{"name": "new", "image": "x"}], "nodeSelector": {"kubernetes.io/hostname": "b"}},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "new"}}, "template": template}
    path = "/apis/apps/v1/namespaces/shop/deployments"
    assert client(path, method="POST", body={"metadata": {"name": "new"}, "spec": spec}).code == 201
    lab.cluster.wait_until(lambda: len(lab.log.entries("ready")) == 2)
    assert client(f"{path}/new").body["status"]["readyReplicas"] == 2
    assert lab.truth.node_cpu_share_instant()["b"] == pytest.approx((0.2 + 4.0) / 8)


def test_a_wrong_token_is_401(start: Start) -> None:
    client = Client(start(token="right").url)
    assert client("/api/v1/nodes").code == 401
    assert client("/api/v1/nodes", headers={"Authorization": "Bearer wrong"}).code == 401
    assert client("/api/v1/nodes", headers={"Authorization": "Bearer right"}).code == 200


def test_a_table_has_the_columns_of_kubectl(client: Client) -> None:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    body = client("/api/v1/namespaces/shop/pods", headers=accept).body
    assert body["kind"] == "Table"
    narrow = [column["name"] for column in body["columnDefinitions"] if column["priority"] == 0]
    assert narrow == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert body["rows"][0]["cells"][1:3] == ["1/1", "Running"]
    assert body["rows"][0]["cells"][6] == "a"


def test_every_mutating_request_is_in_the_log_with_agent_and_answer(lab: Lab) -> None:
    Client(lab.url, agent="rebalancer/1.0 term=3")("/api/v1/namespaces/shop/pods/none", method="DELETE")
    (entry,) = lab.log.requests()
    assert (entry.verb, entry.code, entry.user_agent) == ("DELETE", 404, "rebalancer/1.0 term=3")


def test_the_kubernetes_package_lists_watches_and_evicts(start: Start, tmp_path: Any) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    lab = start(token="secret")
    configuration = kubernetes.client.Configuration()
    loader = kubernetes.config.load_kube_config
    loader(str(lab.write_kubeconfig(tmp_path / "config")), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as api:
        core = kubernetes.client.CoreV1Api(api)
        assert [each.metadata.name for each in core.list_node().items] == ["a", "b", "c"]
        pod = core.list_namespaced_pod("shop", field_selector="spec.nodeName=a").items[0]
        eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name=pod.metadata.name))
        core.create_namespaced_pod_eviction(pod.metadata.name, "shop", eviction)
        assert core.read_namespaced_pod(pod.metadata.name, "shop").metadata.deletion_timestamp is not None
        budgets = kubernetes.client.PolicyV1Api(api).list_pod_disruption_budget_for_all_namespaces()
        assert budgets.items == []
        used = kubernetes.client.CustomObjectsApi(api).list_cluster_custom_object("metrics.k8s.io", "v1beta1", "nodes")
        assert len(used["items"]) == 3


def test_a_lab_starts_quickly_and_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    took = []
    for _ in range(3):
        begun = time.monotonic()
        lab = Lab.start(three_nodes())
        took.append(time.monotonic() - begun)
        lab.stop()
    assert min(took) < 0.5
    lab = Lab.start(three_nodes())
    stream = threading.Thread(target=watch, args=(lab, "/api/v1/pods?watch=1"), kwargs={"events": 99})
    stream.start()
    time.sleep(0.1)
    lab.stop()
    lab.stop()
    stream.join(timeout=5)
    assert set(threading.enumerate()) <= before
