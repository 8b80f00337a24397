"""Operations of controllers on the pods that they own: create, terminate, count, report status."""

from collections.abc import Callable

from rebalancer.lab.clock import timestamp
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import is_ready, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.scenarios.build import REQUESTS, complete_pod, pod_object
from rebalancer.model.notation.decoding import json_decoder


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference marked as controller."""
    return next((each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller")), None)


def ready_count(pods: list[Obj]) -> int:
    """Number of Ready pods."""
    return sum(1 for pod in pods if is_ready(pod))


def create_pod(
    store: Store,
    log: EventLog,
    owner: Obj,
    *,
    name: str = "",
    prefix: str = "",
    node: str = "",
    labels: dict[str, str] | None = None,
) -> None:
    """Make a pod of the owner's template; one of `name` and `prefix`. `node` ties a DaemonSet's pod to its node."""
    namespace = owner["metadata"]["namespace"]
    pod = complete_pod(
        pod_object(owner["spec"]["template"], namespace=namespace, name=name, prefix=prefix, owner=owner)
    )
    pod["metadata"]["labels"].update(labels or {})
    recommended = (owner["metadata"].get("annotations") or {}).get(REQUESTS)
    if recommended:
        pod["spec"] = with_requests(pod["spec"], json_decoder(dict[str, str]).decode(recommended))
    if node:
        pod["spec"]["affinity"] = daemon_affinity(node)
    meta = store.create("pods", pod)["metadata"]
    log.add(Entry(event="created", at=store.clock.now(), namespace=namespace, name=meta["name"], uid=meta["uid"]))


def with_requests(spec: Obj, requests: dict[str, str]) -> Obj:
    """A pod's spec whose first container has these requests, besides those it names otherwise."""
    first, *others = spec["containers"]
    resources = first.get("resources") or {}
    resized = {**first, "resources": {**resources, "requests": {**(resources.get("requests") or {}), **requests}}}
    return {**spec, "containers": [resized, *others]}


def daemon_affinity(node: str) -> Obj:
    """Node affinity that ties a DaemonSet's pod to its node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def set_status(store: Store, plural: str, owner: Obj, status: Obj) -> None:
    """Write a workload's status when it differs from the stored one."""
    status["observedGeneration"] = owner["metadata"].get("generation", 1)
    # The round may have changed the object since it was listed.
    current = store.find(plural, owner["metadata"]["namespace"], owner["metadata"]["name"])
    if current is not None and current.get("status") != status:
        apply: Callable[[Obj], None] = lambda new: new.update(status=status)  # noqa: E731
        store.change(plural, current, apply)


def terminate(store: Store, log: EventLog, pod: Obj, *, grace_seconds: float | None = None) -> Obj:
    """Start a pod's graceful deletion; the kubelet completes it. The caller holds the lock."""
    if is_terminating(pod):
        return pod
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_seconds is None else grace_seconds
    now = store.clock.now()

    def apply(new: Obj) -> None:
        new["metadata"]["deletionTimestamp"] = timestamp(now + grace)
        new["metadata"]["deletionGracePeriodSeconds"] = int(grace)

    meta = pod["metadata"]
    node = pod["spec"].get("nodeName") or ""
    log.add(
        Entry(event="terminating", at=now, namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], node=node)
    )
    return store.change("pods", pod, apply)
