"""A synthetic cluster, rendered as the pages that an API server would send.

Realistic where it costs: a pod is 5 to 7 KB of JSON with env, probes, volumes, managedFields and status; objects come
in etcd's order; tokens, uids and times are different for each pod. Each workload's pod is rendered once and cut at its
varying places; a pod is then one `join`, so a gigabyte takes seconds.
"""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bench.cluster.pods import ZONE_LABEL, Workload, container, managed_fields, rendered_pods
from bench.cluster.values import child_uid, compact, new_uid, short_hash, stamp

PAGE_SIZE = 500
DAEMONSETS = ("calico-node", "kube-proxy", "node-exporter", "fluent-bit")
OLD_REPLICASETS = 3
IMAGES_IN_CLUSTER, IMAGES_ON_NODE = 10_000, 50
"""A kubelet reports fifty at most."""
ZONES = tuple(f"eu-central-1{letter}" for letter in "abc")


def synthetic_cluster(directory: Path, *, pods: int, nodes: int, seed: int) -> None:
    """Render every list of a cluster into `directory` as `<plural>-<page>.json`.

    The same arguments give the same bytes. About a sixth of the pods belong to DaemonSets, the rest to Deployments,
    StatefulSets and Jobs; a few are bare.
    """
    chance = random.Random(seed)
    node_names = [f"ip-10-{i >> 8}-{i & 255}-{i % 200}.eu-central-1.compute.internal" for i in range(nodes)]
    workloads = list(_workloads(chance, pods - len(DAEMONSETS) * nodes, nodes))
    workloads.sort(key=lambda each: (each.namespace, each.name))
    free = [name for name in node_names for _ in range(-(-pods // nodes))]
    chance.shuffle(free)
    namespaces = sorted({each.namespace for each in workloads})
    images = [_image(chance, number) for number in range(IMAGES_IN_CLUSTER)]
    _write(directory, "nodes", (_node(chance, name, images) for name in node_names))
    _write(directory, "namespaces", (_namespace(chance, name) for name in namespaces))
    _write(directory, "priorityclasses", (_priority_class(name, value) for name, value in PRIORITIES.items()))
    _write(directory, "pods", rendered_pods(chance, workloads, node_names, free))
    _write(directory, "replicasets", (text for each in workloads for text in _replicasets(chance, each)))
    for kind, plural in (
        ("Deployment", "deployments"),
        ("StatefulSet", "statefulsets"),
        ("DaemonSet", "daemonsets"),
        ("Job", "jobs"),
    ):
        _write(directory, plural, (_workload(chance, each) for each in workloads if each.kind == kind))
    _write(directory, "csinodes", ())
    _write(directory, "csidrivers", ())
    _write(directory, "services", ())
    _write(directory, "resourcequotas", ())
    _write(directory, "persistentvolumes", (text for each in workloads for text in _volumes(chance, each)))
    budgeted = [each for each in workloads if each.kind in ("Deployment", "StatefulSet") and each.replicas > 2]
    _write(directory, "poddisruptionbudgets", (_budget(chance, each) for each in budgeted))


PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000, "batch": -100, "web": 1000}


def _workloads(chance: random.Random, pods: int, nodes: int) -> Iterator[Workload]:
    for name in DAEMONSETS:
        yield Workload(
            kind="DaemonSet",
            namespace="kube-system",
            name=name,
            uid=new_uid(chance),
            replicas=nodes,
            cpu="100m",
            memory="128Mi",
        )
    number = 0
    while pods > 0:
        kind = chance.choices(("Deployment", "StatefulSet", "Job", "Pod"), (70, 18, 10, 2))[0]
        size = {"Deployment": chance.choice((2, 3, 3, 5, 8, 12, 40)), "StatefulSet": chance.choice((3, 3, 5, 9))}
        replicas = min(size.get(kind, 1), pods)
        yield Workload(
            kind=kind,
            namespace=f"team-{chance.randrange(300):03d}",
            name=f"{chance.choice(('cart', 'search', 'ledger', 'mail', 'video'))}-{kind.lower()}-{number:05d}",
            uid=new_uid(chance),
            replicas=replicas,
            cpu=chance.choice(("50m", "100m", "250m", "500m", "1", "2")),
            memory=chance.choice(("128Mi", "256Mi", "512Mi", "1Gi", "4Gi")),
            volume=kind == "StatefulSet" and chance.random() < 0.7,
        )
        number += 1
        pods -= replicas


def _image(chance: random.Random, number: int) -> dict[str, Any]:
    name = f"registry.example.com/team-{number % 300:03d}/image-{number:05d}"
    names = [f"{name}@sha256:{chance.getrandbits(256):064x}", f"{name}:v1.{number % 40}.{number % 7}"]
    return {"names": names, "sizeBytes": chance.randrange(10**7, 10**9)}


def _node(chance: random.Random, name: str, images: list[dict[str, Any]]) -> str:
    return compact(
        {
            "metadata": {
                "name": name,
                "uid": new_uid(chance),
                "creationTimestamp": stamp(0),
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": "m6i.8xlarge",
                    ZONE_LABEL: chance.choice(ZONES),
                    "pool": "general",
                },
                "annotations": {
                    "alpha.kubernetes.io/provided-node-ip": "10.1.0.1",
                    "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.aws.com":"i-{name}"}}',
                    "node.alpha.kubernetes.io/ttl": "0",
                    "projectcalico.org/IPv4Address": "10.1.0.1/16",
                    "projectcalico.org/IPv4VXLANTunnelAddr": f"10.0.{len(name)}.1",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    "k8s.io/last-applied-node-configuration": "x" * 900,
                },
            },
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"aws:///eu-central-1a/i-{short_hash(chance)}"},
            "status": {
                "capacity": {"cpu": "32", "memory": "131072Mi", "pods": "110", "ephemeral-storage": "100Gi"},
                "allocatable": {"cpu": "31500m", "memory": "128000Mi", "pods": "110", "ephemeral-storage": "90Gi"},
                "conditions": [
                    {
                        "type": kind,
                        "status": status,
                        "lastHeartbeatTime": stamp(0),
                        "reason": "Kubelet",
                        "message": "kubelet",
                    }
                    for kind, status in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("Ready", "True"))
                ],
                "addresses": [
                    {"type": "InternalIP", "address": f"10.1.{chance.randrange(256)}.{chance.randrange(256)}"},
                    {"type": "Hostname", "address": name},
                ],
                "images": chance.sample(images, IMAGES_ON_NODE),
            },
        }
    )


