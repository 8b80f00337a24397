"""A cluster, its usage and a policy in a few words: for tests of strategies of other packages, and of this one.

    nodes = [node("a", cpu=16_000), node("b")]
    pods = replicas("web", {"a": 8}, used=1_500)
    made = snapshot(nodes, pods)
    chosen = policy(strategies=[{"name": "LowNodeUtilization"}])
    found = findings(view(made, usage(made, nodes, pods), chosen))

Nothing is contacted, and the time is `NOW`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.model.cluster.annotations import is_kept
from rebalancer.model.cluster.nodes import NodeImages, Nodes
from rebalancer.model.cluster.objects import PodTemplate, Taint
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import RUNNING, Pods, PodStatus
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.decoding import convert, json_decoder
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.projection.projection import Projection
from rebalancer.strategies.interface.loads import base_loads, effective_cpu
from rebalancer.strategies.interface.resources import expected_by_resource, with_resources
from rebalancer.strategies.interface.view import Findings, StrategyView
from rebalancer.strategies.registry import strategy_for

NOW = 1_800_000_000.0
"""Seconds since the epoch: when the snapshot is taken."""

GIB = 2.0**30

NO_LIMITS: dict[str, Any] = {
    "perCycle": 1000,
    "cluster": {"inFlight": 1000},
    "node": {"evictions": []},
    "service": {"inFlight": 1000},
    "replacements": {"perNode": 1000},
}
"""Section `limits` of a policy that leaves everything to the strategy."""


@dataclass(kw_only=True)
class FakeNode:
    """A node, Ready and in the pool `general` unless it says otherwise."""

    name: str
    cpu: float = 16_000.0
    """Millicores, all of them allocatable."""
    memory: float = 64 * GIB
    """Bytes."""
    pods: float = 110
    used: float | None = None
    """Measured millicores; None = the sum of its pods' usage."""
    labels: Mapping[str, str] = field(default_factory=lambda: {"pool": "general"})
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unready_since: float = float("nan")
    conditions: tuple[str, ...] = ()
    """Types of those that are True, besides Ready."""
    unschedulable: bool = False
    extended: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, float] = field(default_factory=dict)
    """Image name (with its tag) -> bytes."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    declared_features: tuple[str, ...] = ()
    age: float = 30 * 86_400.0
    """Seconds."""


@dataclass(kw_only=True)
class FakePod:
    """A pod, Running and Ready for a day unless it says otherwise."""

    name: str
    node: str = ""
    """Name of its node; empty = not bound."""
    cpu: float = 500.0
    """Requested millicores."""
    memory: float = 1 * GIB
    """Requested bytes."""
    used: float = float("nan")
    """Measured millicores."""
    namespace: str = "shop"
    owner: str = ""
    """Name of its owner; empty = bare."""
    owner_kind: str = "ReplicaSet"
    labels: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of PodTemplate."""
    phase: int = RUNNING
    ready: bool = True
    terminating: bool = False
    unready_since: float = float("nan")
    ends: float = float("nan")
    """Both in seconds since the epoch."""
    age: float = 86_400.0
    started: bool = True
    priority: int = 0
    gated: bool = False
    unschedulable: bool = False
    nominated: str = ""
    """Name of the node that it was nominated to."""
    restarts: int = 0
    init_restarts: int = 0
    status: PodStatus = field(default_factory=PodStatus)


def node(name: str, **fields: Any) -> FakeNode:
    """A node; `fields` of FakeNode."""
    return FakeNode(name=name, **fields)


def pod(name: str, node: str = "", **fields: Any) -> FakePod:
    """A pod on a node; `fields` of FakePod. Without an `owner` no guard lets it go."""
    return FakePod(name=name, node=node, **fields)


def replicas(owner: str, on: Mapping[str, int], **fields: Any) -> list[FakePod]:
    """Pods of one service, `on` = {node: count}."""
    names = [node for node, count in on.items() for _ in range(count)]
    return [FakePod(name=f"{owner}-{index}", node=node, owner=owner, **fields) for index, node in enumerate(names)]


