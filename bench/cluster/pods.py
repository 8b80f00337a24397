"""Rendered pods: each workload's pod once, cut at its varying places; a pod is then one `join`."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.cluster.values import child_uid, new_uid, short_hash, stamp

SPAN_SECONDS = 14 * 86400
ZONE_LABEL = "topology.kubernetes.io/zone"


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


def rendered_pods(chance: random.Random, workloads: list[Workload], nodes: list[str], free: list[str]) -> Iterator[str]:
    """Every pod of the workloads; a DaemonSet has one on each of `nodes`, the others take from `free` in turn."""
    at = 0
    for each in workloads:
        parts = _pod_template(chance, each)
        suffix = short_hash(chance)
        for ordinal in range(each.replicas):
            if each.kind == "DaemonSet":
                node = nodes[ordinal]
            else:
                node, at = free[at], at + 1
            name = {
                "StatefulSet": f"{each.name}-{ordinal}",
                "Deployment": f"{each.name}-{suffix}-{short_hash(chance)[:5]}",
            }.get(each.kind, f"{each.name}-{short_hash(chance)[:5]}")
            values = {
                "NAME": name,
                "UID": new_uid(chance),
                "NODE": node,
                "TOKEN": short_hash(chance)[:5],
                "CREATED": stamp(chance.randrange(SPAN_SECONDS)),
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
        owner |= {"kind": "ReplicaSet", "name": f"{each.name}-@RS@", "uid": child_uid(each.uid, 0)}
    elif each.kind == "StatefulSet":
        labels |= {
            "apps.kubernetes.io/pod-index": "@ORDINAL@",
            "controller-revision-hash": f"{each.name}-{short_hash(chance)}",
            "statefulset.kubernetes.io/pod-name": "@NAME@",
        }
    elif each.kind == "DaemonSet":
        labels |= {"controller-revision-hash": short_hash(chance), "pod-template-generation": "3"}
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
    containers = [container(each, "main", each.cpu, each.memory, token)]
    if chance.random() < 0.2:
        containers.append(container(each, "proxy", "20m", "64Mi", token))
    inits = [container(each, "init", "10m", "32Mi", token)] if chance.random() < 0.15 else []
    if chance.random() < 0.01:
        volumes.append({"name": "model", "image": {"reference": f"registry.example.com/{each.name}/model:v3"}})
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
    elif each.kind == "Deployment" and chance.random() < 0.3:
        same = {"matchLabels": {"app.kubernetes.io/name": each.name}}
        rather = {"weight": 100, "podAffinityTerm": {"labelSelector": same, "topologyKey": "kubernetes.io/hostname"}}
        affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [rather]}}
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE_LABEL,
            "whenUnsatisfiable": "ScheduleAnyway",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": each.name}},
            **({"matchLabelKeys": ["pod-template-hash"]} if each.kind == "Deployment" else {}),
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
                "checksum/config": short_hash(chance) * 6,
                "cni.projectcalico.org/podIP": "@IP@/32",
                "kubectl.kubernetes.io/restartedAt": "2026-10-02T08:00:00Z",
                "prometheus.io/scrape": "true",
            },
            **({} if each.kind == "Pod" else {"ownerReferences": [owner]}),
            "managedFields": [managed_fields("kube-controller-manager", 1), managed_fields("kubelet", 0)],
        },
        "spec": {
            "volumes": volumes,
            **({"initContainers": inits} if inits else {}),
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
            **({"initContainerStatuses": [_ended(_container_status(chance, each)) for each in inits]} if inits else {}),
            "qosClass": "Burstable",
        },
    }
    return json.dumps(pod, separators=(",", ":")).split("@")


def container(each: Workload, name: str, cpu: str, memory: str, token: str) -> dict[str, Any]:
    """A container with what they usually carry."""
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
    digest = short_hash(chance) * 6
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


def _ended(status: dict[str, Any]) -> dict[str, Any]:
    """Of an init container that has done its work."""
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": "@CREATED@", "finishedAt": "@CREATED@"}
    return {**status, "started": False, "state": {"terminated": ended | {"containerID": status["containerID"]}}}


def managed_fields(manager: str, wide: int) -> dict[str, Any]:
    """One manager's entry of `managedFields`."""
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
