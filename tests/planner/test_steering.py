"""Which nodes a simulation steers the scheduler away from, and what the plan then does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.steering import CHOSEN, HOT, NO_ROOM
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from tests.builders import ANode, APod, a_policy, some_limits
from tests.planner.builders.plans import ANY_REPLICAS, cold, heavy, hot, single
from tests.planner.scenarios.small_clusters import (
    Small,
    carried_out,
    planned,
    simulated,
    small_cluster,
    small_of,
    steering_of,
)

CLUSTERS = range(100)
TOLERATES_ALL = {"tolerations": [{"operator": "Exists"}]}


def comes_back(**fields: Any) -> tuple[list[ANode], list[APod]]:
    """By requests the hot node is empty but for the pod."""
    return [hot(), cold()], [heavy("cold"), single("a", used=3_000.0, **fields)]


def warm_ones(*requests: float) -> tuple[list[ANode], list[APod]]:
    """Nodes with such requests, too warm for the pod, all preferred to the only one with room."""
    names = [f"warm{index}" for index in range(len(requests))]
    nodes = [hot(), *(cold(name, used=10_000.0) for name in names), cold()]
    agents = [heavy(name, cpu) for name, cpu in zip(names, requests, strict=True) if cpu]
    return nodes, [heavy("hot"), heavy("cold"), *agents, single("a", used=3_000.0)]


def simulate(small: Small, *, most: int) -> tuple[list[tuple[str, str]], dict[str, str], dict[str, str]]:
    """(pod, likeliest landing) of each move, node -> why it is soft_tainted away from, pod -> why it stays."""
    budget, names = steering_of(small, most=most), small.snapshot.nodes.names
    planner = planned(small, steering=budget)
    moves = [(move.pod, move.target_node) for move in carried_out(planner)]
    return (
        moves,
        {names[node]: why for node, why in budget.chosen.items()},
        {each.name: str(each.code) for each in planner.outcome.refusals()},
    )


# ---- the simulation


def test_a_simulation_steers_away_from_the_node_that_would_take_its_pod_back() -> None:
    assert simulate(small_of(*comes_back()), most=1)[:2] == ([("a", "cold")], {"hot": HOT})


@pytest.mark.parametrize("requests", [(0,), (0, 0), (0, 1_600)], ids=["one", "two alike", "one after the other"])
def test_a_simulation_steers_away_from_nodes_that_are_empty_by_requests_but_warm(requests: tuple[float, ...]) -> None:
    moves, soft_tainted, _ = simulate(small_of(*warm_ones(*requests)), most=2)
    assert moves == [("a", "cold")]
    assert soft_tainted == {f"warm{index}": NO_ROOM for index in range(len(requests))}


def test_nothing_is_steered_away_from_where_nothing_stands_in_the_way() -> None:
    nodes, pods = [hot(), cold()], [heavy("hot"), single("a", used=3_000.0)]
    assert simulate(small_of(nodes, pods), most=2)[:2] == ([("a", "cold")], {})


def test_all_nodes_that_stand_in_a_pods_way_are_steered_away_from_or_none() -> None:
    small = small_of(*warm_ones(0, 0))
    moves, soft_tainted, stays = simulate(small, most=1)
    assert (moves, soft_tainted, stays["a"]) == ([], {}, "TargetNodeWithoutHeadroom")


def test_it_is_all_or_none_too_when_a_node_comes_into_the_way_only_after_another() -> None:
    small = small_of(*warm_ones(0, 1_600))
    moves, soft_tainted, stays = simulate(small, most=1)
    assert (moves, stays["a"]) == ([], "TargetNodeWithoutHeadroom")
    assert soft_tainted == {}


def test_a_pod_that_tolerates_everything_is_not_steered_and_stays() -> None:
    small = small_of(*comes_back(template=TOLERATES_ALL))
    moves, _, stays = simulate(small, most=2)
    assert (moves, stays["a"]) == ([], "WouldReturnToNode")
    assert not simulated(small, most=2).any()


def test_a_pod_that_tolerates_everything_doesnt_use_up_what_another_needs() -> None:
    # both would go to a warm node of their own disk; "a" comes first, and no taint keeps it away from there
    nodes, pods = [hot()], [heavy("hot")]
    for disk in ("hdd", "ssd"):
        labels = {"pool": "general", "disk": disk}
        nodes += [cold(f"warm-{disk}", used=10_000.0, labels=labels), cold(f"cold-{disk}", labels=labels)]
        pods.append(heavy(f"cold-{disk}"))
    pods.append(single("a", used=3_000.0, template={**TOLERATES_ALL, "nodeSelector": {"disk": "hdd"}}))
    pods.append(single("b", used=3_000.0, template={"nodeSelector": {"disk": "ssd"}}))
    moves, soft_tainted, _ = simulate(small_of(nodes, pods), most=1)
    assert moves == [("b", "cold-ssd")]
    assert soft_tainted == {"warm-ssd": NO_ROOM}


# ---- without it


@pytest.mark.parametrize("world", [comes_back(), warm_ones(0), warm_ones(0, 1_600)])
def test_without_steering_only_landings_that_hold_by_themselves_are_used(
    world: tuple[list[ANode], list[APod]],
) -> None:
    small = small_of(*world)
    assert carried_out(planned(small)) == []
    assert carried_out(planned(small, soft_tainted=np.zeros(len(small.nodes), dtype=np.bool_))) == []


# ---- then the plan


def test_the_plan_under_the_taints_makes_the_moves_of_the_simulation() -> None:
    for world in (comes_back(), warm_ones(0), warm_ones(0, 1_600)):
        small = small_of(*world)
        moves = carried_out(planned(small, soft_tainted=simulated(small, most=3)))
        assert [(move.pod, move.target_node) for move in moves] == [("a", "cold")]


def test_hardly_ever_does_the_plan_make_other_moves_than_its_simulation() -> None:
    # the simulation's first moves are made before the last node is tainted, so that landings may differ
    simulations, same = 0, 0
    for number in CLUSTERS:
        small = small_cluster(number)
        simulation = {move.pod for move in carried_out(planned(small, steering=steering_of(small, most=2)))}
        plan = {move.pod for move in carried_out(planned(small, soft_tainted=simulated(small, most=2)))}
        simulations, same = simulations + bool(simulation), same + bool(simulation and simulation == plan)
    print(f"{same} of {simulations} plans make just the moves of their simulations")
    assert simulations >= 0.75 * len(CLUSTERS)
    assert same >= 0.9 * simulations


def test_a_simulation_never_taints_more_of_the_pool_than_it_may() -> None:
    for number in CLUSTERS:
        small = small_cluster(number)
        for most in (0, 1, 2):
            budget = steering_of(small, most=most)
            carried_out(planned(small, steering=budget))
            assert len(budget.chosen) == most - budget.left[0] <= most
            assert np.flatnonzero(budget.mask).tolist() == sorted(budget.chosen)


def test_without_any_taints_to_give_a_simulation_is_the_plan() -> None:
    for number in CLUSTERS:
        small = small_cluster(number)
        assert carried_out(planned(small, steering=steering_of(small, most=0))) == carried_out(planned(small))


# ---- the budget


def a_budget(*left: int, pools: tuple[int, ...], hot: tuple[int, ...] = ()) -> SoftTaintBudget:
    return SoftTaintBudget(
        pool_of=np.array(pools, dtype=np.int32), left=list(left), hot=np.isin(np.arange(len(pools)), hot)
    )


def test_nodes_that_people_gave_up_do_not_count_against_the_share() -> None:
    budget = a_budget(1, pools=(0, 0, 0, 0))
    budget.free = np.array([True, True, False, False])
    assert budget.take([0, 1, 2])
    assert budget.left == [0]
    assert not budget.take([3])
    assert budget.chosen == {0: CHOSEN, 1: CHOSEN, 2: NO_ROOM}
    budget.give_back([0, 2])
    assert budget.left == [1]
    assert budget.take([3])
    assert budget.take([0])


def test_each_pool_has_its_own_share() -> None:
    budget = a_budget(1, 2, pools=(0, 0, 1, 1, 1), hot=(2,))
    assert not budget.take([0, 1])
    assert budget.take([0, 2, 3])
    assert not budget.take([4])
    assert budget.chosen == {0: NO_ROOM, 2: HOT, 3: NO_ROOM}
    assert budget.left == [0, 0]
    assert budget.mask.tolist() == [True, False, True, True, False]


def test_a_node_in_no_pool_is_never_tainted_and_keeps_those_beside_it_from_it() -> None:
    budget = a_budget(5, pools=(0, -1))
    assert not budget.take([0, 1])
    assert not budget.take([1])
    assert (budget.chosen, budget.left) == ({}, [5])


def test_a_node_that_is_tainted_already_costs_nothing_more() -> None:
    budget = a_budget(2, pools=(0, 0, 0))
    assert budget.take([0])
    assert budget.take([0, 1])
    assert budget.left == [0]
    # to taint them again would change nothing
    assert not budget.take([0, 1])
    assert not budget.take([])
    assert budget.left == [0]


# ---- nodes that start as many replacements as they may


@pytest.mark.parametrize(("most", "landings"), [(0, ["a", "a"]), (1, ["a", "a", "b", "b"])])
def test_replacements_go_to_the_next_node_where_one_starts_as_many_as_it_may(most: int, landings: list[str]) -> None:
    nodes = [hot(), cold("a"), cold("b")]
    pods = [heavy("hot", 13_000), heavy("b", 6_000), *(single(f"p{at}", used=750.0, cpu=500) for at in range(4))]
    limits = {**some_limits(), "replacements": {"perNode": 2}}
    small = replace(small_of(nodes, pods), policy=a_policy(**ANY_REPLICAS, limits=limits))
    moves, _, refused = simulate(small, most=most)
    assert sorted(node for _, node in moves) == landings
    assert [code for code in refused.values() if code != "DaemonSetPod"] == ["LimitReplacements"] * (4 - len(moves))


def test_once_replacements_are_ready_the_first_node_takes_more() -> None:
    nodes = [hot(), cold("a"), cold("b")]
    small = small_of(nodes, [heavy("hot", 13_000), heavy("b", 6_000), single("p", used=3_000.0)])
    planner = planned(small, steering=steering_of(small, most=1))
    landings = planner.state.landings
    node = small.snapshot.node_index["a"]
    assert landings.avoid(node)
    assert not landings.avoid(node)
    planner.state.land(())
    assert [(move.pod, move.target_node) for move in carried_out(planner)] == [("p", "a")]