def snapshot(
    nodes: Sequence[FakeNode],
    pods: Sequence[FakePod],
    *,
    owners: Sequence[Owner] = (),
    budgets: Sequence[DisruptionBudget] = (),
    namespace_labels: Mapping[str, Mapping[str, str]] | None = None,
    **fields: Any,
) -> ClusterSnapshot:
    """A snapshot. `owners` overrides what is made up from the pods, by (kind, namespace, name)."""
    node_index = {node.name: index for index, node in enumerate(nodes)}
    namespaces = sorted({pod.namespace for pod in pods})
    table: dict[tuple[str, str, str], int] = {}
    records: list[Owner] = []
    for owner in owners:
        table[(owner.kind, owner.namespace, owner.name)] = len(records)
        records.append(owner)
    owner_of = []
    for pod in pods:
        if not pod.owner:
            owner_of.append(-1)
            continue
        key = (pod.owner_kind, pod.namespace, pod.owner)
        if key not in table:
            table[key] = len(records)
            records.append(Owner(kind=key[0], namespace=key[1], name=key[2], uid="-".join(key)))
        owner_of.append(table[key])
    blobs = [msgspec.json.encode(_template(pod)) for pod in pods]
    interned = sorted(set(blobs))
    template_of = {blob: index for index, blob in enumerate(interned)}
    templates = PodTemplateTable(interned, json_decoder(PodTemplate).decode)
    decoded = [templates[template_of[blob]] for blob in blobs]
    statuses = list(dict.fromkeys([PodStatus(), *(pod.status for pod in pods)]))
    return ClusterSnapshot(
        taken=NOW,
        nodes=replace(
            Nodes.blank(len(nodes)),
            names=tuple(node.name for node in nodes),
            cpu_capacity_millicores=np.array([node.cpu for node in nodes]),
            cpu_allocatable_millicores=np.array([node.cpu for node in nodes]),
            memory_capacity_bytes=np.array([node.memory for node in nodes]),
            memory_allocatable_bytes=np.array([node.memory for node in nodes]),
            pods_allocatable=np.array([float(node.pods) for node in nodes]),
            ready=np.array([node.ready for node in nodes], dtype=bool),
            unready_since=np.array([node.unready_since for node in nodes], dtype=np.float64),
            conditions=tuple(node.conditions for node in nodes),
            unschedulable=np.array([node.unschedulable for node in nodes], dtype=bool),
            created=np.array([NOW - node.age for node in nodes]),
            labels=tuple({"kubernetes.io/hostname": node.name, **node.labels} for node in nodes),
            taints=tuple(node.taints for node in nodes),
            declared_features=tuple(node.declared_features for node in nodes),
            extended=tuple(node.extended for node in nodes),
            images=_images(nodes),
            annotations=tuple(node.annotations for node in nodes),
        ),
        pods=replace(
            Pods.blank(len(pods)),
            names=[pod.name for pod in pods],
            uids=[f"uid-{pod.namespace}-{pod.name}" for pod in pods],
            namespace=np.array([namespaces.index(pod.namespace) for pod in pods], dtype=np.int32),
            node=np.array([node_index.get(pod.node, -1) for pod in pods], dtype=np.int32),
            owner=np.array(owner_of, dtype=np.int32),
            template=np.array([template_of[blob] for blob in blobs], dtype=np.int32),
            phase=np.array([pod.phase for pod in pods], dtype=np.int8),
            ready=np.array([pod.ready for pod in pods], dtype=bool),
            terminating=np.array([pod.terminating for pod in pods], dtype=bool),
            unready_since=np.array([pod.unready_since for pod in pods], dtype=np.float64),
            ends=np.array([pod.ends for pod in pods], dtype=np.float64),
            created=np.array([NOW - pod.age for pod in pods]),
            started=np.array([NOW - pod.age if pod.started else np.nan for pod in pods]),
            priority=np.array([pod.priority for pod in pods], dtype=np.int64),
            cpu_request_millicores=np.array([template.cpu_request_millicores for template in decoded]),
            memory_request_bytes=np.array([template.memory_request_bytes for template in decoded]),
            cpu_scored_millicores=np.array([template.cpu_scored_millicores for template in decoded]),
            memory_scored_bytes=np.array([template.memory_scored_bytes for template in decoded]),
            gated=np.array([pod.gated for pod in pods], dtype=bool),
            unschedulable=np.array([pod.unschedulable for pod in pods], dtype=bool),
            nominated=np.array([node_index.get(pod.nominated, -1) for pod in pods], dtype=np.int32),
            restarts=np.array([pod.restarts for pod in pods], dtype=np.int32),
            init_restarts=np.array([pod.init_restarts for pod in pods], dtype=np.int32),
            status=np.array([statuses.index(pod.status) for pod in pods], dtype=np.int32),
        ),
        pod_templates=templates,
        namespaces=tuple(namespaces),
        namespace_labels=namespace_labels or {},
        owners=tuple(records),
        budgets=tuple(budgets),
        statuses=tuple(statuses),
        **fields,
    )


