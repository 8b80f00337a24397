"""A synthetic cluster, rendered as the pages that an API server would send.

Realistic where it costs: a pod is 5 to 7 KB of JSON with env, probes, volumes, managedFields and status; objects come
in etcd's order; tokens, uids and times are different for each pod. Each workload's pod is rendered once and cut at its
varying places; a pod is then one `join`, so a gigabyte takes seconds.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

PAGE_SIZE = 500
START = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
SPAN_SECONDS = 14 * 86400
DAEMONSETS = ("calico-node", "kube-proxy", "node-exporter", "fluent-bit")
OLD_REPLICASETS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One service of the synthetic cluster."""

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int
    cpu: str
    memory: str
    volume: bool = False


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
    _write(directory, "nodes", (_node(chance, name) for name in node_names))
    _write(directory, "namespaces", (_namespace(chance, name) for name in namespaces))
    _write(directory, "priorityclasses", (_priority_class(name, value) for name, value in PRIORITIES.items()))
    _write(directory, "pods", _pods(chance, workloads, node_names, free))
    _write(directory, "replicasets", (text for each in workloads for text in _replicasets(chance, each)))
    for kind, plural in (
        ("Deployment", "deployments"),
        ("StatefulSet", "statefulsets"),
        ("DaemonSet", "daemonsets"),
        ("Job", "jobs"),
    ):
        _write(directory, plural, (_workload(chance, each) for each in workloads if each.kind == kind))
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
            uid=_uid(chance),
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
            uid=_uid(chance),
            replicas=replicas,
            cpu=chance.choice(("50m", "100m", "250m", "500m", "1", "2")),
            memory=chance.choice(("128Mi", "256Mi", "512Mi", "1Gi", "4Gi")),
            volume=kind == "StatefulSet" and chance.random() < 0.7,
        )
        number += 1
        pods -= replicas


def _pods(chance: random.Random, workloads: list[Workload], nodes: list[str], free: list[str]) -> Iterator[str]:
    at = 0
    for each in workloads:
        parts = _pod_template(chance, each)
        suffix = _hash(chance)
        for ordinal in range(each.replicas):
            if each.kind == "DaemonSet":
                node = nodes[ordinal]
            else:
                node, at = free[at], at + 1
            name = {
                "StatefulSet": f"{each.name}-{ordinal}",
                "Deployment": f"{each.name}-{suffix}-{_hash(chance)[:5]}",
            }.get(each.kind, f"{each.name}-{_hash(chance)[:5]}")
            values = {
                "NAME": name,
                "UID": _uid(chance),
                "NODE": node,
                "TOKEN": _hash(chance)[:5],
                "CREATED": _time(chance.randrange(SPAN_SECONDS)),
                "IP": f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}",
                "RV": str(chance.randrange(10**8, 10**9)),
                "ORDINAL": str(ordinal),
                "RS": suffix,
            }
            yield "".join(values.get(part, part) for part in parts)


