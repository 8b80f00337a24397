"""The heat of pools: the hottest node of each at each moment."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.dashboard.heat import AHEAD_SECONDS, HEAT_SECONDS, POOLS_AT_ONCE, KeptPools, heat_of_pools
from rebalancer.dashboard.nodes import ExpectedPeaks, NodeView
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.cycles import PoolEviction, PoolMeasurement
from rebalancer.web.pages.views import NodeLine
from tests.web.builders import NOW, a_node


def a_view(lines: list[NodeLine], **fields: Any) -> NodeView:
    return NodeView(
        lines=tuple(lines),
        by_name={line.name: line for line in lines},
        row={line.name: row for row, line in enumerate(lines)},
        **fields,
    )


def measured(at: float, hottest: float | None, *, pool: str = "general", nodes: int = 4) -> PoolMeasurement:
    return PoolMeasurement(cycle=f"c{at}", at=at, pool=pool, nodes=nodes, hottest=hottest)


def test_the_line_is_of_cycles_that_evaluated_the_pool_and_of_the_newest_measurement() -> None:
    view = a_view([a_node("n1", 0.7), a_node("n2", 0.8)], measured_at=NOW - 5)
    found = [
        measured(NOW - 600, 0.9),
        measured(NOW - 500, 0.5, nodes=1),
        measured(NOW - 450, 0.95, pool="batch"),
        measured(NOW - 400, 0.75),
    ]
    [heat] = heat_of_pools(view, {}, found, [], now=NOW)
    assert heat.past == ((NOW - 600, 0.9), (NOW - 400, 0.75), (NOW - 5, 0.8))
    assert (heat.since, heat.until, heat.ahead) == (NOW - HEAT_SECONDS, NOW + AHEAD_SECONDS, ())
    assert (heat.high, heat.target) == (0.75, 0.65)


def test_the_history_is_shown_from_before_the_first_cycle() -> None:
    view = a_view([a_node("n1", 0.7)])
    kept = {"general": [(NOW - HEAT_SECONDS - 1, 0.1), (NOW - 900, 0.2), (NOW - 300, 0.3)], "batch": [(NOW - 900, 0.9)]}
    [heat] = heat_of_pools(view, kept, [measured(NOW - 600, 0.9)], [], now=NOW)
    assert heat.past == ((NOW - 900, 0.2), (NOW - 600, 0.9))


def test_the_history_is_read_in_means_of_its_slots_and_kept_for_minutes() -> None:
    read: list[int] = []
    today = int(NOW // DAY_SECONDS)
    grid = np.full((3, SLOTS), np.nan)
    grid[0], grid[1], grid[2] = 8000.0, 4000.0, 16_000.0
    grid[0, 100] = np.nan

    class History:
        def nodes_of(self, day: int) -> Any:
            read.append(day)
            return (("n1", "n2", "gone"), grid) if day == today else None

    active: Any = SimpleNamespace(forecast_loop=SimpleNamespace(keepers={CPU: History()}))
    pools, view = KeptPools(lambda: active), a_view([a_node("n1", 0.7), a_node("n2", 0.7)])
    now = today * DAY_SECONDS + 5 * 3600
    found = dict(pools.before(view, now)["general"])
    assert len(found) == 60
    assert found[today * DAY_SECONDS + 30.5 * STEP_SECONDS] == pytest.approx(0.5)
    asked = len(read)
    assert dict(pools.before(view, now + 299)["general"]) == found
    assert len(read) == asked
    pools.before(view, now + 301)
    assert len(read) == 2 * asked
    without: Any = SimpleNamespace(forecast_loop=None)
    assert KeptPools(lambda: without).before(view, now) == {}


def test_pools_closest_to_their_high_are_shown() -> None:
    lines = [
        a_node("a", 0.5, pool="cool"),
        a_node("b", 0.6, pool="close", high=0.61),
        a_node("c", 0.9, pool="over"),
        a_node("d", 0.99, pool=""),
        a_node("e", None, pool="unknown"),
    ]
    assert [each.pool for each in heat_of_pools(a_view(lines), {}, [], [], now=NOW)] == ["over", "close"]


def test_evictions_are_marked_on_the_pool_that_they_left() -> None:
    lines = [a_node("n1", 0.5), a_node("n2", 0.5, pool="batch")]
    moved = [PoolEviction(NOW - 60, pool, node, "shop/web-0") for node, pool in (("n1", "general"), ("n3", "gone"))]
    general = {each.pool: each for each in heat_of_pools(a_view(lines), {}, [], moved, now=NOW)}
    assert general["general"].evictions == ((NOW - 60, "shop/web-0 from n1"),)
    assert general["batch"].evictions == ()


@given(
    st.lists(
        st.lists(st.floats(0.0, 20_000.0) | st.just(float("nan")), min_size=60, max_size=60), min_size=1, max_size=4
    ),
    st.floats(0.0, 3000.0),
)
def test_the_forecast_of_a_pool_is_the_highest_of_its_nodes(rows: list[list[float]], offset: float) -> None:
    lines = [a_node(f"n{number}", 0.5) for number in range(len(rows))]
    other = a_node("other", 0.5, pool="batch")
    grid = np.array([*rows, [1e9] * 60])
    expected = ExpectedPeaks(ahead=grid, starts_at=NOW - offset)
    heat = next(
        each
        for each in heat_of_pools(a_view([*lines, other], expected=expected), {}, [], [], now=NOW)
        if each.pool == "general"
    )
    assert heat.ahead
    for at, share in heat.ahead:
        assert NOW - STEP_SECONDS < at <= NOW + AHEAD_SECONDS
        step = round((at - expected.starts_at) / STEP_SECONDS)
        known = [row[step] / 16_000.0 for row in rows if not np.isnan(row[step])]
        assert share == (pytest.approx(max(known)) if known else None)


def test_few_pools_are_shown() -> None:
    lines = [a_node(f"n{number}", 0.5, pool=f"p{number}") for number in range(5)]
    assert len(heat_of_pools(a_view(lines), {}, [], [], now=NOW)) == POOLS_AT_ONCE
