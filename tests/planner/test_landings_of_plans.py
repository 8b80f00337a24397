"""What a plan promises of its landings, held against every course that the scheduler's draws can take."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rebalancer.model.decisions.eviction import Eviction
from tests.builders import replicas
from tests.planner.builders.plans import cold, heavy, hot, single
from tests.planner.oracles.futures import NOWHERE, Draw, futures
from tests.planner.scenarios.small_clusters import Small, carried_out, planned, simulated, small_cluster, small_of

CLUSTERS = range(150)
MOST_CHANCE = 0.01
SLACK = 1 + 1e-6


@dataclass
class Tried:
    """What came of a plan's moves, over all courses."""

    moves: int = 0
    uncertain: int = 0
    """Moves before or at which anything was drawn."""
    as_foretold: float = 0.0
    """Expected number of landings on the node that was named as likeliest."""
    not_listed: float = 0.0
    """Expected number on nodes that the move did not name."""
    over: list[tuple[str, str, float]] = field(default_factory=list)
    """(pod, node, chance that its landing takes the node over its target)"""
    back: list[tuple[str, float]] = field(default_factory=list)
    """(pod, chance that it returns)"""
    homeless: list[tuple[str, float]] = field(default_factory=list)
    """(pod, chance that it fits nowhere)"""

    def see(self, small: Small, move: Eviction, draws: list[Draw], sure: NDArray[np.float64]) -> None:
        """`sure` (nodes,) millicores less all that has left."""
        cpu, names = small.usage.pod_cpu_millicores, small.snapshot.nodes.names
        assert sum(draw.chance for draw in draws) == pytest.approx(1.0)
        over: dict[int, float] = defaultdict(float)
        lands: dict[int, float] = defaultdict(float)
        for draw in draws:
            lands[draw.node] += draw.chance
            came = sum(cpu[pod] for pod, node in draw.before if node == draw.node)
            load = sure[draw.node] + cpu[move.in_plan.pod_index] + came
            if draw.node != NOWHERE and load > small.targets[draw.node] * SLACK:
                over[draw.node] += draw.chance
        self.moves += 1
        self.uncertain += len(draws) > 1
        self.as_foretold += lands[small.snapshot.node_index[move.target_node]]
        self.not_listed += 1 - sum(lands[small.snapshot.node_index[each.node]] for each in move.target_nodes)
        self.over += [(move.pod, names[node], chance) for node, chance in over.items() if chance > MOST_CHANCE]
        self.back += (
            [(move.pod, lands[move.in_plan.node_index])] if lands[move.in_plan.node_index] > MOST_CHANCE else []
        )
        self.homeless += [(move.pod, lands[NOWHERE])] if lands[NOWHERE] > MOST_CHANCE else []


def tried(small: Small, moves: list[Eviction], soft_tainted: NDArray[np.bool_] | None = None) -> Tried:
    """Follow every course of a plan to its end."""
    out, cpu = Tried(), small.usage.pod_cpu_millicores
    sure = small.usage.node_cpu_millicores.copy()
    courses = futures(small.snapshot, [move.in_plan.pod_index for move in moves], cpu, soft_tainted=soft_tainted)
    for move, draws in zip(moves, courses, strict=True):
        sure[move.in_plan.node_index] -= cpu[move.in_plan.pod_index]
        out.see(small, move, draws, sure)
    return out


@pytest.mark.parametrize("tainted", [0, 2])
def test_whatever_is_drawn_no_landing_goes_over_its_target_and_no_pod_returns(tainted: int) -> None:
    plans, moves, uncertain, foretold, unlisted = 0, 0, 0, 0.0, 0.0
    for number in CLUSTERS:
        small = small_cluster(number)
        soft_tainted = simulated(small, most=tainted) if tainted else None
        plan = carried_out(planned(small, soft_tainted=soft_tainted))
        seen = tried(small, plan, soft_tainted)
        assert (seen.over, seen.back, seen.homeless) == ([], [], []), f"small_cluster({number})"
        plans, moves, uncertain = plans + bool(plan), moves + seen.moves, uncertain + seen.uncertain
        foretold, unlisted = foretold + seen.as_foretold, unlisted + seen.not_listed
    # nothing passes by planning nothing, or only where there is nothing to draw
    assert plans >= 0.7 * len(CLUSTERS)
    assert uncertain >= 0.3 * moves
    print(
        f"{moves} moves in {plans} plans, {uncertain} after or with a draw: "
        f"{foretold / moves:.1%} land on the likeliest node, {unlisted / moves:.1%} on one that isn't named"
    )


