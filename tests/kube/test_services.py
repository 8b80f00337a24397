"""A reading of services is enough to follow their evictions, and asks for little."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.constraints.moves.in_flight import follow
from rebalancer.kube.actions.evict import KubeEvictor
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.snapshot.snapshot import MANY_NAMESPACES, KubeCluster
from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.decisions.eviction import Outcome, TargetNode
from rebalancer.model.decisions.ports import Clock
from tests.builders import an_eviction, pods_in
from tests.kube.builders import Cluster, Json, meta, read
from tests.kube.fakes.api import Asked, Reply, client_of_lab, serving

KINDS = ("Deployment", "StatefulSet", "Job")
SPACES = ("blue", "green", *(f"more-{at}" for at in range(MANY_NAMESPACES)))


@pytest.fixture
def lab() -> Iterator[Lab]:
    services = [
        workload(kind.lower(), kind=kind, namespace=space, place={"a": 2}, cpu=0.1, cpu_request="50m")
        for space in SPACES
        for kind in KINDS
    ]
    nodes = [node("a", pods=500), node("b", pods=500)]
    with Lab.start(scenario(nodes=nodes, workloads=services, history_days=0.01), stepped=True) as lab:
        yield lab


@pytest.fixture
def client(lab: Lab, tmp_path: Path) -> Iterator[ApiClient]:
    with client_of_lab(lab, tmp_path) as client:
        yield client


def test_evictions_are_followed_as_by_the_whole_cluster(lab: Lab, client: ApiClient) -> None:
    cluster = KubeCluster(client=client, clock=lab.clock)
    evictor = KubeEvictor(client=client)
    evicted = []
    for number, kind in enumerate(KINDS):
        pod = next(each for each in pods_in(cluster.snapshot()) if each.name.startswith(kind.lower()))
        each = an_eviction(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            node="a",
            record=number + 1,
            ready_before=2,
            desired_before=2,
            planned_at=lab.clock.now(),
            deadline_at=lab.clock.now() + 300.0,
            target_nodes=(TargetNode("b", 1.0),),
        )
        assert pod.service is not None
        each.service = pod.service
        assert evictor.evict(each).outcome is Outcome.EVICTED
        evicted.append(each)
    states = []
    for _ in range(6):
        now = lab.clock.now()
        whole, part = (
            follow(seen, evicted, now=now, max_late_seconds=3600.0)
            for seen in (cluster.snapshot(), cluster.services({each.namespace for each in evicted}))
        )
        assert part == whole
        states.append([each.landed for each in part])
        lab.clock.sleep(20.0)
    assert states[0] != states[-1], "nothing landed"


def paths_of(behind: ApiClient, clock: Clock, spaces: set[str]) -> list[str]:
    """The paths that a reading of these namespaces asks for."""

    def forward(asked: Asked) -> Reply:
        answer = behind.get(asked.path, query=dict(asked.query), accept=asked.headers["Accept"])
        return Reply(status=answer.status, body=json.loads(answer.data))

    with serving(forward) as (api, client):
        names = {each.namespace for each in pods_in(KubeCluster(client=client, clock=clock).services(spaces))}
    assert names >= spaces
    return [each.path for each in api.asked]


def test_lists_are_of_these_namespaces_alone(lab: Lab, client: ApiClient) -> None:
    expected = ["/version", "/api/v1/nodes"]
    for space in ("blue", "green"):
        expected.append(f"/api/v1/namespaces/{space}/pods")
        expected += [f"/apis/apps/v1/namespaces/{space}/{of}" for of in ("replicasets", "deployments", "statefulsets")]
        expected.append(f"/apis/batch/v1/namespaces/{space}/jobs")
    assert sorted(paths_of(client, lab.clock, {"blue", "green"})) == sorted(expected)


def test_many_namespaces_are_one_list(lab: Lab, client: ApiClient) -> None:
    asked = paths_of(client, lab.clock, set(SPACES))
    assert asked.count("/api/v1/pods") == 1
    assert not any("namespaces" in each for each in asked)


def test_selectors_are_read_by_namespace() -> None:
    def service(name: str, space: str, selector: dict[str, str] | None) -> Json:
        return {"metadata": meta(name, space), "spec": {"selector": selector} if selector is not None else {}}

    found = [
        service("web", "shop", {"app": "web"}),
        service("web-headless", "shop", {"app": "web"}),
        service("external", "shop", None),
        service("all", "shop", {}),
        service("db", "mail", {"app": "db", "tier": "x"}),
    ]
    cluster = Cluster(services=found)
    assert read(cluster).services == {"mail": ({"app": "db", "tier": "x"},), "shop": ({"app": "web"},)}
    cluster.refused["services"] = 403
    assert read(cluster).services is None
