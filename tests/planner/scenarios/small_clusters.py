"""Small random clusters with hot nodes, many equal ones among the others, and little room: draws decide there."""

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.usage import Usage
from rebalancer.planner import Planner
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.policy import RebalancerPolicy
from tests.builders import GIB, ANode, APod, a_policy, cluster, planner_for, replicas, usage_of
from tests.planner.builders.plans import ANY_REPLICAS, carried, heavy

HIGH, TARGET = 0.75, 0.65


@dataclass(frozen=True, kw_only=True)
class Small:
    """A cluster with its usage and policy."""

    nodes: list[ANode]
    snapshot: ClusterSnapshot
    usage: Usage
    policy: RebalancerPolicy

    @property
    def targets(self) -> NDArray[np.float64]:
        """(nodes,) millicores."""
        return TARGET * self.snapshot.nodes.cpu_capacity_millicores


def small_of(nodes: list[ANode], pods: list[APod]) -> Small:
    """Just this cluster."""
    snapshot = cluster(nodes, pods)
    return Small(nodes=nodes, snapshot=snapshot, usage=usage_of(snapshot, nodes, pods), policy=a_policy(**ANY_REPLICAS))


def small_cluster(number: int) -> Small:
    """The same for the same number."""
    rng = random.Random(number)
    names = ["h0", *(f"n{index}" for index in range(rng.randint(2, 4)))]
    cpu = rng.choice([8_000.0, 16_000.0])
    usual, tight = rng.choice([0.1, 0.3]), rng.choice([0.4, 0.5, 0.55])
    nodes = [
        ANode(name=name, cpu=cpu, used=cpu * (rng.uniform(0.77, 0.98) if name == "h0" else rng.choice([usual, tight])))
        for name in names
    ]
    pods: list[APod] = []
    level = rng.choice([0.0, 0.2])
    for name in names:
        asked = cpu * (rng.choice([0.2, 0.4, 0.6]) if name == "h0" else level + rng.choice([0.0, 0.0, 0.0, 0.02, 0.1]))
        if asked:
            pods.append(heavy(name, asked))
    for service in range(rng.randint(2, 5)):
        on = {"h0": rng.choice([1, 1, 2, 3])}
        if rng.random() < 0.3:
            on[rng.choice(names[1:])] = 1
        pods += replicas(
            f"svc{service}",
            on,
            used=cpu * rng.choice([0.02, 0.04, 0.06, 0.1, 0.15]),
            cpu=cpu * rng.choice([0.0, 0.01, 0.02, 0.05, 0.1]),
            memory=rng.choice([0.0, 1.0, 4.0]) * GIB,
            owner_kind=rng.choice(["ReplicaSet", "ReplicaSet", "StatefulSet"]),
        )
    return small_of(nodes, pods)


def carried_out(planner: Planner) -> list[Eviction]:
    """All its moves."""
    return carried(planner).moves


def steering_of(small: Small, *, most: int) -> SoftTaintBudget:
    """A budget of so many nodes for the one pool."""
    cpu = small.usage.node_cpu_millicores
    return SoftTaintBudget(
        pool_of=np.zeros(len(cpu), dtype=np.int32),
        left=[most],
        hot=cpu > HIGH * small.snapshot.nodes.cpu_capacity_millicores,
    )


def simulated(small: Small, *, most: int) -> NDArray[np.bool_]:
    """(nodes,) that a simulation wants to be tainted, the relieved ones included, as a cycle does it."""
    budget = steering_of(small, most=most)
    sources = [move.in_plan.node_index for move in carried_out(planned(small, steering=budget))]
    for node in sources:
        budget.take([node])
    return budget.mask if sources else np.zeros(len(small.nodes), dtype=np.bool_)


def planned(
    small: Small, *, soft_tainted: NDArray[np.bool_] | None = None, steering: SoftTaintBudget | None = None
) -> Planner:
    """A planner before its first move."""
    return planner_for(small.snapshot, small.usage, small.policy, soft_tainted=soft_tainted, steering=steering)
