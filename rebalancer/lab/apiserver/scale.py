"""The `scale` subresource, and who last changed a workload's replicas.

Source: pkg/registry/apps/deployment/storage (`ScaleREST`). Of `managedFields` the replicas alone are kept.
"""

from rebalancer.lab.clock import timestamp
from rebalancer.lab.objects.errors import not_found
from rebalancer.lab.objects.kinds import Kind, Obj

SCALE = Kind(group="autoscaling", version="v1", kind="Scale", plural="scale")
_PRECONDITIONS = ("uid", "resourceVersion")


def scale_of(obj: Obj) -> Obj:
    """The Scale of a workload. Raises ApiError 404 for one without replicas."""
    if "replicas" not in obj.get("spec", {}):
        raise not_found(SCALE, obj["metadata"]["name"])
    meta = {key: obj["metadata"].get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": meta,
        "spec": {"replicas": obj["spec"]["replicas"]},
        "status": {"replicas": int((obj.get("status") or {}).get("replicas", 0))},
    }


def scaled(before: Obj, scale: Obj) -> Obj:
    """The workload with the replicas of the Scale, and with its uid and version as preconditions."""
    given = {field: scale["metadata"][field] for field in _PRECONDITIONS if scale["metadata"].get(field)}
    replicas = int(scale.get("spec", {}).get("replicas", 0))
    return {**before, "metadata": {**before["metadata"], **given}, "spec": {**before["spec"], "replicas": replicas}}


def managed(obj: Obj, before: Obj, *, by: str, now: float) -> Obj:
    """The object with its new manager, where a client has changed the replicas."""
    replicas = (obj.get("spec") or {}).get("replicas")
    if replicas is None or replicas == (before.get("spec") or {}).get("replicas"):
        return obj
    entry = {
        "manager": by.partition("/")[0] or "unknown",
        "operation": "Update",
        "time": timestamp(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [entry]}}
