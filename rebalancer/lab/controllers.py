"""The lab's controllers: they compare what is wanted with what is there, and create or delete the difference.

A round looks at everything; it is cheap, and it needs no memory of what happened. Not modelled: rolling updates in
steps (a changed template replaces all pods at once), CronJob schedules, finalizers.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from rebalancer.lab.build import complete_pod, owner_reference, pod_object, template_hash
from rebalancer.lab.clock import timestamp
from rebalancer.lab.disruption import is_finished, is_ready, is_terminating
from rebalancer.lab.log import EventLog
from rebalancer.lab.store import Change, Store
from rebalancer.model.match import labels_match, node_selector_matches, untolerated_taint
from rebalancer.model.objects import NodeAffinity, Taint, Toleration

Obj = dict[str, Any]

HASH_LABEL = "pod-template-hash"


class Controllers:
    """All of them, over one store."""

    def __init__(self, *, store: Store, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._owned: dict[str, list[Obj]] = {}
        self._failed: dict[str, int] = {}
        """Job uid -> pods that went without having succeeded."""

    def observe(self, change: Change) -> None:
        """The store's listener: a Job's pod that is deleted unfinished has failed."""
        if change.plural == "pods" and change.type == "DELETED":
            owner = _controller(change.object)
            if owner and owner["kind"] == "Job" and change.object["status"].get("phase") != "Succeeded":
                self._failed[owner["uid"]] = self._failed.get(owner["uid"], 0) + 1

    def run(self) -> None:
        """One round. The caller holds the lock."""
        self._index()
        for deployment in self._store.sorted("deployments"):
            self._deployment(deployment)
        for replica_set in self._store.sorted("replicasets"):
            self._replica_set(replica_set)
        for stateful_set in self._store.sorted("statefulsets"):
            self._stateful_set(stateful_set)
        for daemon_set in self._store.sorted("daemonsets"):
            self._daemon_set(daemon_set)
        for job in self._store.sorted("jobs"):
            self._job(job)
        for deployment in self._store.sorted("deployments"):
            self._deployment_status(deployment)

    def _index(self) -> None:
        self._owned = {}
        for pod in self._store.sorted("pods"):
            owner = _controller(pod)
            if owner:
                self._owned.setdefault(owner["uid"], []).append(pod)

    def _pods_of(self, owner: Obj) -> list[Obj]:
        return self._owned.get(owner["metadata"]["uid"], [])

    # -- Deployments and ReplicaSets ------------------------------------------------------------------------------

    def _sets_of(self, deployment: Obj) -> list[Obj]:
        uid = deployment["metadata"]["uid"]
        return [each for each in self._store.sorted("replicasets") if (_controller(each) or {}).get("uid") == uid]

    def _deployment(self, deployment: Obj) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        replicas = int(spec.get("replicas", 1))
        name = f"{meta['name']}-{template_hash(spec['template'])}"
        current: Obj | None = None
        for each in self._sets_of(deployment):
            wanted = replicas if each["metadata"]["name"] == name else 0
            if each["metadata"]["name"] == name:
                current = each
            if each["spec"]["replicas"] != wanted:
                self._store.update("replicasets", {**each, "spec": {**each["spec"], "replicas": wanted}})
        if current is None:
            self._store.create("replicasets", replica_set_of(deployment, replicas))

    def _replica_set(self, owner: Obj) -> None:
        meta = owner["metadata"]
        wanted = int(owner["spec"].get("replicas", 1))
        # A terminating pod no longer counts: its replacement is made at once.
        active = [pod for pod in self._pods_of(owner) if not is_terminating(pod) and not is_finished(pod)]
        for _ in range(wanted - len(active)):
            self._create_pod(owner, prefix=f"{meta['name']}-")
        if len(active) > wanted:
            # Not ready first, then the youngest (controller_utils.go, ActivePodsWithRanks).
            active.sort(key=lambda pod: (is_ready(pod), _reversed(pod["metadata"]["creationTimestamp"])))
            for pod in active[: len(active) - wanted]:
                terminate(self._store, self._log, pod)
        self._set_status(
            "replicasets",
            owner,
            {
                "replicas": len(active),
                "fullyLabeledReplicas": len(active),
                "readyReplicas": _ready(active),
                "availableReplicas": _ready(active),
            },
        )

    def _deployment_status(self, deployment: Obj) -> None:
        name = f"{deployment['metadata']['name']}-{template_hash(deployment['spec']['template'])}"
        sets = self._sets_of(deployment)
        updated = next((each.get("status") or {} for each in sets if each["metadata"]["name"] == name), {})
        total = {
            field: sum((each.get("status") or {}).get(field, 0) for each in sets)
            for field in ("replicas", "readyReplicas", "availableReplicas")
        }
        wanted = int(deployment["spec"].get("replicas", 1))
        enough = total["availableReplicas"] >= wanted
        self._set_status(
            "deployments",
            deployment,
            {
                **total,
                "updatedReplicas": updated.get("replicas", 0),
                "unavailableReplicas": max(0, wanted - total["availableReplicas"]),
                "conditions": [
                    {"type": "Available", "status": "True" if enough else "False", "reason": "MinimumReplicas"},
                    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
                ],
            },
        )

    # -- StatefulSets -----------------------------------------------------------------------------------------------

    def _stateful_set(self, owner: Obj) -> None:
        meta, spec = owner["metadata"], owner["spec"]
        wanted = int(spec.get("replicas", 1))
        by_name = {pod["metadata"]["name"]: pod for pod in self._pods_of(owner)}
        ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        for ordinal in range(wanted):
            pod = by_name.get(f"{meta['name']}-{ordinal}")
            if pod is None:
                # Same name: the old one must be gone, which it is.
                self._create_pod(
                    owner,
                    name=f"{meta['name']}-{ordinal}",
                    labels={"statefulset.kubernetes.io/pod-name": f"{meta['name']}-{ordinal}"},
                )
            if ordered and (pod is None or is_terminating(pod) or not is_ready(pod)):
                break
        for pod in by_name.values():
            if int(pod["metadata"]["name"].rsplit("-", 1)[1]) >= wanted and not is_terminating(pod):
                terminate(self._store, self._log, pod)
        active = [pod for pod in by_name.values() if not is_terminating(pod)]
        self._set_status(
            "statefulsets",
            owner,
            {
                "replicas": len(by_name),
                "readyReplicas": _ready(active),
                "availableReplicas": _ready(active),
                "currentReplicas": len(by_name),
                "updatedReplicas": len(by_name),
                "currentRevision": f"{meta['name']}-1",
                "updateRevision": f"{meta['name']}-1",
            },
        )

    # -- DaemonSets ---------------------------------------------------------------------------------------------------

    def _daemon_set(self, owner: Obj) -> None:
        pod_template = owner["spec"]["template"]
        on = {daemon_node(pod): pod for pod in self._pods_of(owner)}
        wanted = [
            node["metadata"]["name"] for node in self._store.sorted("nodes") if daemon_runs_on(pod_template, node)
        ]
        for name in wanted:
            if name not in on:
                self._create_pod(owner, prefix=f"{owner['metadata']['name']}-", node=name)
        for name, pod in on.items():
            if name not in wanted and not is_terminating(pod):
                terminate(self._store, self._log, pod)
        running = [pod for name, pod in on.items() if name in wanted and not is_terminating(pod)]
        self._set_status(
            "daemonsets",
            owner,
            {
                "desiredNumberScheduled": len(wanted),
                "currentNumberScheduled": len(running),
                "numberReady": _ready(running),
                "numberAvailable": _ready(running),
                "numberMisscheduled": 0,
                "updatedNumberScheduled": len(running),
            },
        )

    # -- Jobs ---------------------------------------------------------------------------------------------------------

    def _job(self, owner: Obj) -> None:
        spec, uid = owner["spec"], owner["metadata"]["uid"]
        pods = self._pods_of(owner)
        active = [pod for pod in pods if not is_terminating(pod) and not is_finished(pod)]
        succeeded = sum(1 for pod in pods if pod["status"]["phase"] == "Succeeded")
        failed = self._failed.get(uid, 0)
        completions = spec.get("completions")
        status: Obj = {"active": len(active), "ready": _ready(active), "succeeded": succeeded, "failed": failed}
        done = completions is not None and succeeded >= completions
        if failed > spec.get("backoffLimit", 6):
            status["conditions"] = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
        elif done:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
        else:
            left = spec.get("parallelism", 1) if completions is None else completions - succeeded
            for _ in range(min(spec.get("parallelism", 1), left) - len(active)):
                self._create_pod(owner, prefix=f"{owner['metadata']['name']}-")
        self._set_status("jobs", owner, status)

    # -- shared -------------------------------------------------------------------------------------------------------

    def _create_pod(
        self, owner: Obj, *, name: str = "", prefix: str = "", node: str = "", labels: dict[str, str] | None = None
    ) -> None:
        namespace = owner["metadata"]["namespace"]
        pod = complete_pod(
            pod_object(owner["spec"]["template"], namespace=namespace, name=name, prefix=prefix, owner=owner)
        )
        pod["metadata"]["labels"].update(labels or {})
        if node:
            pod["spec"]["affinity"] = daemon_affinity(node)
        meta = self._store.create("pods", pod)["metadata"]
        now = self._store.clock.now()
        self._log.add("created", at=now, namespace=namespace, name=meta["name"], uid=meta["uid"])

    def _set_status(self, plural: str, owner: Obj, status: Obj) -> None:
        status["observedGeneration"] = owner["metadata"].get("generation", 1)
        # The round may have changed the object since it was listed.
        current = self._store.find(plural, owner["metadata"]["namespace"], owner["metadata"]["name"])
        if current is not None and current.get("status") != status:
            apply: Callable[[Obj], None] = lambda new: new.update(status=status)  # noqa: E731
            self._store.change(plural, current, apply)


def terminate(store: Store, log: EventLog, pod: Obj, *, grace_seconds: float | None = None) -> Obj:
    """Begin a pod's graceful deletion; the kubelet ends it. The caller holds the lock."""
    if is_terminating(pod):
        return pod
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_seconds is None else grace_seconds
    now = store.clock.now()

    def apply(new: Obj) -> None:
        new["metadata"]["deletionTimestamp"] = timestamp(now + grace)
        new["metadata"]["deletionGracePeriodSeconds"] = int(grace)

    meta = pod["metadata"]
    node = pod["spec"].get("nodeName") or ""
    log.add("terminating", at=now, namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], node=node)
    return store.change("pods", pod, apply)


