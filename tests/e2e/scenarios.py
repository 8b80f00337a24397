"""One small cluster, set up on different stages: in the lab, or on a real API server; usage from the lab's own
Prometheus API or a real Prometheus.

node-1 runs at 88% of its CPU, the others at about a quarter. Cooling it takes two evictions: one of `web` (1.4 cores),
one of `api` (0.9). `cache` has a PodDisruptionBudget without room, `agent` is a DaemonSet.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab, node, scenario, workload
from tests.programs.cli import policy_for
from tests.real.servers.api_server import ApiServer, api_server
from tests.real.servers.prometheus import Series, cadvisor, kube_state_metrics, node_exporter, prometheus_server

NODE_CPUS = 8
NODES = {f"node-{number}": f"10.0.0.{number}" for number in range(1, 5)}
OVERHEAD_CORES = 0.3
HOT = "node-1"
MOVED = ["shop/api", "shop/web"]
"""Services that lose a pod, one each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    name: str
    place: Mapping[str, int]
    cores: float
    kind: str = "Deployment"
    namespace: str = "shop"
    budget: bool = False


SERVICES = (
    Service(name="web", place={"node-1": 3, "node-2": 1, "node-3": 1}, cores=1.4),
    Service(name="api", place={"node-1": 2, "node-4": 1}, cores=0.9),
    Service(name="cache", place={"node-1": 1, "node-2": 1}, cores=0.65, budget=True),
    Service(name="agent", place=dict.fromkeys(NODES, 1), cores=0.1, kind="DaemonSet", namespace="kube-system"),
)


WARM_CORES = 3.2
"""What a warm node uses besides its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A cluster to run the program against."""

    kubeconfig: Path
    policy: dict[str, Any]
    evicted: Callable[[], set[tuple[str, str]]]
    """(namespace, pod) of what was evicted, by the stage's own account."""


@contextmanager
def the_lab(folder: Path, *, warm: str = "") -> Iterator[Lab]:
    """The cluster in the lab, at real speed and without noise. `warm`: a node without headroom in real CPU, which
    kube-scheduler can't tell from the cool ones: a plan needs a soft taint on it."""
    nodes = [node(name, cpu=NODE_CPUS, pool="general", overhead_cores=OVERHEAD_CORES) for name in NODES]
    workloads = [
        workload(
            each.name,
            namespace=each.namespace,
            kind=each.kind,
            place={} if each.kind == "DaemonSet" else dict(each.place),
            cpu_request="500m",
            memory_request="256Mi",
            cpu=each.cores,
            **({"pdb": {"max_unavailable": 0}} if each.budget else {}),
        )
        for each in SERVICES
    ]
    if warm:
        workloads.append(workload("burner", place={warm: 1}, cpu_request="1m", memory_request="1Mi", cpu=WARM_CORES))
    with Lab.start(scenario(nodes=nodes, workloads=workloads), speed=1.0) as lab:
        lab.write_kubeconfig(folder / "kubeconfig")
        yield lab


@contextmanager
def lab_stage(folder: Path) -> Iterator[Stage]:
    """The lab with its own Prometheus API."""
    with the_lab(folder) as lab:
        yield Stage(
            kubeconfig=folder / "kubeconfig", policy=policy_for(lab.prometheus_url), evicted=lambda: _by_lab(lab)
        )


@contextmanager
def lab_with_prometheus_stage(folder: Path) -> Iterator[Stage]:
    """The lab, scraped by a real Prometheus; the default queries of kube-prometheus-stack over a short window."""
    with the_lab(folder) as lab, prometheus_server((), scrape=lab.url.removeprefix("http://")) as prometheus:
        time.sleep(45)  # a whole rate window and the debounce, in real time: Prometheus' clock can't be turned
        usage = {
            "prometheus": {"url": prometheus.url},
            "rateWindow": "30s",
            "stabilizationWindow": {"samples": 3, "duration": "10s"},
        }
        yield Stage(
            kubeconfig=folder / "kubeconfig",
            policy=policy_for(prometheus.url, usage=usage),
            evicted=lambda: _by_lab(lab),
        )


def _by_lab(lab: Lab) -> set[tuple[str, str]]:
    return {(each.namespace, each.name) for each in lab.log.evictions(code=201)}


@contextmanager
def api_server_stage(folder: Path) -> Iterator[Stage]:
    """The same objects on a real API server, their usage back-filled into a real Prometheus."""
    with api_server() as server, stage_on(server, folder) as stage:
        yield stage


@contextmanager
def stage_on(server: ApiServer, folder: Path, *, warm: str = "") -> Iterator[Stage]:
    """The same on an API server that is there. `warm` as in `the_lab`."""
    pods = _populate(server)
    with prometheus_server(_series(pods, warm)) as prometheus:
        usage = {"prometheus": {"url": prometheus.url}, "stabilizationWindow": {"samples": 3, "duration": "1m"}}
        yield Stage(
            kubeconfig=server.kubeconfig(folder / "kubeconfig"),
            policy=policy_for(
                prometheus.url,
                usage=usage,
                guards={"minAge": "1s"},
                # the nodes have just been made
                safety={"cooldowns": {"poolAfterScaleUp": "1s", "newNode": "1s"}},
            ),
            evicted=lambda: _terminating(server),
        )