def _pod_template(chance: random.Random, each: Workload) -> list[str]:
    """The pod's JSON, cut at its varying places: every second part is the name of a value."""
    labels = {"app.kubernetes.io/name": each.name, "app.kubernetes.io/part-of": "shop", "team": each.namespace}
    owner: dict[str, Any] = {
        "apiVersion": "batch/v1" if each.kind == "Job" else "apps/v1",
        "kind": each.kind,
        "name": each.name,
        "uid": each.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    if each.kind == "Deployment":
        labels["pod-template-hash"] = "@RS@"
        owner |= {"kind": "ReplicaSet", "name": f"{each.name}-@RS@", "uid": _child_uid(each.uid, 0)}
    elif each.kind == "StatefulSet":
        labels |= {
            "apps.kubernetes.io/pod-index": "@ORDINAL@",
            "controller-revision-hash": f"{each.name}-{_hash(chance)}",
            "statefulset.kubernetes.io/pod-name": "@NAME@",
        }
    elif each.kind == "DaemonSet":
        labels |= {"controller-revision-hash": _hash(chance), "pod-template-generation": "3"}
    token = "kube-api-access-@TOKEN@"
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": f"{each.name}-config", "defaultMode": 420}},
        {"name": "tmp", "emptyDir": {"medium": "Memory"} if chance.random() < 0.5 else {}},
        {
            "name": token,
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {
                        "downwardAPI": {
                            "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                        }
                    },
                ],
                "defaultMode": 420,
            },
        },
    ]
    if each.volume:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": "data-@NAME@"}})
    containers = [_container(each, "main", each.cpu, each.memory, token)]
    if chance.random() < 0.2:
        containers.append(_container(each, "proxy", "20m", "64Mi", token))
    affinity: dict[str, Any] = {}
    if each.kind == "DaemonSet":
        affinity = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["@NODE@"]}]}
                    ]
                }
            }
        }
    elif each.kind == "StatefulSet":
        same = {"matchLabels": {"app.kubernetes.io/name": each.name}}
        term = {"labelSelector": same, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": each.name}},
        }
    ]
    critical = each.kind == "DaemonSet"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    pod = {
        "metadata": {
            "name": "@NAME@",
            "generateName": f"{each.name}-@RS@-",
            "namespace": each.namespace,
            "uid": "@UID@",
            "resourceVersion": "@RV@",
            "creationTimestamp": "@CREATED@",
            "labels": labels,
            "annotations": {
                "checksum/config": _hash(chance) * 6,
                "cni.projectcalico.org/podIP": "@IP@/32",
                "kubectl.kubernetes.io/restartedAt": "2026-10-02T08:00:00Z",
                "prometheus.io/scrape": "true",
            },
            **({} if each.kind == "Pod" else {"ownerReferences": [owner]}),
            "managedFields": [_managed("kube-controller-manager", 1), _managed("kubelet", 0)],
        },
        "spec": {
            "volumes": volumes,
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "serviceAccountName": each.name,
            "serviceAccount": each.name,
            "nodeName": "@NODE@",
            "securityContext": {"runAsNonRoot": True, "fsGroup": 1000},
            **({"affinity": affinity} if affinity else {}),
            "schedulerName": "default-scheduler",
            "tolerations": tolerations,
            **({"priorityClassName": "system-node-critical", "priority": 2000001000} if critical else {"priority": 0}),
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            **({} if critical else {"topologySpreadConstraints": spread}),
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "@CREATED@"}
                for kind in conditions
            ],
            "hostIP": "10.0.0.1",
            "podIP": "@IP@",
            "podIPs": [{"ip": "@IP@"}],
            "startTime": "@CREATED@",
            "containerStatuses": [_container_status(chance, container) for container in containers],
            "qosClass": "Burstable",
        },
    }
    return json.dumps(pod, separators=(",", ":")).split("@")


