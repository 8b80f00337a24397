"""The whole cluster over time."""

import math

import pytest

from rebalancer.effect.cluster import heat_of_hours, over_days, summaries
from rebalancer.model.notation.heat import Heat
from rebalancer.model.records.effect import PoolHour, Rate
from tests.effect.builders import DAY, an_hour

FIRST = DAY * 24
DAY_SECONDS = 86_400.0


def a_span(hours: list[PoolHour], *, days: int = 1, first: int = DAY) -> list:
    return summaries(hours, since=first * DAY_SECONDS, until=(first + days) * DAY_SECONDS)


def test_a_pool_is_the_sum_or_the_mean_of_its_hours() -> None:
    shares = {"cpu_share": 0.6, "requested_share": 0.9, "share_stddev": 0.2, "highest_share": 0.85}
    hours = [
        an_hour(FIRST, **shares, hot_nodes=2.0, hot_node_minutes=120, new_pods=4, new_pods_over_target=1),
        an_hour(FIRST + 1, hot_nodes=0.0, hot_node_minutes=0, nodes=30, cpu_share=0.4, highest_share=0.9, new_pods=6),
    ]
    [pool, everything] = a_span(hours)
    assert (pool.pool, pool.hours, pool.nodes) == ("general", 2, 20.0)
    assert (pool.hot_nodes, pool.hot_node_minutes, pool.highest_share) == (1.0, 120.0, 0.9)
    # weighed by nodes: 10 and 30
    assert pool.cpu_share == pytest.approx(0.45)
    assert pool.share_stddev == pytest.approx(0.125)
    assert pool.free_by_usage == pytest.approx(0.55)
    assert pool.free_by_requests == pytest.approx(0.25)
    assert pool.new_pods_over_target == Rate(part=1, whole=10)
    assert pool.cpu_change is None
    assert (everything.pool, everything.cpu_share) == (None, pool.cpu_share)


def test_all_together_adds_pools_of_the_same_hours() -> None:
    hours = [an_hour(FIRST, nodes=10, hot_nodes=1.0), an_hour(FIRST, pool="batch", nodes=30, hot_nodes=2.0)]
    batch, general, everything = a_span(hours)
    assert [each.pool for each in (batch, general, everything)] == ["batch", "general", None]
    assert (everything.hours, everything.nodes, everything.hot_nodes) == (1, 40.0, 3.0)
    assert everything.hot_node_minutes == 120.0


def test_cpu_is_held_against_the_same_hour_last_week_where_both_are_known() -> None:
    week = 168
    hours = [
        an_hour(FIRST - week, cpu_share=0.5),
        an_hour(FIRST, cpu_share=0.6),
        an_hour(FIRST + 1, cpu_share=0.9),
        an_hour(FIRST + 2 - week, cpu_share=0.5),
        an_hour(FIRST + 2, cpu_share=math.nan),
        an_hour(FIRST - week, pool="batch", cpu_share=0.5, nodes=20),
        an_hour(FIRST, pool="batch", cpu_share=0.5, nodes=10),
    ]
    batch, general, everything = a_span(hours)
    assert general.cpu_change == pytest.approx(0.2)
    assert batch.cpu_change == pytest.approx(-0.5)
    assert everything.cpu_change == pytest.approx(11 / 15 - 1)


def test_what_is_not_known_is_none_and_not_nothing() -> None:
    unknown = dict.fromkeys(("hot_nodes", "cpu_share", "requested_share", "share_stddev", "highest_share"), math.nan)
    [pool, _] = a_span([an_hour(FIRST, hot_node_minutes=math.nan, **unknown)])
    figures = (pool.hot_nodes, pool.cpu_share, pool.free_by_usage, pool.free_by_requests, pool.share_stddev)
    assert figures == (None,) * 5
    assert (pool.highest_share, pool.hot_node_minutes, pool.new_pods_over_target.share) == (None, 0.0, None)


def test_hours_outside_of_the_time_are_only_compared_with() -> None:
    assert a_span([an_hour(FIRST - 1), an_hour(FIRST + 24)]) == []
    assert a_span([]) == []


def test_days_are_listed_one_by_one_and_are_those_days_alone() -> None:
    hours = [an_hour(FIRST + each, pool=pool, hot_node_minutes=each) for each in range(48) for pool in ("a", "b")]
    days = over_days(hours, since=DAY * DAY_SECONDS, until=(DAY + 2) * DAY_SECONDS)
    assert [(each.day, each.summary.pool) for each in days] == [
        (day, pool) for day in (DAY, DAY + 1) for pool in ("a", "b", None)
    ]
    for day in (DAY, DAY + 1):
        assert [each.summary for each in days if each.day == day] == a_span(hours, first=day)
    assert days[0].summary.hot_node_minutes == sum(range(24))


def test_hot_node_hours_are_compared_with_the_same_hours_of_the_weeks_before() -> None:
    week = 168
    hours = [
        an_hour(FIRST, hot_node_minutes=30),
        an_hour(FIRST + 1, hot_node_minutes=90),
        an_hour(FIRST + 2, hot_node_minutes=600),  # a week before it nothing is known
        an_hour(FIRST - week, hot_node_minutes=120),
        an_hour(FIRST + 1 - week, hot_node_minutes=240),
        an_hour(FIRST + 3 - week, hot_node_minutes=999),
    ]
    span = {"since": FIRST * 3600.0, "until": (FIRST + 3) * 3600.0}
    assert heat_of_hours(hours, **span, evictions=8) == Heat(before=6.0, after=2.0, evictions=8)
    alone = [each for each in hours if each.hour >= FIRST]
    assert heat_of_hours(alone, **span, evictions=8) == Heat(before=None, after=12.0, evictions=8)
    # of more than a week the weeks before it, not its own first days
    long = {"since": (FIRST - week) * 3600.0, "until": (FIRST + 3) * 3600.0}
    assert heat_of_hours(hours, **long, evictions=8).before is None
