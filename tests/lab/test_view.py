"""The scheduler's view of the lab's objects, checked against the adapter that reads a real API server.

The two were written apart: where they differ, one of them is wrong.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.lab.controlplane.pod_templates import effective
from rebalancer.lab.controlplane.snapshot_view import SchedulerView
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.kube.fakes.api import client_of
from tests.lab.conftest import three_nodes

Start = Callable[..., Lab]

GIB = 2**30


def view_of(lab: Lab, view: SchedulerView | None = None) -> ClusterSnapshot:
    store = lab.cluster.store
    return (view or SchedulerView()).snapshot(
        nodes=store.sorted("nodes"), pods=store.sorted("pods"), others=store.sorted, now=lab.clock.now()
    )


def container(cpu: str = "", memory: str = "", **fields: Any) -> dict[str, Any]:
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "c", "image": "i:1", "resources": {"requests": requests}, **fields}


ODD = (
    {"containers": [container("100m", "1Gi"), container(memory="64Mi"), container()]},
    {"containers": [container("1")], "initContainers": [container("3", "2Gi"), container("500m")]},
    {
        "containers": [container("1", "1Gi")],
        "initContainers": [
            container("2"),
            container("300m", "100Mi", restartPolicy="Always"),
            container("1900m", "3Gi"),
            container(
                "200m", restartPolicy="Always", ports=[{"containerPort": 1, "hostPort": 9100, "protocol": "UDP"}]
            ),
        ],
    },
    {"containers": [container("250m")], "overhead": {"cpu": "120m", "memory": "80Mi"}},
    {"containers": [container("250m"), container("1")], "resources": {"requests": {"cpu": "2"}}},
    {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"example.com/gpu": "2", "cpu": "0"}}}]},
)


def test_both_readers_see_the_same_pods_nodes_and_owners(start: Start) -> None:
    lab = start(
        scenario(
            nodes=[
                node("a", zone="x", taints=({"key": "k", "value": "v", "effect": "PreferNoSchedule"},)),
                node("b", unschedulable=True, reserved_cores=0.5, images={"base": GIB, "host:5000/x": 7}),
            ],
            workloads=[
                workload("web", place={"a": 2}, cpu_request="500m", host_ports=(80,), image_size="1200Mi"),
                workload("db", kind="StatefulSet", place={"a": 1, "b": 1}, tolerations=({"operator": "Exists"},)),
                workload("agent", kind="DaemonSet", cpu_request="50m", priority=7),
                workload("gated", replicas=1, gates=("wait",), cpu_request="64"),
            ],
        )
    )
    for number, spec in enumerate(ODD):
        pod = {"metadata": {"name": f"odd-{number}", "namespace": "default"}, "spec": {**spec, "nodeName": "a"}}
        lab.cluster.store.create("pods", {**pod, "status": {"phase": "Running", "nominatedNodeName": "b"}})
    waits = {"metadata": {"name": "waits", "namespace": "default"}, "spec": {"containers": [container("64")]}}
    lab.cluster.store.create("pods", {**waits, "status": {"phase": "Pending", "nominatedNodeName": "b"}})
    client = client_of(lab.url)
    try:
        theirs = KubeCluster(client=client, clock=lab.clock).snapshot()
    finally:
        client.close()
    ours = view_of(lab)
    assert [pod_facts(ours, name) for name in sorted(ours.pods.names)] == [
        pod_facts(theirs, name) for name in sorted(theirs.pods.names)
    ]
    assert node_facts(ours) == node_facts(theirs)


def pod_facts(snapshot: ClusterSnapshot, name: str) -> dict[str, Any]:
    pods, index = snapshot.pods, snapshot.pods.names.index(name)
    pod = snapshot.pod(index)
    template = pod.template
    return {
        "name": str(pod),
        "node": pod.node_name,
        "owner": None if pod.owner is None else (pod.owner.kind, pod.owner.name, pod.owner.uid),
        "figures": [
            round(float(column[index]), 3)
            for column in (
                pods.cpu_request_millicores,
                pods.memory_request_bytes,
                pods.cpu_scored_millicores,
                pods.memory_scored_bytes,
            )
        ],
        "of the template": [round(template.cpu_request_millicores, 3), round(template.cpu_scored_millicores, 3)],
        "extended": template.extended_requests,
        "ports": template.host_ports,
        "images": sorted(template.images),
        "labels": template.labels,
        "tolerations": template.tolerations,
        "state": (pod.phase, pod.ready, pod.terminating, pod.priority),
        "waits": (bool(pods.gated[index]), bool(pods.unschedulable[index])),
        "nominated": int(pods.nominated[index]),
    }


def node_facts(snapshot: ClusterSnapshot) -> list[Any]:
    nodes = snapshot.nodes
    images = {
        name: (nodes.images.size_of(name), nodes.images.nodes_with(name).tolist())
        for name in ("base:latest", "host:5000/x:latest", "registry.example/default/web:1.0", "nowhere:1")
    }
    columns = (
        nodes.cpu_capacity_millicores,
        nodes.cpu_allocatable_millicores,
        nodes.memory_allocatable_bytes,
        nodes.pods_allocatable,
        nodes.created,
    )
    return [
        nodes.names,
        [column.tolist() for column in columns],
        (nodes.ready.tolist(), nodes.unschedulable.tolist()),
        (nodes.labels, nodes.taints, nodes.extended),
        images,
    ]


@pytest.mark.parametrize(
    ("number", "cores", "scored"), [(0, 0.1, 0.3), (1, 3.0, 3.0), (2, 2.2, 2.2), (3, 0.37, 0.37), (4, 2.0, 2.0)]
)
def test_effective_requests_follow_the_rules_for_init_containers_and_sidecars(
    number: int, cores: float, scored: float
) -> None:
    assert effective(ODD[number])["cpu"] == pytest.approx(cores)
    assert effective(ODD[number], defaults={"cpu": 0.1})["cpu"] == pytest.approx(scored)


def test_what_was_parsed_once_is_kept_until_the_pod_changes(lab: Lab) -> None:
    view = SchedulerView()
    before = view_of(lab, view)
    pod = lab.cluster.pods()[0]
    lab.cluster.store.update("pods", {**pod, "metadata": {**pod["metadata"], "labels": {"app": "other"}}})
    after = view_of(lab, view)
    index = after.pods.uids.index(pod["metadata"]["uid"])
    assert after.pod(index).template.labels == {"app": "other"}
    assert before.pod(index).template.labels != {"app": "other"}
    others = np.delete(after.pods.template, index)
    assert np.array_equal(others, np.delete(before.pods.template, index))


def test_pods_of_a_daemonset_are_one_template_once_they_are_bound(start: Start) -> None:
    lab = start(three_nodes(workload("agent", kind="DaemonSet", cpu_request="50m")))
    found = view_of(lab)
    assert len(found.pods) == 3
    assert len(set(found.pods.template.tolist())) == 1


def test_volumes_tie_their_claims_to_nodes(lab: Lab) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}
    claim = {"namespace": "shop", "name": "data"}
    volume = {"claimRef": claim, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    lab.cluster.store.create("persistentvolumes", {"metadata": {"name": "disk"}, "spec": volume})
    lab.cluster.store.create(
        "persistentvolumeclaims", {"metadata": claim, "spec": {"accessModes": ["ReadWriteOncePod"]}}
    )
    found = view_of(lab)
    assert [term.match_expressions[0].values for term in found.volume_nodes["shop", "data"].node_selector_terms] == [
        ("b",)
    ]
    assert found.exclusive_claims == {("shop", "data")}
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    lab.cluster.add_workload(workload("db", namespace="shop", kind="StatefulSet", replicas=1))
    owner = lab.cluster.store.get("statefulsets", "shop", "db")
    template = {**owner["spec"]["template"], "spec": {**owner["spec"]["template"]["spec"], "volumes": [data]}}
    lab.cluster.store.update("statefulsets", {**owner, "spec": {**owner["spec"], "template": template}})
    lab.cluster.wait_until(
        lambda: (
            [pod["spec"].get("nodeName") for pod in lab.cluster.pods(workload="db") if pod["spec"].get("volumes")]
            == ["b"]
        )
    )
