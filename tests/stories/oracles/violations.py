"""What is wrong in a lab, by its own objects, in the plainest way that counts it: services by name. Never by what a
strategy of the program found.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

from rebalancer.lab import Lab
from rebalancer.lab.clock import seconds_of

Obj = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
SSD = {"disk": "ssd"}
DAY = 86_400.0


# ---- the lab's objects


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def service_name(pod: Obj) -> str:
    """The name that the lab's short form gave its workload."""
    return str(pod["metadata"]["labels"]["app.kubernetes.io/name"])


def node_of(pod: Obj) -> str:
    return str(pod["spec"].get("nodeName") or "")


def uids(pods: Collection[Obj]) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in pods}


def running(lab: Lab, *names: str, node: str = "") -> list[Obj]:
    """Pods on a node that are neither finished nor leaving, of these services or of all."""
    with lab.cluster.lock:
        return [
            pod
            for pod in lab.cluster.pods(node=node)
            if node_of(pod)
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] in ("Pending", "Running")
            and (not names or service_name(pod) in names)
        ]


def is_ready(pod: Obj) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or ())


def node_labels(lab: Lab) -> dict[str, dict[str, str]]:
    """Node -> labels."""
    with lab.cluster.lock:
        return {name_of(each): dict(each["metadata"]["labels"]) for each in lab.cluster.nodes()}


def let_in(lab: Lab, selector: Mapping[str, str]) -> list[str]:
    """Nodes with these labels."""
    return [name for name, labels in node_labels(lab).items() if selector.items() <= labels.items()]


# ---- what is wrong


def crowded(lab: Lab) -> set[str]:
    """Services with more pods on a node than ceil(pods / nodes that let them in)."""
    counts = Counter((service_name(pod), node_of(pod)) for pod in running(lab))
    total, places = Counter[str](), dict[str, int]()
    for pod in running(lab):
        total[service_name(pod)] += 1
        places[service_name(pod)] = len(let_in(lab, pod["spec"].get("nodeSelector") or {}))
    return {name for (name, _), count in counts.items() if count > math.ceil(total[name] / places[name])}


def in_conflict(lab: Lab) -> set[str]:
    """Pairs of services, as one+other, with pods in one domain of which one excludes the other."""
    labels = node_labels(lab)

    def excludes(one: Obj, other: Obj) -> bool:
        rules = (one["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        return any(
            term["labelSelector"]["matchLabels"].items() <= other["metadata"]["labels"].items()
            and labels[node_of(one)][term["topologyKey"]] == labels[node_of(other)][term["topologyKey"]]
            for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        )

    return {
        "+".join(sorted((service_name(one), service_name(other))))
        for one, other in combinations(running(lab), 2)
        if excludes(one, other) or excludes(other, one)
    }


def uneven(lab: Lab) -> set[str]:
    """Services of which a zone has more than maxSkew above the emptiest; zones that are missing are empty."""
    pods, labels = running(lab), node_labels(lab)
    found = set()
    for pod in pods:
        for rule in pod["spec"].get("topologySpreadConstraints") or ():
            selector = {} if rule.get("nodeAffinityPolicy") == "Ignore" else pod["spec"].get("nodeSelector") or {}
            counts = {labels[name][ZONE]: 0 for name in let_in(lab, selector)}
            for each in pods:
                if rule["labelSelector"]["matchLabels"].items() <= each["metadata"]["labels"].items():
                    counts[labels[node_of(each)][ZONE]] += 1
            fewest = min(counts.values()) if len(counts) >= rule.get("minDomains", 1) else 0
            if max(counts.values()) - fewest > rule["maxSkew"]:
                found.add(service_name(pod))
    return found


def misplaced(lab: Lab) -> set[str]:
    """Services with a pod on a node without the labels that its node selector asks for."""
    return {
        service_name(pod)
        for pod in running(lab)
        if node_of(pod) not in let_in(lab, pod["spec"].get("nodeSelector") or {})
    }


def could_be_better(lab: Lab) -> set[str]:
    """Services with a pod on a disk that it doesn't prefer, while an ssd node has its CPU free by requests."""
    pods = running(lab)
    free = dict.fromkeys(let_in(lab, SSD), 16_000.0)
    for pod in pods:
        if node_of(pod) in free:
            free[node_of(pod)] -= requested(pod)
    return {
        service_name(pod)
        for pod in pods
        if (pod["spec"].get("affinity") or {}).get("nodeAffinity")
        and node_of(pod) not in free
        and any(room >= requested(pod) for room in free.values())
    }


def requested(pod: Obj) -> float:
    """Millicores; the stories write them so."""
    return float(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))


NOT_MINDED = ("node.kubernetes.io/unschedulable", "rebalancer.dev/steer")
"""Taints that a cordon sets, and that we set ourselves for a while."""


def not_tolerated(lab: Lab) -> set[str]:
    """Services with a pod on a node with a taint that it doesn't tolerate."""
    with lab.cluster.lock:
        taints = {name_of(each): each["spec"].get("taints") or [] for each in lab.cluster.nodes()}
    return {
        service_name(pod)
        for pod in running(lab)
        for taint in taints[node_of(pod)]
        if taint["key"] not in NOT_MINDED
        and not any(
            each.get("key") == taint["key"] and each.get("value", "") == taint.get("value", "")
            for each in pod["spec"].get("tolerations") or ()
        )
    }


TOO_MANY = 100


def restless(lab: Lab) -> set[str]:
    """Services with a pod that restarted too often."""
    return {
        service_name(pod)
        for pod in running(lab)
        if sum(each["restartCount"] for each in pod["status"].get("containerStatuses") or ()) >= TOO_MANY
    }


LONGEST = 7 * DAY


def too_old(lab: Lab) -> set[str]:
    """Services with a pod that was made too long ago."""
    now = lab.clock.now()
    return {
        service_name(pod) for pod in running(lab) if now - seconds_of(pod["metadata"]["creationTimestamp"]) > LONGEST
    }


def lying_around(lab: Lab) -> set[str]:
    """Services with a pod that has failed."""
    with lab.cluster.lock:
        return {service_name(pod) for pod in lab.cluster.pods() if pod["status"]["phase"] == "Failed"}
