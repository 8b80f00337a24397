"""Room for pending pods beside an exact solver: random clusters at 90% of their requests with CPU and GPU pods Pending.

MakeRoom plans over each cluster once. HiGHS (`scipy.optimize.milp`) knows no scheduler: it chooses the places of the
moved pods itself, on any node, over the same requests and budgets. Of the pending pods that it can place MakeRoom must
place most, with few more moves than it needs for as many. Each plan is carried out on paper: no budget may be broken,
and no pod may be left without a place.

Prints one JSON object a line; exit code 1 when an aim is missed.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.model.cluster.objects import LabelSelector
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.snapshot import DisruptionBudget
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner import Choice, PlanInput, Planner
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.plan.search import Simulated, carry_out
from rebalancer.policy.pools import NodePools
from rebalancer.strategies import strategy_for
from rebalancer.testing import GIB, NOW, FakeNode, FakePod, node, pod, policy, snapshot, usage, view

GPU = "nvidia.com/gpu"
FULL = 0.9
PLACED, MOVES = 0.8, 1.3
"""Aims: the share of the pods that the solver places; moves, in those that it needs for as many pods."""
SECONDS = 60.0
"""Time limit of the solver for a cluster."""
COUNTS = ("clusters", "unsolved", "pending", "placeable", "placed", "moves", "fewest_moves")
NEVER = ("budgets_broken", "without_a_place")
POLICY = policy(strategies=[{"name": "MakeRoom", "args": {"maxMoves": 10}}], guards={"minReplicas": 1})


@dataclass(frozen=True, kw_only=True)
class Cluster:
    nodes: list[FakeNode]
    pods: list[FakePod]
    """The pending ones have no node."""
    budgets: list[DisruptionBudget]

    @property
    def running(self) -> list[FakePod]:
        return [each for each in self.pods if each.node]

    @property
    def pending(self) -> list[FakePod]:
        return [each for each in self.pods if not each.node]


def amounts(each: FakePod) -> tuple[float, float, float]:
    """CPU in cores, memory in GiB, GPUs."""
    return each.cpu / 1000, each.memory / GIB, float(each.template.get("extendedRequests", {}).get(GPU, 0.0))


def has(each: FakeNode) -> tuple[float, float, float]:
    """The same of a node."""
    return each.cpu / 1000, each.memory / GIB, each.extended.get(GPU, 0.0)


def a_pod(name: str, on: str, service: str, cpu: float, gpus: int, **fields: Any) -> FakePod:
    """GPU pods run on GPU nodes only, and no others do."""
    template: dict[str, Any] = {"nodeSelector": {"gpu": "yes" if gpus else "no"}}
    if gpus:
        template["extendedRequests"] = {GPU: float(gpus)}
    given = {"memory": cpu / 1000 * 2 * GIB, "used": 0.3 * cpu, "template": template, **fields}
    return pod(name, on, owner=service, cpu=cpu, **given)


def a_cluster(nodes: int, *, seed: int) -> Cluster:
    """A quarter of the nodes have GPUs. Services have two to eight replicas, and a budget of one disruption."""
    rng = random.Random(seed)
    made = [
        node(
            f"n{at:03}",
            cpu=64_000.0 if at % 4 == 0 else 16_000.0,
            memory=(128.0 if at % 4 == 0 else 64.0) * GIB,
            extended={GPU: 8.0} if at % 4 == 0 else {},
            labels={"pool": "general", "gpu": "yes" if at % 4 == 0 else "no"},
        )
        for at in range(nodes)
    ]
    free = {each.name: list(has(each)) for each in made}
    pods: list[FakePod] = []
    services = 0
    for kind, column in (("yes", 2), ("no", 0)):
        mine = [each for each in made if each.labels["gpu"] == kind]
        room = sum(has(each)[column] for each in mine)
        held = 0.0
        misses = 0
        while held < FULL * room and misses < 200:
            services += 1
            gpus = rng.choice([1, 1, 2, 4]) if kind == "yes" else 0
            cpu = 2_000.0 * gpus if gpus else rng.choice([250.0, 500.0, 500.0, 1_000.0, 1_000.0, 2_000.0, 4_000.0])
            for replica in range(rng.randint(2, 8)):
                new = a_pod(f"s{services}-{replica}", "", f"s{services}", cpu, gpus)
                size = amounts(new)
                able = [each for each in mine if all(map(float.__ge__, free[each.name], size))]
                if not able or held >= FULL * room:
                    misses += 1
                    break
                new.node = rng.choice(able).name
                free[new.node] = [left - amount for left, amount in zip(free[new.node], size, strict=True)]
                held += size[column]
                pods.append(new)
    state = {"phase": PENDING, "ready": False, "started": False, "unschedulable": True}
    most = {
        kind: max(free[each.name][column] for each in made if each.labels["gpu"] == kind)
        for kind, column in (("yes", 2), ("no", 0))
    }
    for at in range(max(nodes // 10, 2)):
        gpus = 0
        cpu = 500.0 * (int(2 * most["no"]) + rng.randint(1, 4))
        if at % 2 == 0:
            gpus = min(int(most["yes"]) + rng.randint(1, 2), 8)
            cpu = 2_000.0 * gpus
        pods.append(a_pod(f"waits-{at}", "", f"waits-{at}", cpu, gpus, age=600.0 - at, **state))
    names = sorted({each.owner for each in pods if each.node})
    budgets = [
        DisruptionBudget(
            namespace="shop", name=name, selector=LabelSelector(match_labels={"app": name}), disruptions_allowed=1
        )
        for name in names
    ]
    return Cluster(nodes=made, pods=pods, budgets=budgets)


def planned(cluster: Cluster) -> tuple[Simulated, float]:
    """The plan of MakeRoom alone, and its CPU seconds."""
    began = time.process_time()
    seen = snapshot(cluster.nodes, cluster.pods, budgets=cluster.budgets)
    used = usage(seen, cluster.nodes, cluster.pods)
    looked = view(seen, used, POLICY)
    pools = NodePools.of(POLICY.pools, seen.nodes)
    budget = SoftTaintBudget(
        pool_of=pools.of_node, left=[len(cluster.nodes)], hot=np.zeros(len(cluster.nodes), dtype=np.bool_)
    )
    plan_input = PlanInput(
        snapshot=seen,
        found=[strategy_for(POLICY.strategies[0])(looked)],
        cpu_millicores=used.pod_cpu_millicores,
        pools=pools.names,
        base=looked.base,
    )
    admission = EvictionAdmission(
        policy=POLICY, snapshot=seen, pool_of=pools.of_node, ledger_state=LedgerState(), now=NOW
    )
    planner = Planner(plan_input, placement=PlacementModel(seen), admission=admission, steering=budget)
    return carry_out(planner, Choice()), time.process_time() - began


def carried_out(cluster: Cluster, plan: Simulated) -> tuple[int, int, int]:
    """(pending pods with room, budgets that are broken, pods without a place) on paper."""
    names = [each.name for each in cluster.nodes]
    free = {each.name: np.array(has(each)) for each in cluster.nodes}
    for each in cluster.running:
        free[each.node] -= amounts(each)
    state = plan.planner.state
    disrupted: Counter[str] = Counter()
    homeless = 0
    placed, room_on = 0, dict[int, str]()
    for each in state.planned:
        moved = cluster.pods[each.pod]
        target = names[int(state.placed[each.pod].winners[0])]
        size = np.array(amounts(moved))
        homeless += bool((free[target] < size - 1e-9).any())
        free[target] -= size
        free[moved.node] += size
        disrupted[moved.owner] += 1
        assert each.room_for is not None
        room_on[each.room_for] = moved.node
    for waits, where in room_on.items():
        size = np.array(amounts(cluster.pods[waits]))
        placed += not bool((free[where] < size - 1e-9).any())
        free[where] -= size
    return placed, sum(count > 1 for count in disrupted.values()), homeless


def solved(cluster: Cluster, *, at_least: int | None = None) -> tuple[int, int] | None:
    """(most pending pods that moves can place, fewest moves for that), or with `at_least` the fewest moves for so
    many; None where the solver's time is up. Where a moved pod lands is free within its kind of nodes."""
    running, waits, nodes = cluster.running, cluster.pending, cluster.nodes
    sizes = sorted({amounts(each) for each in running})
    count, at = len(running), {each.name: index for index, each in enumerate(nodes)}
    fits = [[(size[2] > 0) == (each.extended != {}) for each in nodes] for size in sizes]
    landing = count + np.arange(len(sizes) * len(nodes)).reshape(len(sizes), len(nodes))
    placed = landing.size + count + np.arange(len(waits) * len(nodes)).reshape(len(waits), len(nodes))
    size = count + landing.size + placed.size
    rows: list[tuple[dict[int, float], float, float]] = []
    for index, each in enumerate(nodes):
        mine = [pod for pod, other in enumerate(running) if at[other.node] == index]
        for column in range(3):
            terms = {pod: -amounts(running[pod])[column] for pod in mine}
            terms |= {int(landing[kind, index]): kind_size[column] for kind, kind_size in enumerate(sizes)}
            terms |= {int(placed[pod, index]): amounts(other)[column] for pod, other in enumerate(waits)}
            left = has(each)[column] - sum(amounts(running[pod])[column] for pod in mine)
            rows.append((terms, -np.inf, left))
    for kind, kind_size in enumerate(sizes):
        terms = {int(each): 1.0 for each in landing[kind]}
        terms |= {pod: -1.0 for pod, each in enumerate(running) if amounts(each) == kind_size}
        rows.append((terms, 0.0, 0.0))
    rows += [({int(each): 1.0 for each in placed[pod]}, 0.0, 1.0) for pod in range(len(waits))]
    for service in {each.owner for each in running}:
        rows.append(({pod: 1.0 for pod, each in enumerate(running) if each.owner == service}, 0.0, 1.0))
    cost = np.zeros(size)
    cost[:count] = 1.0
    if at_least is None:
        cost[placed.ravel()] = -1_000.0
    else:
        rows.append(({int(each): 1.0 for each in placed.ravel()}, float(at_least), np.inf))
    upper = np.ones(size)
    upper[landing.ravel()] = np.where(np.array(fits), 100.0, 0.0).ravel()
    kinds = [[(amounts(other)[2] > 0) == (each.extended != {}) for each in nodes] for other in waits]
    upper[placed.ravel()] = np.where(np.array(kinds), 1.0, 0.0).ravel()
    matrix = _matrix([terms for terms, _, _ in rows], size)
    limits = LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])
    found = milp(
        cost, constraints=limits, integrality=np.ones(size), bounds=Bounds(0.0, upper), options={"time_limit": SECONDS}
    )
    if found.status != 0:
        return None
    return round(float(found.x[placed.ravel()].sum())), round(float(found.x[:count].sum()))