def _namespace(chance: random.Random, name: str) -> str:
    return compact(
        {"metadata": {"name": name, "uid": new_uid(chance), "labels": {"kubernetes.io/metadata.name": name}}}
    )


def _priority_class(name: str, value: int) -> str:
    return compact({"metadata": {"name": name, "uid": name}, "value": value})


def _replicasets(chance: random.Random, each: Workload) -> Iterator[str]:
    """Metadata only, as an API server answers when asked so."""
    if each.kind != "Deployment":
        return
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": each.name, "uid": each.uid, "controller": True}
    for age in range(1 + OLD_REPLICASETS):
        meta = {
            "name": f"{each.name}-{short_hash(chance)}",
            "namespace": each.namespace,
            "uid": child_uid(each.uid, age),
            "generation": 2,
            "creationTimestamp": stamp(age),
            "labels": {"app.kubernetes.io/name": each.name},
            "ownerReferences": [owner],
            "managedFields": [managed_fields("kube-controller-manager", 0)],
        }
        yield compact({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})


def _workload(chance: random.Random, each: Workload) -> str:
    count = each.replicas
    return compact(
        {
            "metadata": {
                "name": each.name,
                "namespace": each.namespace,
                "uid": each.uid,
                "generation": 4,
                "labels": {"app.kubernetes.io/name": each.name},
                "managedFields": [managed_fields("helm", 1)],
            },
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {"app.kubernetes.io/name": each.name}},
                "template": {"spec": {"containers": [container(each, "main", each.cpu, each.memory, "token")]}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            },
            "status": {
                "observedGeneration": 4,
                "replicas": count,
                "readyReplicas": count,
                "updatedReplicas": count,
                "currentRevision": "a",
                "updateRevision": "a",
                "desiredNumberScheduled": count,
                "updatedNumberScheduled": count,
                "numberReady": count,
            },
        }
    )


def _volumes(chance: random.Random, each: Workload) -> Iterator[str]:
    for ordinal in range(each.replicas if each.volume else 0):
        spec = {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": each.namespace,
                "name": f"data-{each.name}-{ordinal}",
            },
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [chance.choice(ZONES)]}]}
                    ]
                }
            },
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{short_hash(chance)}"},
        }
        meta = {
            "name": f"pvc-{new_uid(chance)}",
            "uid": new_uid(chance),
            "managedFields": [managed_fields("csi-provisioner", 0)],
        }
        yield compact({"metadata": meta, "spec": spec, "status": {"phase": "Bound"}})


def _budget(chance: random.Random, each: Workload) -> str:
    return compact(
        {
            "metadata": {"name": each.name, "namespace": each.namespace, "uid": new_uid(chance), "generation": 1},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": each.name}}},
            "status": {
                "disruptionsAllowed": 1,
                "currentHealthy": each.replicas,
                "desiredHealthy": each.replicas - 1,
                "expectedPods": each.replicas,
                "observedGeneration": 1,
            },
        }
    )


def _write(directory: Path, plural: str, items: Iterator[str]) -> None:
    """Pages of 500; a page names the next one as its continue token."""
    page, number = _take(items), 0
    while page or number == 0:
        following = _take(items)
        token = f'"continue":"{number + 1}",' if following else ""
        head = f'{{"kind":"List","apiVersion":"v1","metadata":{{{token}"resourceVersion":"987654321"}},"items":['
        (directory / f"{plural}-{number}.json").write_text(head + ",".join(page) + "]}\n", encoding="ascii")
        page, number = following, number + 1


def _take(items: Iterator[str]) -> list[str]:
    return list(islice(items, PAGE_SIZE))
