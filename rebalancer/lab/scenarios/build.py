"""Kubernetes objects from the short form."""

import zlib
from collections.abc import Mapping

import msgspec

from rebalancer.lab.clock import timestamp
from rebalancer.lab.loads.cpu import BEHAVIOUR, OVERHEAD, Behaviour, behaviour_of
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.scenarios.specs import HpaSpec, NodeSpec, PdbSpec, WorkloadSpec
from rebalancer.model.notation.quantity import parse_quantity
from rebalancer.placement.plugins.images import normalised

DAEMON_TOLERATIONS: tuple[tuple[str, str], ...] = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Tolerations that the DaemonSet controller adds to its pods (pkg/controller/daemon/util)."""

REQUESTS = "lab.rebalancer.dev/requests"
"""Annotation of a pod's owner: requests that its pods get at admission, as JSON; see `resizing.py`."""

MOST_REPORTED = 50
"""The kubelet's `--node-status-max-images`; the largest are reported."""

API_VERSIONS: Mapping[str, str] = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}


def condition(type_: str, status: bool, at: float, **more: str) -> Obj:
    """A status condition."""
    return {"type": type_, "status": "True" if status else "False", "lastTransitionTime": timestamp(at), **more}


def set_ready(pod: Obj, now: float, *, ready: bool) -> None:
    """Set the Ready and ContainersReady conditions. Changes `pod`."""
    status = pod["status"]
    others = [each for each in status.get("conditions") or () if each["type"] not in ("Ready", "ContainersReady")]
    status["conditions"] = [*others, condition("ContainersReady", ready, now), condition("Ready", ready, now)]
    for container in status.get("containerStatuses") or ():
        container["ready"] = ready


def node_object(spec: NodeSpec, *, now: float, address: str) -> Obj:
    """A node. The taint of a cordoned node is set by the node controller, so it is here too."""
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **({"pool": spec.pool} if spec.pool else {}),
        **({"topology.kubernetes.io/zone": spec.zone} if spec.zone else {}),
        **spec.labels,
    }
    taints: list[Obj] = [msgspec.to_builtins(taint) for taint in spec.taints]
    body: Obj = {}
    if spec.unschedulable:
        body["unschedulable"] = True
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if not spec.ready:
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    if taints:
        body["taints"] = taints
    return {
        "metadata": {
            "name": spec.name,
            "labels": labels,
            "annotations": {**spec.annotations, OVERHEAD: str(spec.overhead_cores)},
            "creationTimestamp": timestamp(now - spec.age_seconds),
        },
        "spec": body,
        "status": {
            "capacity": _resources(spec, spec.cpu),
            "allocatable": _resources(spec, spec.cpu - spec.reserved_cores),
            "conditions": [
                condition("MemoryPressure", False, now, reason="KubeletHasSufficientMemory"),
                condition("DiskPressure", False, now, reason="KubeletHasNoDiskPressure"),
                condition("PIDPressure", False, now, reason="KubeletHasSufficientPID"),
                condition("Ready", spec.ready, now, reason="KubeletReady" if spec.ready else "KubeletNotReady"),
            ],
            "images": reported_images(
                [image_entry(name, parse_quantity(str(size))) for name, size in spec.images.items()]
            ),
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": spec.name},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.0",
                "containerRuntimeVersion": "containerd://2.0.0",
                "osImage": "Practice Linux",
                "kernelVersion": "6.12.0",
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeProxyVersion": "",
                "machineID": spec.name,
                "systemUUID": spec.name,
                "bootID": spec.name,
            },
        },
    }


def image_entry(name: str, size_bytes: float) -> Obj:
    """One image of a node's `status.images`."""
    return {"names": [normalised(name)], "sizeBytes": int(size_bytes)}


def reported_images(images: list[Obj]) -> list[Obj]:
    """A node's `status.images`: the largest first."""
    return sorted(images, key=lambda each: (-each["sizeBytes"], each["names"]))[:MOST_REPORTED]


def missing_image(pod: Obj, node: Obj | None) -> Obj | None:
    """The image that the pod's node has to pull for it; None when the node has it or its size isn't known."""
    size = behaviour_of(pod).image_bytes
    if size is None or node is None:
        return None
    image = image_entry(pod["spec"]["containers"][0]["image"], size)
    present = any(image["names"][0] in each["names"] for each in node["status"].get("images") or ())
    return None if present else image


def _resources(spec: NodeSpec, cores: float) -> Obj:
    return {
        "cpu": f"{round(cores * 1000)}m" if cores % 1 else str(int(cores)),
        "memory": spec.memory,
        "pods": str(spec.pods),
        "ephemeral-storage": "100Gi",
    }