def _series(pods: list[tuple[Service, str, str]], warm: str) -> list[Series]:
    used = {name: OVERHEAD_CORES + WARM_CORES * (name == warm) for name in NODES}
    series: list[Series] = []
    for service, pod, node_name in pods:
        used[node_name] += service.cores
        series += cadvisor(
            namespace=service.namespace, pod=pod, node=node_name, containers={service.name: service.cores}
        )
    for name, address in NODES.items():
        series += node_exporter(instance=f"{address}:9100", nodename=name, cpus=NODE_CPUS, busy_cores=used[name])
    return series + kube_state_metrics(nodes=NODES)


def _terminating(server: ApiServer) -> set[tuple[str, str]]:
    pods = server.call("GET", "/api/v1/pods")["items"]
    return {
        (pod["metadata"]["namespace"], pod["metadata"]["name"])
        for pod in pods
        if "deletionTimestamp" in pod["metadata"]
    }


def _populate(server: ApiServer) -> list[tuple[Service, str, str]]:
    """Make everything that controllers, scheduler and kubelets would have made; (service, pod, node) of each pod."""
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    for name, address in NODES.items():
        resources = {"cpu": str(NODE_CPUS), "memory": "32Gi", "pods": "110"}
        server.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"pool": "general"}}})
        server.call(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            {
                "status": {
                    "capacity": resources,
                    "allocatable": resources,
                    "addresses": [{"type": "InternalIP", "address": address}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
            },
        )
    return [pod for service in SERVICES for pod in _service(server, service)]


def _service(server: ApiServer, service: Service) -> list[tuple[Service, str, str]]:
    labels = {"app": service.name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [
                {
                    "name": service.name,
                    "image": f"{service.name}:1",
                    "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
                }
            ]
        },
    }
    count = sum(service.place.values())
    spec = {"selector": {"matchLabels": labels}, "template": template}
    owner = _workload(server, service, service.kind, spec, count, None)
    if service.kind == "Deployment":
        owner = _workload(server, service, "ReplicaSet", spec, count, owner)
    if service.budget:
        _budget(server, service, labels)
    made = []
    for node_name, on_it in service.place.items():
        for _ in range(on_it):
            name = f"{service.name}-{len(made)}"
            _pod(server, service, name, node_name, template, owner)
            made.append((service, name, node_name))
    return made


def _reference(owner: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def _workload(
    server: ApiServer, service: Service, kind: str, spec: dict[str, Any], count: int, owner: dict[str, Any] | None
) -> dict[str, Any]:
    path = f"/apis/apps/v1/namespaces/{service.namespace}/{kind.lower()}s"
    metadata: dict[str, Any] = {"name": service.name}
    if owner is not None:
        metadata["ownerReferences"] = [_reference(owner)]
    sized = spec if kind == "DaemonSet" else {**spec, "replicas": count}
    made = server.call("POST", path, {"metadata": metadata, "spec": sized})
    status: dict[str, Any] = {"observedGeneration": made["metadata"]["generation"]}
    if kind == "DaemonSet":
        status |= {
            "desiredNumberScheduled": count,
            "currentNumberScheduled": count,
            "numberReady": count,
            "updatedNumberScheduled": count,
            "numberMisscheduled": 0,
        }
    else:
        status |= {"replicas": count, "readyReplicas": count}
    if kind == "Deployment":
        status |= {"updatedReplicas": count, "availableReplicas": count}
    return server.call("PATCH", f"{path}/{service.name}/status", {"status": status})


def _budget(server: ApiServer, service: Service, labels: dict[str, str]) -> None:
    path = f"/apis/policy/v1/namespaces/{service.namespace}/poddisruptionbudgets"
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
    made = server.call("POST", path, {"metadata": {"name": service.name}, "spec": spec})
    count = sum(service.place.values())
    status = {
        "observedGeneration": made["metadata"]["generation"],
        "disruptionsAllowed": 0,
        "currentHealthy": count,
        "desiredHealthy": count,
        "expectedPods": count,
    }
    server.call("PATCH", f"{path}/{service.name}/status", {"status": status})


def _pod(
    server: ApiServer,
    service: Service,
    name: str,
    node_name: str,
    template: dict[str, Any],
    owner: dict[str, Any],
) -> None:
    path = f"/api/v1/namespaces/{service.namespace}/pods"
    metadata = {"name": name, **template["metadata"], "ownerReferences": [_reference(owner)]}
    server.call("POST", path, {"metadata": metadata, "spec": {**template["spec"], "nodeName": node_name}})
    started = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {
        "phase": "Running",
        "startTime": started,
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}],
    }
    server.call("PATCH", f"{path}/{name}/status", {"status": status})
