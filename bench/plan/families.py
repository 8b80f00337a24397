"""Families of clusters for the plan benchmark. Each makes a cluster and a policy from a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.plan.cluster import Cluster, Services, Thresholds
from bench.plan.scheduler import Machines
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.policy import RebalancerPolicy

Random = np.random.Generator

GIB = 2.0**30
NOW = 1_790_000_000.0
OVERHEAD_SHARE = 0.03
"""Of a node's CPU that belongs to no pod."""
SINGLE_SHARE = 0.08
"""Of the services: those with one replica, which the guards keep."""
ZONES = 3
IMAGES = 40
SMALL_PODS, SMALL_REQUEST, LARGE_REQUEST = 13, 400.0, 1_500.0
"""Of the hot nodes of `least`: small pods, and the millicores that small and large ones request."""
BALANCED = Path(__file__).parents[2] / "policies" / "balanced.yaml"

WIDE: Mapping[str, Any] = {
    "perCycle": 100_000,
    "cluster": {"inFlight": 100_000},
    "node": {"evictions": [{"max": 100, "per": "10m"}]},
    "service": {"inFlight": 1},
    "replacements": {"perNode": 100},
}
"""Limits that leave the choice of moves to the planner: one of a service at a time, as by default."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One kind of cluster."""

    about: str
    make: Callable[[int], Cluster]
    """A cluster for a seed."""
    limits: Mapping[str, Any] = field(default_factory=lambda: WIDE)
    seeds: int = 10
    rounds: int = 6
    until_target: bool = True
    """A node is cooled at its target; False: under `high`. Where limits end a plan early, a node that is no longer hot
    is not found again."""


def policy_of(family: Family, cluster: Cluster) -> RebalancerPolicy:
    """One pool of the policy for each of the cluster; what isn't named here is a default."""
    marks = {name: round(100 * getattr(cluster.thresholds, name)) for name in ("high", "target", "low")}
    return RebalancerPolicy.model_validate(
        {
            "apiVersion": "rebalancer.dev/v1alpha1",
            "kind": "RebalancerPolicy",
            "cluster": "bench",
            "pools": [
                {"name": f"p{pool}", "selector": {"matchLabels": {"pool": f"p{pool}"}}, "thresholds": marks}
                for pool in np.unique(cluster.machines.pool).tolist()
            ],
            "usage": {"prometheus": {"url": "http://127.0.0.1:9090"}},
            "strategies": [{"name": "LowNodeUtilization"}],
            "limits": dict(family.limits),
        }
    )


# ---- parts of a cluster


def machines(count: int, *, cores: float = 16.0, memory_gib: float = 64.0, pool: Ints | None = None) -> Machines:
    """Equal nodes in three zones; no image is known."""
    return Machines(
        cpu_capacity=np.full(count, cores * 1000),
        cpu_allocatable=np.full(count, cores * 1000 - 200),
        memory_allocatable=np.full(count, memory_gib * GIB),
        pods_allocatable=np.full(count, 250.0),
        pool=np.zeros(count, dtype=np.int32) if pool is None else pool.astype(np.int32),
        zone=(np.arange(count) % ZONES).astype(np.int32),
        image_bytes=np.empty(0),
        images_there=np.empty((0, count), dtype=np.bool_),
    )


def with_images(made: Machines, random: Random) -> Machines:
    """Each of `IMAGES` images on a third of the nodes."""
    sizes = random.uniform(50, 900, IMAGES) * 2**20
    return Machines(
        **{
            **{name: getattr(made, name) for name in Machines.__dataclass_fields__},
            "image_bytes": np.floor(sizes),
            "images_there": random.random((IMAGES, len(made))) < 1 / 3,
        }
    )


