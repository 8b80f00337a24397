"""Builders of Kubernetes objects as the API server sends them, and a fake that lists them."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.kube.fakes.api import Asked, FakeApi, FakeClock, Reply, Script, serving, status

Json = dict[str, Any]


def meta(name: str, namespace: str = "", **more: Any) -> Json:
    space = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": f"uid-{namespace}-{name}", "creationTimestamp": "2026-11-21T03:00:00Z"} | space | more


def owned_by(kind: str, name: str, uid: str | None = None, *, api: str = "apps/v1", namespace: str = "shop") -> Json:
    reference = {"apiVersion": api, "kind": kind, "name": name, "uid": uid or f"uid-{namespace}-{name}"}
    return {"ownerReferences": [reference | {"controller": True}]}


def a_node(name: str, *, ready: bool = True, **spec: Any) -> Json:
    return {
        "metadata": meta(name, labels={"kubernetes.io/hostname": name}),
        "spec": spec,
        "status": {
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "15500m", "memory": "60Gi", "pods": "110", "nvidia.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.7"},
                {"type": "ExternalIP", "address": "8.8.8.8"},
                {"type": "Hostname", "address": name},
            ],
        },
    }


def a_pod(name: str, *, node: str = "n1", namespace: str = "shop", cpu: str = "250m", **more: Any) -> Json:
    """`metadata`, `spec` and `status` in `more` are laid over the defaults."""
    spec: Json = {
        "nodeName": node,
        "containers": [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}],
        "priority": 0,
        "schedulerName": "default-scheduler",
    }
    state: Json = {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-11-21T03:00:05Z",
        "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
    }
    return {
        "metadata": meta(name, namespace, labels={"app": "web"}) | more.get("metadata", {}),
        "spec": spec | more.get("spec", {}),
        "status": state | more.get("status", {}),
    }


def a_workload(
    name: str, *, namespace: str = "shop", spec: Json | None = None, state: Json | None = None, **metadata: Any
) -> Json:
    return {
        "metadata": meta(name, namespace, generation=2) | metadata,
        "spec": {"replicas": 2} | (spec or {}),
        "status": {"observedGeneration": 2, "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2} | (state or {}),
    }


class Cluster:
    """Lists by plural; everything that isn't there is an empty list. Pages of `page_size`."""

    def __init__(self, *, page_size: int = 2, version: str = "v1.36.2", **lists: list[Json]) -> None:
        self.lists: dict[str, list[Json]] = defaultdict(list, lists)
        self.lists.setdefault("namespaces", [{"metadata": meta("shop", labels={"team": "a"})}])
        self.lists.setdefault("nodes", [a_node("n1"), a_node("n2")])
        self.page_size = page_size
        self.version = version
        self.refused: dict[str, int] = {}

    def __call__(self, asked: Asked) -> Reply:
        parts = asked.path.split("/")
        if asked.path.startswith("/api/v1/namespaces/") and len(parts) == 7:
            found = [
                each
                for each in self.lists[parts[5]]
                if (each["metadata"]["namespace"], each["metadata"]["name"]) == (parts[4], parts[6])
            ]
            return Reply(body=found[0]) if found else status(404, "not found")
        plural = parts[-1]
        if plural in self.refused:
            return status(self.refused[plural], "no")
        if plural == "version":
            return Reply(body={"gitVersion": self.version})
        items = self.lists[plural]
        if "PartialObjectMetadataList" in asked.headers.get("Accept", ""):
            items = [{key: each[key] for key in each if key == "metadata"} for each in items]
        start = int(asked.query.get("continue", "0"))
        end = start + self.page_size
        token = {"continue": str(end)} if end < len(items) else {}
        return Reply(body={"metadata": {"resourceVersion": "7"} | token, "items": items[start:end]})


@contextmanager
def reading(script: Script) -> Iterator[tuple[FakeApi, KubeCluster]]:
    """A server, and our reader of it."""
    with serving(script) as (api, client):
        yield api, KubeCluster(client=client, clock=FakeClock())


def read(cluster: Cluster) -> ClusterSnapshot:
    """What our reader makes of it."""
    with reading(cluster) as (_, reader):
        return reader.snapshot()
