"""Random clusters with every rule that the scheduler's model knows: a plan over them asks all of it, many times."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import PENDING, RUNNING
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.policy import RebalancerPolicy
from tests.builders import GIB, ANode, APod, a_budget, a_policy, cluster

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
OTHERS = {"labelSelector": {"matchLabels": {"tier": "t0"}}, "topologyKey": ZONE}

CONFIGS = (
    SchedulerConfig(),
    SchedulerConfig(percentage_of_nodes_to_score=100),
    SchedulerConfig(profiles={"default-scheduler": SchedulerProfile(fit_strategy="MostAllocated")}),
    SchedulerConfig(
        profiles={
            "default-scheduler": SchedulerProfile(
                fit_resources=(("cpu", 3), ("memory", 1), ("gpu", 2)),
                balanced_resources=(("cpu", 1), ("memory", 1), ("gpu", 1)),
                hard_pod_affinity_weight=40,
            )
        }
    ),
)


@dataclass(frozen=True, kw_only=True)
class CrowdedWorld:
    """A snapshot with all that a planner needs besides."""

    nodes: list[ANode]
    pods: list[APod]
    snapshot: ClusterSnapshot
    policy: RebalancerPolicy
    config: SchedulerConfig

    def steering(self) -> SoftTaintBudget:
        """Room to steer away from a fifth of the nodes."""
        size = len(self.nodes)
        return SoftTaintBudget(
            pool_of=np.zeros(size, dtype=np.int32), left=[1 + size // 5], hot=np.zeros(size, dtype=np.bool_)
        )


def crowded_world(seed: int, size: int) -> CrowdedWorld:
    """The same for the same seed."""
    random = np.random.default_rng([seed, size])

    def chance(percent: float) -> bool:
        return bool(random.random() * 100 < percent)

    plain = chance(40)
    nodes = [_node(random, index, hot=index % 6 == 0, plain=plain) for index in range(size)]
    hot = [node.name for node in nodes if node.used is not None and node.used > 0.75 * node.cpu]
    pods: list[APod] = []
    budgets: list[DisruptionBudget] = []
    for index in range(int(size * (1.5 if size < 50 else 0.8)) + 3):
        name = f"svc{index}"
        pods += _service(random, name, hot, [node.name for node in nodes], plain=plain)
        if chance(10):
            budgets.append(a_budget(f"pdb-{name}", name, int(random.integers(0, 3))))
    for node in nodes:
        if chance(90 if node.name in hot else 60):
            share = random.uniform(0.3, 0.5) if node.name in hot else random.uniform(0.05, 0.4)
            pods.append(
                APod(
                    name=f"agent-{node.name}",
                    node=node.name,
                    owner="agent",
                    owner_kind="DaemonSet",
                    cpu=float(int(node.cpu * share)),
                    memory=float(int(node.memory * random.uniform(0.05, 0.5))),
                    used=50.0,
                )
            )
    for node in nodes:
        if node.name in hot[::2]:
            pods += _waiting_for(node, pods)
    random.shuffle(pods)  # type: ignore[arg-type]
    claims = frozenset({("shop", "only")}) if chance(50) else frozenset()
    # so few are wanted that those that wait or go don't keep their service's others where they are
    owners = [
        Owner(kind=pod.owner_kind, namespace=pod.namespace, name=pod.owner, uid=pod.owner, desired=1)
        for pod in {pod.owner: pod for pod in pods}.values()
        if chance(90)
    ]
    snapshot = cluster(nodes, pods, owners=owners, budgets=budgets, exclusive_claims=claims)
    policy = a_policy(
        pools=[
            {
                "name": "general",
                "selector": {"matchLabels": {"pool": "general"}},
                "thresholds": {"high": 75, "target": 65, "low": 50},
                "requestThresholds": {"high": {"cpu": 80}, "target": {"cpu": 70}, "low": {"cpu": 60}},
            }
        ],
        strategies=[
            {"name": "LowNodeUtilization", "args": {"source": source}}
            for source in (("CPU", "Requests") if chance(40) else ("CPU",))
        ],
        guards={"minReplicas": 1, "persistentVolumes": True, "ownerKinds": ["CloneSet"]},
        safety={"cooldowns": {"poolAfterScaleUp": "0s"}},
    )
    return CrowdedWorld(
        nodes=nodes, pods=pods, snapshot=snapshot, policy=policy, config=CONFIGS[int(random.integers(0, len(CONFIGS)))]
    )


def _waiting_for(node: ANode, pods: list[APod]) -> list[APod]:
    """A pod that fits on this node only, and only once another has left it; none where too much is requested there."""
    free = node.cpu - sum(each.cpu for each in pods if each.node == node.name)
    name, here = f"waits-{node.name}", {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    waits = APod(name=name, owner=name, phase=PENDING, ready=False, cpu=free + 50, memory=0.0, template=here)
    return [waits] if free >= 0 else []


def _node(random: np.random.Generator, index: int, *, hot: bool, plain: bool) -> ANode:
    cpu = float(random.choice([4_000.0, 8_000.0, 16_000.0]))
    share = random.integers(78, 99) if hot else random.integers(5, 60)
    quirks = [""] * 16 + ["hard", "hard", "soft", "soft", "cordoned", "young", "down"]
    quirk = "" if plain or hot else str(random.choice(quirks))
    taints = {"hard": (Taint(key="dedicated", value="db", effect="NoSchedule"),)}
    taints["soft"] = (Taint(key="rather", effect="PreferNoSchedule"),)
    return ANode(
        name=f"n{(index * 7919) % 997:03d}-{index}",
        cpu=cpu,
        memory=float(random.choice([16, 32, 64])) * GIB,
        pods=float(random.choice([8, 40, 110])),
        used=float(round(cpu * share / 1000) * 10),
        labels={
            "pool": "general",
            "disk": str(random.choice(["ssd", "hdd"])),
            **({ZONE: f"z{random.integers(0, 3)}"} if random.random() < 0.95 else {}),
        },
        taints=taints.get(quirk, ()),
        unschedulable=quirk == "cordoned",
        ready=quirk != "down",
        age=60.0 if quirk == "young" else 30 * 86_400.0,
        extended={"gpu": float(random.integers(0, 5))} if random.random() < 0.3 else {},
        images={f"app{each}:v1": 800.0 * 2**20 for each in range(4) if random.random() < 0.3},
    )


def _rules(random: np.random.Generator, name: str) -> dict[str, Any]:
    """Further fields of a template."""
    own = {"labelSelector": {"matchLabels": {"app": name}}}

    def spread(key: str, when: str, **fields: Any) -> dict[str, Any]:
        return {"topologyKey": key, "whenUnsatisfiable": when, "maxSkew": int(random.integers(1, 4)), **own, **fields}

    preferred, required = ("preferredDuringSchedulingIgnoredDuringExecution",) * 1 + (
        "requiredDuringSchedulingIgnoredDuringExecution",
    )

    def affinity(side: str, when: str, term: dict[str, Any]) -> dict[str, Any]:
        terms = [{"weight": int(random.integers(1, 101)), "podAffinityTerm": term}] if when == preferred else [term]
        return {"affinity": {side: {when: terms}}}

    choices: list[dict[str, Any]] = [
        {},
        {},
        affinity("podAntiAffinity", required, {**own, "topologyKey": HOSTNAME}),
        affinity("podAntiAffinity", preferred, {**own, "topologyKey": HOSTNAME}),
        affinity("podAntiAffinity", required, OTHERS | {"topologyKey": HOSTNAME}),
        affinity("podAffinity", preferred, OTHERS),
        affinity("podAffinity", required, {**own, "topologyKey": ZONE}),
        {"topologySpread": [spread(ZONE, "ScheduleAnyway")]},
        {"topologySpread": [spread(HOSTNAME, "ScheduleAnyway")]},
        {"topologySpread": [spread(ZONE, "ScheduleAnyway"), spread(HOSTNAME, "ScheduleAnyway")]},
        {"topologySpread": [spread(ZONE, "DoNotSchedule"), spread(HOSTNAME, "ScheduleAnyway")]},
        {"topologySpread": [spread(HOSTNAME, "DoNotSchedule", nodeTaintsPolicy="Honor")]},
        {"tolerations": [{"operator": "Exists"}]},
        {"nodeSelector": {"disk": "ssd"}},
        {
            "affinity": {
                "nodeAffinity": {
                    preferred: [
                        {
                            "weight": 30,
                            "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]},
                        }
                    ]
                }
            }
        },
        {"hostPorts": [["TCP", 80, "0.0.0.0"]]},
        {"extendedRequests": {"gpu": float(random.integers(1, 3))}},
        {"volumes": [{"persistentVolumeClaim": {"claimName": "only"}}]},
        {"schedulerName": "other"},
    ]
    fields = dict(choices[int(random.integers(0, len(choices)))])
    if random.random() < 0.5:
        fields["images"] = [f"app{random.integers(0, 6)}:v1"]
    if random.random() < 0.1:
        fields["scoredOnArrival"] = [100.0, 200 * 2**20]
    return fields


def _service(
    random: np.random.Generator, name: str, hot: list[str], everywhere: list[str], *, plain: bool
) -> list[APod]:
    kinds = ["ReplicaSet", "ReplicaSet", "ReplicaSet", "StatefulSet", "CloneSet", "ReplicationController"]
    kind = str(random.choice(kinds))
    rules = {} if plain and random.random() < 0.7 else _rules(random, name)
    cpu, memory = 50.0 * float(random.integers(0, 25)), float(random.choice([0.0, 0.5, 1.0, 3.0])) * GIB
    used, labels = 50.0 * float(random.integers(1, 40)), {"tier": f"t{random.integers(0, 4)}"}
    pods = []
    for index in range(int(random.integers(1, 7))):
        draw = random.random()
        state: dict[str, Any] = {}
        if draw < 0.06:
            state = {"phase": PENDING, "ready": False, "started": False, "node": ""}
            if draw < 0.01:
                state["nominated"] = str(random.choice(everywhere))
            if 0.01 < draw < 0.015:
                state["gated"] = True
        elif draw < 0.1:
            state = {"terminating": True, "ready": False}
        pods.append(
            APod(
                **{
                    "name": f"{name}-{index}",
                    "node": str(random.choice(hot if index < 3 and hot else everywhere)),
                    "owner": name,
                    "owner_kind": kind,
                    "cpu": cpu,
                    "memory": memory,
                    "used": used + 10.0 * float(random.integers(0, 5)),
                    "priority": int(random.choice([0, 0, 0, 10])),
                    "age": float(random.integers(4, 40)) * 3_600.0,
                    "phase": RUNNING,
                    "labels": labels,
                    "template": {"qos": "Burstable", **rules},
                    **state,
                }
            )
        )
    return pods