@pytest.mark.parametrize(("used", "moved"), [(8_800.0, ["a"]), (7_200.0, ["a", "b"])])
def test_pods_of_different_services_may_be_drawn_to_the_same_node(used: float, moved: list[str]) -> None:
    # both nodes stay the best for "b" whether "a" is there or not; they have room for one, or for both
    nodes = [hot(13_500.0), cold("n1", used=used), cold("n2", used=used), cold("n3", used=1_600.0)]
    fields: dict[str, Any] = {"cpu": 1.0, "memory": 1.0}
    # 70 millicores below, so that one pod more doesn't change the points
    pods = [heavy("hot", 12_000), heavy("n1", 70), heavy("n2", 70), heavy("n3", 8_000)]
    pods += [single("a", used=1_600.0, **fields), single("b", used=1_500.0, **fields)]
    small = small_of(nodes, pods)
    indices = [small.snapshot.pods.names.index(name) for name in ("a", "b")]
    *_, both = futures(small.snapshot, indices, small.usage.pod_cpu_millicores)
    together = sum(draw.chance for draw in both if draw.node == draw.before[0][1])
    assert together == pytest.approx(0.5)
    plan = carried_out(planned(small))
    assert [move.pod for move in plan] == moved
    assert tried(small, plan).over == []


def test_pods_of_different_services_that_exclude_each_other_are_both_moved() -> None:
    # 700 millicores are points enough: "b" goes where "a" didn't
    nodes = [hot(13_500.0), cold("n1", used=7_900.0), cold("n2", used=7_900.0)]
    fields: dict[str, Any] = {"cpu": 700.0, "memory": 1.0}
    pods = [heavy("hot", 12_000), heavy("n1", 70), heavy("n2", 70)]
    small = small_of(nodes, [*pods, single("a", used=1_600.0, **fields), single("b", used=1_500.0, **fields)])
    plan = carried_out(planned(small))
    assert [move.pod for move in plan] == ["a", "b"]
    assert [[each.probability for each in move.target_nodes] for move in plan] == [pytest.approx([0.5, 0.5])] * 2
    assert tried(small, plan).over == []


def test_pods_of_one_service_that_take_turns_are_followed_to_both_nodes() -> None:
    small = small_of(
        [hot(13_000.0), cold("n1", used=7_000.0), cold("n2", used=7_000.0)],
        [heavy("hot", 12_000), *replicas("web", {"hot": 3}, used=1_500.0, cpu=1_000.0)],
    )
    plan = carried_out(planned(small))
    assert len(plan) == 2
    first, second = futures(small.snapshot, [move.in_plan.pod_index for move in plan], small.usage.pod_cpu_millicores)
    assert sorted((draw.node, draw.chance) for draw in first) == [(1, 0.5), (2, 0.5)]
    assert sorted((draw.before[0][1], draw.node, draw.chance) for draw in second) == [(1, 2, 0.5), (2, 1, 0.5)]


def test_a_pod_does_not_return_because_an_earlier_one_took_the_other_of_two_nodes() -> None:
    # "web" goes to n1 and n2 in turn; foretold is n0 or n3, as half a pod on each of n1 and n2 makes them look worse
    nodes = [hot(13_931.0), *(cold(f"n{index}", used=used) for index, used in enumerate((6_400, 1_600, 6_400, 6_400)))]
    agents = zip(("hot", "n0", "n1", "n2", "n3"), (3_200, 4_800, 3_200, 3_200, 4_800), strict=True)
    pods = [heavy(node, cpu) for node, cpu in agents]
    pods += replicas("web", {"hot": 3}, used=1_600.0, cpu=800.0, memory=0.0)
    small = small_of(nodes, [*pods, single("last", used=640.0, cpu=160.0, memory=0.0)])
    assert tried(small, carried_out(planned(small))).back == []
