"""A pod's labels and spec as a `PodTemplate`.

Effective requests, as defined on the Kubernetes page "Sidecar Containers": for each resource the largest of the running
containers' sum (with sidecars) and each step of the start (an init container beside the sidecars that began before it);
then the overhead. A pod-level request replaces its containers'.
"""

from collections.abc import Mapping
from typing import Any

from rebalancer.lab.objects.kinds import Obj
from rebalancer.model.cluster.objects import Affinity, PodTemplate, SpreadConstraint, Toleration, Volume
from rebalancer.model.cluster.pod_templates import SCORED_DEFAULT_CPU_MILLICORES, SCORED_DEFAULT_MEMORY_BYTES
from rebalancer.model.notation.decoding import convert
from rebalancer.model.notation.quantity import LARGEST, parse_quantity

Amounts = dict[str, float]

_SCORED = {"cpu": SCORED_DEFAULT_CPU_MILLICORES / 1000.0, "memory": SCORED_DEFAULT_MEMORY_BYTES}


def template_of(labels: Mapping[str, str], spec: Obj) -> PodTemplate:
    """The template of a pod. Raises ValueError when a request is no quantity."""
    requested, scored = effective(spec), effective(spec, defaults=_SCORED)
    containers = spec.get("containers") or []
    inits = spec.get("initContainers") or []
    affinity = spec.get("affinity")
    return PodTemplate(
        labels=dict(labels),
        node_selector=spec.get("nodeSelector") or {},
        affinity=convert(affinity, Affinity) if affinity else None,
        tolerations=convert(spec.get("tolerations") or [], tuple[Toleration, ...]),
        topology_spread=convert(spec.get("topologySpreadConstraints") or [], tuple[SpreadConstraint, ...]),
        volumes=tuple(_volume(each) for each in spec.get("volumes") or ()),
        host_ports=_host_ports([*containers, *(each for each in inits if _stays(each))]),
        cpu_request_millicores=round(requested.pop("cpu", 0.0) * 1000.0, 6),
        memory_request_bytes=requested.pop("memory", 0.0),
        memory_limits=_memory_limits(spec),
        cpu_scored_millicores=round(scored.get("cpu", 0.0) * 1000.0, 6),
        memory_scored_bytes=scored.get("memory", 0.0),
        extended_requests={name: amount for name, amount in requested.items() if amount > 0},
        images=tuple(each.get("image", "") for each in (*inits, *containers)),
        volume_images=tuple(each["image"]["reference"] for each in spec.get("volumes") or () if "image" in each),
        grace_seconds=float(spec.get("terminationGracePeriodSeconds", 30)),
        priority_class=spec.get("priorityClassName", ""),
        scheduler_name=spec.get("schedulerName", "default-scheduler"),
    )


def effective(spec: Obj, defaults: Mapping[str, float] | None = None) -> Amounts:
    """A pod's requests, by resource; `defaults` replace what a container doesn't request."""

    def of(container: Obj) -> Amounts:
        return {**(defaults or {}), **_parsed((container.get("resources") or {}).get("requests"))}

    running = [of(each) for each in spec.get("containers") or ()]
    beside: list[Amounts] = []
    peaks: list[Amounts] = []
    for each in spec.get("initContainers") or ():
        peaks.append(_sum([*beside, of(each)]))
        if _stays(each):
            beside.append(of(each))
    peaks.append(_sum([*running, *beside]))
    total = {name: max(peak.get(name, 0.0) for peak in peaks) for peak in peaks for name in peak}
    total.update(_parsed((spec.get("resources") or {}).get("requests")))
    return _sum([total, _parsed(spec.get("overhead"))])


def _memory_limits(spec: Obj) -> tuple[float, ...]:
    """Bytes; of the whole pod where it has a limit, else of each running container, and none where one has none."""
    running = [*(spec.get("containers") or ()), *(each for each in spec.get("initContainers") or () if _stays(each))]
    limits = [_parsed((each.get("resources") or {}).get("limits")).get("memory", 0.0) for each in (spec, *running)]
    if limits[0] > 0:  # zero is no limit
        return (limits[0],)
    return tuple(limits[1:]) if all(each > 0 for each in limits[1:]) else ()


def _parsed(amounts: Mapping[str, Any] | None) -> Amounts:
    return {name: min(parse_quantity(str(value)), LARGEST) for name, value in (amounts or {}).items()}


def _sum(parts: list[Amounts]) -> Amounts:
    return {name: sum(part.get(name, 0.0) for part in parts) for part in parts for name in part}


def _stays(init_container: Obj) -> bool:
    """A sidecar: an init container that keeps running."""
    return init_container.get("restartPolicy") == "Always"


def _volume(volume: Obj) -> Volume:
    return Volume(
        host_path={} if "hostPath" in volume else None,
        empty_dir={} if "emptyDir" in volume else None,
        persistent_volume_claim=volume.get("persistentVolumeClaim"),
        ephemeral={} if "ephemeral" in volume else None,
    )


def _host_ports(containers: list[Obj]) -> tuple[tuple[str, int, str], ...]:
    ports = [port for each in containers for port in each.get("ports") or () if port.get("hostPort")]
    return tuple(sorted({(p.get("protocol", "TCP"), p["hostPort"], p.get("hostIP") or "0.0.0.0") for p in ports}))
