"""Nodes that pools lack or have to spare, read from recordings."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import PoolCapacity
from rebalancer.replay.comparison.bound import bound_of
from rebalancer.replay.comparison.capacity import capacity_of
from tests.replay.builders import CORES, START, Recorded, RecordedPod, recording

HIGH = CORES * 750.0
HOUR = 3600.0
CLUSTERS = 150


def of(made: Recording) -> PoolCapacity:
    """Of the only pool."""
    count = len(made.nodes)
    (found,) = capacity_of(made, ["general"] * count, np.full(count, HIGH))
    return found


def pods(*cpu: float, nodes: int, **fields: float) -> list[RecordedPod]:
    return [RecordedPod(name=f"p{at}", node=at % nodes, cpu=each, **fields) for at, each in enumerate(cpu)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "cpu", "elsewhere", "missing", "spare"),
    [
        # 15 cores under high, and 12 in use
        (2, [3_000.0] * 4, 0.0, 0, 0),
        # 16 in use: one node more has 7.5 cores
        (2, [3_200.0] * 5, 0.0, 1, 0),
        # 16 in use, and each node has 5.5 cores beside its own processes
        (2, [3_200.0] * 5, 2_000.0, 1, 0),
        (2, [3_400.0] * 5, 2_000.0, 2, 0),
        # 4 of 22.5 cores in use
        (3, [2_000.0] * 2, 0.0, 0, 2),
    ],
)
def test_missing_and_spare_nodes_by_usage(
    nodes: int, cpu: list[float], elsewhere: float, missing: int, spare: int
) -> None:
    found = of(recording(Recorded(nodes=nodes, pods=pods(*cpu, nodes=nodes), elsewhere=elsewhere)))
    assert (found.missing, found.spare_by_usage) == (missing, spare)
    assert (found.nodes, found.node_millicores) == (nodes, CORES * 1000)


def test_nodes_are_missing_in_whole_hours() -> None:
    steps = 6 * 12
    short = np.full(steps, 1_000.0)
    short[[13, 14, 30, 60]] = 4_000.0
    made = recording(
        Recorded(
            nodes=2, steps=steps, pods=[RecordedPod(name=f"p{at}", node=at % 2, cpu=short.tolist()) for at in range(4)]
        )
    )
    found = of(made)
    assert found.missing == 1
    assert found.short == ((START + HOUR, START + 3 * HOUR), (START + 5 * HOUR, START + 6 * HOUR))
    # one of the two nodes is hot, in four steps of five minutes
    assert found.hot_node_minutes == 20


def test_requests_need_the_nodes_that_usage_spares() -> None:
    made = recording(Recorded(nodes=4, pods=pods(*[500.0] * 12, nodes=4, request=2_000.0)))
    assert (of(made).spare_by_usage, of(made).spare_by_requests) == (3, 1)


def test_what_daemon_sets_request_goes_with_the_node() -> None:
    agents = [
        RecordedPod(name=f"a{at}", service="agent", kind="DaemonSet", node=at, cpu=500.0, request=4_000.0)
        for at in range(4)
    ]
    made = recording(Recorded(nodes=4, pods=[*agents, *pods(*[500.0] * 6, nodes=4, request=2_000.0)]))
    # 12 cores of requests, and each node has 6
    assert of(made).spare_by_requests == 2


def test_a_node_that_is_hot_by_itself_is_no_help() -> None:
    made = recording(Recorded(nodes=3, pods=pods(*[4_000.0] * 6, nodes=3), elsewhere=7_500.0))
    sizes = np.array([10_000.0, 10_000.0, 40_000.0])
    made = replace(made, nodes=replace(made.nodes, cpu_capacity_millicores=sizes))
    (found,) = capacity_of(made, ["general"] * 3, sizes * 0.75)
    assert (found.node_millicores, found.missing, found.spare_by_usage) == (10_000.0, None, 0)


def test_pools_stand_alone_and_the_most_common_size_counts() -> None:
    made = recording(Recorded(nodes=5, pods=pods(*[3_200.0] * 5, nodes=2)))
    sizes = np.array([10_000.0, 10_000.0, 10_000.0, 10_000.0, 40_000.0])
    made = replace(made, nodes=replace(made.nodes, cpu_capacity_millicores=sizes))
    high = sizes * 0.75
    high[2] = np.nan
    apps, batch = capacity_of(made, ["apps", "apps", "other", "batch", "batch"], high)
    assert (apps.pool, apps.missing, batch.pool, batch.missing) == ("apps", 1, "batch", 0)
    # of two sizes that are as common the larger one
    assert (batch.nodes, batch.node_millicores, batch.spare_by_usage) == (1, 40_000.0, 1)
    assert capacity_of(made, [""] * 5, high) == ()


def test_time_in_which_a_nodes_usage_is_not_known_spares_none_and_takes_none() -> None:
    made = recording(Recorded(nodes=3, pods=pods(2_000.0, 2_000.0, nodes=2)))
    cpu = made.usage["cpu"].node.copy()
    cpu[2, 3:6] = np.nan
    made = replace(made, usage={"cpu": replace(made.usage["cpu"], node=cpu)})
    assert (of(made).nodes, of(made).spare_by_usage) == (3, 2)


def test_with_the_missing_nodes_capacity_is_enough_and_with_one_fewer_it_is_not() -> None:
    random = np.random.default_rng(11)
    kinds = set[str]()
    for _ in range(CLUSTERS):
        nodes, steps, elsewhere = int(random.integers(1, 6)), 24, float(random.choice([0.0, 700.0, 2_300.0]))
        count = int(random.integers(1, 5 * nodes))
        course = random.uniform(0.0, random.choice([1_500.0, 4_000.0, 9_000.0]), size=(count, steps))
        # no node uses more than it has
        on_nodes = np.array([course[at::nodes].sum(axis=0) for at in range(nodes)])
        course *= min(1.0, (CORES * 1000.0 - elsewhere) / on_nodes.max())

        def made(
            number: int, *, course: np.ndarray = course, elsewhere: float = elsewhere, steps: int = steps
        ) -> Recording:
            """The same pods on so many nodes."""
            some = [RecordedPod(name=f"p{at}", node=at % number, cpu=each.tolist()) for at, each in enumerate(course)]
            return recording(Recorded(nodes=number, steps=steps, pods=some, elsewhere=elsewhere))

        def lacks(number: int, *, made: object = made) -> bool:
            return bool(bound_of(made(number), np.full(number, HIGH)).capacity.any())  # type: ignore[operator]

        found = of(made(nodes))
        assert found.missing is not None
        assert bool(found.missing) == bool(found.short) == lacks(nodes)
        if found.missing:
            kinds.add("missing")
            assert not lacks(nodes + found.missing)
            assert lacks(nodes + found.missing - 1)
            assert found.spare_by_usage == 0
        elif 0 < found.spare_by_usage < nodes and course.max() <= HIGH - elsewhere:
            kinds.add("spare")
            assert not lacks(nodes - found.spare_by_usage)
            assert nodes - found.spare_by_usage == 1 or lacks(nodes - found.spare_by_usage - 1)
    assert kinds == {"missing", "spare"}