def replica_set_of(deployment: Obj, replicas: int, *, created: str = "") -> Obj:
    """The ReplicaSet of a Deployment's present template, `created` now when empty."""
    meta, pod_template = deployment["metadata"], deployment["spec"]["template"]
    mark = {HASH_LABEL: template_hash(pod_template)}
    labels = {**(pod_template["metadata"].get("labels") or {}), **mark}
    return {
        "metadata": {
            "name": f"{meta['name']}-{mark[HASH_LABEL]}",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(deployment)],
            **({"creationTimestamp": created} if created else {}),
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {**(deployment["spec"]["selector"].get("matchLabels") or {}), **mark}},
            "template": {**pod_template, "metadata": {**pod_template["metadata"], "labels": labels}},
        },
    }


def daemon_affinity(node: str) -> Obj:
    """What ties a DaemonSet's pod to its node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def daemon_node(pod: Obj) -> str:
    """The node that a DaemonSet's pod is for."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def daemon_runs_on(pod_template: Obj, node: Obj) -> bool:
    """Whether a DaemonSet wants a pod on the node."""
    spec = pod_template["spec"]
    labels = node["metadata"].get("labels") or {}
    if not labels_match(spec.get("nodeSelector") or {}, labels):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    required = msgspec.convert(affinity, NodeAffinity).required if affinity else None
    if required is not None and not node_selector_matches(required, labels, node["metadata"]["name"]):
        return False
    tolerations = msgspec.convert(spec.get("tolerations") or [], tuple[Toleration, ...])
    taints = msgspec.convert(node["spec"].get("taints") or [], tuple[Taint, ...])
    return untolerated_taint(tolerations, taints) is None


def _controller(obj: Obj) -> Obj | None:
    return next((each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller")), None)


def _ready(pods: list[Obj]) -> int:
    return sum(1 for pod in pods if is_ready(pod))


def _reversed(text: str) -> tuple[int, ...]:
    """Sorts later timestamps first."""
    return tuple(-ord(letter) for letter in text)
