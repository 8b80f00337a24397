"""Random hot clusters, and plain re-statements of the rules that a plan must keep.

Nothing here calls guards, budgets, loads, filters or targets of the program: the rules are written down a second time,
over the builders' descriptions, slowly and simply.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import mean
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rebalancer.model.objects import Taint
from rebalancer.model.plan import Move, PodRefusal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import FAILED, PENDING, SUCCEEDED, ClusterSnapshot, DisruptionBudget, Owner
from rebalancer.model.usage import RecentMove
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings
from tests.builders import (
    GIB,
    NOW,
    ANode,
    APod,
    a_budget,
    a_door,
    a_policy,
    cluster,
    found_in,
    some_limits,
    usage_of,
)

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
    "mirror": {"shape": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
    "static": {"shape": {"annotations": {"kubernetes.io/config.source": "file"}}},
    "from the API": {"shape": {"annotations": {"kubernetes.io/config.source": "api"}}},
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
    "critical by name": {"shape": {"priorityClass": "system-node-critical"}},
    "important": {"priority": 1000},
    "unimportant": {"priority": 999},
    "system namespace": {"namespace": "kube-system"},
    "labelled db": {"labels": {"tier": "db"}},
    "opted out": {"labels": {"rebalancer.dev/evict": "false"}},
    "opted in": {"shape": {"annotations": {"rebalancer.dev/evict": "true"}}},
    "opted garbage": {"shape": {"annotations": {"rebalancer.dev/evict": "sure"}}},
    "unsafe": {"shape": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}},
    "safe": {"shape": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}},
    "do not disturb": {"shape": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}},
    "may disturb": {"shape": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}},
    "descheduler no": {"shape": {"annotations": {"descheduler.alpha.kubernetes.io/evict": "false"}}},
    "descheduler rather not": {"shape": {"annotations": {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "1"}}},
    "host path": {"shape": {"volumes": [{"hostPath": {"path": "/var"}}]}},
    "disk": {"shape": {"volumes": [{"emptyDir": {}}]}},
    "ram disk": {"shape": {"volumes": [{"emptyDir": {"medium": "Memory"}}]}},
    "remote claim": {"shape": {"volumes": [{"persistentVolumeClaim": {"claimName": "far"}}]}},
    "local claim": {"shape": {"volumes": [{"persistentVolumeClaim": {"claimName": "near"}}]}},
    "rolling out": {"rolling_out": True},
    "one is missing": {"missing": 1},
    "picky": {"shape": {"nodeSelector": {"disk": "ssd"}}},
    "tolerant": {"shape": {"tolerations": [{"operator": "Exists"}]}},
    "spread": {"shape": {"topologySpread": [{"topologyKey": "zone"}]}},
    "other scheduler": {"shape": {"schedulerName": "mine"}},
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
    recent: list[RecentMove]
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
    notes: Mapping[str, str] = pod.shape.get("annotations", {})
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
    if pod.priority >= 2_000_000_000 or pod.shape.get("priorityClass", "").startswith("system-"):
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
    for volume in pod.shape.get("volumes", []):
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
    alive = [p for p in world.siblings(pod) if not p.terminating and p.phase not in (SUCCEEDED, FAILED)]
    wanted = len(alive) if owner.wanted is None else owner.wanted
    if wanted < {"default": 2, "open": 1, "opt-in": 1, "strict": 3}[world.guards]:
        return True
    return owner.rolling_out or sum(p.ready for p in alive) < wanted


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
    """A pod's CPU: measured, or its service's usual when it started within the rate window."""
    young = holds_requests(pod) and pod.started and not pod.terminating and pod.age < WINDOW
    if not young:
        return pod.used
    usual = [
        each.used
        for each in world.siblings(pod)
        if each.started and each.age >= WINDOW and not each.terminating and not np.isnan(each.used)
    ]
    return max(mean(usual) if usual else pod.cpu, 0.0 if np.isnan(pod.used) else pod.used)


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
        elif pod.started and pod.age < WINDOW:
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
    tolerant = bool(pod.shape.get("tolerations"))
    if not tolerant and (node.unschedulable or any(taint.effect == "NoSchedule" for taint in node.taints)):
        return False
    return all(node.labels.get(key) == value for key, value in pod.shape.get("nodeSelector", {}).items())


# ---- a plan, step by step


@dataclass(kw_only=True)
class Step:
    """One accepted move, with the loads by this file's own account just before it."""

    move: Move
    loads: dict[str, float]
    requests: dict[str, tuple[float, float, int]]
    landings: list[str]


