"""Small builders: a cluster, its usage and a policy in a few words, for tests of the pure rooms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.model.cluster.annotations import is_kept
from rebalancer.model.cluster.nodes import NodeImages, Nodes
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate, Taint
from rebalancer.model.cluster.owners import Owner, Service
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import RUNNING, Pods, PodStatus
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget, Pod
from rebalancer.model.decisions.eviction import STAGE_OF, Eviction, eviction_of
from rebalancer.model.decisions.plan import Loads
from rebalancer.model.measured.usage import Usage
from rebalancer.placement.landing.model import PlacementModel, never
from rebalancer.planner import PlanInput, Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.strategies import Findings, StrategyView, strategy_for
from rebalancer.strategies.interface.loads import base_loads, effective_cpu
from rebalancer.strategies.interface.resources import expected_by_resource, memory_reserve, with_resources

NOW = 1_800_000_000.0
GIB = 2.0**30


QUIET = PodStatus()


@dataclass(kw_only=True)
class ANode:
    name: str
    cpu: float = 16_000.0
    memory: float = 64 * GIB
    pods: float = 110
    used: float | None = None
    """Measured millicores; None = the sum of its pods' usage."""
    labels: Mapping[str, str] = field(default_factory=lambda: {"pool": "general"})
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    extended: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, float] = field(default_factory=dict)
    """Image name (with its tag) -> bytes."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    age: float = 30 * 86_400.0


@dataclass(kw_only=True)
class APod:
    name: str
    node: str = ""
    cpu: float = 500.0
    """Requested millicores."""
    memory: float = 1 * GIB
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
    age: float = 86_400.0
    started: bool = True
    priority: int = 0
    gated: bool = False
    unschedulable: bool = False
    nominated: str = ""
    """Name of the node that it was nominated to."""
    restarts: int = 0
    init_restarts: int = 0
    status: PodStatus = QUIET


def a_node(name: str, **fields: Any) -> ANode:
    return ANode(name=name, **fields)


def a_pod(name: str, node: str = "", **fields: Any) -> APod:
    return APod(name=name, node=node, **fields)


def replicas(owner: str, on: Mapping[str, int], **fields: Any) -> list[APod]:
    """Pods of one service, `on` = {node: count}."""
    names = [node for node, count in on.items() for _ in range(count)]
    return [APod(name=f"{owner}-{index}", node=node, owner=owner, **fields) for index, node in enumerate(names)]


def cluster(
    nodes: Sequence[ANode],
    pods: Sequence[APod],
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
    templates = PodTemplateTable(interned, msgspec.json.Decoder(PodTemplate).decode)
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
            unschedulable=np.array([node.unschedulable for node in nodes], dtype=bool),
            created=np.array([NOW - node.age for node in nodes]),
            labels=tuple({"kubernetes.io/hostname": node.name, **node.labels} for node in nodes),
            taints=tuple(node.taints for node in nodes),
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


def pods_in(snapshot: ClusterSnapshot) -> list[Pod]:
    """Every pod as an object."""
    return [snapshot.pod(index) for index in range(len(snapshot.pods))]


def _images(nodes: Sequence[ANode]) -> NodeImages:
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


def _template(pod: APod) -> PodTemplate:
    labels, annotations = {"app": pod.owner} if pod.owner else {}, pod.template.get("annotations", {})
    return msgspec.convert(
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


def a_budget(name: str, app: str, allowed: int, *, namespace: str = "shop", **fields: Any) -> DisruptionBudget:
    return DisruptionBudget(
        namespace=namespace,
        name=name,
        selector=LabelSelector(match_labels={"app": app}),
        disruptions_allowed=allowed,
        **fields,
    )


def usage_of(
    snapshot: ClusterSnapshot, nodes: Sequence[ANode], pods: Sequence[APod], *, window: float = 300.0, **fields: Any
) -> Usage:
    """Usage in which every node has been at its level for the whole debounce."""
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


NO_LIMITS: dict[str, Any] = {
    "perCycle": 1000,
    "cluster": {"inFlight": 1000},
    "node": {"evictions": []},
    "service": {"inFlight": 1000},
    "replacements": {"perNode": 1000},
}


def some_limits(*, cycle: int = 1000, node: int = 1000, service: int = 1000) -> dict[str, Any]:
    """Limits of a policy: for each cycle, each node in 10 minutes, each service in flight."""
    return {
        **NO_LIMITS,
        "perCycle": cycle,
        "node": {"evictions": [{"max": node, "per": "10m"}]},
        "service": {"inFlight": service},
    }


def a_policy(**fields: Any) -> RebalancerPolicy:
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


def set_fields(eviction: Eviction, **values: Any) -> Eviction:
    """The same eviction, with these fields written, each in its stage."""
    for name, value in values.items():
        stage = STAGE_OF.get(name)
        if stage is None:
            setattr(eviction, name, value)
        else:
            setattr(eviction, stage, replace(getattr(eviction, stage), **{name: value}))
    return eviction


def changed(eviction: Eviction, **values: Any) -> Eviction:
    """A copy of it with these fields, each in its stage."""
    return set_fields(replace(eviction), **values)


def an_eviction(*, service: str = "shop/web", **fields: Any) -> Eviction:
    """Of a pod named gone, off n1."""
    namespace, _, name = service.partition("/")
    given: dict[str, Any] = {
        "namespace": namespace,
        "pod": "gone",
        "uid": "",
        "node": "n1",
        "pool": "general",
        "service": Service(kind="Deployment", namespace=namespace, name=name),
        "service_identity": service,
        "strategy": "LowNodeUtilization",
        "reason": "hot",
    }
    return eviction_of(**{**given, **fields})


def found_in(
    snapshot: ClusterSnapshot, usage: Usage, policy: RebalancerPolicy, recent: Sequence[Eviction] = ()
) -> list[Findings]:
    """What the policy's strategies find."""
    return [
        strategy_for(strategy)(view_of(snapshot, usage, policy, strategy=strategy, recent=recent))
        for strategy in policy.strategies
    ]


