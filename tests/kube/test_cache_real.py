"""The memory against a real API server: its bookmarks, its metadata-only watches, its Events."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.kube.actions.events import KubeEvents
from rebalancer.kube.actions.eviction_events import read_eviction_events
from rebalancer.kube.client.client import ApiClient, connect
from rebalancer.kube.snapshot.records import Namespace
from rebalancer.kube.snapshot.snapshot import NAMESPACES, KubeCluster
from rebalancer.kube.watch.cache import WatchedCluster
from rebalancer.kube.watch.stores import Records
from rebalancer.kube.watch.watch import Reflector
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import PodStatus
from rebalancer.model.decisions.eviction import Outcome
from tests.builders import an_eviction
from tests.kube.builders import Json
from tests.kube.fakes.api import FakeClock
from tests.kube.fakes.watches import until
from tests.kube.readers import contents
from tests.real.servers.api_server import ApiServer, api_server

pytestmark = pytest.mark.real

APPS = "/apis/apps/v1/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
CONTAINER = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
_OF_MAIN = {"name": "main", "image": "app:1", "imageID": "", "ready": False}
BROKEN = {
    "phase": "Running",
    "reason": "Evicted",
    "containerStatuses": [
        {
            **_OF_MAIN,
            "restartCount": 7,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }
    ],
    "initContainerStatuses": [
        {**_OF_MAIN, "name": "init", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    ],
}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


@pytest.fixture
def client(server: ApiServer, tmp_path: Path) -> Iterator[ApiClient]:
    client = connect(str(server.kubeconfig(tmp_path / "kubeconfig")), None, "rebalancer/test")
    yield client
    client.close()


def a_replicaset(name: str) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}


def a_pod(name: str, owner: Json | None = None) -> Json:
    meta: Json = {"name": name}
    if owner is not None:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
        meta["ownerReferences"] = [reference | {key: owner["metadata"][key] for key in ("name", "uid")}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [CONTAINER]}}


def test_memory_and_server_agree_through_changes(server: ApiServer, client: ApiClient) -> None:
    cluster, live = WatchedCluster(client=client, clock=FakeClock()), KubeCluster(client=client, clock=FakeClock())
    cluster.start()
    try:
        until(cluster.synced)
        assert contents(cluster.snapshot()) == contents(live.snapshot())
        server.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}})
        owner = server.call("POST", f"{APPS}/replicasets", a_replicaset("alone"))
        for name in ("a", "b", "c"):
            server.call("POST", PODS, a_pod(name, owner if name != "c" else None))
        server.call("DELETE", f"{PODS}/b?gracePeriodSeconds=0")
        # the ReplicaSet has no Deployment: it is read whole from now on
        until(lambda: cluster.synced() and len(cluster.snapshot().pods) == 2 and len(cluster.snapshot().nodes) == 1)
        until(lambda: contents(cluster.snapshot()) == contents(live.snapshot()))
        server.call("PATCH", f"{APPS}/replicasets/alone", {"spec": {"replicas": 5}})
        until(lambda: 5 in {each.desired for each in cluster.snapshot().owners})
        server.call("PATCH", f"{PODS}/a/status", {"status": BROKEN})
        server.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {"to-do": "kernel", "long": "x" * 300}}})
        until(lambda: 7 in cluster.snapshot().pods.restarts and "to-do" in cluster.snapshot().nodes.annotations[0])
        seen = cluster.snapshot()
        assert contents(seen) == contents(live.snapshot())
        assert seen.nodes.annotations[0]["to-do"] == "kernel"
        assert "long" not in seen.nodes.annotations[0]
        broken = seen.pods.names.index("a")
        assert seen.statuses[seen.pods.status[broken]] == PodStatus(
            reason="Evicted",
            containers=("CrashLoopBackOff",),
            init_containers=("Completed",),
            init_exit_codes=(0,),
        )
        server.call("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        server.call("DELETE", f"{PODS}/c?gracePeriodSeconds=0")
        until(lambda: len(cluster.snapshot().pods) == 0)
        assert {kind: stats.errors for kind, stats in cluster.stats().items() if stats.errors} == {}
    finally:
        cluster.stop()


def namespaces(client: ApiClient) -> Reflector[Namespace, Records[Namespace, str]]:
    return Reflector(
        client=client, resource=NAMESPACES, item=Namespace, make=lambda: Records(lambda each: each.metadata.name)
    )


def test_bookmarks_move_the_version_on(server: ApiServer, client: ApiClient) -> None:
    """The server sends one two seconds before it ends a watch, so a short one is asked for."""
    reflector = namespaces(client)
    reflector._list()
    before = int(reflector._version)
    query = {"watch": 1, "allowWatchBookmarks": "true", "resourceVersion": before, "timeoutSeconds": 10}
    stream = client.stream(NAMESPACES.path(), query=query)
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "another"}})
    lines = [line for lines in stream.batches() for line in lines]
    stream.close()
    assert any(b'"BOOKMARK"' in line for line in lines)
    reflector._take(lines)
    assert int(reflector._version) > before
    assert "another" in reflector.known.all()


def test_the_server_takes_our_events(server: ApiServer, client: ApiClient) -> None:
    sink = KubeEvents(client=client, clock=FakeClock(), instance="pod-7")
    sink.about_service(Owner(kind="Deployment", namespace="default", name="web", uid="u"), reason="Evicted", note="x")
    sink.about_service(
        Owner(kind="Rollout", namespace="default", name="web", uid="u"), reason="Evicted", note="ü" * 999
    )
    sink.about_node("n1", reason="NotEvicted", note="no room", warning=True)
    assert sink.stats.last_error == ""
    assert sink.stats.written == 3
    found = server.call("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=web")["items"]
    assert {each["involvedObject"]["kind"] for each in found} == {"Deployment", "Rollout"}
    assert {each["reason"] for each in found} == {"Evicted"}


def test_an_eviction_is_read_back_from_our_event(server: ApiServer, client: ApiClient) -> None:
    sink = KubeEvents(client=client, clock=FakeClock(), instance="pod-7")
    owner = Owner(kind="Deployment", namespace="default", name="api", uid="u")
    planned_at = FakeClock().now() - 9e8
    written = an_eviction(
        service="default/api", uid="uid of api-1", node="hot", outcome=Outcome.EVICTED, planned_at=planned_at
    )
    sink.about_service(owner, reason="Evicted", note="x", eviction=written)
    assert sink.stats.last_error == ""
    (found,) = read_eviction_events(client)
    assert (found.uid, found.node, found.reserved.planned_at) == (written.uid, "hot", planned_at)
    assert found.service == written.service