def _matrix(rows: Sequence[dict[int, float]], size: int) -> Any:
    values = [(row, column, value) for row, terms in enumerate(rows) for column, value in terms.items()]
    row, column, value = zip(*values, strict=True)
    return coo_array((value, (row, column)), shape=(len(rows), size)).tocsc()


def main() -> int:
    """Print the figures of all clusters, and whether the aims are met."""
    parser = argparse.ArgumentParser(prog="bench room", description=__doc__.split("\n")[0])
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sums: Counter[str] = Counter()
    seconds = 0.0
    for seed in range(options.seed, options.seed + options.clusters):
        cluster = a_cluster(options.nodes, seed=seed)
        best = solved(cluster)
        if best is None:
            sums["unsolved"] += 1
            continue
        plan, took = planned(cluster)
        seconds = max(seconds, took)
        placed, broken, homeless = carried_out(cluster, plan)
        fewest = solved(cluster, at_least=placed)
        if fewest is None:
            sums["unsolved"] += 1
            continue
        sums.update(
            clusters=1, pending=len(cluster.pending), placeable=best[0], placed=placed, moves=len(plan.moves),
            fewest_moves=fewest[1], budgets_broken=broken, without_a_place=homeless,
        )  # fmt: skip
    missed = False

    def say(figure: str, value: float, aim: float | None = None, *, holds: bool = True) -> None:
        nonlocal missed
        missed |= not holds
        line = {"bench": "room", "figure": figure, "value": round(value, 3), "aim": aim, "holds": holds}
        print(json.dumps(line), flush=True)

    share = sums["placed"] / max(sums["placeable"], 1)
    ratio = sums["moves"] / max(sums["fewest_moves"], 1)
    for name in COUNTS:
        say(name.replace("_", " "), sums[name])
    say("placed of those that the solver places", share, PLACED, holds=share >= PLACED)
    say("moves in the fewest", ratio, MOVES, holds=ratio <= MOVES)
    for name in NEVER:
        say(name.replace("_", " "), sums[name], 0, holds=not sums[name])
    say("most CPU seconds of a plan", seconds)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