def view_of(snapshot: ClusterSnapshot, usage: Usage, policy: RebalancerPolicy, **fields: Any) -> StrategyView:
    """What a cycle gives to the policy's first strategy, or to `strategy`."""
    now, recent, in_flight = fields.pop("now", NOW), fields.pop("recent", ()), fields.pop("in_flight", ())
    node_pools = NodePools.of(policy.pools, snapshot.nodes)
    cpu = effective_cpu(snapshot, usage, recent, now, in_flight=in_flight, generation=policy.forecast.generation)
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
                expected_by_resource(snapshot, node_pools, usage),
                now=now,
                occupied=True,
                peaks=fields.get("peaks"),
            ),
            "strategy": policy.strategies[0],
            "source": policy.usage,
            "recent": recent,
            "now": now,
            **fields,
        }
    )


def a_door(
    snapshot: ClusterSnapshot, policy: RebalancerPolicy, standing: LedgerState | None = None
) -> EvictionAdmission:
    """The door of a policy; without `standing` nothing has happened yet."""
    return EvictionAdmission(
        policy=policy,
        snapshot=snapshot,
        pool_of=NodePools.of(policy.pools, snapshot.nodes).of_node,
        ledger_state=standing or LedgerState(),
        now=NOW,
    )


def planner_for(
    snapshot: ClusterSnapshot,
    usage: Usage,
    policy: RebalancerPolicy,
    recent: Sequence[Eviction] = (),
    standing: LedgerState | None = None,
    **options: Any,
) -> Planner:
    plan_input = PlanInput(
        snapshot=snapshot,
        found=options.pop("found") if "found" in options else found_in(snapshot, usage, policy, recent),
        cpu_millicores=usage.pod_cpu_millicores,
        pools=pool_names(snapshot, policy),
        base=options.pop("base", None),
        reserve=options.pop("reserve") if "reserve" in options else a_reserve(snapshot, usage, policy),
    )
    placement, admission = placement_from(snapshot, options), a_door(snapshot, policy, standing)
    return Planner(plan_input, placement=placement, admission=admission, **options)


def a_reserve(snapshot: ClusterSnapshot, usage: Usage, policy: RebalancerPolicy) -> Loads | None:
    """The memory that must stay available."""
    expected = expected_by_resource(snapshot, NodePools.of(policy.pools, snapshot.nodes), usage)
    return memory_reserve(snapshot, usage, expected, least=policy.guards.min_memory_available / 100, now=NOW)


def placement_from(snapshot: ClusterSnapshot, options: dict[str, Any]) -> PlacementModel:
    """The model that a planner's options ask for; options that are the model's alone are taken out."""
    if "placement" in options:
        model: PlacementModel = options.pop("placement")
        return model
    own = {
        name: options.pop(name) for name in ("config", "soft_tainted", "cordoned", "young_seconds") if name in options
    }
    return PlacementModel(snapshot, out_of_time=options["time"].spent if "time" in options else never, **own)


def pool_names(snapshot: ClusterSnapshot, policy: RebalancerPolicy) -> list[str]:
    """(nodes,) name of each node's pool, empty for none."""
    return NodePools.of(policy.pools, snapshot.nodes).names


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A plan carried to its end, with everything admitted."""

    moves: list[tuple[str, str, str]]
    """(pod, from, likeliest landing)"""
    refusals: dict[str, str]
    """pod -> code"""
    planner: Planner
    accepted: list[Eviction]

    @property
    def pods(self) -> list[str]:
        return [pod for pod, _, _ in self.moves]


def plan_all(
    nodes: Sequence[ANode], pods: Sequence[APod], policy: RebalancerPolicy | None = None, **fields: Any
) -> Outcome:
    """Build, find and plan."""
    policy = policy or a_policy()
    recent = fields.pop("recent", ())
    usage_fields = fields.pop("usage", {})
    snapshot = cluster(nodes, pods, **fields)
    usage = usage_of(snapshot, nodes, pods, **usage_fields)
    return carry_out(planner_for(snapshot, usage, policy, recent), snapshot)


def carry_out(planner: Planner, snapshot: ClusterSnapshot) -> Outcome:
    accepted = []
    while (move := planner.next_move()) is not None:
        assert planner.admission.reserve(move) is None
        accepted.append(move)
        planner.accept(move)
    moves = [(move.pod, move.node, move.target_node) for move in accepted]
    refusals = {each.name: str(each.code) for each in planner.outcome.refusals()}
    return Outcome(moves=moves, refusals=refusals, planner=planner, accepted=accepted)
