"""The lab's controllers: they compare the desired with the actual objects, and create or delete the difference.

A round checks everything; it is cheap and stateless. What follows the clock has modules of its own (`cron_jobs.py`,
`horizontal.py`). Not modelled: finalizers.
"""

import re

from rebalancer.lab.controlplane.deployments import run_deployment, update_deployment_status
from rebalancer.lab.controlplane.owned import controller_of, create_pod, ready_count, set_status, terminate
from rebalancer.lab.controlplane.stateful_sets import run_stateful_set
from rebalancer.lab.log import EventLog
from rebalancer.lab.objects.disruption import is_finished, is_ready, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Change, Store
from rebalancer.model.cluster.annotations import DELETION_COST
from rebalancer.model.cluster.match import labels_match, node_selector_matches, untolerated_taint
from rebalancer.model.cluster.objects import NodeAffinity, Taint, Toleration
from rebalancer.model.notation.decoding import convert


class Controllers:
    """All controllers, over one store."""

    def __init__(self, *, store: Store, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._owned: dict[str, list[Obj]] = {}
        self._failed: dict[str, int] = {}
        """Job uid -> pods that failed, or went unfinished."""

    def observe(self, change: Change) -> None:
        """Store listener: a Job's pod that is deleted unfinished counts as failed."""
        if change.plural != "pods":
            return
        pod, owner = change.object, controller_of(change.object)
        failed = pod["status"].get("phase") == "Failed"
        if change.type == "DELETED":
            counts = not is_finished(pod)
        else:
            counts = failed and (change.before is None or change.before["status"].get("phase") != "Failed")
        if counts and owner and owner["kind"] == "Job":
            self._failed[owner["uid"]] = self._failed.get(owner["uid"], 0) + 1

    def run(self) -> None:
        """One round. The caller holds the lock."""
        self._evict_from_tainted_nodes()
        self._index()
        sets = self._sets()
        for deployment in self._store.sorted("deployments"):
            run_deployment(self._store, deployment, sets.get(deployment["metadata"]["uid"], []))
        for replica_set in self._store.sorted("replicasets"):
            self._replica_set(replica_set)
        for stateful_set in self._store.sorted("statefulsets"):
            run_stateful_set(self._store, self._log, stateful_set, self._pods_of(stateful_set))
        for daemon_set in self._store.sorted("daemonsets"):
            self._daemon_set(daemon_set)
        for job in self._store.sorted("jobs"):
            self._job(job)
        sets = self._sets()
        for deployment in self._store.sorted("deployments"):
            update_deployment_status(self._store, deployment, sets.get(deployment["metadata"]["uid"], []))

    def _evict_from_tainted_nodes(self) -> None:
        """NoExecute: pods that don't tolerate it are deleted at once, whatever their PDBs
        (pkg/controller/tainteviction).

        Not modelled: `tolerationSeconds`. Pods that tolerate a taint stay.
        """
        taints = {
            node["metadata"]["name"]: convert(found, tuple[Taint, ...])
            for node in self._store.all("nodes")
            if (found := [each for each in node["spec"].get("taints") or () if each.get("effect") == "NoExecute"])
        }
        for pod in self._store.sorted("pods") if taints else ():
            here = taints.get(pod["spec"].get("nodeName") or "")
            if here and not is_terminating(pod) and not is_finished(pod):
                tolerations = convert(pod["spec"].get("tolerations") or [], tuple[Toleration, ...])
                if untolerated_taint(tolerations, here) is not None:
                    terminate(self._store, self._log, pod)

    def _index(self) -> None:
        self._owned = {}
        for pod in self._store.sorted("pods"):
            owner = controller_of(pod)
            if owner:
                self._owned.setdefault(owner["uid"], []).append(pod)

    def _pods_of(self, owner: Obj) -> list[Obj]:
        return self._owned.get(owner["metadata"]["uid"], [])

    # -- ReplicaSets -----------------------------------------------------------------------------------------------

    def _sets(self) -> dict[str, list[Obj]]:
        """The ReplicaSets of each Deployment, by its uid."""
        found: dict[str, list[Obj]] = {}
        for each in self._store.sorted("replicasets"):
            found.setdefault((controller_of(each) or {}).get("uid", ""), []).append(each)
        return found

    def _replica_set(self, owner: Obj) -> None:
        meta = owner["metadata"]
        desired = int(owner["spec"].get("replicas", 1))
        # A terminating pod no longer counts: its replacement is made at once.
        active = [pod for pod in self._pods_of(owner) if not is_terminating(pod) and not is_finished(pod)]
        for _ in range(desired - len(active)):
            create_pod(self._store, self._log, owner, prefix=f"{meta['name']}-")
        if len(active) > desired:
            active.sort(key=_goes_later)
            for pod in active[: len(active) - desired]:
                terminate(self._store, self._log, pod)
        set_status(
            self._store,
            "replicasets",
            owner,
            {
                "replicas": len(active),
                "fullyLabeledReplicas": len(active),
                "readyReplicas": ready_count(active),
                "availableReplicas": ready_count(active),
            },
        )

    # -- DaemonSets ---------------------------------------------------------------------------------------------------

    def _daemon_set(self, owner: Obj) -> None:
        pod_template = owner["spec"]["template"]
        on = {daemon_node(pod): pod for pod in self._pods_of(owner)}
        desired = [
            node["metadata"]["name"] for node in self._store.sorted("nodes") if daemon_runs_on(pod_template, node)
        ]
        for name in desired:
            if name not in on:
                create_pod(self._store, self._log, owner, prefix=f"{owner['metadata']['name']}-", node=name)
        nodes = {node["metadata"]["name"]: node for node in self._store.all("nodes")}
        for name, pod in on.items():
            stays = name in nodes and daemon_runs_on(pod_template, nodes[name], running=True)
            if not is_terminating(pod) and (is_finished(pod) or not stays):
                terminate(self._store, self._log, pod)
        running = [pod for name, pod in on.items() if name in desired and not is_terminating(pod)]
        set_status(
            self._store,
            "daemonsets",
            owner,
            {
                "desiredNumberScheduled": len(desired),
                "currentNumberScheduled": len(running),
                "numberReady": ready_count(running),
                "numberAvailable": ready_count(running),
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
        status: Obj = {"active": len(active), "ready": ready_count(active), "succeeded": succeeded, "failed": failed}
        done = completions is not None and succeeded >= completions
        if failed > spec.get("backoffLimit", 6):
            status["conditions"] = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
        elif done:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
        else:
            left = spec.get("parallelism", 1) if completions is None else completions - succeeded
            for _ in range(min(spec.get("parallelism", 1), left) - len(active)):
                create_pod(self._store, self._log, owner, prefix=f"{owner['metadata']['name']}-")
        set_status(self._store, "jobs", owner, status)


def daemon_node(pod: Obj) -> str:
    """The node that a DaemonSet's pod is for."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def daemon_runs_on(pod_template: Obj, node: Obj, *, running: bool = False) -> bool:
    """Whether a DaemonSet needs a pod on the node. For one that is `running` there only NoExecute taints matter."""
    spec = pod_template["spec"]
    labels = node["metadata"].get("labels") or {}
    if not labels_match(spec.get("nodeSelector") or {}, labels):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    required = convert(affinity, NodeAffinity).required if affinity else None
    if required is not None and not node_selector_matches(required, labels, node["metadata"]["name"]):
        return False
    tolerations = convert(spec.get("tolerations") or [], tuple[Toleration, ...])
    taints = convert(node["spec"].get("taints") or [], tuple[Taint, ...])
    if running:
        taints = tuple(taint for taint in taints if taint.effect == "NoExecute")
    return untolerated_taint(tolerations, taints) is None


def _goes_later(pod: Obj) -> tuple[bool, bool, bool, int, tuple[int, ...]]:
    """Sorts the pods that a ReplicaSet removes first: unassigned, not running, not Ready, of the lowest deletion cost,
    youngest. Source: pkg/controller/controller_utils.go (`ActivePodsWithRanks`). Not modelled: pods on one node,
    restarts."""
    assigned, running = bool(pod["spec"].get("nodeName")), pod["status"].get("phase") == "Running"
    return assigned, running, is_ready(pod), _deletion_cost(pod), _reversed(pod["metadata"]["creationTimestamp"])


def _deletion_cost(pod: Obj) -> int:
    """0 without the annotation, and for a value that isn't a 32-bit integer in its plain form."""
    value = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    return int(value) if re.fullmatch(r"0|-?[1-9]\d*", value) and -(2**31) <= int(value) < 2**31 else 0


def _reversed(text: str) -> tuple[int, ...]:
    """Sorts later timestamps first."""
    return tuple(-ord(letter) for letter in text)
