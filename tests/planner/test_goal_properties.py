"""What holds for every plan of findings that don't cool, on random small clusters."""

import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rebalancer.model.decisions.plan import Finding, Goal
from tests.builders import ANode, APod, a_budget, a_node, some_limits
from tests.planner.builders.findings import Plan, Scene, scene
from tests.planner.builders.plans import heavy, single

EXAMPLES = 40
VETO = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
QUIET = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True, kw_only=True)
class Random:
    """A cluster, and what is asked of it by name, so that it can be listed in any order."""

    number: int
    nodes: list[ANode]
    pods: list[APod]
    limits: dict[str, int]
    wanted: int | None
    only: list[str]
    at_most: int | None

    @property
    def old(self) -> list[str]:
        return [node.name for node in self.nodes if node.name.startswith("old")]

    def scene(self, shuffle: int | None = None) -> Scene:
        nodes, pods = list(self.nodes), list(self.pods)
        if shuffle is not None:
            random.Random(shuffle).shuffle(nodes)
            random.Random(shuffle + 1).shuffle(pods)
        budgets = [a_budget(f"pdb-{pod.name}", f"own-{pod.name}", self.number % 2) for pod in self.pods[:1]]
        return scene(nodes, pods, policy={"limits": some_limits(**self.limits)}, budgets=budgets)

    def removals(self, one: Scene) -> list[Finding]:
        rule = {"only": one.mask(*self.only)} if self.only else {"elsewhere": self.number % 3 > 0}
        return [one.finding(node, *self.on(node), rule=rule, wanted=self.wanted) for node in self.old]

    def drains(self, one: Scene) -> list[Finding]:
        return [one.finding(node, *self.on(node), goal=Goal.EMPTY) for node in self.old]

    def on(self, node: str) -> list[str]:
        return sorted(pod.name for pod in self.pods if pod.node == node and pod.owner_kind != "DaemonSet")


def a_random(number: int) -> Random:
    """The same for the same number."""
    rng = random.Random(number)
    names = [f"old{at}" for at in range(rng.randint(1, 3))]
    others = [f"n{at}" for at in range(rng.randint(1, 4))]
    nodes = [a_node(name, used=rng.choice([1_000.0, 4_000.0])) for name in names]
    nodes += [a_node(name, used=rng.choice([1_000.0, 6_000.0, 8_500.0, 9_800.0, 13_000.0])) for name in others]
    pods = [heavy(name, rng.choice([500.0, 4_000.0, 9_000.0])) for name in (*names, *others) if rng.random() < 0.6]
    for name in names:
        for at in range(rng.randint(1, 4)):
            template = VETO if rng.random() < 0.08 else {}
            used, cpu = rng.choice([100.0, 500.0, 1_500.0]), rng.choice([0.0, 500.0, 3_000.0])
            pods.append(single(f"{name}-p{at}", name, used=used, cpu=cpu, ready=rng.random() < 0.95, template=template))
    limits = {"cycle": rng.choice([1, 2, 1000]), "node": rng.choice([1, 1000])}
    only = rng.sample(others, rng.randint(0, len(others)))
    wanted, at_most = rng.choice([None, 1, 2]), rng.choice([None, 1, 2])
    return Random(number=number, nodes=nodes, pods=pods, limits=limits, wanted=wanted, only=only, at_most=at_most)


