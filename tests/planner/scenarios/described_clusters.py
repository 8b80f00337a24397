"""Clusters as described, and plain re-statements of the rules that a plan must keep.

Nothing here calls guards, budgets, loads, filters or targets of the program: the rules are written down a second time,
over the builders' descriptions, slowly and simply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import mean
from typing import Any

import numpy as np

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, PENDING, SUCCEEDED
from rebalancer.model.cluster.snapshot import DisruptionBudget
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.policy import RebalancerPolicy
from tests.builders import NOW, ANode, APod, a_policy, some_limits

WINDOW = 300.0

THRESHOLDS: dict[str, dict[str, Any]] = {
    "absolute": {"high": 75, "target": 65, "low": 50},
    "narrow": {"high": 70, "target": 68, "low": 60},
    "deviation": {"high": 20, "target": 10, "low": 5, "relativeToMean": True, "floor": 50},
}
GUARDS: dict[str, dict[str, Any]] = {
    "default": {},
    "open": {
        "jobPods": True,
        "ownerKinds": ["CloneSet"],
        "hostPath": True,
        "diskEmptyDir": True,
        "persistentVolumes": True,
        "minAge": "0s",
        "minReplicas": 1,
        "namespaces": {"exclude": []},
    },
    "opt-in": {"requireOptIn": True, "minReplicas": 1},
    "strict": {
        "priorityBelow": 1000,
        "minAge": "1h",
        "minReplicas": 3,
        "labels": {"exclude": {"matchLabels": {"tier": "db"}}},
    },
}
LIMITS: dict[str, dict[str, Any]] = {
    "wide": some_limits(),
    "tight": some_limits(cycle=3, node=2, service=1),
}

# What makes a service special: fields of its pods and of its owner.
SERVICE_QUIRKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mirror": {"template": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
    "static": {"template": {"annotations": {"kubernetes.io/config.source": "file"}}},
    "from the API": {"template": {"annotations": {"kubernetes.io/config.source": "api"}}},
    "daemon": {"kind": "DaemonSet"},
    "of the node": {"kind": "Node"},
    "of a pod": {"kind": "Pod"},
    "bare": {"kind": ""},
    "job": {"kind": "Job"},
    "sparing job": {"kind": "Job", "spares_disruptions": True},
    "clone set": {"kind": "CloneSet"},
    "ours": {"labels": {"app.kubernetes.io/name": "rebalancer"}},
    "our prometheus": {"labels": {"app.kubernetes.io/name": "prometheus"}},
    "our database": {"labels": {"app.kubernetes.io/name": "postgres"}},
    "other app": {"labels": {"app.kubernetes.io/name": "web"}},
    "critical": {"priority": 2_000_000_000},
    "critical by name": {"template": {"priorityClass": "system-node-critical"}},
    "important": {"priority": 1000},
    "unimportant": {"priority": 999},
    "system namespace": {"namespace": "kube-system"},
    "labelled db": {"labels": {"tier": "db"}},
    "opted out": {"labels": {"rebalancer.dev/evict": "false"}},
    "opted in": {"template": {"annotations": {"rebalancer.dev/evict": "true"}}},
    "opted garbage": {"template": {"annotations": {"rebalancer.dev/evict": "sure"}}},
    "unsafe": {"template": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}},
    "safe": {"template": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}},
    "do not disturb": {"template": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}},
    "may disturb": {"template": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}},
    "descheduler no": {"template": {"annotations": {"descheduler.alpha.kubernetes.io/evict": "false"}}},
    "descheduler rather not": {
        "template": {"annotations": {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "1"}}
    },
    "host path": {"template": {"volumes": [{"hostPath": {"path": "/var"}}]}},
    "disk": {"template": {"volumes": [{"emptyDir": {}}]}},
    "ram disk": {"template": {"volumes": [{"emptyDir": {"medium": "Memory"}}]}},
    "remote claim": {"template": {"volumes": [{"persistentVolumeClaim": {"claimName": "far"}}]}},
    "local claim": {"template": {"volumes": [{"persistentVolumeClaim": {"claimName": "near"}}]}},
    "rolling out": {"rolling_out": True},
    "one is missing": {"missing": 1},
    "picky": {"template": {"nodeSelector": {"disk": "ssd"}}},
    "tolerant": {"template": {"tolerations": [{"operator": "Exists"}]}},
    "spread": {"template": {"topologySpread": [{"topologyKey": "zone"}]}},
    "other scheduler": {"template": {"schedulerName": "mine"}},
}
LOCAL_CLAIMS = frozenset({("shop", "near"), ("kube-system", "near")})

POD_QUIRKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "terminating": {"terminating": True},
    "not ready": {"ready": False},
    "young": {"age": 100.0},
    "youngish": {"age": 1800.0},
    "not started": {"started": False, "ready": False, "phase": PENDING},
    "finished": {"phase": SUCCEEDED, "ready": False},
    "failed": {"phase": FAILED, "ready": False},
    "no usage": {"used": float("nan")},
}


@lru_cache
def _policy(thresholds: str, guards: str, limits: str) -> RebalancerPolicy:
    return a_policy(
        pools=[
            {"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": THRESHOLDS[thresholds]},
            {"name": "big", "selector": {"matchLabels": {"pool": "big"}}, "thresholds": THRESHOLDS["absolute"]},
        ],
        guards=GUARDS[guards],
        limits=LIMITS[limits],
    )


@dataclass(kw_only=True)
class World:
    """A cluster as described, before it becomes columns."""

    nodes: list[ANode]
    pods: list[APod]
    owners: dict[tuple[str, str, str], Owner]
    budgets: list[DisruptionBudget]
    recent: list[Eviction]
    thresholds: str
    guards: str
    limits: str
    refused_by_server: frozenset[str]

    @property
    def policy(self) -> RebalancerPolicy:
        return _policy(self.thresholds, self.guards, self.limits)

    def siblings(self, pod: APod) -> list[APod]:
        return [each for each in self.pods if key_of(each) == key_of(pod)] if pod.owner else []

    @cached_property
    def node(self) -> Mapping[str, ANode]:
        return {each.name: each for each in self.nodes}

    @cached_property
    def pod(self) -> Mapping[str, APod]:
        return {each.name: each for each in self.pods}

    @cached_property
    def usage(self) -> Mapping[str, float]:
        """Effective millicores of each pod, NaN where unknown."""
        return {pod.name: expected_use(self, pod) for pod in self.pods}

    @cached_property
    def elsewhere(self) -> Mapping[str, float]:
        """Millicores that each pod uses on another node, NaN where unknown."""
        return {pod.name: use_elsewhere(self, pod) for pod in self.pods}

    def replacement(self, pod: APod) -> APod:
        """A pod that requests what this one's replacement will: a ReplicaSet's is as the newest of its pods."""
        if pod.owner_kind != "ReplicaSet" or not pod.owner:
            return pod
        counted = [
            each for each in self.siblings(pod) if not each.terminating and each.phase not in (SUCCEEDED, FAILED)
        ]
        # of pods of one second the one that requests most
        newest = min(counted, key=lambda each: (each.age, -each.cpu, -each.memory), default=pod)
        return newest if newest.age < pod.age else pod

    @cached_property
    def loads(self) -> dict[str, float]:
        """Effective millicores of each node, before any move."""
        return {node.name: effective_load(self, node) for node in self.nodes}

    @cached_property
    def marks(self) -> Mapping[str, tuple[float, float]]:
        """(high, target) in millicores of each node in a pool."""
        return {node.name: marks_of(self, node) for node in self.nodes if node.labels.get("pool") in ("general", "big")}


def key_of(pod: APod) -> tuple[str, str, str]:
    return (pod.owner_kind, pod.namespace, pod.owner)


def holds_requests(pod: APod) -> bool:
    return pod.node != "" and pod.phase not in (SUCCEEDED, FAILED)


# ---- the rules, a second time


def is_protected(world: World, pod: APod) -> bool:
    """Whether any guard of the issue's part 6 protects the pod (budgets apart)."""
    guards = GUARDS[world.guards]
    notes: Mapping[str, str] = pod.template.get("annotations", {})
    labels = {"app": pod.owner, **pod.labels}
    node_labels = world.node[pod.node].labels if pod.node else {}
    if "kubernetes.io/config.mirror" in notes or notes.get("kubernetes.io/config.source") in ("file", "http"):
        return True
    if pod.terminating or pod.phase in (SUCCEEDED, FAILED) or not pod.ready:
        return True
    if not pod.owner or pod.owner_kind in ("Node", "Pod", "DaemonSet"):
        return True
    if pod.owner_kind == "Job" and not (guards.get("jobPods") and world.owners[key_of(pod)].spares_disruptions):
        return True
    if pod.owner_kind == "CloneSet" and "CloneSet" not in guards.get("ownerKinds", []):
        return True
    if labels.get("app.kubernetes.io/name") in ("rebalancer", "prometheus", "postgresql", "postgres"):
        return True
    if pod.priority >= 2_000_000_000 or pod.template.get("priorityClass", "").startswith("system-"):
        return True
    if "priorityBelow" in guards and pod.priority >= guards["priorityBelow"]:
        return True
    if pod.namespace in guards.get("namespaces", {"exclude": ["kube-system"]})["exclude"]:
        return True
    if world.guards == "strict" and labels.get("tier") == "db":
        return True
    wishes = [where.get("rebalancer.dev/evict") for where in (notes, labels, node_labels)]
    if any(wish is not None and wish != "true" for wish in wishes):
        return True
    if guards.get("requireOptIn") and "true" not in wishes:
        return True
    if notes.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "false":
        return True
    if notes.get("karpenter.sh/do-not-disrupt") == "true":
        return True
    if notes.get("descheduler.alpha.kubernetes.io/evict") == "false":
        return True
    if "descheduler.alpha.kubernetes.io/prefer-no-eviction" in notes:
        return True
    for volume in pod.template.get("volumes", []):
        if "hostPath" in volume and not guards.get("hostPath"):
            return True
        if volume.get("emptyDir") == {} and not guards.get("diskEmptyDir"):
            return True
        if "persistentVolumeClaim" in volume and not guards.get("persistentVolumes"):
            return True
        if volume.get("persistentVolumeClaim") == {"claimName": "near"}:
            return True
    min_age = {"default": 300, "open": 0, "opt-in": 300, "strict": 3600}[world.guards]
    if min_age and (not pod.started or pod.age < min_age):
        return True
    owner = world.owners[key_of(pod)]
    there = [p for p in world.siblings(pod) if p.phase not in (SUCCEEDED, FAILED)]
    # somebody will be wanted in a terminating pod's place
    wanted = len(there) if owner.desired is None else owner.desired
    if wanted < {"default": 2, "open": 1, "opt-in": 1, "strict": 3}[world.guards]:
        return True
    serving = [p for p in there if p.ready and not p.terminating]
    if not leaves(world.node[pod.node]):
        serving = [p for p in serving if not (p.node and leaves(world.node[p.node]))]
    return owner.rolling_out or len(serving) < wanted


