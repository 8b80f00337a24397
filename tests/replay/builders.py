"""Small recordings, written down by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import RecordedBudget, RecordedPods, RecordedTaint, RecordedUsage, Recording
from rebalancer.policy import RebalancerPolicy
from tests.builders import cluster

START = 1_789_948_800.0
"""A Monday, 00:00 UTC."""
NEVER = float("inf")
CORES = 10.0


@dataclass(frozen=True, kw_only=True)
class RecordedPod:
    """A pod; times in steps from the start of the recording."""

    name: str
    service: str = "web"
    kind: str = "Deployment"
    node: int = 0
    cpu: float | Sequence[float] = 1000.0
    """Millicores: the same all the time, or of each step of the recording."""
    begins: float = -100.0
    """Created, bound and Ready."""
    ends: float = NEVER
    request: float = 1000.0
    replaced: str = ""
    never_bound: bool = False
    scheduler: str = "default-scheduler"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a recording is made of."""

    nodes: int = 2
    steps: int = 24
    pods: Sequence[RecordedPod] = ()
    budgets: dict[str, int] = field(default_factory=dict)
    """Service -> desired healthy."""
    leaves: dict[int, float] = field(default_factory=dict)
    """Node -> step at which it leaves."""
    cordoned: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Node -> steps."""
    elsewhere: float = 0.0
    """Millicores of each node outside of its pods."""
    soft_taints: Sequence[tuple[int, float, float]] = ()


def decoded(blob: bytes) -> PodTemplate:
    """A template from its blob."""
    return msgspec.json.decode(blob, type=PodTemplate)


def recording(of: Recorded) -> Recording:
    """The recording."""
    pods, steps = list(of.pods), of.steps
    services = sorted({(each.service, each.kind) for each in pods})
    owners: list[Owner] = []
    owner_of: dict[str, int] = {}
    for name, kind in services:
        if kind == "Deployment":
            owners.append(Owner(kind=kind, namespace="shop", name=name, uid=f"d-{name}"))
            parent = len(owners) - 1
            owners.append(Owner(kind="ReplicaSet", namespace="shop", name=f"{name}-1", uid=f"rs-{name}", parent=parent))
        elif kind:
            owners.append(Owner(kind=kind, namespace="shop", name=name, uid=f"o-{name}"))
        owner_of[name] = len(owners) - 1 if kind else -1
    templates = [
        PodTemplate(
            labels={"app": each.service},
            cpu_request_millicores=each.request,
            memory_request_bytes=2.0**28,
            cpu_scored_millicores=each.request,
            memory_scored_bytes=2.0**28,
            scheduler_name=each.scheduler,
        )
        for each in pods
    ]
    distinct = list(dict.fromkeys(map(msgspec.json.encode, templates)))
    row = {each.name: at for at, each in enumerate(pods)}
    values, first, begin = [], [], [0]
    node_cpu = np.full((of.nodes, steps), of.elsewhere, dtype=np.float32)
    for each in pods:
        low = max(int(each.begins), 0)
        high = steps if each.ends == NEVER else min(int(np.ceil(each.ends)), steps)
        course = np.full(steps, each.cpu) if isinstance(each.cpu, float | int) else np.array(each.cpu, dtype=float)
        own = np.zeros(0) if each.never_bound else course[low:high]
        values.append(own)
        first.append(low)
        begin.append(begin[-1] + len(own))
        if not each.never_bound:
            node_cpu[each.node, low:high] += own
    for node, step in of.leaves.items():
        node_cpu[node, int(step) :] = np.nan
    left = np.array([START + STEP_SECONDS * of.leaves.get(node, NEVER) for node in range(of.nodes)])
    cordoned = np.zeros((of.nodes, steps), dtype=np.bool_)
    for node, (since, until) in of.cordoned.items():
        cordoned[node, since:until] = True

    def times(of: Any) -> Any:
        return np.array([START + STEP_SECONDS * of(each) for each in pods])

    return Recording(
        source="a test",
        cluster="test",
        start=START,
        steps=steps,
        nodes=nodes_of(of.nodes),
        node_joined=np.full(of.nodes, -NEVER),
        node_left=left,
        node_ready=np.ones((of.nodes, steps), dtype=np.bool_),
        node_unschedulable=cordoned,
        namespaces=("shop",),
        owners=tuple(owners),
        pod_templates=PodTemplateTable(distinct, decoded),
        pods=RecordedPods(
            names=[each.name for each in pods],
            uids=[f"uid-{each.name}" for each in pods],
            namespace=np.zeros(len(pods), dtype=np.int32),
            owner=np.array([owner_of[each.service] for each in pods], dtype=np.int32),
            template=np.array([distinct.index(msgspec.json.encode(each)) for each in templates], dtype=np.int32),
            node=np.array([-1 if each.never_bound else each.node for each in pods], dtype=np.int32),
            created=times(lambda each: each.begins),
            bound=times(lambda each: NEVER if each.never_bound else each.begins),
            ready=times(lambda each: NEVER if each.never_bound else each.begins),
            ended=times(lambda each: each.ends),
            priority=np.zeros(len(pods), dtype=np.int64),
            replaced=np.array([row[each.replaced] if each.replaced else -1 for each in pods], dtype=np.int32),
        ),
        usage={
            CPU: RecordedUsage(
                pod_values=np.concatenate([np.zeros(0), *values]).astype(np.float32),
                pod_start=np.array(begin, dtype=np.int64),
                pod_first=np.array(first, dtype=np.int32),
                node=node_cpu,
            )
        },
        budgets=tuple(
            RecordedBudget(
                namespace="shop",
                name=name,
                selector=LabelSelector(match_labels={"app": name}),
                desired_healthy=np.full(steps, healthy, dtype=np.int32),
            )
            for name, healthy in of.budgets.items()
        ),
        today=cluster([], []),
        soft_taints=tuple(
            RecordedTaint(node, START + STEP_SECONDS * since, START + STEP_SECONDS * until)
            for node, since, until in of.soft_taints
        ),
    )


def nodes_of(count: int) -> Nodes:
    """Nodes of ten cores in one pool."""

    def full(value: float) -> Any:
        return np.full(count, value)

    return replace(
        Nodes.blank(count),
        names=tuple(f"node-{at}" for at in range(count)),
        cpu_capacity_millicores=full(CORES * 1000),
        cpu_allocatable_millicores=full(CORES * 1000),
        memory_capacity_bytes=full(2.0**36),
        memory_allocatable_bytes=full(2.0**36),
        pods_allocatable=full(110.0),
        ready=np.ones(count, dtype=np.bool_),
        created=full(START - 1e7),
        labels=tuple({"pool": "general", "kubernetes.io/hostname": f"node-{at}"} for at in range(count)),
    )


def policy(**sections: Any) -> RebalancerPolicy:
    """Of one pool with the thresholds of the shipped policies; a cycle every five minutes."""
    return RebalancerPolicy.model_validate(
        {
            "apiVersion": "rebalancer.dev/v1alpha1",
            "kind": "RebalancerPolicy",
            "cluster": "test",
            "pools": [
                {
                    "name": "general",
                    "selector": {"matchLabels": {"pool": "general"}},
                    "thresholds": {"high": 75, "target": 65, "low": 55},
                }
            ],
            "usage": {"source": "Prometheus", "prometheus": {"url": "http://127.0.0.1:1"}},
            "strategies": [{"name": "LowNodeUtilization", "args": {"source": "CPU"}, "interval": "5m"}],
            "forecast": {"mode": "Off"},
            **sections,
        }
    )


HIGH = {"general": 0.75}
