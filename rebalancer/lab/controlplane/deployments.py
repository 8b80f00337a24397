"""The Deployment controller: ReplicaSets, and rolling updates in steps.

Source: pkg/controller/deployment/rolling.go (`reconcileNewReplicaSet`, `reconcileOldReplicaSets`). Not modelled: the
strategy Recreate, pauses, rollbacks, proportional scaling of several ReplicaSets, the removal of old ReplicaSets.
"""

import math

from rebalancer.lab.controlplane.owned import set_status
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.scenarios.build import REQUESTS, owner_reference, template_hash

HASH_LABEL = "pod-template-hash"
DEFAULT_STEP = "25%"


def run_deployment(store: Store, deployment: Obj, sets: list[Obj]) -> None:
    """One round over one Deployment and its ReplicaSets. The caller holds the lock."""
    desired = int(deployment["spec"].get("replicas", 1))
    name = set_name(deployment)
    new = next((each for each in sets if each["metadata"]["name"] == name), None)
    old = [each for each in sets if each["metadata"]["name"] != name and each["spec"]["replicas"] > 0]
    surge, unavailable = _steps(deployment, desired)
    room = max(0, desired + surge - sum(each["spec"]["replicas"] for each in old))
    if new is None:
        new = store.create("replicasets", replica_set_of(deployment, min(desired, room)))
    elif new["spec"]["replicas"] != desired:
        grown = max(new["spec"]["replicas"], min(desired, room))
        new = _scale(store, new, min(grown, desired) if old else desired)
    if old:
        _scale_old(store, new, old, least_available=desired - unavailable)


def _scale_old(store: Store, new: Obj, old: list[Obj], *, least_available: int) -> None:
    """Take from the old sets: first pods that are not available, then as many as the budget of the update allows."""
    total = new["spec"]["replicas"] + sum(each["spec"]["replicas"] for each in old)
    new_unavailable = new["spec"]["replicas"] - _available(new)
    may_go = total - least_available - new_unavailable
    left = []
    for each in old:
        broken = max(0, min(may_go, each["spec"]["replicas"] - _available(each)))
        may_go -= broken
        left.append(_scale(store, each, each["spec"]["replicas"] - broken) if broken else each)
    available = _available(new) + sum(min(_available(each), each["spec"]["replicas"]) for each in left)
    may_go = available - least_available
    for each in left:
        count = max(0, min(may_go, each["spec"]["replicas"]))
        may_go -= count
        if count:
            _scale(store, each, each["spec"]["replicas"] - count)


def update_deployment_status(store: Store, deployment: Obj, sets: list[Obj]) -> None:
    """Write its status from those of its ReplicaSets. The caller holds the lock."""
    updated: Obj = next(
        (each.get("status") or {} for each in sets if each["metadata"]["name"] == set_name(deployment)), {}
    )
    total = {
        field: sum((each.get("status") or {}).get(field, 0) for each in sets)
        for field in ("replicas", "readyReplicas", "availableReplicas")
    }
    desired = int(deployment["spec"].get("replicas", 1))
    enough = total["availableReplicas"] >= desired - _steps(deployment, desired)[1]
    rolling = updated.get("replicas", 0) < desired or total["replicas"] > updated.get("replicas", 0)
    reason = "ReplicaSetUpdated" if rolling else "NewReplicaSetAvailable"
    set_status(
        store,
        "deployments",
        deployment,
        {
            **total,
            "updatedReplicas": updated.get("replicas", 0),
            "unavailableReplicas": max(0, desired - total["availableReplicas"]),
            "conditions": [
                {"type": "Available", "status": "True" if enough else "False", "reason": "MinimumReplicas"},
                {"type": "Progressing", "status": "True", "reason": reason},
            ],
        },
    )


def set_name(deployment: Obj) -> str:
    """The name of the ReplicaSet of a Deployment's present template."""
    return f"{deployment['metadata']['name']}-{template_hash(deployment['spec']['template'])}"


def replica_set_of(deployment: Obj, replicas: int, *, created: str = "") -> Obj:
    """The ReplicaSet of a Deployment's present template, `created` now when empty."""
    meta, pod_template = deployment["metadata"], deployment["spec"]["template"]
    mark = {HASH_LABEL: template_hash(pod_template)}
    labels = {**(pod_template["metadata"].get("labels") or {}), **mark}
    resized = (meta.get("annotations") or {}).get(REQUESTS)
    return {
        "metadata": {
            "name": set_name(deployment),
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(deployment)],
            **({"annotations": {REQUESTS: resized}} if resized else {}),
            **({"creationTimestamp": created} if created else {}),
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {**(deployment["spec"]["selector"].get("matchLabels") or {}), **mark}},
            "template": {**pod_template, "metadata": {**pod_template["metadata"], "labels": labels}},
        },
    }


def _scale(store: Store, replica_set: Obj, replicas: int) -> Obj:
    if replica_set["spec"]["replicas"] == replicas:
        return replica_set
    return store.update("replicasets", {**replica_set, "spec": {**replica_set["spec"], "replicas": replicas}})


def _available(replica_set: Obj) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _steps(deployment: Obj, desired: int) -> tuple[int, int]:
    """(maxSurge rounded up, maxUnavailable rounded down) in pods; not both 0 (`ResolveFenceposts`)."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge, unavailable = rolling.get("maxSurge", DEFAULT_STEP), rolling.get("maxUnavailable", DEFAULT_STEP)
    up = surge if isinstance(surge, int) else math.ceil(desired * float(surge.rstrip("%")) / 100)
    down = unavailable if isinstance(unavailable, int) else math.floor(desired * float(unavailable.rstrip("%")) / 100)
    return (up, down) if up or down else (0, 1)
