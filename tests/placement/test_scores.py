"""Scores against numbers worked out by hand.

The cases are those of Kubernetes v1.36.3, pkg/scheduler/framework/plugins/noderesources (`least_allocated_test.go` and
`balanced_allocation_test.go`), told in our words: a node is (cpu, memory) allocatable, `there` is already requested.
"""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.objects import Taint
from rebalancer.placement.landing import LandingModel
from rebalancer.placement.scores import balanced_allocation, by_requests, least_allocated
from tests.builders import GIB, ANode, APod, a_node, a_pod, cluster

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
    assert by_requests(
        scored=there, requested=there, pod_scored=pod, pod_requested=pod, allocatable=nodes
    ).tolist() == [37 + 68, 50 + 75]


def test_defaults_of_pods_without_requests_count_for_least_allocated_only() -> None:
    # scored as 100m and 200 MiB of 1000m and 400 MiB: (90 + 50) / 2; nothing for balance
    node, default = columns((1000.0, 400.0)), np.array([100.0, 200.0])
    score = by_requests(
        scored=columns(NOTHING),
        requested=columns(NOTHING),
        pod_scored=default,
        pod_requested=np.zeros(2),
        allocatable=node,
    )
    assert score.tolist() == [70]


def test_large_memories_are_exact() -> None:
    # just one byte over a whole percent is a point less
    whole = 100 * 2.0**33
    scored = columns((0, whole / 100 * 30), (0, whole / 100 * 30 + 1))
    assert least_allocated(scored, columns((1000, whole), (1000, whole))).tolist() == [85, 84]


# ---- soft taints


def best(nodes: list[ANode], pods: list[APod]) -> list[str]:
    """Where the scheduler would put the replacement of the first pod."""
    made = cluster(nodes, pods)
    return [made.nodes.names[node] for node in LandingModel(made).best(made.pod(0))]


def softly(name: str, count: int, **fields: Any) -> ANode:
    taints = tuple(Taint(key=f"t{index}", effect="PreferNoSchedule") for index in range(count))
    return a_node(name, taints=taints, **fields)


MOVER = a_pod("mover", "home", owner="web", cpu=100, memory=1 * GIB)
NOT_HOME = {"unschedulable": True}


def test_a_soft_taint_outweighs_any_score_by_requests() -> None:
    nodes = [a_node("home", **NOT_HOME), softly("empty", 1), a_node("busy")]
    busy = a_pod("there", "busy", owner="x", cpu=15_000, memory=60 * GIB)
    assert best(nodes, [MOVER, busy]) == ["busy"]


def test_a_soft_taint_on_every_node_tells_nothing_apart() -> None:
    nodes = [a_node("home", **NOT_HOME), softly("a", 1), softly("b", 1)]
    assert best(nodes, [MOVER]) == ["a", "b"]


def test_a_soft_taint_that_is_tolerated_does_not_count() -> None:
    tolerant = a_pod(
        "mover", "home", owner="web", cpu=100, shape={"tolerations": [{"operator": "Exists", "key": "t0"}]}
    )
    assert best([a_node("home", pods=1), softly("a", 1), a_node("b")], [tolerant]) == ["a", "b"]


def test_soft_taints_are_normalised_as_the_scheduler_does() -> None:
    # helper.DefaultNormalizeScore: one taint of at most seven scores 100 - 14 = 86, not 85; at weight 3 that is 42 less
    # than a node without. By requests "one" is 44 points better: 99 against 55, both as balanced as before.
    size = {"cpu": 10_000, "memory": 100 * GIB}
    nodes = [a_node("home", **NOT_HOME), softly("seven", 7, **size), softly("one", 1, **size), a_node("none", **size)]
    there = a_pod("there", "none", owner="x", cpu=4_400, memory=44 * GIB)
    assert best(nodes, [MOVER, there]) == ["one"]
