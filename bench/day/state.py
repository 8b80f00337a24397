"""A lab's cluster at one moment as the planning bench's, for its lower bound (`plan_bound`).

Nodes that are Ready and schedulable count, and the pods that stay: a pod that terminates has gone, one that starts
has its usual CPU. Movable are pods of Deployments that no guard of the policy keeps and no webhook.
"""

from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from bench.day.cluster import GUARDED
from bench.plan.bound import lower_bound
from bench.plan.cluster import Cluster, Services, Thresholds
from bench.plan.scheduler import Machines
from rebalancer.lab import Lab
from rebalancer.lab.clock import seconds_of
from rebalancer.lab.controlplane.pod_templates import effective
from rebalancer.lab.loads.cpu import OVERHEAD, behaviour_of, curve
from rebalancer.lab.objects.disruption import is_finished, is_ready, is_terminating
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.quantity import parse_quantity

MIN_AGE_SECONDS = 300.0
KEPT_NAMESPACES = ("kube-system",)
STABLE_SECONDS = 120.0
SAMPLE_SECONDS = 60.0

Obj = dict[str, Any]
Key = tuple[str, str, bool]
"""(namespace, service, movable)"""


def hot_nodes(lab: Lab, high: float) -> frozenset[str]:
    """Nodes over `high`, by the mean over the rate window, at each of the last samples of the stabilization window."""
    now = lab.clock.now()
    figures = lab.usage.window_means(np.arange(now - STABLE_SECONDS, now + 1.0, SAMPLE_SECONDS))
    machines = figures.columns.machines
    shares = figures.nodes / np.array([machine.cores for machine in machines])[:, None]
    hot = (shares > high).all(axis=1) & figures.up.all(axis=1)
    return frozenset(machines[row].name for row in np.flatnonzero(hot).tolist())


def coolable_nodes(lab: Lab, thresholds: Thresholds) -> frozenset[str]:
    """Nodes that are hot, stay hot without an eviction, and can be cooled by the lower bound."""
    hot = hot_nodes(lab, thresholds.high)
    if not hot:
        return hot
    names, cluster = cluster_of(lab, thresholds)
    return hot & {names[row] for row in np.flatnonzero(lower_bound(cluster).coolable).tolist()}


def cluster_of(lab: Lab, thresholds: Thresholds) -> tuple[list[str], Cluster]:
    """Names of the nodes, and the cluster."""
    store, now = lab.cluster.store, lab.clock.now()
    with lab.cluster.lock:
        nodes = [each for each in store.sorted("nodes") if _serves(each)]
        names = {each["metadata"]["name"]: row for row, each in enumerate(nodes)}
        pods = [
            pod
            for pod in store.sorted("pods")
            if pod["spec"].get("nodeName") in names and not is_terminating(pod) and not is_finished(pod)
        ]
        allowed = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): int(each["status"]["disruptionsAllowed"])
            for each in store.all("poddisruptionbudgets")
        }
    keys = [_key(pod, now) for pod in pods]
    index: dict[Key, int] = {}
    for key in keys:
        index.setdefault(key, len(index))
    services = np.array([index[key] for key in keys], dtype=np.int32)
    requests = [effective(pod["spec"]) for pod in pods]
    first = [keys.index(key) for key in index]
    capacity = np.array([1000.0 * parse_quantity(str(each["status"]["capacity"]["cpu"])) for each in nodes])
    cluster = Cluster(
        machines=_machines(nodes, capacity),
        services=Services(
            kind=tuple("Deployment" if movable else "Job" for _, _, movable in index),
            cpu_request=np.array([1000.0 * requests[at].get("cpu", 0.0) for at in first]),
            memory_request=np.array([requests[at].get("memory", 0.0) for at in first]),
            only_pool=np.full(len(index), -1, dtype=np.int32),
            image=np.full(len(index), -1, dtype=np.int32),
            max_unavailable=np.array(
                [allowed.get((namespace, name), -1) for namespace, name, _ in index], dtype=np.int32
            ),
        ),
        service=services,
        node=np.array([names[pod["spec"]["nodeName"]] for pod in pods], dtype=np.int32),
        cpu=1000.0 * _cores(lab, pods),
        overhead=np.array([1000.0 * float(each["metadata"]["annotations"][OVERHEAD]) for each in nodes]),
        thresholds=thresholds,
        now=now,
        seed=0,
    )
    return list(names), cluster


def _serves(node: Obj) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    return ready and not node["spec"].get("unschedulable")


def _key(pod: Obj, now: float) -> Key:
    meta = pod["metadata"]
    name = (meta.get("labels") or {}).get("app.kubernetes.io/name", meta["name"])
    owner = next((each["kind"] for each in meta.get("ownerReferences") or ()), "")
    movable = (
        owner == "ReplicaSet"
        and is_ready(pod)
        and now - seconds_of(meta["creationTimestamp"]) >= MIN_AGE_SECONDS
        and meta["namespace"] not in KEPT_NAMESPACES
        and not fnmatchcase(f"{meta['namespace']}/{meta['name']}", GUARDED)
    )
    return meta["namespace"], name, movable


def _cores(lab: Lab, pods: list[Obj]) -> Floats:
    """(pods,) demand now; of a pod that starts what it will be. A shared load is divided among all that stay."""
    now, history = lab.clock.now(), lab.cluster.history
    members: dict[str, int] = {}
    for pod in pods:
        group = behaviour_of(pod).group
        members[group] = members.get(group, 0) + 1
    found = []
    for pod in pods:
        behaviour, meta = behaviour_of(pod), pod["metadata"]
        key = behaviour.group or f"{meta['namespace']}/{meta['name']}"
        cores = curve(behaviour.cpu, key=key, seed=history.seed).at(now - lab.origin)
        found.append(cores / members[behaviour.group] if behaviour.group else cores)
    return np.array(found)


def _machines(nodes: list[Obj], capacity: Floats) -> Machines:
    def allocatable(name: str) -> Floats:
        return np.array([parse_quantity(str(each["status"]["allocatable"][name])) for each in nodes])

    return Machines(
        cpu_capacity=capacity,
        cpu_allocatable=1000.0 * allocatable("cpu"),
        memory_allocatable=allocatable("memory"),
        pods_allocatable=allocatable("pods"),
        pool=np.zeros(len(nodes), dtype=np.int32),
        zone=np.zeros(len(nodes), dtype=np.int32),
        image_bytes=np.empty(0),
        images_there=np.empty((0, len(nodes)), dtype=np.bool_),
    )
