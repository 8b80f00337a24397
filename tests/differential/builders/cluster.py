"""The recorded objects of a case as an API server has them.

The recordings come from unit tests, whose objects lack what every cluster has: UIDs, owners, states of pods and
hostname labels.
"""

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from tests.kube.builders import Cluster

Json = dict[str, Any]

DAY = 86_400.0
HOSTNAME = "kubernetes.io/hostname"
LISTED = "recorded"
"""Label of the nodes that the test lists. Its plugin evicts no pods of others."""
SPARE = "spare"
FINISHED = ("Succeeded", "Failed")


def cluster_of(case: Json, *, spare: bool = False) -> Cluster:
    """The API server of a case; `spare` adds an empty node."""
    given = deepcopy(case["objects"])
    born = _rfc3339(case["now"] - DAY)
    nodes = [_node(each, born) for each in given["nodes"] or ()]
    for node in nodes:
        node["metadata"]["labels"][LISTED] = "true"
    pods = [_pod(each, case["now"], born) for each in given["pods"] or ()]
    names = {each["metadata"]["name"] for each in nodes}
    missing = {each["spec"]["nodeName"] for each in pods} - names
    nodes += [_cordoned(name, born) for name in sorted(missing)]
    if spare:
        nodes.append(_machine(SPARE, born))
    return Cluster(
        page_size=500,
        nodes=nodes,
        pods=pods,
        namespaces=_namespaces(given["namespaces"] or (), pods),
        poddisruptionbudgets=[_budget(each, pods) for each in given["poddisruptionbudgets"] or ()],
        **_workloads(pods, born),
    )


def _node(node: Json, born: str) -> Json:
    name = node["metadata"]["name"]
    node["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": born}
    node["metadata"]["labels"] = {HOSTNAME: name, **node["metadata"].get("labels", {})}
    return node


def _machine(name: str, born: str) -> Json:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return _node({"metadata": {"name": name}, "spec": {}, "status": status}, born)


def _cordoned(name: str, born: str) -> Json:
    """A node that the case's pods name and that its test left out: it takes no pod."""
    node = _machine(name, born)
    node["spec"]["unschedulable"] = True
    return node


def _pod(pod: Json, now: float, born: str) -> Json:
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    if "deletionTimestamp" in meta:  # recorded as null: the test gives it no time
        meta["deletionTimestamp"] = born
    meta.setdefault("creationTimestamp", born)
    meta["uid"] = f"uid-{meta['namespace']}-{meta['name']}"
    meta["ownerReferences"] = list(_owners(meta))
    for number, container in enumerate(spec.get("containers", [])):
        container["name"] = container["name"] or f"main-{number}"
    spec.setdefault("schedulerName", "default-scheduler")
    status.setdefault("phase", "Pending" if _waits(status) else "Running")
    status.setdefault("startTime", meta["creationTimestamp"])
    if status["phase"] == "Running" and "conditions" not in status:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": status["startTime"]}]
    return pod


def _waits(status: Json) -> bool:
    """Whether a container hasn't started."""
    groups = (status.get(f"{kind}ontainerStatuses", ()) for kind in ("c", "initC"))
    return any("waiting" in each["state"] for group in groups for each in group)


def _owners(meta: Json) -> Iterator[Json]:
    """One controller: of the kind that the test names, a ReplicaSet where it names none."""
    for reference in meta.get("ownerReferences", [])[:1]:
        kind = "ReplicaSet" if reference["kind"] == "Pod" else reference["kind"]
        name = reference["name"] or reference["uid"] or f"of-{meta['name']}"
        uid = f"uid-{kind}-{meta['namespace']}-{name}"
        version = "batch/v1" if kind == "Job" else "apps/v1"
        yield {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _workloads(pods: list[Json], born: str) -> dict[str, list[Json]]:
    """Plural -> the controllers of the pods, with as many replicas as they have pods."""
    found: dict[str, Json] = {}
    plurals: dict[str, list[Json]] = {}
    for pod in pods:
        for reference in pod["metadata"]["ownerReferences"]:
            if reference["uid"] not in found:
                meta = {"name": reference["name"], "namespace": pod["metadata"]["namespace"], "uid": reference["uid"]}
                made = {"metadata": {**meta, "generation": 1, "creationTimestamp": born}, "spec": {"replicas": 0}}
                found[reference["uid"]] = made
                plurals.setdefault(f"{reference['kind'].lower()}s", []).append(made)
            found[reference["uid"]]["spec"]["replicas"] += 1
    for workload in found.values():
        count = workload["spec"]["replicas"]
        counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), count)
        workload["status"] = {"observedGeneration": 1, **counts}
    return plurals


def _namespaces(given: Any, pods: list[Json]) -> list[Json]:
    spaces = {each["metadata"]["name"]: each for each in given}
    for pod in pods:
        name = pod["metadata"]["namespace"]
        spaces.setdefault(name, {"metadata": {"name": name, "uid": f"uid-{name}"}})
    return list(spaces.values())


def _budget(budget: Json, pods: list[Json]) -> Json:
    """With the status that the disruption controller would write."""
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    count = sum(wanted <= each["metadata"].get("labels", {}).items() for each in pods)
    budget["metadata"] |= {"uid": f"uid-{budget['metadata']['name']}", "generation": 1}
    numbers = {"disruptionsAllowed": 1, "currentHealthy": count, "desiredHealthy": count - 1, "expectedPods": count}
    budget["status"] = {"observedGeneration": 1, **numbers}
    return budget


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
