"""Finding and planning over a snapshot: 5 % of the nodes hot at 78 to 92 %, 10 % idle, the rest around 45 %."""

import time
from dataclasses import replace

import numpy as np

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import ResourceUsage, Usage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner import PlanInput, Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.projection.projection import Projection
from rebalancer.strategies import StrategyView, strategy_for
from rebalancer.strategies.interface.loads import base_loads, effective_cpu
from rebalancer.strategies.interface.resources import expected_by_resource, memory_reserve, with_resources

HOT_SHARE, COLD_SHARE = 0.05, 0.10
WINDOW_SECONDS = 300.0


def synthetic_usage(snapshot: ClusterSnapshot, *, now: float, seed: int = 1) -> Usage:
    """Node levels as in the module's first line, split over each node's pods at random."""
    random = np.random.default_rng(seed)
    nodes, pods = snapshot.nodes, snapshot.pods
    order, count = random.permutation(len(nodes)), len(nodes)
    level = np.clip(random.normal(0.45, 0.04, count), 0.3, 0.6)
    level[order[: int(count * HOT_SHARE)]] = random.uniform(0.78, 0.92, int(count * HOT_SHARE))
    cold = order[int(count * HOT_SHARE) : int(count * (HOT_SHARE + COLD_SHARE))]
    level[cold] = random.uniform(0.05, 0.15, len(cold))
    used = level * nodes.cpu_capacity_millicores
    weight = np.where(snapshot.active, random.gamma(1.5, 1.0, len(pods)), 0.0)
    on = np.maximum(pods.node, 0)
    total = np.maximum(np.bincount(on, weights=weight, minlength=count), 1e-9)
    looks = 7
    return Usage(
        source="synthetic",
        at=now,
        window_seconds=WINDOW_SECONDS,
        node_cpu_millicores=used,
        pod_cpu_millicores=np.where(snapshot.active, weight / total[on] * used[on] * 0.95, np.nan),
        sample_times=np.repeat((now - 20.0 * np.arange(looks - 1, -1, -1))[:, None], count, axis=1),
        samples=np.repeat(used[None, :], looks, axis=0),
        departed_millicores=np.zeros(count),
        problems={},
    )


def bench_policy() -> RebalancerPolicy:
    """Every node in one pool; limits that don't stop the planner."""
    return RebalancerPolicy.model_validate(
        {
            "apiVersion": "rebalancer.dev/v1alpha1",
            "kind": "RebalancerPolicy",
            "cluster": "bench",
            "pools": [
                {"name": "all", "selector": {}, "thresholds": {"high": 75, "target": 65, "low": 50}},
            ],
            "usage": {"prometheus": {"url": "http://127.0.0.1:9090"}},
            "strategies": [{"name": "LowNodeUtilization"}],
            "guards": {"minAge": "1s", "namespaces": {"exclude": ["kube-system"]}},
            "limits": {
                "perCycle": 100_000,
                "cluster": {"inFlight": 100_000},
                "node": {"evictions": [{"max": 100, "per": "10m"}]},
                "service": {"inFlight": 100},
                "replacements": {"perNode": 100},
            },
        }
    )


def with_memory_usage(usage: Usage, snapshot: ClusterSnapshot) -> Usage:
    """`usage` with memory: nodes at 30 to 60 %, split over their pods at random."""
    random = np.random.default_rng(2)
    nodes, pods = snapshot.nodes, snapshot.pods
    used = random.uniform(0.3, 0.6, len(nodes)) * nodes.memory_allocatable_bytes
    weight = np.where(snapshot.active, random.gamma(1.5, 1.0, len(pods)), 0.0)
    on = np.maximum(pods.node, 0)
    total = np.maximum(np.bincount(on, weights=weight, minlength=len(nodes)), 1e-9)
    memory = ResourceUsage(
        node=used,
        capacity=nodes.memory_allocatable_bytes,
        pod=np.where(snapshot.active, weight / total[on] * used[on], np.nan),
        samples=np.repeat(used[None, :], len(usage.samples), axis=0),
    )
    return replace(usage, resources={MEMORY: memory})


def with_memory_thresholds(policy: RebalancerPolicy) -> RebalancerPolicy:
    """`policy` with thresholds of memory, by which no node is hot."""
    document = policy.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["pools"][0]["thresholds"]["resources"] = {MEMORY: {"high": 85, "target": 75, "low": 65}}
    return RebalancerPolicy.model_validate(document)


def find_and_plan(snapshot: ClusterSnapshot, *, now: float, with_memory: bool = False) -> dict[str, float]:
    """CPU seconds of finding and of planning everything, and the moves. `with_memory`: with thresholds of memory
    too, and a share of it that stays available."""
    policy, usage = bench_policy(), synthetic_usage(snapshot, now=now)
    if with_memory:
        usage, policy = with_memory_usage(usage, snapshot), with_memory_thresholds(policy)
    return planning(snapshot, usage, policy, now=now)


def planning(
    snapshot: ClusterSnapshot, usage: Usage, policy: RebalancerPolicy, *, now: float, most: int | None = None
) -> dict[str, float]:
    """The same for a usage and a policy with one strategy; at `most` so many moves."""
    started = time.process_time()
    node_pools = NodePools.of(policy.pools, snapshot.nodes)
    cpu = effective_cpu(snapshot, usage, (), now)
    expected = expected_by_resource(snapshot, node_pools, usage)
    base = base_loads(snapshot, node_pools, cpu, None)
    view = StrategyView(
        snapshot=snapshot,
        usage=usage,
        node_pools=node_pools,
        cpu=cpu,
        base=with_resources(base, snapshot, node_pools, usage, expected, now=now, occupied=True),
        projection=Projection.of(snapshot, policy.safety, now=now, pools=node_pools.names),
        strategy=policy.strategies[0],
        source=policy.usage,
        recent=(),
        now=now,
    )
    found = strategy_for(view.strategy)(view)
    found_at = time.process_time()
    plan_input = PlanInput(
        snapshot=snapshot,
        found=[found],
        cpu_millicores=usage.pod_cpu_millicores,
        pools=node_pools.names,
        reserve=memory_reserve(snapshot, usage, expected, least=policy.guards.min_memory_available / 100, now=now),
    )
    admission = EvictionAdmission(
        policy=policy, snapshot=snapshot, pool_of=node_pools.of_node, ledger_state=LedgerState(), now=now
    )
    planner = Planner(plan_input, placement=PlacementModel(snapshot), admission=admission)
    moves = 0
    while moves != most and (move := planner.next_move()) is not None:
        planner.accept(move)
        moves += 1
    refusals = planner.outcome.refusals()
    return {
        "find_seconds": found_at - started,
        "plan_seconds": time.process_time() - found_at,
        "hot": float(len(found.findings)),
        "moves": float(moves),
        "refusals": float(len(refusals)),
    }
