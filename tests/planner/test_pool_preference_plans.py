"""What holds for every plan of PoolPreference, on random small clusters, whatever kube-scheduler draws."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rebalancer.model.decisions.past import Past
from rebalancer.strategies.lifecycle.pool_preference import find
from tests.builders import ANode, APod, a_node, a_pod, some_limits, view_of
from tests.planner.builders.findings import Plan, Scene, scene
from tests.planner.oracles.futures import NOWHERE, futures
from tests.strategies.test_pool_preference import looks

EXAMPLES = 60
MOST_CHANCE = 0.01
TARGET = 0.65
POOLS = [
    {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": {"high": 75, "target": 65, "low": 50}}
    for name in ("spot", "on-demand")
]
IN_SPOT = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["spot"]}]}
PREFERS = {
    "affinity": {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": IN_SPOT}]}
    }
}
POLICY: dict[str, Any] = {
    "pools": POOLS,
    "strategies": [{"name": "PoolPreference", "args": {"order": ["spot", "on-demand"]}}],
    "limits": some_limits(),
}


def a_cluster(number: int) -> tuple[list[ANode], list[APod], set[str]]:
    """Spot nodes that are warm without a request, and pods that prefer them, have no preference, or repel each other.
    Last the nodes that have had room for long enough. The same for the same number."""
    rng = random.Random(number)
    spots = [f"s{at}" for at in range(rng.randint(1, 3))]
    others = [f"d{at}" for at in range(rng.randint(1, 2))]
    nodes = [a_node(name, cpu=8_000.0, labels={"pool": "spot"}) for name in spots]
    nodes += [a_node(name, cpu=8_000.0, labels={"pool": "on-demand"}) for name in others]
    pods = []
    for name in spots:
        # by requests it is empty
        warm = rng.choice([500.0, 3_000.0, 4_500.0, 5_500.0])
        pods.append(a_pod(f"warm-{name}", name, owner=f"warm-{name}", cpu=50.0, used=warm))
    for at in range(rng.randint(1, 5)):
        owner, template = f"own-{rng.randint(0, 2)}", PREFERS if rng.random() < 0.7 else {}
        cpu, used = rng.choice([500.0, 1_000.0, 3_000.0]), rng.choice([200.0, 700.0, 1_500.0])
        pods.append(a_pod(f"p{at}", rng.choice(others), owner=f"{owner}-{at}", cpu=cpu, used=used, template=template))
    return nodes, pods, {name for name in spots if rng.random() < 0.8}


def planned(number: int) -> tuple[Scene, Plan, set[str]]:
    nodes, pods, old = a_cluster(number)
    one = scene(nodes, pods, policy=POLICY)
    past = Past(requested=looks(*sorted(old), *(node.name for node in nodes if node.name.startswith("d"))))
    found = find(view_of(one.snapshot, one.usage, one.policy, past=past))
    return one, one.plan(found=[found]), old


def test_no_landing_is_outside_of_the_better_pool_or_takes_a_node_over_its_target() -> None:
    seen: Counter[str] = Counter()

    @seed(7)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(number=st.integers(0, 100_000))
    def run(number: int) -> None:
        one, plan, old = planned(number)
        cpu, names = one.usage.pod_cpu_millicores, one.snapshot.nodes.names
        load = one.usage.node_cpu_millicores.copy()
        room = TARGET * one.snapshot.nodes.cpu_capacity_millicores * (1 + 1e-6)
        pods = [move.in_plan.pod_index for move in plan.moves]
        for move, draws in zip(plan.moves, futures(one.snapshot, pods, cpu), strict=True):
            pod = move.in_plan.pod_index
            load[move.in_plan.node_index] -= cpu[pod]
            wrong = 0.0
            for draw in draws:
                came = sum(cpu[other] for other, node in draw.before if node == draw.node)
                there = draw.node != NOWHERE and names[draw.node] in old
                wrong += 0.0 if there and load[draw.node] + came + cpu[pod] <= room[draw.node] else draw.chance
            assert wrong <= MOST_CHANCE, f"a_cluster({number}): {move.pod}"
        seen["with moves"] += bool(plan.moves)
        seen["drawn"] += len(plan.moves) > 1
        seen["refused"] += bool(plan.refused)
        seen["all"] += 1

    run()
    assert seen["with moves"] >= 0.3 * seen["all"], seen
    assert min(seen["drawn"], seen["refused"]) > 0, seen


@pytest.mark.parametrize(("prefers", "moved"), [(True, ["p0"]), (False, [])])
def test_a_pod_that_may_land_elsewhere_stays(prefers: bool, moved: list[str]) -> None:
    """By requests the on-demand node is as free as the spot node."""
    nodes = [
        a_node("s", labels={"pool": "spot"}),
        *(a_node(name, labels={"pool": "on-demand"}) for name in ("d", "e")),
    ]
    one = scene(nodes, [a_pod("p0", "d", owner="web", used=100.0, template=PREFERS if prefers else {})], policy=POLICY)
    found = find(view_of(one.snapshot, one.usage, one.policy, past=Past(requested=looks("s", "d", "e"))))
    plan = one.plan(found=[found])
    assert plan.pods == moved
    assert moved or plan.codes == {"p0": "TargetNodeNotBetter"}
    # with a soft taint on the other one it goes
    assert np.array_equal(found.findings[0].landing.only, one.mask("s"))
    assert one.plan(found=[found], soft_tainted=one.mask("e", "d")).pods == ["p0"]
