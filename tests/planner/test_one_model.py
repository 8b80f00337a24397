"""A cycle's simulation and its plan share one placement model: started over, it decides as a new one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.reason import Reason
from rebalancer.placement.cluster.kinds import Group
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from tests.builders import a_node, a_pod, a_policy, carry_out, cluster, planner_for, usage_of
from tests.placement.builders import waiting
from tests.placement.scenarios import crowded_world
from tests.placement.test_quick_plans import decisions
from tests.planner.builders.findings import Plan
from tests.planner.test_goal_properties import a_random

landing = PlacementModel._landing
WORLDS = [(8, 2), (8, 9), (8, 21), (15, 0), (15, 1), (15, 2), (15, 10), (15, 14), (15, 20), (40, 3), (120, 2)]


def state_of(model: PlacementModel, groups: Sequence[Group]) -> str:
    """Everything that is counted, of these groups of pods too, and how nodes look: as text, NaN is not equal to NaN."""
    board = model._board
    tallies = [
        [each.tolist() for each in (tally.held, tally.staying, tally.booked)] for tally in map(board.tally, groups)
    ]
    columns = [board.held, board.booked, board.whole, board.counted, board.unschedulable, model.closed, model.cordoned]
    return repr(([each.tolist() for each in columns], board.taints, tallies))


@pytest.mark.parametrize(("size", "seed"), WORLDS)
def test_after_a_simulation_the_plan_is_that_of_a_new_model(size: int, seed: int) -> None:
    world = crowded_world(seed, size)
    usage = usage_of(world.snapshot, world.nodes, world.pods)
    none, budget = np.zeros(size, dtype=np.bool_), world.steering()

    def story(model: PlacementModel, steering: SoftTaintBudget | None = None) -> Any:
        return decisions(planner_for(world.snapshot, usage, world.policy, placement=model, steering=steering), world)

    shared = PlacementModel(world.snapshot, config=world.config, soft_tainted=none)
    story(shared, budget)
    soft_tainted, cordoned = budget.mask, np.arange(size) % 5 == 4  # other cordons than the simulation's
    for view in ({"soft_tainted": soft_tainted}, {"soft_tainted": soft_tainted, "cordoned": cordoned}, {}):
        shared.start_over(**view)
        fresh = PlacementModel(world.snapshot, config=world.config, **view)
        groups = list(shared._board.kinds.groups)
        assert state_of(shared, groups) == state_of(fresh, groups)
        assert repr(story(shared)) == repr(story(fresh))


@pytest.mark.parametrize(("size", "seed"), [(8, seed) for seed in range(16)])
def test_a_plan_that_begins_with_the_soft_taints_of_the_simulation_is_that_of_a_new_model(size: int, seed: int) -> None:
    world = crowded_world(seed, size)
    usage = usage_of(world.snapshot, world.nodes, world.pods)
    none, budget = np.zeros(size, dtype=np.bool_), world.steering()
    shared = PlacementModel(world.snapshot, config=world.config, soft_tainted=none, cordoned=none)
    decisions(planner_for(world.snapshot, usage, world.policy, placement=shared, steering=budget), world)
    view = {"soft_tainted": budget.mask, "cordoned": none}
    shared.start_over(**view)
    fresh = PlacementModel(world.snapshot, config=world.config, **view)
    plans = [
        repr(decisions(planner_for(world.snapshot, usage, world.policy, placement=model), world))
        for model in (shared, fresh)
    ]
    assert plans[0] == plans[1]


def test_pending_pods_that_avoid_a_soft_tainted_node_change_the_landings() -> None:
    nodes = [a_node("hot", used=13_000.0), a_node("warm", used=9_000.0), a_node("cold", used=1_000.0)]
    pods = [
        a_pod("a", "hot", cpu=5_000, used=3_000.0, owner="web"),
        a_pod("full", "hot", cpu=11_000, used=9_000.0, owner="system", owner_kind="DaemonSet"),
        a_pod("c", "cold", cpu=10_000, used=500.0, owner="other"),
        waiting("w", cpu=4_000),  # on warm, and on cold once warm is tainted
    ]
    snapshot, policy = cluster(nodes, pods), a_policy(guards={"minReplicas": 1})
    usage, none = usage_of(snapshot, nodes, pods), np.zeros(3, dtype=np.bool_)
    budget = SoftTaintBudget(pool_of=np.zeros(3, np.int32), left=[2], hot=np.array([True, False, False]))
    model = PlacementModel(snapshot, soft_tainted=none, cordoned=none)
    carry_out(planner_for(snapshot, usage, policy, placement=model, steering=budget), snapshot)
    assert budget.mask.tolist() == [False, True, False]
    model.start_over(soft_tainted=budget.mask, cordoned=none)
    plan = carry_out(planner_for(snapshot, usage, policy, placement=model), snapshot)
    assert plan.moves == []
    assert plan.refusals["a"] == Reason.NO_NODE_WITH_HEADROOM


def test_a_second_plan_in_the_same_order_has_the_landings_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    size, seed = WORLDS[0]
    world = crowded_world(seed, size)
    usage = usage_of(world.snapshot, world.nodes, world.pods)
    model = PlacementModel(world.snapshot, config=world.config)
    found: list[object] = []
    monkeypatch.setattr(PlacementModel, "_landing", lambda self, pod: found.append(pod) or landing(self, pod))
    stories = []
    for _ in range(2):
        model.start_over()
        stories.append(repr(decisions(planner_for(world.snapshot, usage, world.policy, placement=model), world)))
        judged, found[:] = len(found), []
        assert bool(judged) == (len(stories) == 1)
    assert stories[0] == stories[1]


@pytest.mark.parametrize("number", range(40))
def test_after_a_simulation_the_same_nodes_are_emptied_as_with_a_new_model(number: int) -> None:
    made = a_random(number)
    one = made.scene()
    found = [*made.drains(one), *made.removals(one)]
    none = np.zeros(len(made.nodes), dtype=np.bool_)
    shared = PlacementModel(one.snapshot, soft_tainted=none, cordoned=none)
    budget = SoftTaintBudget(pool_of=np.zeros(len(none), dtype=np.int32), left=[2], hot=none)
    simulation = Plan(one.planner(*found, placement=shared, steering=budget), one.snapshot, budget)
    view = {"soft_tainted": budget.mask, "cordoned": simulation.planner.cordoned}
    shared.start_over(**view)
    again = Plan(one.planner(*found, placement=shared), one.snapshot, None)
    fresh = Plan(one.planner(*found, placement=PlacementModel(one.snapshot, **view)), one.snapshot, None)
    assert repr(again.moves) == repr(fresh.moves)
    assert repr(again.planner.outcome.refusals()) == repr(fresh.planner.outcome.refusals())
    assert again.cordoned == fresh.cordoned


def test_these_worlds_steer_cordon_and_hold_pending_pods() -> None:
    worlds = [crowded_world(seed, size) for size, seed in WORLDS]
    assert any((each.snapshot.pods.phase == PENDING).any() for each in worlds)
    soft_tainted, codes = 0, set()
    for world in worlds:
        usage = usage_of(world.snapshot, world.nodes, world.pods)
        budget = world.steering()
        planner = planner_for(world.snapshot, usage, world.policy, config=world.config, steering=budget)
        decisions(planner, world)
        soft_tainted += len(budget.chosen)
        codes |= {each.code for each in planner.outcome.refusals()}
    assert soft_tainted > 3
    assert Reason.PENDING_TAKES_ROOM in codes
    drained = [a_random(number) for number in range(40)]
    plans = [(one := each.scene()).plan(*each.drains(one), steering=2) for each in drained]
    assert sum(bool(each.cordoned) for each in plans) > 10