@dataclass(kw_only=True)
class Story:
    steps: list[Step]
    loads: dict[str, float]
    """At the end."""
    rejected: list[str]
    refusals: list[PodRefusal]
    found: list[Findings]
    snapshot: ClusterSnapshot

    @property
    def told(self) -> Any:
        """All of it under names, comparable between listings."""
        return (
            [
                (s.move.namespace, s.move.name, s.move.node_name, s.landings, s.move.reason, str(s.move.service))
                for s in self.steps
            ],
            self.rejected,
            [(each.node, each.namespace, each.name, each.code, each.message) for each in self.refusals],
            [
                (self.snapshot.nodes.names[f.node], f.pool, f.reason, round(f.cpu_share, 9))
                for findings in self.found
                for f in findings.findings
            ],
        )


def tell(world: World, shuffled: random.Random | None = None) -> Story:
    """Plan a world to its end, as a cycle does; `shuffled` lists everything in another order."""
    nodes, pods = list(world.nodes), list(world.pods)
    owners, budgets = list(world.owners.values()), list(world.budgets)
    if shuffled is not None:
        for each in (nodes, pods, owners, budgets):
            shuffled.shuffle(each)
    snapshot = cluster(
        nodes,
        pods,
        owners=owners,
        budgets=budgets,
        local_claims=LOCAL_CLAIMS,
    )
    problems = {
        index: Refusal.of(Reason.NO_SAMPLE)
        for index, node in enumerate(nodes)
        if node.used is not None and np.isnan(node.used)
    }
    usage = usage_of(snapshot, nodes, pods, window=WINDOW, problems=problems)
    found = found_in(snapshot, usage, world.policy, world.recent)
    planner = Planner(
        snapshot=snapshot,
        found=found,
        door=a_door(snapshot, world.policy),
        cpu_millicores=usage.pod_cpu_millicores,
    )
    loads = dict(world.loads)
    requests = {
        node.name: (
            sum(pod.cpu for pod in pods if pod.node == node.name and holds_requests(pod)),
            sum(pod.memory for pod in pods if pod.node == node.name and holds_requests(pod)),
            sum(1 for pod in pods if pod.node == node.name and holds_requests(pod)),
        )
        for node in nodes
    }
    steps: list[Step] = []
    rejected: list[str] = []
    while (move := planner.next_move()) is not None:
        assert len(steps) + len(rejected) < len(pods), "the planner proposes for ever"
        assert planner.door.reserve(move) is None
        if move.name in world.refused_by_server:
            planner.door.refund(move)
            planner.reject(move, Refusal.of(Reason.SERVER_BUDGET))
            rejected.append(move.name)
            continue
        landings = [snapshot.nodes.names[each.node] for each in move.landings]
        steps.append(Step(move=move, loads=dict(loads), requests=dict(requests), landings=landings))
        planner.accept(move)
        pod = world.pod[move.name]
        for node, by in ((move.node_name, -1), (landings[0], 1)):
            loads[node] += by * world.usage[move.name]
            cpu, memory, count = requests[node]
            requests[node] = (cpu + by * pod.cpu, memory + by * pod.memory, count + by)
    return Story(
        steps=steps, loads=loads, rejected=rejected, refusals=planner.refusals(), found=found, snapshot=snapshot
    )


# ---- random worlds

_AVERAGE_QUIRKS = ["plain"] * 90 + sorted(SERVICE_QUIRKS)
_AVERAGE_POD_QUIRKS = ["plain"] * 90 + sorted(POD_QUIRKS)


