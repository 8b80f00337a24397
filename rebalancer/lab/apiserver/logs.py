"""`kubectl logs`: what a pod went through. The practice cluster runs no containers, so there is no other output."""

from collections.abc import Mapping

from rebalancer.lab.clock import timestamp
from rebalancer.lab.objects.errors import bad_request
from rebalancer.lab.serving import ServedLab

_LINES = {
    "started": "containers started",
    "ready": "ready",
    "broken": "containers ended",
    "restarted": "containers restarted",
    "terminating": "asked to terminate",
    "finished": "finished",
}


def text(lab: ServedLab, namespace: str, name: str, query: Mapping[str, str]) -> str:
    """The log of one pod, one line an event. Raises ApiError 400 for a pod that has not started, 404 for no pod."""
    pod = lab.cluster.store.get("pods", namespace, name)
    uid, containers = pod["metadata"]["uid"], [each["name"] for each in pod["spec"]["containers"]]
    container = query.get("container") or containers[0]
    if container not in containers:
        raise bad_request(f"container {container} is not valid for pod {name}")
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if not statuses or any("waiting" in each.get("state", {}) for each in statuses):
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
    started = pod["status"].get("startTime", "")
    seen = [entry for entry in lab.log.entries() if entry.uid == uid and entry.event in _LINES]
    lines = [f"{timestamp(entry.at)} {container}: {_LINES[entry.event]}" for entry in seen]
    if not any(entry.event == "started" for entry in seen):  # it ran before the cluster was started
        lines.insert(0, f"{started} {container}: {_LINES['started']}")
    tail = query.get("tailLines", "")
    last = int(tail) if tail.isdigit() else len(lines)
    return "".join(f"{line}\n" for line in lines[len(lines) - min(last, len(lines)) :])
