"""The bound of hot node-hours: never above what the best placement leaves."""

from itertools import product

import numpy as np
import pytest

from rebalancer.replay.comparison.bound import bound_of
from tests.replay.builders import CORES, Recorded, RecordedPod, recording

CAPACITY, HIGH = CORES * 1_000.0, CORES * 750.0
NODES, CLUSTERS = 3, 200


def hours(nodes: int, pods: list[float], *, own: float = 0.0, kind: str = "Deployment") -> tuple[float, float]:
    """Bound of an hour by large pods and by capacity, in node-hours."""
    made = [RecordedPod(name=f"p{at}", kind=kind, node=at % nodes, cpu=cpu) for at, cpu in enumerate(pods)]
    bound = bound_of(recording(Recorded(nodes=nodes, steps=12, pods=made, elsewhere=own)), np.full(nodes, HIGH))
    return float(bound.large_pods.sum()) / 60, float(bound.capacity.sum()) / 60


@pytest.mark.parametrize(
    ("nodes", "pods", "own", "bound"),
    [
        (2, [4_000.0, 4_000.0], 0.0, (0, 0)),
        (3, [8_000.0], 0.0, (1, 0)),
        # beside the node's own processes it has too little room
        (3, [7_000.0], 1_000.0, (1, 0)),
        # two of them fill a hot node
        (3, [4_500.0, 4_500.0], 4_000.0, (2, 0)),
        (2, [3_000.0] * 5, 0.0, (0, 0)),
        (2, [3_200.0] * 5, 0.0, (0, 1)),
        # what is over its high by itself is hot
        (2, [], 8_000.0, (2, 0)),
    ],
)
def test_what_no_eviction_can_remove(nodes: int, pods: list[float], own: float, bound: tuple[int, int]) -> None:
    assert hours(nodes, pods, own=own) == bound


def test_pods_of_a_daemon_set_stay_on_their_nodes() -> None:
    assert hours(2, [8_000.0, 1_000.0], kind="DaemonSet") == (1, 0)
    assert hours(2, [5_000.0, 1_000.0, 5_000.0]) == (0, 0)


def test_a_pod_counts_while_it_runs_and_a_node_without_high_takes_all() -> None:
    pod = RecordedPod(name="p", cpu=8_000.0, begins=3.0, ends=9.0)
    made = recording(Recorded(nodes=2, steps=12, pods=[pod]))
    assert bound_of(made, np.full(2, HIGH)).hours == pytest.approx(0.5)
    assert bound_of(made, np.array([HIGH, np.nan])).hours == 0


def fewest_hot(loads: list[float], own: list[float]) -> int:
    """By trying all placements."""
    fewest = NODES
    for places in product(range(NODES), repeat=len(loads)):
        used = list(own)
        for place, load in zip(places, loads, strict=True):
            used[place] += load
        if max(used) <= CAPACITY + 1e-6:
            fewest = min(fewest, sum(each > HIGH + 1e-6 for each in used))
    return fewest


def test_it_is_never_above_the_best_placement_and_seldom_below() -> None:
    random = np.random.default_rng(7)
    below = 0
    for _ in range(CLUSTERS):
        pods, nodes = [], [0.0] * NODES
        for at in range(int(random.integers(2, 7))):
            cpu, node = float(random.choice([1_000.0, 3_000.0, 5_000.0, 8_000.0])), int(random.integers(NODES))
            if nodes[node] + cpu <= CAPACITY:
                nodes[node] += cpu
                pods.append(RecordedPod(name=f"p{at}", node=node, cpu=cpu))
        made = recording(Recorded(nodes=NODES, steps=12, pods=pods))
        found, best = (
            bound_of(made, np.full(NODES, HIGH)).hours,
            fewest_hot([float(each.cpu) for each in pods], [0.0] * NODES),
        )
        assert found <= best + 1e-9, pods
        below += best - found
    # what cutting pods into parts hides
    assert below / CLUSTERS <= 0.1