@seed(21)
@QUIET
@given(number=st.integers(0, 10**6))
def test_a_node_that_can_not_be_emptied_loses_no_pod_whatever_the_limits(number: int) -> None:
    world = a_random(number)
    one = world.scene()
    simulation, plan = one.simulated(*world.drains(one), empty_at_most=world.at_most)
    begun = set(plan.cordoned)
    assert begun <= set(simulation.cordoned)
    assert {move.node for move in (*plan.moves, *simulation.moves)} <= set(simulation.cordoned)
    assert world.at_most is None or len(begun) <= world.at_most
    # without limits each of these loses everything, and every landing holds
    free = replace(world, limits={})
    again = free.scene()
    for node in begun:
        alone = again.plan(
            again.finding(node, *free.on(node), goal=Goal.EMPTY),
            cordoned=again.mask(*simulation.cordoned),
            soft_tainted=simulation.budget.mask if simulation.budget is not None else None,
        )
        if alone.cordoned:
            assert sorted(alone.pods) == free.on(node)
            assert not set().union(*alone.landings.values()) & set(simulation.cordoned)
    for node in set(world.old) - begun:
        assert not any(move.node == node for move in plan.moves)
        assert all(plan.refused[pod].message for pod in world.on(node))


def test_enough_of_these_nodes_are_emptied_and_enough_are_not() -> None:
    seen: Counter[bool] = Counter()
    for number in range(40):
        world = a_random(number)
        one = world.scene()
        simulation, plan = one.simulated(*world.drains(one), empty_at_most=world.at_most)
        seen.update(node in plan.cordoned for node in world.old)
        assert set(plan.cordoned) <= set(simulation.cordoned)
        assert bool(plan.moves) == bool(plan.cordoned)
    assert min(seen[True], seen[False]) >= 15


@seed(22)
@QUIET
@given(number=st.integers(0, 10**6))
def test_a_removal_takes_what_is_wanted_at_most_and_lands_where_it_repairs(number: int) -> None:
    world = a_random(number)
    one = world.scene()
    for plan in one.simulated(*world.removals(one)):
        by_node = Counter(move.node for move in plan.moves)
        assert world.wanted is None or max(by_node.values(), default=0) <= world.wanted
        for move in plan.moves:
            landings = plan.landings[move.pod]
            assert not world.only or landings <= set(world.only)
            assert world.number % 3 == 0 or move.node not in landings
            assert 0.98 < sum(each.probability for each in move.target_nodes) <= 1 + 1e-9
        _stays_at_targets(world, plan)
        moved = set(plan.pods)
        assert {pod for node in world.old for pod in world.on(node)} == moved | plan.codes.keys()


def _stays_at_targets(world: Random, plan: Plan) -> None:
    """No node that a pod came to for sure is over its target, and none is hot."""
    used = {node.name: float(node.used or 0.0) for node in world.nodes}
    brings = {pod.name: pod.used for pod in world.pods}
    for move in plan.moves:
        landings = plan.landings[move.pod]
        used[move.node] -= brings[move.pod]
        for name in landings - {move.node}:
            assert used[name] + brings[move.pod] <= 10_400.0 + 1e-3
        if len(landings) == 1:
            used[next(iter(landings))] += brings[move.pod]


@seed(23)
@QUIET
@given(number=st.integers(0, 10**6), shuffle=st.integers(0, 100))
def test_a_plan_is_the_same_in_whatever_order_the_cluster_is_listed(number: int, shuffle: int) -> None:
    world = a_random(number)
    told = []
    for way in (None, shuffle):
        one = world.scene(way)
        findings = [*world.drains(one), *world.removals(one)]
        simulation, plan = one.simulated(*findings, empty_at_most=world.at_most)
        assert simulation.budget is not None
        soft_tainted = sorted(one.snapshot.nodes.names[node] for node in simulation.budget.chosen)
        told.append((plan.pods, plan.landings, plan.codes, sorted(plan.cordoned), simulation.codes, soft_tainted))
    assert told[0] == told[1]


def test_some_of_these_plans_move_something_and_some_of_the_pods_stay() -> None:
    moved = np.array([len(one.plan(*world.removals(one)).moves) for world, one in _some()])
    assert (moved > 0).mean() > 0.4
    assert (moved == 0).any()


def _some() -> list[tuple[Random, Scene]]:
    worlds = [a_random(number) for number in range(30)]
    return [(world, world.scene()) for world in worlds]