def levels(random: Random, count: int, *, hot: float, cold: float = 0.1, high: float = 0.92) -> Floats:
    """(nodes,) used shares: `hot` of the nodes at 78 % to `high`, `cold` of them at 5 to 15 %, the rest around 45 %."""
    out = np.clip(random.normal(0.45, 0.04, count), 0.3, 0.6)
    order, many = random.permutation(count), max(round(hot * count), 1)
    out[order[:many]] = random.uniform(0.78, high, many)
    idle = order[many : many + round(cold * count)]
    out[idle] = random.uniform(0.05, 0.15, len(idle))
    return out


def spread_out(random: Random, nodes: int, per_node: int, replicas: tuple[int, int]) -> tuple[Ints, Ints]:
    """(pods,) service and node: each node has `per_node` pods, and the replicas of a service are on different nodes,
    as far as there are enough. A few services have one replica."""
    places = np.concatenate([random.permutation(nodes) for _ in range(per_node)])
    sizes = random.integers(replicas[0], replicas[1] + 1, len(places))
    sizes[random.random(len(places)) < SINGLE_SHARE] = 1
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), len(places))) + 1]
    service = np.repeat(np.arange(len(sizes)), sizes)[: len(places)]
    return service.astype(np.int32), places.astype(np.int32)


def pod_cpu(random: Random, made: Machines, node: Ints, level: Floats, *, shape: float) -> Floats:
    """(pods,) millicores: each node's level, split over its pods by gamma weights. A greater `shape` is more even."""
    weight = random.gamma(shape, 1.0, len(node))
    total = np.bincount(node, weights=weight, minlength=len(made))
    used: Floats = weight / total[node] * (level * made.cpu_capacity)[node] * (1 - OVERHEAD_SHARE)
    return used


def deployments(cpu_request: Floats, **columns: Any) -> Services:
    """Deployments with memory in proportion to the CPU that they request."""
    count = len(cpu_request)
    usual: dict[str, Any] = {
        "kind": ("Deployment",) * count,
        "cpu_request": np.round(cpu_request),
        "memory_request": np.round(cpu_request / 1000 * 3 * GIB),
        "only_pool": np.full(count, -1, dtype=np.int32),
        "image": np.full(count, -1, dtype=np.int32),
        "max_unavailable": np.full(count, -1, dtype=np.int32),
    }
    return Services(**{**usual, **columns})


def cluster_of(
    seed: int, made: Machines, services: Services, service: Ints, node: Ints, cpu: Floats, level: Floats
) -> Cluster:
    """Put together; `level` (nodes,) is the used share."""
    return Cluster(
        machines=made,
        services=services,
        service=service,
        node=node,
        cpu=cpu,
        overhead=level * made.cpu_capacity * OVERHEAD_SHARE,
        thresholds=Thresholds(),
        now=NOW,
        seed=seed,
    )


def plain(
    seed: int,
    *,
    nodes: int,
    per_node: int,
    hot: float | None = None,
    cores: float = 16.0,
    replicas: tuple[int, int] = (2, 8),
    shape: float = 4.0,
    requested: float = 0.55,
    skew: float = 0.03,
    budgets: bool = False,
    images: bool = False,
) -> Cluster:
    """One pool. `requested` is the mean share of CPU that pods request, `skew` the log-normal deviation of requests
    between services, `hot` the share of hot nodes (None: 2 to 10 %)."""
    random = np.random.default_rng([seed, nodes, per_node])
    made = machines(nodes, cores=cores, memory_gib=4 * cores)
    if images:
        made = with_images(made, random)
    level = levels(random, nodes, hot=random.uniform(0.02, 0.10) if hot is None else hot)
    service, node = spread_out(random, nodes, per_node, replicas)
    count = int(service.max()) + 1
    each = np.exp(random.normal(0.0, skew, count)) * requested * cores * 1000 / per_node
    # no node may be overbooked
    fullest = np.bincount(node, weights=each[service], minlength=nodes).max()
    each *= min(1.0, 0.95 * made.cpu_allocatable[0] / fullest)
    columns: dict[str, Any] = {}
    if budgets:
        columns["max_unavailable"] = np.where(random.random(count) < 0.1, 0, 1).astype(np.int32)
    if images:
        columns["image"] = random.integers(0, IMAGES, count).astype(np.int32)
    cpu = pod_cpu(random, made, node, level, shape=shape)
    return cluster_of(seed, made, deployments(each, **columns), service, node, cpu, level)