def leaves(node: ANode) -> bool:
    """Whether the pods of a node are about to go. None was cordoned by us, or lost a short time ago."""
    return node.unschedulable or any(taint.key == "ToBeDeletedByClusterAutoscaler" for taint in node.taints)


def budgets_of(world: World, pod: APod) -> list[DisruptionBudget]:
    """PodDisruptionBudgets whose `app` is the pod's."""
    return [
        each
        for each in world.budgets
        if each.namespace == pod.namespace
        and each.selector is not None
        and each.selector.match_labels == {"app": pod.owner}
    ]


def expected_use(world: World, pod: APod) -> float:
    """A pod's CPU: measured, or its service's usual when it started within the rate window or hasn't yet."""
    if not holds_requests(pod) or pod.terminating or not is_arriving(pod):
        return pod.used
    usual = measured_siblings(world, pod, rested=True) or measured_siblings(world, pod, rested=False)
    return max(mean(usual) if usual else pod.cpu, 0.0 if np.isnan(pod.used) else pod.used)


def use_elsewhere(world: World, pod: APod) -> float:
    """On a saturated node a pod shows what it got: what its siblings on other nodes use, else what it requests."""
    use = world.usage[pod.name]
    if not pod.node or pod.terminating or not holds_requests(pod) or not is_saturated(world.node[pod.node]):
        return use
    rested = measured_siblings(world, pod, rested=True)
    wanted = mean(rested) if rested else pod.cpu
    return wanted if wanted > use else use


