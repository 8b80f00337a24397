"""Requests that a VerticalPodAutoscaler changes: of running pods in place (`pods/resize`), of new ones at admission.

The pod template keeps its own. The annotation `REQUESTS` of the owner stands for the autoscaler's recommendation.
"""

import msgspec

from rebalancer.lab.controlplane.owned import controller_of, with_requests
from rebalancer.lab.objects.disruption import is_finished, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.scenarios.build import REQUESTS


def resize(store: Store, namespace: str, name: str, requests: dict[str, str], *, plural: str = "deployments") -> None:
    """Give a workload's pods these requests, now and when they are created. Raises ApiError 404. The caller holds the
    lock."""
    owner = store.get(plural, namespace, name)
    recommended = msgspec.json.encode(requests, order="deterministic").decode()
    uids = {owner["metadata"]["uid"]}
    _annotate(store, plural, owner, recommended)
    for each in store.sorted("replicasets"):
        if (controller_of(each) or {}).get("uid") in uids and plural == "deployments":
            uids.add(each["metadata"]["uid"])
            _annotate(store, "replicasets", each, recommended)
    for pod in store.sorted("pods"):
        if (controller_of(pod) or {}).get("uid") in uids and not is_terminating(pod) and not is_finished(pod):
            store.change("pods", pod, lambda new: new.update(spec=with_requests(new["spec"], requests)))


def _annotate(store: Store, plural: str, obj: Obj, recommended: str) -> None:
    def apply(new: Obj) -> None:
        new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), REQUESTS: recommended}

    store.change(plural, obj, apply)