# ---- families with a shape of their own


def in_pools(seed: int, *, sizes: tuple[int, ...], full: frozenset[int] = frozenset()) -> Cluster:
    """Pools that share no nodes, each with services of its own; those of `full` have no room under their target."""
    random = np.random.default_rng([seed, *sizes, len(full)])
    pool = np.repeat(np.arange(len(sizes)), sizes)
    made = machines(len(pool), pool=pool)
    level, parts, known = np.zeros(len(pool)), [], 0
    for at, size in enumerate(sizes):
        members = np.flatnonzero(pool == at)
        level[members] = levels(random, size, hot=0.1)
        if at in full:
            cool = members[level[members] < 0.75]
            level[cool] = random.uniform(0.64, 0.65, len(cool))
            level[cool[0]] = 0.48  # one node under `low`: the pool is planned for
        service, node = spread_out(random, size, 16, (2, 6))
        parts.append((service + known, members[node]))
        known += int(service.max()) + 1
    service, node = (np.concatenate(each).astype(np.int32) for each in zip(*parts, strict=True))
    only = np.zeros(known, dtype=np.int32)
    only[service] = pool[node]
    each = np.exp(random.normal(0.0, 0.1, known)) * 500
    cpu = pod_cpu(random, made, node, level, shape=4.0)
    return cluster_of(seed, made, deployments(each, only_pool=only), service, node, cpu, level)


def batch(seed: int, *, nodes: int = 40) -> Cluster:
    """A third of the services are Jobs, whose pods stay; 30 pods of other Jobs wait for more room than any node has."""
    random = np.random.default_rng([seed, nodes, 5])
    made, per_node = machines(nodes), 16
    level = levels(random, nodes, hot=random.uniform(0.02, 0.10), cold=0.2)
    service, node = spread_out(random, nodes, per_node, (2, 6))
    count, jobs = int(service.max()) + 1, 30
    kinds = np.where(random.random(count) < 0.35, "Job", "Deployment").tolist() + ["Job"] * jobs
    each = np.exp(random.normal(0.0, 0.1, count)) * 0.6 * 16_000 / per_node
    waiting = random.uniform(9_800, 13_000, jobs)
    cpu = np.concatenate([pod_cpu(random, made, node, level, shape=4.0), np.full(jobs, 500.0)])
    return cluster_of(
        seed,
        made,
        deployments(np.concatenate([each, waiting]), kind=tuple(kinds)),
        np.concatenate([service, np.arange(count, count + jobs)]),
        np.concatenate([node, np.full(jobs, -1)]),
        cpu,
        level,
    )


