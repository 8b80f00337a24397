"""Scores against numbers worked out by hand.

The cases are those of Kubernetes v1.36.3, pkg/scheduler/framework/plugins (noderesources, imagelocality,
tainttoleration, nodeaffinity), told in our words: a node is (cpu, memory) allocatable, `there` is already requested.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import NodeAffinity, NodeSelectorTerm, PreferredTerm, Requirement, Taint
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.scheduler import DEFAULT_WEIGHTS, SchedulerConfig, SchedulerProfile
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.plugins.images import normalised
from rebalancer.placement.plugins.resources import (
    balanced_allocation,
    least_allocated,
    most_allocated,
    requested_to_capacity_ratio,
)
from rebalancer.placement.scheduler.engine import Engine, Verdict
from tests.builders import ANode, APod, a_node, a_pod, cluster

Pair = tuple[float, float]
NOTHING, POD = (0.0, 0.0), (3000.0, 5000.0)


def columns(*pairs: Pair) -> Any:
    return np.array(pairs, dtype=float)


@pytest.mark.parametrize(
    ("node", "there", "pod", "score"),
    [
        ((4000, 10000), NOTHING, NOTHING, 100),
        ((4000, 10000), NOTHING, POD, 37),  # (25 + 50) / 2, cut
        ((6000, 10000), NOTHING, POD, 50),
        ((10000, 20000), (6000, 0), NOTHING, 70),  # (40 + 100) / 2
        ((10000, 20000), (6000, 5000), NOTHING, 57),  # (40 + 75) / 2, cut
        ((10000, 20000), (3000, 0), POD, 57),
        ((10000, 20000), (3000, 5000), POD, 45),
        ((10000, 50000), (3000, 5000), POD, 60),  # (40 + 80) / 2
        ((4000, 10000), (3000, 0), (3000, 0), 50),  # cpu would be exhausted: 0, memory 100
        ((4000, 10000), (3000, 5000), (3000, 0), 25),
        ((6000, 10000), NOTHING, (3000, 4000), 55),
        (NOTHING, (3000, 5000), NOTHING, 0),
        ((4000, 0), NOTHING, (2000, 5000), 50),  # a resource with nothing allocatable doesn't count
        ((4000, 10000), (4000, 10000), NOTHING, 0),
    ],
)
def test_least_allocated(node: Pair, there: Pair, pod: Pair, score: float) -> None:
    assert least_allocated(columns(there) + columns(pod), columns(node)).tolist() == [score]


@pytest.mark.parametrize(
    ("node", "there", "pod", "score"),
    [
        ((4000, 10000), NOTHING, POD, 68),  # 100 -> 87
        ((6000, 10000), NOTHING, POD, 75),  # 100 -> 100: as balanced as before
        ((10000, 20000), (3000, 0), POD, 73),  # 85 -> 82
        ((10000, 20000), (3000, 5000), POD, 74),  # 97 -> 95, both cut
        ((10000, 50000), (3000, 5000), POD, 70),  # 90 -> 80
        ((3000, 5000), (3000, 0), (0, 5000), 100),  # 50 -> 100: perfect
        ((3000, 5000), NOTHING, (0, 5000), 50),  # 100 -> 50: worst
        ((6000, 10000), (3000, 0), (3000, 0), 62),  # 75 -> 50
        ((6000, 10000), (3000, 5000), (3000, 0), 62),  # 100 -> 75
        ((3500, 40000), NOTHING, POD, 56),  # 100 -> 63
        ((4000, 0), (1000, 0), (1000, 0), 75),  # one resource alone is always balanced
        ((1000, 1000), (900, 100), (5000, 0), 72),  # 60 -> 55, a share is at most 1
    ],
)
def test_balanced_allocation(node: Pair, there: Pair, pod: Pair, score: float) -> None:
    assert balanced_allocation(columns(there), np.array(pod, dtype=float), columns(node)).tolist() == [score]


def test_a_pod_that_requests_nothing_is_not_scored_by_balance() -> None:
    assert balanced_allocation(
        columns((3000, 0), NOTHING), np.zeros(2), columns((4000, 10000), (4000, 10000))
    ).tolist() == [
        0,
        0,
    ]


def test_nodes_are_scored_each_by_itself() -> None:
    nodes, there = columns((4000, 10000), (6000, 10000)), columns(NOTHING, NOTHING)
    pod = np.array(POD)
    assert least_allocated(there + pod, nodes).tolist() == [37, 50]
    assert balanced_allocation(there, pod, nodes).tolist() == [68, 75]


def test_defaults_of_pods_without_requests_count_for_least_allocated_only() -> None:
    # scored as 100m and 200 MiB of 1000m and 400 MiB: (90 + 50) / 2; nothing for balance
    node, default = columns((1000.0, 400.0)), np.array([100.0, 200.0])
    assert least_allocated(columns(NOTHING) + default, node).tolist() == [70]
    assert balanced_allocation(columns(NOTHING), np.zeros(2), node).tolist() == [0]


def test_large_memories_are_exact() -> None:
    # just one byte over a whole percent is a point less
    whole = 100 * 2.0**33
    scored = columns((0, whole / 100 * 30), (0, whole / 100 * 30 + 1))
    assert least_allocated(scored, columns((1000, whole), (1000, whole))).tolist() == [85, 84]


@pytest.mark.parametrize(
    ("node", "used", "weights", "score"),
    [
        ((4000, 10000), NOTHING, (1, 1), 0),
        ((4000, 10000), POD, (1, 1), 62),  # (75 + 50) / 2, cut
        ((6000, 10000), POD, (1, 1), 50),
        ((10000, 20000), (6000, 0), (1, 1), 30),
        ((10000, 20000), (6000, 10000), (1, 1), 55),
        ((5000, 10000), (5000, 9000), (1, 1), 95),
        ((10000, 9000), (5000, 9000), (1, 1), 75),
        ((4000, 10000), POD, (1, 2), 58),
        ((250, 1000), (300, 600), (1, 1), 80),  # more than there is counts as all of it
        ((4000, 0), (1000, 5000), (1, 1), 25),
    ],
)
def test_most_allocated(node: Pair, used: Pair, weights: Pair, score: float) -> None:
    assert most_allocated(columns(used), columns(node), weights).tolist() == [score]


def test_weights_count_for_least_allocated() -> None:
    assert least_allocated(columns(POD), columns((4000, 10000)), (1, 2)).tolist() == [41]  # (25 + 2 * 50) / 3


FALLING = ((0, 10), (100, 0))
RISING = ((0, 0), (100, 10))


@pytest.mark.parametrize(
    ("node", "used", "template", "score"),
    [
        ((4000, 10000), NOTHING, FALLING, 100),
        ((4000, 10000), POD, FALLING, 38),  # (25 + 50) / 2, rounded
        ((6000, 10000), POD, FALLING, 50),
        ((4000, 10000), (5000, 5000), RISING, 75),  # more than there is: 100
        ((4000, 10000), (0, 5000), RISING, 50),  # a resource that scores 0 isn't counted
        ((4000, 10000), NOTHING, RISING, 0),
    ],
)
def test_requested_to_capacity_ratio(node: Pair, used: Pair, template: Any, score: float) -> None:
    assert requested_to_capacity_ratio(columns(used), columns(node), (1, 1), template).tolist() == [score]


@pytest.mark.parametrize(
    ("template", "used", "score"),
    [
        (((10, 1), (90, 9)), 0, 10),
        (((10, 1), (90, 9)), 10, 10),
        (((10, 1), (90, 9)), 15, 15),
        (((10, 1), (90, 9)), 90, 90),
        (((10, 1), (90, 9)), 100, 90),
        (((0, 2), (40, 10), (100, 0)), 20, 60),
        (((0, 2), (40, 10), (100, 0)), 30, 80),
        (((0, 2), (40, 10), (100, 0)), 40, 100),
        (((0, 2), (40, 10), (100, 0)), 70, 50),
        (((0, 2), (40, 10), (100, 0)), 41, 99),  # 100 - 100 / 60, cut towards zero
        (((0, 2), (40, 2), (100, 2)), 50, 20),
    ],
)
def test_the_broken_line_of_requested_to_capacity_ratio(template: Any, used: float, score: float) -> None:
    got = requested_to_capacity_ratio(np.array([[used]]), np.array([[100.0]]), (1,), template)
    assert got.tolist() == [score]


def test_balance_of_more_than_two_resources_is_the_standard_deviation() -> None:
    # before: all empty, 100. With the pod 0.75, 0.5, 0.25: deviation 0.2041, 79. 50 + (50 - 21) / 2, cut
    node, pod = np.array([[4000.0, 10000.0, 8.0]]), np.array([3000.0, 5000.0, 2.0])
    assert balanced_allocation(np.zeros((1, 3)), pod, node).tolist() == [64]
    # a resource that the node doesn't have isn't counted: as two
    assert balanced_allocation(np.zeros((1, 3)), pod, node * [1, 1, 0]).tolist() == [68]


# ---- through the engine


def judged(nodes: list[ANode], pods: list[APod], profile: SchedulerProfile | None = None, **board: Any) -> Verdict:
    """What the scheduler thinks of the first pod."""
    made = Board(cluster(nodes, pods), **board)
    engine = Engine(made, SchedulerConfig(profiles={"default-scheduler": profile}) if profile else SchedulerConfig())
    verdict = engine.verdict(made.kinds.of(0))
    assert engine.scores(made.kinds.of(0)).tolist() == verdict.total.tolist()
    assert np.nansum(list(verdict.weighted.values()), axis=0)[verdict.feasible].tolist() == (
        verdict.total[verdict.feasible].tolist()
    )
    return verdict


def waiting(**fields: Any) -> APod:
    return a_pod("waiting", **{"cpu": 0, "memory": 0, "phase": PENDING, **fields})


def weighted(verdict: Verdict, plugin: str) -> list[float]:
    return [float(each) for each in verdict.weighted[plugin]]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("LeastAllocated", [37, 50]), ("MostAllocated", [62, 50]), ("RequestedToCapacityRatio", [38, 50])],
)
def test_the_profiles_strategy_scores(strategy: Any, expected: list[float]) -> None:
    nodes = [a_node("a", cpu=4_000, memory=10_000), a_node("b", cpu=6_000, memory=10_000)]
    profile = SchedulerProfile(fit_strategy=strategy, fit_shape=FALLING)
    verdict = judged(nodes, [waiting(cpu=3_000, memory=5_000)], profile)
    assert weighted(verdict, "NodeResourcesFit") == expected


def test_extended_resources_are_scored_only_for_pods_that_ask_for_them() -> None:
    gpu = {"extendedRequests": {"gpu": 1.0}}
    nodes = [a_node("a", cpu=1_000, memory=1_000, extended={"gpu": 4.0})]
    profile = SchedulerProfile(fit_resources=(("cpu", 1), ("memory", 1), ("gpu", 2)))
    there = a_pod("there", "a", cpu=0, memory=0, template={**gpu, "cpuScoredMillicores": 0.0, "memoryScoredBytes": 0.0})
    half = {"cpu": 500, "memory": 500}
    assert weighted(judged(nodes, [waiting(**half), there], profile), "NodeResourcesFit") == [50]
    # gpu: 2 of 4 used, (50 + 50 + 2 * 50) / 4
    asking = waiting(cpu=100, memory=100, template=gpu)
    assert weighted(judged(nodes, [asking, there], profile), "NodeResourcesFit") == [70]  # (90 + 90 + 2 * 50) / 4


def test_a_pod_that_requests_nothing_is_not_scored_by_balance_at_all() -> None:
    assert "NodeResourcesBalancedAllocation" not in judged([a_node("a")], [waiting()]).weighted
    assert "NodeResourcesBalancedAllocation" in judged([a_node("a")], [waiting(cpu=1)]).weighted


def test_weights_of_the_profile_multiply_and_plugins_without_one_are_off() -> None:
    profile = SchedulerProfile(weights={"NodeResourcesFit": 5})
    verdict = judged([a_node("a", cpu=4_000, memory=10_000)], [waiting(cpu=3_000, memory=5_000)], profile)
    assert list(verdict.weighted) == ["NodeResourcesFit"]
    assert verdict.total.tolist() == [185]


MB = 1024.0 * 1024.0


@pytest.mark.parametrize(
    ("wanted", "held", "expected"),
    [
        (["r/40", "r/250"], [{"r/40:latest": 40}, {"r/250:latest": 250}], [0, 5]),
        (["r/40", "r/300"], [{"r/40:latest": 40, "r/300:latest": 300}, {}], [7, 0]),
        (["r/4000", "r/10"], [{"r/4000:latest": 4000}, {"r/10:latest": 10}], [100, 0]),
        (["r/4000", "r/10"], [{"r/4000:latest": 4000}, {"r/10:latest": 10}, {}], [66, 0, 0]),
        (["r/app:v1"], [{"r/app:v1": 1.2 * 1024}, *[{}] * 9], [10, *[0] * 9]),
        (["r/app:v1"], [{"r/app:v2": 4000}, {}], [0, 0]),
        (["r:5000/app"], [{"r:5000/app:latest": 1000}], [100]),
        (["r/a", "r/a"], [{"r/a:latest": 500}], [49]),  # twice the same counts twice: (1000 - 23) / (2000 - 23)
    ],
)
def test_image_locality(wanted: list[str], held: list[dict[str, float]], expected: list[float]) -> None:
    nodes = [
        a_node(f"n{index}", images={name: size * MB for name, size in each.items()}) for index, each in enumerate(held)
    ]
    assert weighted(judged(nodes, [waiting(template={"images": wanted})]), "ImageLocality") == expected


@pytest.mark.parametrize(("minor", "expected"), [(36, 48), (37, 24)])
def test_images_of_volumes_raise_the_bar_from_1_37_on(minor: int, expected: int) -> None:
    """(500 - 23) of (1000 - 23), and of (2000 - 23)."""
    nodes = [a_node("a", images={"r/a:latest": 100 * MB, "r/model:1": 400 * MB})]
    template = {"images": ["r/a"], "volumeImages": ["r/model:1"]}
    board = Board(replace(cluster(nodes, [waiting(template=template)]), minor=minor))
    assert weighted(Engine(board).verdict(board.kinds.of(0)), "ImageLocality") == [expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("root", "root:latest"),
        ("root:tag", "root:tag"),
        ("gcr.io:5000/root", "gcr.io:5000/root:latest"),
        ("root@sha256:abc", "root@sha256:abc"),
    ],
)
def test_image_names_are_compared_with_their_tag(name: str, expected: str) -> None:
    assert normalised(name) == expected


# ---- taints and preferred node affinity


def softly(name: str, count: int, **fields: Any) -> ANode:
    taints = tuple(Taint(key=f"t{index}", effect="PreferNoSchedule") for index in range(count))
    return a_node(name, taints=taints, **fields)


def tolerating(*keys: str, **fields: Any) -> dict[str, Any]:
    return {"tolerations": [{"operator": "Exists", "key": key, **fields} for key in keys]}


@pytest.mark.parametrize(
    ("counts", "template", "expected"),
    [
        ([0, 0], {}, [300, 300]),
        ([1, 0], {}, [0, 300]),
        ([1, 1], {}, [0, 0]),
        ([7, 1, 0], {}, [0, 258, 300]),  # 100 - 14 (100 / 7, cut) = 86, three times
        ([1, 0], tolerating("t0"), [300, 300]),
        ([2, 1], tolerating("t0"), [0, 300]),
        ([1, 0], tolerating("t0", effect="NoSchedule"), [0, 300]),
        ([1, 0], tolerating("t0", effect="PreferNoSchedule"), [300, 300]),
    ],
)
def test_soft_taints(counts: list[int], template: dict[str, Any], expected: list[float]) -> None:
    nodes = [softly(f"n{index}", count) for index, count in enumerate(counts)]
    assert weighted(judged(nodes, [waiting(template=template)]), "TaintToleration") == expected


def test_nodes_that_are_not_feasible_set_no_scale() -> None:
    nodes = [softly("off", 4, unschedulable=True), softly("two", 2), softly("one", 1)]
    assert weighted(judged(nodes, [waiting()]), "TaintToleration")[1:] == [0, 150]


def test_steered_nodes_are_seen_with_our_taint_instead_of_what_they_carry() -> None:
    ours = Taint(key="rebalancer.dev/steer", value="hot", effect="PreferNoSchedule")
    nodes = [a_node("was", taints=(ours,)), a_node("is"), a_node("never")]
    assert weighted(judged(nodes, [waiting()]), "TaintToleration") == [0, 300, 300]
    soft_tainted = np.array([False, True, False])
    assert weighted(judged(nodes, [waiting()], soft_tainted=soft_tainted), "TaintToleration") == [300, 0, 300]


def test_a_node_can_be_steered_away_from_later() -> None:
    board = Board(cluster([a_node("a"), a_node("b")], [waiting()]))
    engine, kind = Engine(board), board.kinds.of(0)
    before = engine.scores(kind)
    engine.steer([0])
    engine.steer([0])
    assert (engine.scores(kind) - before).tolist() == [-300, 0]


def preferring(*terms: tuple[int, str, str]) -> NodeAffinity:
    return NodeAffinity(
        preferred=tuple(
            PreferredTerm(weight, NodeSelectorTerm(match_expressions=(Requirement(key, "In", (value,)),)))
            for weight, key, value in terms
        )
    )


def in_json(affinity: NodeAffinity) -> dict[str, Any]:
    terms = [
        {
            "weight": each.weight,
            "preference": {
                "matchExpressions": [
                    {"key": one.key, "operator": one.operator, "values": list(one.values)}
                    for one in each.preference.match_expressions
                ]
            },
        }
        for each in affinity.preferred
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


NODES = [a_node("a", labels={"zone": "1", "disk": "ssd"}), a_node("b", labels={"zone": "1"}), a_node("c", labels={})]


@pytest.mark.parametrize(
    ("own", "added", "expected"),
    [
        ([(2, "zone", "1")], [], [200, 200, 0]),
        ([(4, "zone", "1"), (3, "disk", "ssd")], [], [200, 114, 0]),  # 100 * 4 / 7, cut
        ([(4, "zone", "1")], [(4, "disk", "ssd")], [200, 100, 0]),
        ([], [(5, "disk", "ssd")], [200, 0, 0]),
        ([(1, "zone", "9")], [], [0, 0, 0]),
    ],
)
def test_preferred_node_affinity(own: Any, added: Any, expected: list[float]) -> None:
    profile = SchedulerProfile(added_affinity=preferring(*added) if added else None)
    verdict = judged(NODES, [waiting(template=in_json(preferring(*own)) if own else {})], profile)
    assert weighted(verdict, "NodeAffinity") == expected


def test_pods_that_prefer_no_node_are_not_scored_by_affinity() -> None:
    assert set(judged(NODES, [waiting()]).weighted) == set(DEFAULT_WEIGHTS) - {
        "NodeAffinity",
        "InterPodAffinity",
        "PodTopologySpread",
        "NodeResourcesBalancedAllocation",
    }
