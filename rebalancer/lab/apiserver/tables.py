"""Server-side tables, as `kubectl get` prints them.

Source of the columns: pkg/printers/internalversion/printers.go. A column with priority 1 shows only with `-o wide`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.lab.clock import seconds_of
from rebalancer.lab.objects.disruption import is_terminating
from rebalancer.lab.objects.kinds import Obj

Cells = Callable[[Obj, float], list[Any]]

_COUNTED = ("Desired", "Current", "Ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of one kind: (name, type, priority), and the function that fills a row. `NAME` is added first."""

    columns: tuple[tuple[str, str, int], ...]
    cells: Cells


def age(text: str | None, now: float) -> str:
    """As `duration.HumanDuration` prints it."""
    if not text:
        return "<unknown>"
    seconds = max(0, int(now - seconds_of(text)))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"


def _age_of(obj: Obj, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _generic(obj: Obj, now: float) -> list[Any]:
    return [_age_of(obj, now)]


def _node(obj: Obj, now: float) -> list[Any]:
    status = obj.get("status") or {}
    ready = next((each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"), "Unknown")
    words = ["Ready" if ready == "True" else "NotReady"]
    if obj.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    info = status.get("nodeInfo") or {}
    return [
        ",".join(words),
        "<none>",
        _age_of(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage", "<unknown>"),
        info.get("kernelVersion", "<unknown>"),
        info.get("containerRuntimeVersion", "<unknown>"),
    ]


def _pod(obj: Obj, now: float) -> list[Any]:
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    containers = status.get("containerStatuses") or ()
    ready = sum(1 for each in containers if each.get("ready"))
    phase = status.get("phase", "Unknown")
    if is_terminating(obj):
        phase = "Terminating"
    elif phase == "Succeeded":
        phase = "Completed"
    elif phase == "Failed":
        phase = status.get("reason") or "Error"
    elif phase == "Pending" and spec.get("nodeName"):
        phase = "ContainerCreating"
    phase = next((each["state"]["waiting"]["reason"] for each in containers if "waiting" in each["state"]), phase)
    return [
        f"{ready}/{len(spec.get('containers') or ())}",
        phase,
        str(sum(each.get("restartCount", 0) for each in containers)),
        _age_of(obj, now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def _pdb(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        (obj.get("status") or {}).get("disruptionsAllowed", 0),
        _age_of(obj, now),
    ]


def _deployment(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"
    return [ready, status.get("updatedReplicas", 0), status.get("availableReplicas", 0), _age_of(obj, now)]


def _replica_set(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [spec.get("replicas", 1), status.get("replicas", 0), status.get("readyReplicas", 0), _age_of(obj, now)]


def _stateful_set(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}", _age_of(obj, now)]


def _daemon_set(obj: Obj, now: float) -> list[Any]:
    status = obj.get("status") or {}
    return [
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        _age_of(obj, now),
    ]


def _lease(obj: Obj, now: float) -> list[Any]:
    return [(obj.get("spec") or {}).get("holderIdentity") or "", _age_of(obj, now)]


def _namespace(obj: Obj, now: float) -> list[Any]:
    return [(obj.get("status") or {}).get("phase", "Active"), _age_of(obj, now)]


def _event(obj: Obj, now: float) -> list[Any]:
    about = obj.get("involvedObject") or {}
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    return [
        age(seen, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        str(obj.get("message", "")).strip(),
    ]


def _layout(cells: Cells, *names: str, integers: Sequence[str] = (), wide: Sequence[str] = ()) -> Layout:
    """`wide` columns come after the others."""
    columns = [(name, "integer" if name in integers else "string", 0) for name in names]
    return Layout(columns=(*columns, *((name, "string", 1) for name in wide)), cells=cells)


_LAYOUTS: Mapping[str, Layout] = {
    "nodes": _layout(
        _node,
        *("Status", "Roles", "Age", "Version"),
        wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    ),
    "pods": _layout(
        _pod, "Ready", "Status", "Restarts", "Age", wide=("IP", "Node", "Nominated Node", "Readiness Gates")
    ),
    "poddisruptionbudgets": _layout(
        _pdb, "Min Available", "Max Unavailable", "Allowed Disruptions", "Age", integers=["Allowed Disruptions"]
    ),
    "deployments": _layout(
        _deployment, "Ready", "Up-to-date", "Available", "Age", integers=("Up-to-date", "Available")
    ),
    "replicasets": _layout(_replica_set, *_COUNTED, "Age", integers=_COUNTED),
    "statefulsets": _layout(_stateful_set, "Ready", "Age"),
    "daemonsets": _layout(_daemon_set, *_COUNTED, "Age", integers=_COUNTED),
    "leases": _layout(_lease, "Holder", "Age"),
    "namespaces": _layout(_namespace, "Status", "Age"),
    "events": _layout(_event, "Last Seen", "Type", "Reason", "Object", "Message"),
}


def wanted_version(accept: str) -> str | None:
    """The version of `meta.k8s.io` whose Table the client accepts, or None for plain objects."""
    for offer in accept.split(","):
        fields = dict(part.strip().partition("=")[::2] for part in offer.split(";")[1:])
        if fields.get("as") == "Table" and fields.get("v") in ("v1", "v1beta1"):
            return fields["v"]
    return None


def table(plural: str, objects: list[Obj], *, version: str, now: float, columns: bool = True, list_meta: Obj) -> Obj:
    """A Table over `objects`. Later events of a watch leave the columns out."""
    layout = _LAYOUTS.get(plural) or _layout(_generic, "Age")
    named = plural != "events"
    definitions = [
        {"name": name, "type": type_, "format": "name" if name == "Name" else "", "description": "", "priority": p}
        for name, type_, p in ((("Name", "string", 0), *layout.columns) if named else layout.columns)
    ]
    rows = [
        {
            "cells": ([each["metadata"]["name"]] if named else []) + layout.cells(each, now),
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{version}",
                "metadata": each["metadata"],
            },
        }
        for each in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": list_meta,
        "columnDefinitions": definitions if columns else [],
        "rows": rows,
    }
