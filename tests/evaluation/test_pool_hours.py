"""Each pool's hours, from the standard's samples."""

import math
from collections.abc import Callable

import pytest

from rebalancer.model.records.effect import (
    PoolHour,
)
from tests.builders import NOW, a_node, a_pod, cluster
from tests.evaluation.scenarios import HOUR, Reads, hot_between, reads_on

# ---- hours


def the_hours(reads: Reads) -> dict[int, PoolHour]:
    """Hours after NOW."""
    return {each.hour - int(NOW // HOUR): each for each in reads.effect.hours(NOW, NOW + 5 * HOUR)}


def test_an_hour_of_a_pool_is_stored(open_at: Callable[..., Reads]) -> None:
    # the second node is twice as large
    nodes = [a_node("a", cpu=10_000.0), a_node("b", cpu=20_000.0), a_node("lone", labels={"pool": "other"})]
    pods = [a_pod("one", "a", cpu=3000.0), a_pod("two", "b", cpu=6000.0), a_pod("leaving", "b", terminating=True)]
    shares = hot_between(("a", NOW + 600, NOW + 1500), hot=0.9, cool=0.3)
    reads = reads_on(open_at(shares, snapshot=cluster(nodes, pods)), NOW)
    reads.at(NOW + HOUR + 600)
    found = the_hours(reads)[0]
    assert (found.pool, found.nodes, found.hot_node_minutes, found.hot_nodes) == ("general", 2, 15.0, 0.25)
    assert found.cpu_share == pytest.approx((45 * 0.3 + 15 * (9_000 + 6_000) / 30_000) / 60)
    assert found.share_stddev == pytest.approx(0.25 * 0.3)
    assert found.highest_share == 0.9
    assert found.requested_share == pytest.approx(0.3)


def test_an_hour_is_stored_anew_until_it_is_over(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + HOUR))), NOW)
    minutes = []
    for at in (900, 1800, 2700, 3600, 3900, 4200):
        reads.at(NOW + at)
        minutes.append(the_hours(reads)[0].hot_node_minutes)
    # up to the last sample, which the next reading begins with
    assert minutes == [10, 25, 40, 55, 60, 60]


def test_new_pods_are_counted_where_they_were_placed(open_at: Callable[..., Reads]) -> None:
    def created(after: float) -> float:
        return -after  # builders go by age at NOW

    pods = [
        a_pod("old", "a", age=5.0),
        a_pod("on-warm", "a", owner="web", age=created(1200)),
        a_pod("before-it-was-warm", "a", owner="web", age=created(300)),
        a_pod("just-then", "a", owner="web", age=created(600)),
        a_pod("on-cool", "b", owner="web", age=created(1200)),
        a_pod("daemon", "a", owner="agent", owner_kind="DaemonSet", age=created(1200)),
        a_pod("waiting", "", owner="web", age=created(1200)),
        a_pod("next-hour", "a", owner="web", age=created(HOUR + 60)),
    ]
    shares = hot_between(("a", NOW + 600, NOW + 3 * HOUR), hot=0.7)  # over its target, under its high
    reads = reads_on(open_at(shares, snapshot=cluster([a_node("a"), a_node("b")], pods)), NOW)
    reads.at(NOW + HOUR + 600)
    first, second = (the_hours(reads)[each] for each in (0, 1))
    assert (first.new_pods, first.new_pods_over_target) == (4, 2)
    assert (second.new_pods, second.new_pods_over_target) == (1, 1)


def test_pods_that_are_gone_by_the_next_reading_stay_counted(open_at: Callable[..., Reads]) -> None:
    nodes, pods = [a_node("a")], [a_pod(f"p{index}", "a", owner="web", age=-600.0) for index in range(3)]
    reads = reads_on(open_at(hot_between(), snapshot=cluster(nodes, pods)), NOW)
    reads.at(NOW + 1800)
    reads.snapshot = cluster(nodes, [*pods[:1], a_pod("q", "a", owner="web", age=-2700.0)])
    reads.at(NOW + HOUR + 300)
    assert the_hours(reads)[0].new_pods == 3


def test_of_an_hour_long_ago_it_is_not_known_what_was_requested(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between()), NOW)
    reads.at(NOW + 1800)
    asked = the_hours(reads)[0].requested_share
    reads.at(NOW + 5 * HOUR)
    hours = the_hours(reads)
    assert hours[0].requested_share == asked  # what was said then stays
    assert math.isnan(hours[2].requested_share)
    assert math.isfinite(hours[4].requested_share)


def test_a_pool_of_which_nothing_is_known_has_no_hour(open_at: Callable[..., Reads]) -> None:
    pools = [
        {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": {"high": 75, "target": 65, "low": 50}}
        for name in ("x", "y", "empty")
    ]
    nodes = [a_node("a", labels={"pool": "x"}), a_node("b", labels={"pool": "y"})]
    reads = open_at(lambda node, _: 0.5 if node == "a" else math.nan, snapshot=cluster(nodes, []), pools=pools)
    reads_on(reads, NOW).at(NOW + HOUR)
    assert {each.pool for each in reads.effect.hours(NOW, NOW + HOUR)} == {"x"}