def _images(nodes: Sequence[FakeNode]) -> NodeImages:
    number: dict[str, int] = {}
    sizes: list[float] = []
    pairs: list[tuple[int, int]] = []
    for index, node in enumerate(nodes):
        for name, size in node.images.items():
            if name not in number:
                number[name] = len(sizes)
                sizes.append(size)
            pairs.append((number[name], index))
    image, on = (np.array([pair[side] for pair in pairs], dtype=np.int32) for side in (0, 1))
    return NodeImages(number, np.array(sizes, dtype=float), image, on)


def _template(pod: FakePod) -> PodTemplate:
    labels, annotations = {"app": pod.owner} if pod.owner else {}, pod.template.get("annotations", {})
    return convert(
        {
            "labels": {**labels, **pod.labels},
            "cpuRequestMillicores": float(pod.cpu),
            "memoryRequestBytes": float(pod.memory),
            "cpuScoredMillicores": float(pod.cpu or 100),
            "memoryScoredBytes": float(pod.memory or 200 * 2**20),
            "qos": "Burstable" if pod.cpu or pod.memory else "BestEffort",
            **pod.template,
            # as readers of the cluster do: a guard on an annotation that they drop must fail its own test
            "annotations": {key: value for key, value in annotations.items() if is_kept(key)},
        },
        PodTemplate,
    )


def usage(
    snapshot: ClusterSnapshot,
    nodes: Sequence[FakeNode],
    pods: Sequence[FakePod],
    *,
    window: float = 300.0,
    **fields: Any,
) -> Usage:
    """Usage in which every node has been at its level for the whole stabilization window. `window`: the rate window
    in seconds; `fields` of Usage."""
    pod_cpu = np.array([pod.used for pod in pods], dtype=float)
    sums = snapshot.per_node(np.nan_to_num(pod_cpu))
    node_cpu = np.array(
        [sums[index] if node.used is None else node.used for index, node in enumerate(nodes)], dtype=float
    )
    rows = 5
    return Usage(
        **{
            "source": "test",
            "at": NOW,
            "window_seconds": window,
            "node_cpu_millicores": node_cpu,
            "pod_cpu_millicores": pod_cpu,
            "sample_times": np.repeat((NOW - 30.0 * np.arange(rows - 1, -1, -1))[:, None], len(nodes), axis=1),
            "samples": np.repeat(node_cpu[None, :], rows, axis=0),
            "problems": {},
            **fields,
        }
    )


def policy(**fields: Any) -> RebalancerPolicy:
    """A policy of one pool `general`; `fields` replace whole sections."""
    return RebalancerPolicy.model_validate(
        {
            "apiVersion": "rebalancer.dev/v1alpha1",
            "kind": "RebalancerPolicy",
            "cluster": "test",
            "pools": [
                {
                    "name": "general",
                    "selector": {"matchLabels": {"pool": "general"}},
                    "thresholds": {"high": 75, "target": 65, "low": 50},
                }
            ],
            "usage": {"prometheus": {"url": "http://127.0.0.1:9090"}},
            "strategies": [{"name": "LowNodeUtilization"}],
            "limits": NO_LIMITS,
            **fields,
        }
    )


def view(snapshot: ClusterSnapshot, usage: Usage, policy: RebalancerPolicy, **fields: Any) -> StrategyView:
    """What a cycle gives to the first strategy of the policy; `fields` of StrategyView take the place of its own."""
    now, recent, in_flight = fields.pop("now", NOW), fields.pop("recent", ()), fields.pop("in_flight", ())
    node_pools = NodePools.of(policy.pools, snapshot.nodes)
    projection = Projection.of(snapshot, policy.safety, now=now, pools=node_pools.names)
    cpu = effective_cpu(
        snapshot,
        usage,
        recent,
        now,
        in_flight=in_flight,
        ending=projection.ending,
        generation=policy.forecast.generation,
    )
    return StrategyView(
        **{
            "snapshot": snapshot,
            "usage": usage,
            "node_pools": node_pools,
            "cpu": cpu,
            "base": with_resources(
                base_loads(snapshot, node_pools, cpu, fields.get("peaks")),
                snapshot,
                node_pools,
                usage,
                expected_by_resource(snapshot, node_pools, usage, (*recent, *in_flight)),
                now=now,
                occupied=True,
                peaks=fields.get("peaks"),
            ),
            "projection": projection,
            "strategy": policy.strategies[0],
            "source": policy.usage,
            "recent": recent,
            "now": now,
            **fields,
        }
    )


def findings(view: StrategyView) -> Findings:
    """What the strategy of the view finds, as a cycle calls it: its arguments and its findings are checked, and a note
    says why an error left nothing. Raises ConfigError when a plugin isn't installed."""
    return strategy_for(view.strategy)(view)
