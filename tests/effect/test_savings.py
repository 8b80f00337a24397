"""CPU saved by removed nodes."""

import pytest

from rebalancer.effect.rates import day_rows
from rebalancer.effect.savings import saved_core_hours
from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.records.effect import PoolHour
from tests.effect.builders import an_hour

DAY = 20_000
FIRST = DAY * 24
HOUR = 3600.0


def a_drain(node: str, hour: float | None, *, nodes: int = 10, **fields: float) -> DrainedNode:
    """Of 16 cores, removed so many hours after the day's beginning."""
    removed_at = None if hour is None else (FIRST + hour) * HOUR
    return DrainedNode(
        node=node,
        pool="general",
        capacity_millicores=16_000.0,
        pool_nodes=nodes,
        emptied_at=FIRST * HOUR,
        removed_at=removed_at,
        **fields,
    )


def hours(*nodes: int) -> list[PoolHour]:
    return [an_hour(FIRST + number, nodes=count) for number, count in enumerate(nodes)]


@pytest.mark.parametrize(
    ("drains", "nodes", "saved"),
    [
        pytest.param([a_drain("a", 1.0)], [10, 9, 9, 9], 3 * 16.0, id="until the last hour"),
        pytest.param([a_drain("a", 1.5)], [10, 10, 9, 9], 2.5 * 16.0, id="from the middle of an hour"),
        pytest.param([a_drain("a", 1.0)], [10, 9, 10, 10], 16.0, id="until a node is added"),
        pytest.param([a_drain("a", 1.0)], [10, 9, 10, 9], 16.0, id="a later removal by others saves nothing of ours"),
        pytest.param(
            [a_drain("a", 1.0), a_drain("b", 2.0, nodes=9)],
            [10, 9, 8, 9, 9],
            16.0 * (1 + 2 + 1 + 1),
            id="the newest ends",
        ),
        pytest.param([a_drain("a", None)], [10, 10, 10], 0.0, id="not removed"),
        pytest.param([a_drain("a", 1.0)], [], 0.0, id="without hours"),
    ],
)
def test_a_removed_node_saves_its_cores_until_its_pool_is_as_large_again(
    drains: list[DrainedNode], nodes: list[int], saved: float
) -> None:
    assert saved_core_hours(drains, hours(*nodes)).get(("general", DAY), 0.0) == pytest.approx(saved)


def test_drained_nodes_are_counted_by_day() -> None:
    drains = [
        a_drain("a", 1.0),
        a_drain("b", None, in_vain_at=(FIRST + 2) * HOUR),
        a_drain("c", 30.0),
        a_drain("d", None, given_back_at=(FIRST + 3) * HOUR),
    ]
    rows = day_rows(
        cluster="test",
        days=range(DAY, DAY + 2),
        until=(FIRST + 40) * HOUR,
        episodes=[],
        assessments=[],
        drains=drains,
        saved={("general", DAY): 5.0},
    )
    assert [(row.day, row.pool, row.strategy) for row in rows] == [
        (DAY, "general", "HighNodeUtilization"),
        (DAY + 1, "general", "HighNodeUtilization"),
    ]
    assert [(row.nodes_emptied, row.nodes_removed, row.nodes_in_vain, row.core_hours_saved) for row in rows] == [
        (4, 1, 1, 5.0),
        (0, 1, 0, 0.0),
    ]