def measured_siblings(world: World, pod: APod, *, rested: bool) -> list[float]:
    """CPU of the pods of its service that are measured over a whole window; `rested`: not on saturated nodes."""
    return [
        each.used
        for each in world.siblings(pod)
        if holds_requests(each) and each.started and each.age >= WINDOW and not each.terminating
        if not np.isnan(each.used) and not (rested and is_saturated(world.node[each.node]))
    ]


def is_saturated(node: ANode) -> bool:
    """Whether its pods show what they got."""
    return node.used is not None and node.used >= 0.97 * node.cpu


def is_arriving(pod: APod) -> bool:
    """Too young to be measured over a whole window."""
    return not pod.started or pod.age < WINDOW


def effective_load(world: World, node: ANode) -> float:
    """Measured, less what is leaving or left, plus what arrived and isn't measured yet."""
    assert node.used is not None
    load = node.used
    for pod in world.pods:
        if pod.node != node.name or not holds_requests(pod):
            continue
        shown = 0.0 if np.isnan(pod.used) else pod.used
        if pod.terminating:
            load -= shown
        elif is_arriving(pod):
            load += expected_use(world, pod) - shown
    for move in world.recent:
        if move.node == node.name:
            load -= move.cpu_millicores * (1 - (NOW - move.at) / WINDOW)
    return load if np.isnan(load) else max(load, 0.0)


def marks_of(world: World, node: ANode) -> tuple[float, float]:
    """(high, target) in millicores."""
    pool = node.labels["pool"]
    marks = THRESHOLDS["absolute" if pool == "big" else world.thresholds]
    high, target = marks["high"] / 100, marks["target"] / 100
    if marks.get("relativeToMean"):
        shares = [world.loads[n.name] / n.cpu for n in world.nodes if n.labels.get("pool") == pool]
        around = mean([share for share in shares if not np.isnan(share)] or [float("nan")])
        distance = high - target
        high = max(around + high, marks["floor"] / 100)
        target = high - distance
    return high * node.cpu, target * node.cpu


def is_hot(world: World, node: str) -> bool:
    return node in world.marks and world.loads[node] > world.marks[node][0]


def lets_in(pod: APod, node: ANode) -> bool:
    """Taints, cordons and node selectors."""
    if not node.ready:
        return False
    tolerant = bool(pod.template.get("tolerations"))
    if not tolerant and (node.unschedulable or any(taint.effect == "NoSchedule" for taint in node.taints)):
        return False
    return all(node.labels.get(key) == value for key, value in pod.template.get("nodeSelector", {}).items())
