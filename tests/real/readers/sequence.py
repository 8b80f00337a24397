"""Replacements one after the other, each placed by a real kube-scheduler while its predecessor terminates."""

import random
import time
from dataclasses import dataclass
from typing import Any

from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.kube.builders import Cluster
from tests.kube.fakes.api import FakeClock, serving
from tests.real.servers.api_server import ApiServer, api_server
from tests.real.servers.scheduler import Scheduler, kube_scheduler

Json = dict[str, Any]

NAMESPACE = "shop"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
FORCED = "?gracePeriodSeconds=0"
LISTS = {
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "replicasets": "/apis/apps/v1/replicasets",
    "pods": "/api/v1/pods",
}


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """What happened."""

    snapshot: ClusterSnapshot
    """Before the first replacement."""
    evicted: list[int]
    """Index of each evicted pod, in order."""
    nodes: list[int]
    """Index of the node on which its replacement landed."""
    seconds: float
    """How long the replacements took."""


def replaced_in_a_row(*, seed: int, nodes: int, services: int, replicas: int, replaced: int) -> Sequence:
    """Start the real programs and replace pods of a cluster whose requests are nearly even."""
    rng = random.Random(seed)
    with api_server() as server:
        names = [f"n{index:03d}" for index in range(nodes)]
        _prepare(server, rng, names, services, replicas)
        snapshot = _read(server)
        row = {name: index for index, name in enumerate(snapshot.pods.names)}
        chosen = rng.sample([f"s{service:03d}-{at}" for service in range(services) for at in range(replicas)], replaced)
        with kube_scheduler(server) as scheduler:
            began = time.monotonic()
            landed = [_replace(server, scheduler, name) for name in chosen]
            seconds = time.monotonic() - began
    return Sequence(
        snapshot=snapshot,
        evicted=[row[name] for name in chosen],
        nodes=[snapshot.node_index[name] for name in landed],
        seconds=seconds,
    )


def _prepare(server: ApiServer, rng: random.Random, names: list[str], services: int, replicas: int) -> None:
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for at, name in enumerate(names):
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "abc"[at % 3]}
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        server.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
        filler = _pod(f"filler-{name}", {}, f"{rng.randrange(5_000, 6_600)}m", f"{rng.randrange(20_000, 26_000)}Mi")
        server.call("POST", PODS, {**filler, "spec": {**filler["spec"], "nodeName": name}})
    for service in range(services):
        _service(server, rng, f"s{service:03d}", names, replicas)


def _service(server: ApiServer, rng: random.Random, name: str, nodes: list[str], replicas: int) -> None:
    labels = {"app": name}
    asked = f"{rng.randrange(100, 900, 50)}m", f"{rng.randrange(256, 3_000, 128)}Mi"
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod("", labels, *asked)["spec"]},
    }
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
    made = server.call("POST", path, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    for at, node in enumerate(rng.sample(nodes, replicas)):
        pod = _pod(f"{name}-{at}", labels, *asked)
        pod["metadata"]["ownerReferences"] = [owner]
        server.call("POST", PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}})


def _pod(name: str, labels: dict[str, str], cpu: str, memory: str) -> Json:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}


def _replace(server: ApiServer, scheduler: Scheduler, name: str) -> str:
    """Delete a pod as an eviction does, and create its replacement while it terminates. Returns the new node."""
    pod = server.call("GET", f"{PODS}/{name}")
    meta = pod["metadata"]
    scheduler.forget_events()
    server.call("DELETE", f"{PODS}/{name}")
    scheduler.wait_for_event("Update", f"{NAMESPACE}/{name}")
    new = {
        "metadata": {"name": f"{name}-new", "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]},
        "spec": {"containers": [{key: pod["spec"]["containers"][0][key] for key in ("name", "image", "resources")}]},
    }
    # the API server copies the node's zone into the labels of a bound pod
    new["metadata"]["labels"] = {"app": meta["labels"]["app"]}
    server.call("POST", PODS, new)
    node = scheduler.decision(f"{NAMESPACE}/{name}-new").node
    assert node is not None
    scheduler.forget_events()
    server.call("DELETE", f"{PODS}/{name}{FORCED}")
    scheduler.wait_for_event("Delete", f"{NAMESPACE}/{name}")
    return node


def _read(server: ApiServer) -> ClusterSnapshot:
    """Through the Kubernetes API as the program reads it."""
    lists = Cluster(page_size=100_000, **{name: server.call("GET", path)["items"] for name, path in LISTS.items()})
    with serving(lists) as (_, client):
        return KubeCluster(client=client, clock=FakeClock()).snapshot()