def least(seed: int) -> Cluster:
    """Two pools of six nodes, three of them hot; each becomes cool when its two large pods leave, and with no fewer.
    Every large pod's service has a second one on another hot node. By requests all nodes are about equal.

    With an odd seed two hot nodes are in one pool and one in the other, else all are in one."""
    random = np.random.default_rng([seed, 12])
    hot, parts, known = ((0, 1), (6,)) if seed % 2 else ((0, 1, 2), ()), [], 0
    requests: list[float] = []
    for first, warm in zip((0, 6), hot, strict=True):
        cool = [node for node in range(first, first + 6) if node not in warm]
        rows: list[tuple[int, int, float]] = []  # service, node, millicores
        for at, node in enumerate(warm):
            rows += [(at % 3, node, 2_150.0), ((at + 1) % 3, node, 2_100.0)]
            rows += [(3 + index, node, each) for index, each in enumerate(_shares(random, SMALL_PODS, 10_000.0))]
        # a pod of each of those services, nearly idle, on a node that is not hot
        rows += [(service, cool[service % len(cool)], 100.0) for service in range(3 + SMALL_PODS)]
        for node in cool:
            used = random.uniform(4_300, 4_800)
            rows += [(3 + SMALL_PODS + at, node, each) for at, each in enumerate(_shares(random, 10, used))]
        on_hot = 2 * LARGE_REQUEST + SMALL_PODS * SMALL_REQUEST
        on_cool = (3 * LARGE_REQUEST + SMALL_PODS * SMALL_REQUEST) / len(cool)
        requests += [LARGE_REQUEST] * 3 + [SMALL_REQUEST] * SMALL_PODS + [(on_hot - on_cool) / 10] * 10
        parts += [(service + known, node, each) for service, node, each in rows]
        known = len(requests)
    service, node, cpu = (np.array(each) for each in zip(*parts, strict=True))
    pool = np.repeat([0, 1], 6)
    only = np.repeat(np.array([0, 1], dtype=np.int32), known // 2)
    services = deployments(np.array(requests), only_pool=only)
    made = machines(12, pool=pool)
    return cluster_of(seed, made, services, service.astype(np.int32), node.astype(np.int32), cpu, np.zeros(12))


def _shares(random: Random, count: int, used: float) -> list[float]:
    """`used` split into nearly equal parts."""
    parts: list[float] = (random.dirichlet(np.full(count, 40.0)) * used).tolist()
    return parts


def _balanced_limits() -> Mapping[str, Any]:
    limits: Mapping[str, Any] = yaml.safe_load(BALANCED.read_text(encoding="utf-8"))["limits"]
    return limits


FAMILIES: Mapping[str, Family] = {
    "tiny": Family(
        about="6 nodes, one hot", make=lambda seed: plain(seed, nodes=6, per_node=14, hot=0.1, replicas=(2, 4))
    ),
    "least": Family(about="12 nodes in two pools, 3 hot, least possible 6 evictions", make=least),
    "even": Family(about="40 nodes, even requests, 2 to 10% hot", make=lambda seed: plain(seed, nodes=40, per_node=20)),
    "skewed": Family(
        about="60 nodes, skewed requests, images",
        make=lambda seed: plain(seed, nodes=60, per_node=20, skew=0.8, images=True),
    ),
    "tight": Family(
        about="40 nodes, limits of policies/balanced.yaml, a budget for each service",
        make=lambda seed: plain(seed, nodes=40, per_node=16, budgets=True, skew=0.2),
        limits=_balanced_limits(),
        until_target=False,
    ),
    "small": Family(
        about="30 nodes with 60 small pods each", make=lambda seed: plain(seed, nodes=30, per_node=60, hot=0.1)
    ),
    "large": Family(
        about="24 nodes with 5 large pods each",
        make=lambda seed: plain(seed, nodes=24, per_node=5, hot=0.1, shape=12.0, replicas=(2, 4)),
    ),
    "pools": Family(about="two pools of 30 and 12 nodes", make=lambda seed: in_pools(seed, sizes=(30, 12))),
    "full": Family(
        about="two pools of 16 nodes, one without room",
        make=lambda seed: in_pools(seed, sizes=(16, 16), full=frozenset({1})),
    ),
    "batch": Family(about="40 nodes with Jobs and pending pods", make=batch),
    "sampled": Family(
        about="300 nodes, of which the scheduler samples, 2 to 10% hot",
        make=lambda seed: plain(seed, nodes=300, per_node=12, skew=0.3),
    ),
    "uneven": Family(
        about="1,000 nodes, 5% hot, pods that use very different CPU",
        make=lambda seed: plain(seed, nodes=1_000, per_node=10, hot=0.05, cores=32.0, replicas=(4, 24)),
        seeds=3,
        rounds=3,
    ),
    "plain": Family(
        about="5,000 nodes with 50,000 plain pods, requests nearly even, 5% hot",
        make=lambda seed: plain(seed, nodes=5_000, per_node=10, hot=0.05, cores=32.0, replicas=(4, 24), shape=12.0),
        seeds=3,
        rounds=3,
    ),
}