@st.composite
def hot_clusters(draw: st.DrawFn) -> World:
    """A cluster with at least one node that looks hot, and mostly with room elsewhere."""

    def chance(percent: int) -> bool:
        return draw(st.integers(0, 99)) >= 100 - percent

    nodes = [
        _node(draw, index, hot=index == 0 or (index == 1 and chance(40))) for index in range(draw(st.integers(3, 6)))
    ]
    hot_names = [node.name for node in nodes if node.used is not None and node.used > 0.75 * node.cpu] or [
        nodes[0].name
    ]
    guards = draw(st.sampled_from(["default"] * 4 + ["open", "opt-in", "strict"]))
    pods: list[APod] = []
    owners: dict[tuple[str, str, str], Owner] = {}
    budgets: list[DisruptionBudget] = []
    for index in range(draw(st.integers(3, 7))):
        made, quirk = _service(draw, f"svc{index}", hot_names, [node.name for node in nodes])
        if guards == "opt-in" and chance(60):
            for pod in made:
                pod.labels = {"rebalancer.dev/evict": "true", **pod.labels}
        pods += made
        if made[0].owner:
            counted = len([p for p in made if not p.terminating and p.phase not in (SUCCEEDED, FAILED)])
            missing = quirk.get("missing", 0)
            wanted = counted + missing if missing or chance(50) else None
            kind, namespace, name = key_of(made[0])
            owners[(kind, namespace, name)] = Owner(
                kind=kind,
                namespace=namespace,
                name=name,
                uid=f"uid-{name}",
                wanted=wanted,
                rolling_out=quirk.get("rolling_out", False),
                spares_disruptions=quirk.get("spares_disruptions", False),
            )
        for number in range(draw(st.sampled_from([0] * 6 + [1] * 5 + [2]))):
            budgets.append(
                a_budget(
                    f"pdb{index}-{number}",
                    made[0].owner,
                    draw(st.integers(0, 3)),
                    namespace=made[0].namespace,
                    up_to_date=not chance(8),
                )
            )
    for node in nodes:
        if node.name in hot_names and chance(80):
            # requests keep the hot node less attractive to the scheduler
            pods.append(
                APod(
                    name=f"agent-{node.name}",
                    node=node.name,
                    owner="agent",
                    owner_kind="DaemonSet",
                    cpu=node.cpu * 0.4,
                    used=50.0,
                )
            )
    owners.setdefault(
        ("DaemonSet", "shop", "agent"), Owner(kind="DaemonSet", namespace="shop", name="agent", uid="uid-agent")
    )
    recent = [
        RecentMove(node=draw(st.sampled_from(nodes)).name, cpu_millicores=400.0, at=NOW - 150.0, service="shop/gone")
        for _ in range(chance(12))
    ]
    return World(
        nodes=nodes,
        pods=pods,
        owners=owners,
        budgets=budgets,
        recent=recent,
        thresholds=draw(st.sampled_from(sorted(THRESHOLDS))),
        guards=guards,
        limits=draw(st.sampled_from(sorted(LIMITS))),
        refused_by_server=frozenset(pod.name for pod in pods if len(pods) < 40 and chance(5)),
    )


def _node(draw: st.DrawFn, index: int, *, hot: bool) -> ANode:
    cpu = draw(st.sampled_from([4_000.0, 8_000.0, 16_000.0]))
    share = draw(st.integers(78, 99)) if hot else draw(st.integers(5, 55))
    quirk = (
        "plain"
        if hot
        else draw(
            st.sampled_from(["plain"] * 20 + ["tainted", "softly", "cordoned", "down", "blind", "alone", "leaving"])
        )
    )
    fields: dict[str, Any] = {
        "plain": {},
        "tainted": {"taints": (Taint(key="dedicated", value="db", effect="NoSchedule"),)},
        "softly": {"taints": (Taint(key="rather", effect="PreferNoSchedule"),)},
        "leaving": {"taints": (Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),)},
        "cordoned": {"unschedulable": True},
        "down": {"ready": False},
        "blind": {},
        "alone": {},
    }[quirk]
    labels = {
        "pool": "other" if quirk == "alone" else draw(st.sampled_from(["general", "general", "general", "big"])),
        "disk": draw(st.sampled_from(["ssd", "hdd"])),
    }
    if draw(st.integers(0, 19)) == 19:
        labels["rebalancer.dev/evict"] = draw(st.sampled_from(["true", "false"]))
    used = float("nan") if quirk == "blind" else round(cpu * share / 100 / 10) * 10.0
    # names don't follow the order of listing
    return ANode(
        name=f"{'kfbqxm'[index]}{index}", cpu=cpu, memory=32 * GIB, pods=40, used=used, labels=labels, **fields
    )


def _service(draw: st.DrawFn, name: str, hot: list[str], everywhere: list[str]) -> tuple[list[APod], dict[str, Any]]:
    quirk = SERVICE_QUIRKS[draw(st.sampled_from(_AVERAGE_QUIRKS))]
    kind = quirk.get("kind", draw(st.sampled_from(["ReplicaSet", "ReplicaSet", "StatefulSet"])))
    used, request = 50.0 * draw(st.integers(1, 30)), 50.0 * draw(st.integers(0, 20))
    pods = []
    for index in range(draw(st.sampled_from([1, 2, 2, 3, 3, 4]))):
        extra = POD_QUIRKS[draw(st.sampled_from(_AVERAGE_POD_QUIRKS))]
        fields: dict[str, Any] = {
            "used": used + 10.0 * draw(st.integers(0, 5)),
            "cpu": request,
            "memory": draw(st.sampled_from([0.0, 1 * GIB, 4 * GIB])),
            "priority": quirk.get("priority", 0),
            "age": draw(st.sampled_from([7_200.0, 86_400.0])),
            **extra,
        }
        pods.append(
            APod(
                name=f"{name}-{index}",
                node=draw(st.sampled_from(hot if index < 2 else everywhere)),
                namespace=quirk.get("namespace", "shop"),
                owner=name if kind else "",
                owner_kind=kind or "ReplicaSet",
                labels=quirk.get("labels", {}),
                shape={
                    "qos": draw(st.sampled_from(["BestEffort", "Burstable", "Guaranteed"])),
                    **quirk.get("shape", {}),
                },
                **fields,
            )
        )
    return pods, quirk