def _container(each: Workload, name: str, cpu: str, memory: str, token: str) -> dict[str, Any]:
    probe = {
        "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
    }
    return {
        "name": name,
        "image": f"registry.example.com/{each.namespace}/{each.name}/{name}:v1.42.{each.replicas}",
        "args": ["--config=/etc/app/config.yaml", f"--name={each.name}", "--log-level=info"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            *({"name": f"SETTING_{i}", "value": f"value-of-setting-{i}-of-{each.name}"} for i in range(7)),
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "resources": {"limits": {"memory": memory}, "requests": {"cpu": cpu, "memory": memory}},
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/app"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False},
    }


def _container_status(chance: random.Random, container: dict[str, Any]) -> dict[str, Any]:
    digest = _hash(chance) * 6
    return {
        "name": container["name"],
        "state": {"running": {"startedAt": "@CREATED@"}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": container["image"],
        "imageID": f"{container['image'].rsplit(':')[0]}@sha256:{digest}".replace("@", "\\u0040"),
        "containerID": f"containerd://{digest}",
        "started": True,
        "resources": container["resources"],
    }


def _managed(manager: str, wide: int) -> dict[str, Any]:
    env = {f'k:{{"name":"SETTING_{i}"}}': {".": {}, "f:name": {}, "f:value": {}} for i in range(7 * wide)}
    fields = {
        "f:metadata": {"f:annotations": {"f:checksum/config": {}}, "f:labels": {"f:team": {}}, "f:ownerReferences": {}},
        "f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}, "f:env": env, "f:image": {}, "f:resources": {}}}},
        "f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}}}, "f:phase": {}, "f:podIP": {}},
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "@CREATED@" if wide or manager == "kubelet" else "2026-10-02T08:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _node(chance: random.Random, name: str) -> str:
    images = [
        {"names": [f"registry.example.com/image-{chance.randrange(900)}:v{i}"], "sizeBytes": 10**8 + i}
        for i in range(50)
    ]
    return _json(
        {
            "metadata": {
                "name": name,
                "uid": _uid(chance),
                "creationTimestamp": _time(0),
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": "m6i.8xlarge",
                    "topology.kubernetes.io/zone": f"eu-central-1{chance.choice('abc')}",
                    "pool": "general",
                },
            },
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"aws:///eu-central-1a/i-{_hash(chance)}"},
            "status": {
                "capacity": {"cpu": "32", "memory": "131072Mi", "pods": "110", "ephemeral-storage": "100Gi"},
                "allocatable": {"cpu": "31500m", "memory": "128000Mi", "pods": "110", "ephemeral-storage": "90Gi"},
                "conditions": [
                    {
                        "type": kind,
                        "status": status,
                        "lastHeartbeatTime": _time(0),
                        "reason": "Kubelet",
                        "message": "kubelet",
                    }
                    for kind, status in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("Ready", "True"))
                ],
                "addresses": [
                    {"type": "InternalIP", "address": f"10.1.{chance.randrange(256)}.{chance.randrange(256)}"},
                    {"type": "Hostname", "address": name},
                ],
                "images": images,
            },
        }
    )


def _namespace(chance: random.Random, name: str) -> str:
    return _json({"metadata": {"name": name, "uid": _uid(chance), "labels": {"kubernetes.io/metadata.name": name}}})


def _priority_class(name: str, value: int) -> str:
    return _json({"metadata": {"name": name, "uid": name}, "value": value})


def _replicasets(chance: random.Random, each: Workload) -> Iterator[str]:
    """Metadata only, as an API server answers when asked so."""
    if each.kind != "Deployment":
        return
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": each.name, "uid": each.uid, "controller": True}
    for age in range(1 + OLD_REPLICASETS):
        meta = {
            "name": f"{each.name}-{_hash(chance)}",
            "namespace": each.namespace,
            "uid": _child_uid(each.uid, age),
            "generation": 2,
            "creationTimestamp": _time(age),
            "labels": {"app.kubernetes.io/name": each.name},
            "ownerReferences": [owner],
            "managedFields": [_managed("kube-controller-manager", 0)],
        }
        yield _json({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})


def _workload(chance: random.Random, each: Workload) -> str:
    count = each.replicas
    return _json(
        {
            "metadata": {
                "name": each.name,
                "namespace": each.namespace,
                "uid": each.uid,
                "generation": 4,
                "labels": {"app.kubernetes.io/name": each.name},
                "managedFields": [_managed("helm", 1)],
            },
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {"app.kubernetes.io/name": each.name}},
                "template": {"spec": {"containers": [_container(each, "main", each.cpu, each.memory, "token")]}},
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
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{_hash(chance)}"},
        }
        meta = {"name": f"pvc-{_uid(chance)}", "uid": _uid(chance), "managedFields": [_managed("csi-provisioner", 0)]}
        yield _json({"metadata": meta, "spec": spec, "status": {"phase": "Bound"}})


def _budget(chance: random.Random, each: Workload) -> str:
    return _json(
        {
            "metadata": {"name": each.name, "namespace": each.namespace, "uid": _uid(chance), "generation": 1},
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


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(START + seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _hash(chance: random.Random) -> str:
    return f"{chance.getrandbits(40):010x}"


def _uid(chance: random.Random) -> str:
    text = f"{chance.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _child_uid(uid: str, number: int) -> str:
    return f"{uid[:-2]}{number:02x}"
