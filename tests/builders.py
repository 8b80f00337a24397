"""Small builders: a cluster, its usage and a policy in a few words, for tests of the pure rooms."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.model.cluster.objects import LabelSelector
from rebalancer.model.cluster.owners import Service
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget, Pod
from rebalancer.model.cluster.steering import UNSCHEDULABLE
from rebalancer.model.decisions.eviction import STAGE_OF, Eviction, eviction_of
from rebalancer.model.decisions.plan import Goal, Loads
from rebalancer.model.measured.usage import Usage
from rebalancer.placement.landing.model import PlacementModel, never
from rebalancer.planner import PlanInput, Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.projection.projection import Projection
from rebalancer.strategies import Findings, strategy_for
from rebalancer.strategies.interface.resources import expected_by_resource, memory_reserve
from rebalancer.testing import (
    GIB,
    NO_LIMITS,
    NOW,
    replicas,
)
from rebalancer.testing import FakeNode as ANode
from rebalancer.testing import FakePod as APod
from rebalancer.testing import node as a_node
from rebalancer.testing import pod as a_pod
from rebalancer.testing import policy as a_policy
from rebalancer.testing import snapshot as cluster
from rebalancer.testing import usage as usage_of
from rebalancer.testing import view as view_of

__all__ = [
    "GIB",
    "NOW",
    "NO_LIMITS",
    "ANode",
    "APod",
    "a_node",
    "a_pod",
    "a_policy",
    "cluster",
    "replicas",
    "usage_of",
    "view_of",
]
"""Of `rebalancer.testing`, under the names of these tests."""


def pods_in(snapshot: ClusterSnapshot) -> list[Pod]:
    """Every pod as an object."""
    return [snapshot.pod(index) for index in range(len(snapshot.pods))]


def a_budget(name: str, app: str, allowed: int, *, namespace: str = "shop", **fields: Any) -> DisruptionBudget:
    return DisruptionBudget(
        namespace=namespace,
        name=name,
        selector=LabelSelector(match_labels={"app": app}),
        disruptions_allowed=allowed,
        **fields,
    )


def some_limits(*, cycle: int = 1000, node: int = 1000, service: int = 1000) -> dict[str, Any]:
    """Limits of a policy: for each cycle, each node in 10 minutes, each service in flight."""
    return {
        **NO_LIMITS,
        "perCycle": cycle,
        "node": {"evictions": [{"max": node, "per": "10m"}]},
        "service": {"inFlight": service},
    }


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
        "cools": "room_for" not in fields,
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
    placement, admission = placement_from(snapshot, options, found=plan_input.found), a_door(snapshot, policy, standing)
    return Planner(plan_input, placement=placement, admission=admission, **options)


CORDONED_LONG_AGO: dict[str, Any] = {
    "unschedulable": True,
    "taints": (msgspec.structs.replace(UNSCHEDULABLE, time_added="2020-01-01T00:00:00Z"),),
}
"""Fields of a node that takes no pods, and whose pods stay."""


def projection_of(snapshot: ClusterSnapshot, policy: RebalancerPolicy | None = None, *, now: float = NOW) -> Projection:
    """Of the next minutes, under the policy."""
    policy = policy or a_policy()
    return Projection.of(snapshot, policy.safety, now=now, pools=pool_names(snapshot, policy))


def a_model(
    snapshot: ClusterSnapshot,
    policy: RebalancerPolicy | None = None,
    *,
    found: Sequence[Findings] = (),
    **options: Any,
) -> PlacementModel:
    """The scheduler's view of a cluster, with what is about to go; `found` is planned."""
    projection = projection_of(snapshot, policy)
    findings = [finding for each in found for finding in each.findings]
    displaced = projection.displaced_beside(finding.candidates for finding in findings)
    relieved = {finding.node for finding in findings if finding.goal is Goal.COOL}
    return PlacementModel(snapshot, removed=projection.closed, displaced=displaced, relieved=relieved, **options)


def a_reserve(snapshot: ClusterSnapshot, usage: Usage, policy: RebalancerPolicy) -> Loads | None:
    """The memory that must stay available."""
    expected = expected_by_resource(snapshot, NodePools.of(policy.pools, snapshot.nodes), usage)
    return memory_reserve(snapshot, usage, expected, least=policy.guards.min_memory_available / 100, now=NOW)


def placement_from(
    snapshot: ClusterSnapshot, options: dict[str, Any], *, found: Sequence[Findings] = ()
) -> PlacementModel:
    """The model that a planner's options ask for; options that are the model's alone are taken out."""
    if "placement" in options:
        model: PlacementModel = options.pop("placement")
        return model
    own = {
        name: options.pop(name) for name in ("config", "soft_tainted", "cordoned", "young_seconds") if name in options
    }
    return a_model(snapshot, found=found, out_of_time=options["time"].spent if "time" in options else never, **own)


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
    recent, standing = fields.pop("recent", ()), fields.pop("standing", None)
    usage_fields = fields.pop("usage", {})
    snapshot = cluster(nodes, pods, **fields)
    usage = usage_of(snapshot, nodes, pods, **usage_fields)
    return carry_out(planner_for(snapshot, usage, policy, recent, standing), snapshot)


def carry_out(planner: Planner, snapshot: ClusterSnapshot) -> Outcome:
    accepted = []
    while (move := planner.next_move()) is not None:
        assert planner.admission.reserve(move) is None
        accepted.append(move)
        planner.accept(move)
    moves = [(move.pod, move.node, move.target_node) for move in accepted]
    refusals = {each.name: str(each.code) for each in planner.outcome.refusals()}
    return Outcome(moves=moves, refusals=refusals, planner=planner, accepted=accepted)
