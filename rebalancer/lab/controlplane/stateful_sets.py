"""The StatefulSet controller: stable names, and rolling updates one pod at a time.

Source: pkg/controller/statefulset/stateful_set_control.go (`updateStatefulSet`, `completeRollingUpdate`).
Update strategy RollingUpdate without a partition, so every recreated pod has the newest template; no start
ordinal.
"""

from rebalancer.lab.controlplane.owned import create_pod, ready_count, set_status, terminate
from rebalancer.lab.log import EventLog
from rebalancer.lab.objects.disruption import is_finished, is_ready, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.scenarios.build import template_hash

REVISION_LABEL = "controller-revision-hash"
NAME_LABEL = "statefulset.kubernetes.io/pod-name"


def revision_of(owner: Obj) -> str:
    """The revision name of the current template."""
    return f"{owner['metadata']['name']}-{template_hash(owner['spec']['template'])}"


def pod_labels(owner: Obj, name: str) -> dict[str, str]:
    """Labels that the controller adds to those of the template."""
    return {NAME_LABEL: name, REVISION_LABEL: revision_of(owner)}


def run_stateful_set(store: Store, log: EventLog, owner: Obj, pods: list[Obj]) -> None:
    """One round over one StatefulSet and its pods. The caller holds the lock."""
    desired = int(owner["spec"].get("replicas", 1))
    by_ordinal = {int(pod["metadata"]["name"].rsplit("-", 1)[1]): pod for pod in pods}
    settled = _scale(store, log, owner, by_ordinal, desired)
    newest = revision_of(owner)
    if settled:
        _roll(store, log, [by_ordinal.get(ordinal) for ordinal in range(desired)], newest)
    active = [pod for pod in pods if not is_terminating(pod)]
    ready = ready_count(active)
    updated = sum(1 for pod in active if pod["metadata"]["labels"].get(REVISION_LABEL) == newest)
    current = (owner.get("status") or {}).get("currentRevision", newest)
    if updated == ready == len(pods) == desired:
        current = newest
    set_status(
        store,
        "statefulsets",
        owner,
        {
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": sum(1 for pod in active if pod["metadata"]["labels"].get(REVISION_LABEL) == current),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": newest,
        },
    )


def _scale(store: Store, log: EventLog, owner: Obj, by_ordinal: dict[int, Obj], desired: int) -> bool:
    """Create missing pods and terminate surplus ones; returns whether a rolling update may go on.

    With OrderedReady each pod waits for the one before it, and an update for all of them.
    """
    ordered = owner["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    for ordinal in range(desired):
        pod = by_ordinal.get(ordinal)
        if pod is None:
            # The name is the same: the old pod is gone.
            name = f"{owner['metadata']['name']}-{ordinal}"
            create_pod(store, log, owner, name=name, labels=pod_labels(owner, name))
        elif is_finished(pod):
            terminate(store, log, pod)  # its ordinal is desired; the next round fills it
        if ordered and (pod is None or is_terminating(pod) or not is_ready(pod)):
            return False
    surplus = [pod for ordinal, pod in by_ordinal.items() if ordinal >= desired]
    for pod in surplus:
        terminate(store, log, pod)
    return not surplus


def _roll(store: Store, log: EventLog, pods: list[Obj | None], newest: str) -> None:
    """Terminate the highest pod with an old template, unless a pod above it isn't ready yet."""
    for pod in reversed(pods):
        if pod is None:
            return
        if pod["metadata"]["labels"].get(REVISION_LABEL) != newest and not is_terminating(pod):
            terminate(store, log, pod)
            return
        if is_terminating(pod) or not is_ready(pod):
            return