def selector_labels(spec: WorkloadSpec) -> dict[str, str]:
    """The workload's label selector."""
    return {"app.kubernetes.io/name": spec.name}


def behaviour(spec: WorkloadSpec) -> Behaviour:
    """The behaviour of the workload's pods."""
    return Behaviour(
        cpu=spec.cpu,
        memory=spec.memory,
        resources=spec.resources,
        group=f"{spec.namespace}/{spec.name}" if spec.cpu.total is not None else "",
        ready=spec.ready,
        start_seconds=spec.start_seconds,
        stop_seconds=spec.stop_seconds,
        run_seconds=spec.run_seconds,
        breaks=spec.breaks,
        sidecar=spec.sidecar,
        image_bytes=parse_quantity(str(spec.image_size)) if spec.image_size != "" else None,
    )


def template(spec: WorkloadSpec) -> Obj:
    """The pod template."""
    requests = {key: value for key, value in (("cpu", spec.cpu_request), ("memory", spec.memory_request)) if value}
    limits = {key: value for key, value in (("cpu", spec.cpu_limit), ("memory", spec.memory_limit)) if value}
    resources = {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}
    image = spec.image or f"registry.example/{spec.namespace}/{spec.name}:1.0"
    containers: list[Obj] = [{"name": spec.name, "image": image, "resources": resources}]
    if spec.host_ports:
        containers[0]["ports"] = [
            {"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in spec.host_ports
        ]
    if spec.sidecar:
        small = {"requests": {"cpu": "10m", "memory": "32Mi"}}
        containers.append({"name": spec.sidecar, "image": f"registry.example/{spec.sidecar}:1.0", "resources": small})
    volumes = [dict(volume) for volume in spec.volumes]
    tolerations = [dict(each) for each in spec.tolerations]
    if spec.kind == "DaemonSet":
        tolerations += [{"key": k, "operator": "Exists", "effect": effect} for k, effect in DAEMON_TOLERATIONS]
    annotations = {**spec.annotations, BEHAVIOUR: msgspec.json.encode(behaviour(spec)).decode()}
    body: Obj = {
        "containers": containers,
        "restartPolicy": "Never" if spec.kind in ("Job", "CronJob") else "Always",
        "schedulerName": spec.scheduler_name,
        "terminationGracePeriodSeconds": 30,
        "serviceAccountName": "default",
        "priority": spec.priority,
        **({"priorityClassName": spec.priority_class} if spec.priority_class else {}),
        **({"nodeSelector": dict(spec.node_selector)} if spec.node_selector else {}),
        **({"tolerations": tolerations} if tolerations else {}),
        **({"affinity": spec.affinity} if spec.affinity else {}),
        **({"volumes": volumes} if volumes else {}),
        **({"topologySpreadConstraints": list(spec.topology_spread)} if spec.topology_spread else {}),
        **({"initContainers": list(spec.init_containers)} if spec.init_containers else {}),
        **({"schedulingGates": [{"name": name} for name in spec.gates]} if spec.gates else {}),
    }
    return {"metadata": {"labels": {**spec.labels, **selector_labels(spec)}, "annotations": annotations}, "spec": body}


def template_hash(pod_template: Obj) -> str:
    """A stable name part for the ReplicaSet of one template."""
    number = zlib.crc32(msgspec.json.encode(pod_template, order="deterministic"))
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(alphabet[number // len(alphabet) ** digit % len(alphabet)] for digit in range(8))


def workload_object(spec: WorkloadSpec, *, replicas: int, created: float) -> tuple[str, Obj]:
    """The plural and the object that a user would apply. Not for bare pods."""
    meta: Obj = {
        "name": spec.name,
        "namespace": spec.namespace,
        "labels": {**spec.labels, **selector_labels(spec)},
        "creationTimestamp": timestamp(created),
    }
    selector = {"matchLabels": selector_labels(spec)}
    pod_template = template(spec)
    match spec.kind:
        case "Deployment" | "ReplicaSet":
            body: Obj = {"replicas": replicas, "selector": selector, "template": pod_template}
            plural = "deployments" if spec.kind == "Deployment" else "replicasets"
        case "StatefulSet":
            policy = "Parallel" if spec.parallel else "OrderedReady"
            body = {
                "replicas": replicas,
                "selector": selector,
                "serviceName": spec.name,
                "podManagementPolicy": policy,
                "template": pod_template,
            }
            plural = "statefulsets"
        case "DaemonSet":
            body = {"selector": selector, "template": pod_template}
            plural = "daemonsets"
        case "Job" | "CronJob":
            body = {"parallelism": replicas, "backoffLimit": 6, "selector": selector, "template": pod_template}
            if spec.completions is not None or spec.schedule:
                body["completions"] = replicas if spec.completions is None else spec.completions
            plural = "jobs"
        case _:
            raise ValueError(f"{spec.kind} has no workload object")
    return plural, {"metadata": meta, "spec": body}


def owner_reference(owner: Obj) -> Obj:
    """A controller reference."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_object(pod_template: Obj, *, namespace: str, name: str = "", prefix: str = "", owner: Obj | None = None) -> Obj:
    """A new pod, Pending. One of `name` and `prefix`."""
    meta: Obj = {
        "namespace": namespace,
        "labels": dict(pod_template["metadata"].get("labels") or {}),
        "annotations": dict(pod_template["metadata"].get("annotations") or {}),
        **({"name": name} if name else {"generateName": prefix}),
    }
    if owner is not None:
        meta["ownerReferences"] = [owner_reference(owner)]
    return {"metadata": meta, "spec": dict(pod_template["spec"]), "status": {"phase": "Pending"}}


def complete_pod(pod: Obj) -> Obj:
    """A pod after the API server's defaulting: QoS class, priority, restart policy."""
    spec, status = pod.setdefault("spec", {}), pod.setdefault("status", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("priority", 0)
    status.setdefault("phase", "Pending")
    status["qosClass"] = qos_class(spec)
    if spec.get("schedulingGates") and "conditions" not in status:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    return pod


def qos_class(spec: Obj) -> str:
    """Guaranteed, Burstable or BestEffort (pkg/apis/core/v1/helper/qos)."""
    resources = [container.get("resources") or {} for container in spec.get("containers", ())]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    for each in resources:
        limits, requests = each.get("limits") or {}, each.get("requests") or {}
        for name in ("cpu", "memory"):
            if name not in limits:
                return "Burstable"
            if name in requests and parse_quantity(str(requests[name])) != parse_quantity(str(limits[name])):
                return "Burstable"
    return "Guaranteed"


def claims(spec: WorkloadSpec, created: float) -> list[tuple[Obj, Obj]]:
    """A bound claim and its network volume for each claim that the workload's pods name."""
    found = []
    for volume in spec.volumes:
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if not name:
            continue
        common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard"}
        meta = {"name": name, "namespace": spec.namespace, "creationTimestamp": timestamp(created)}
        size = {"storage": "10Gi"}
        pv_name = f"pvc-{spec.namespace}-{name}"
        claim = {
            "metadata": meta,
            "spec": {**common, "volumeName": pv_name, "resources": {"requests": size}},
            "status": {"phase": "Bound", "accessModes": common["accessModes"], "capacity": size},
        }
        disk = {
            "metadata": {"name": pv_name, "creationTimestamp": timestamp(created)},
            "spec": {
                **common,
                "capacity": size,
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": spec.namespace, "name": name},
                "csi": {"driver": "disk.example", "volumeHandle": pv_name},
            },
            "status": {"phase": "Bound"},
        }
        found.append((claim, disk))
    return found


def hpa_object(spec: WorkloadSpec, hpa: HpaSpec, created: float) -> Obj:
    """The HorizontalPodAutoscaler of a workload."""
    target = {"type": "Utilization", "averageUtilization": hpa.utilization}
    return {
        "metadata": {"name": spec.name, "namespace": spec.namespace, "creationTimestamp": timestamp(created)},
        "spec": {
            "scaleTargetRef": {"apiVersion": API_VERSIONS[spec.kind], "kind": spec.kind, "name": spec.name},
            "minReplicas": hpa.min_replicas,
            "maxReplicas": hpa.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
        "status": {},
    }


def pdb_object(spec: WorkloadSpec, pdb: PdbSpec, created: float) -> Obj:
    """The PodDisruptionBudget of a workload."""
    body: Obj = {"selector": {"matchLabels": pdb.selector if pdb.selector is not None else selector_labels(spec)}}
    if pdb.min_available is not None:
        body["minAvailable"] = pdb.min_available
    if pdb.max_unavailable is not None:
        body["maxUnavailable"] = pdb.max_unavailable
    if pdb.unhealthy:
        body["unhealthyPodEvictionPolicy"] = pdb.unhealthy
    meta = {"name": pdb.name or spec.name, "namespace": spec.namespace, "creationTimestamp": timestamp(created)}
    return {"metadata": meta, "spec": body, "status": {}}
