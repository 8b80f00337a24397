"""PodDisruptionBudgets: their status, and the result of the Eviction API.

Sources: pkg/controller/disruption (`countHealthyPods`, `getExpectedPodCount`) and
pkg/registry/core/pod/storage/eviction.go.
"""

import math

from rebalancer.lab.clock import seconds_of, timestamp
from rebalancer.lab.objects.errors import ApiError, conflict
from rebalancer.lab.objects.kinds import Obj, by_plural
from rebalancer.lab.objects.store import Store
from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.objects import LabelSelector
from rebalancer.model.notation.decoding import convert

WASTED_SECONDS = 20.0
"""How long a disruption stays counted after an eviction that failed on its uid (over 20 s on a real control plane)."""

_SCALED = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


def is_ready(pod: Obj) -> bool:
    """Whether the pod's Ready condition is true."""
    for each in reversed((pod.get("status") or {}).get("conditions") or ()):  # it's the last one of most pods
        if each["type"] == "Ready":
            return bool(each["status"] == "True")
    return False


def is_terminating(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_finished(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def budgets_of(store: Store, pod: Obj) -> list[Obj]:
    """The PDBs that select the pod."""
    meta = pod["metadata"]
    return [
        pdb
        for pdb in store.sorted("poddisruptionbudgets")
        if pdb["metadata"]["namespace"] == meta["namespace"]
        and selector_matches(_selector(pdb), meta.get("labels") or {})
    ]


def _selector(pdb: Obj) -> LabelSelector | None:
    return convert(pdb["spec"]["selector"] or {}, LabelSelector) if "selector" in pdb["spec"] else None


def update_statuses(store: Store) -> None:
    """Update the status of every PDB. The caller holds the lock."""
    budgets = store.all("poddisruptionbudgets")
    if not budgets:
        return
    selectors = [_selector(pdb) for pdb in budgets]
    # With some hundred budgets in one namespace most select other pods: compare one label pair first.
    near: dict[tuple[str, tuple[str, str] | None], list[Obj]] = {
        (pdb["metadata"]["namespace"], _pair(selector)): [] for pdb, selector in zip(budgets, selectors, strict=True)
    }
    for pod in store.all("pods"):
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        for pair in (None, *labels.items()):
            if (namespace, pair) in near:
                near[namespace, pair].append(pod)
    for pdb, selector in zip(budgets, selectors, strict=True):
        pods = near[pdb["metadata"]["namespace"], _pair(selector)]
        _update(store, pdb, [pod for pod in pods if selector_matches(selector, pod["metadata"].get("labels") or {})])


def has_wasted_room(store: Store) -> bool:
    """Whether a budget's allowed disruptions will grow with time alone."""
    return any((pdb.get("status") or {}).get("disruptedPods") for pdb in store.all("poddisruptionbudgets"))


def _pair(selector: LabelSelector | None) -> tuple[str, str] | None:
    """One label pair that all selected pods have; None where the selector names none."""
    return next(iter(selector.match_labels.items()), None) if selector is not None else None


def _update(store: Store, pdb: Obj, pods: list[Obj]) -> None:
    now = store.clock.now()
    alive = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
    wasted = {
        name: since
        for name, since in (pdb.get("status", {}).get("disruptedPods") or {}).items()
        if name in alive and now - seconds_of(since) < WASTED_SECONDS
    }
    healthy = sum(
        1 for pod in pods if is_ready(pod) and not is_terminating(pod) and pod["metadata"]["name"] not in wasted
    )
    expected, desired = _expected_and_desired(store, pdb["spec"], pods)
    status: Obj = {
        "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "observedGeneration": pdb["metadata"].get("generation", 1),
    }
    if wasted:
        status["disruptedPods"] = wasted
    if status != pdb.get("status"):
        store.change("poddisruptionbudgets", pdb, lambda new: new.update(status=status))


def _expected_and_desired(store: Store, spec: Obj, pods: list[Obj]) -> tuple[int, int]:
    minimum, unavailable = spec.get("minAvailable"), spec.get("maxUnavailable")
    if minimum is not None and not isinstance(minimum, str):
        return len(pods), int(minimum)
    expected = _scale_of_owners(store, pods)
    if minimum is not None:
        return expected, _scaled(minimum, expected)
    if unavailable is not None:
        return expected, max(0, expected - _scaled(unavailable, expected))
    return len(pods), 1  # a PDB with neither means minAvailable: 1


def _scaled(value: int | str, of: int) -> int:
    """Percentages round up, for both numbers (`GetScaledValueFromIntOrPercent(..., roundUp=true)`)."""
    if isinstance(value, int):
        return value
    return math.ceil(of * float(value.rstrip("%")) / 100.0)


def _scale_of_owners(store: Store, pods: list[Obj]) -> int:
    """Desired replicas of the pods' controllers; pods without a scalable one count as themselves."""
    owners: dict[str, int] = {}
    known: set[str] = set()
    loose = 0
    for pod in pods:
        owner = next((each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller")), None)
        if owner is not None and owner["uid"] in known:
            continue
        plural = _SCALED.get(owner["kind"]) if owner else None
        found = store.find(plural, pod["metadata"]["namespace"], owner["name"]) if plural and owner else None
        if found is not None:
            found = _deployment_of(store, found) or found
        if found is None:
            loose += 1
        else:
            known.add(owner["uid"] if owner else "")
            owners[found["metadata"]["uid"]] = int(found["spec"].get("replicas", 1))
    return loose + sum(owners.values())


def _deployment_of(store: Store, controller: Obj) -> Obj | None:
    """The Deployment of a ReplicaSet: while it rolls, its sets together have more replicas than are desired."""
    meta = controller["metadata"]
    parent = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
    if parent is None or parent["kind"] != "Deployment":
        return None
    return store.find("deployments", meta["namespace"], parent["name"])


def check_eviction(store: Store, pod: Obj, *, uid: str | None, dry_run: bool) -> None:
    """Refuse an eviction as the API server would. Raises ApiError 409, 429, 500. The caller holds the lock.

    As on the real one, a stale uid is noticed only after the disruption was counted.
    """
    stale = uid is not None and uid != pod["metadata"]["uid"]
    if not (pod["status"].get("phase") == "Pending" or is_finished(pod) or is_terminating(pod)):
        budgets = budgets_of(store, pod)
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise ApiError(500, "InternalError", message)
        if budgets:
            _check_budget(store, budgets[0], pod)
            if stale and not dry_run:
                _waste(store, budgets[0], pod)
    if stale:
        found = f"UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        raise conflict(by_plural("pods"), pod["metadata"]["name"], f"Precondition failed: {found}")


def _check_budget(store: Store, pdb: Obj, pod: Obj) -> None:
    status = pdb["status"]
    if not is_ready(pod):
        always = pdb["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or (status["currentHealthy"] >= status["desiredHealthy"] > 0):
            return
    if status["disruptionsAllowed"] > 0:
        return
    name = pdb["metadata"]["name"]
    needs = f"needs {status['desiredHealthy']} healthy pods and has {status['currentHealthy']} currently"
    raise ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": f"The disruption budget {name} {needs}"}]},
    )


def _waste(store: Store, pdb: Obj, pod: Obj) -> None:
    def apply(new: Obj) -> None:
        spent = new["status"].setdefault("disruptedPods", {})
        spent[pod["metadata"]["name"]] = timestamp(store.clock.now())

    store.change("poddisruptionbudgets", pdb, apply)
    update_statuses(store)
