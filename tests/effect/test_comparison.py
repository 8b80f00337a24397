"""Before against after, and when nothing can be said."""

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.effect.comparison import Comparison, Interval, compare
from rebalancer.model.records.effect import PoolHour
from rebalancer.policy.schema.forecast import Event
from tests.effect.builders import DAY, an_hour


def some_days(
    first: int, days: int, minutes: Callable[[int], float] | float = 60.0, *, hours: int = 24, **changes: Any
) -> list[PoolHour]:
    """Hours of 10 nodes; `minutes` an hour, of the day counted from the first."""
    return [
        an_hour((first + day) * 24 + hour, hot_node_minutes=minutes(day) if callable(minutes) else minutes, **changes)
        for day in range(days)
        for hour in range(hours)
    ]


def two_weeks(before: float, after: float, **changes: Any) -> Comparison:
    return compare(some_days(DAY - 14, 14, before), some_days(DAY, 14, after, **changes))


def test_fewer_hot_minutes_on_every_day_are_fewer() -> None:
    reported = two_weeks(60.0, 20.0)
    # 10 nodes: 24 h x 60 min / 10 nodes
    assert (reported.matched_days, reported.sufficient_data, reported.before, reported.after) == (14, True, 144.0, 48.0)
    assert reported.change is not None
    assert (reported.change.median, reported.change.low, reported.change.high) == (-96.0, -96.0, -96.0)
    assert reported.verdict.startswith("a node is hot for 96 minutes a day shorter, between 96 and 96 (99% sure, 14 m")
    assert two_weeks(20.0, 60.0).verdict.startswith("a node is hot for 96 minutes a day longer, between 96 and 96 (")


@pytest.mark.parametrize("days", [0, 1, 4])
def test_fewer_than_five_matched_days_are_too_little_data(days: int) -> None:
    reported = compare(some_days(DAY - 7, days), some_days(DAY, days, 0.0))
    assert (reported.matched_days, reported.sufficient_data, reported.change) == (days, False, None)
    days_told = "1 matched day" if days == 1 else f"{days} matched days"
    assert reported.verdict == f"insufficient data: {days_told}, at least 5 are needed"


def test_five_matched_days_say_how_sure_they_are() -> None:
    reported = compare(some_days(DAY - 7, 5), some_days(DAY, 5, lambda day: 10.0 * day))
    assert reported.change == Interval(median=-96.0, low=-144.0, high=-48.0, confidence=1 - 2 / 2**5)


def test_days_are_matched_with_the_same_weekday_once_and_with_the_nearest() -> None:
    # five weeks before, of which only the last one's minutes are 60; a week and a day after
    before = [*some_days(DAY - 35, 28, 6_000.0), *some_days(DAY - 7, 7, 60.0)]
    reported = compare(before, some_days(DAY, 7, 60.0))
    assert (reported.matched_days, reported.before) == (7, 144.0)
    assert compare(some_days(DAY - 7, 7), some_days(DAY, 8)).matched_days == 7
    assert compare(some_days(DAY - 8, 1), some_days(DAY, 7)).matched_days == 1


def test_a_day_of_which_less_than_half_is_known_is_not_matched() -> None:
    after = some_days(DAY, 7)
    assert compare(some_days(DAY - 7, 7, hours=11), after).matched_days == 0
    assert compare(some_days(DAY - 7, 7, hours=12), after).matched_days == 7
    # a day further back takes its place
    assert compare([*some_days(DAY - 14, 7), *some_days(DAY - 7, 7, hours=11)], after).matched_days == 7


def test_only_hours_of_the_day_that_both_sides_know_are_compared() -> None:
    night = [each for each in some_days(DAY - 7, 7, 0.0) if each.hour % 24 < 12]
    day = [each for each in some_days(DAY - 7, 7, 600.0) if each.hour % 24 >= 12]
    after = [each for each in some_days(DAY, 7, 0.0) if each.hour % 24 < 12]
    reported = compare([*night, *day], after)
    assert (reported.before, reported.after) == (0.0, 0.0)


def test_no_difference_that_is_clear_is_reported_as_such() -> None:
    reported = compare(some_days(DAY - 14, 14), some_days(DAY, 14, lambda day: 60.0 + (10 if day % 2 else -10)))
    assert reported.change is not None
    assert reported.change.low < 0 < reported.change.high
    assert reported.verdict.startswith("no clear change in hot time: between -24 and 24 minutes a day")


def test_pools_that_were_left_alone_are_taken_off() -> None:
    before = [*some_days(DAY - 14, 14, 60.0), *some_days(DAY - 14, 14, 60.0, pool="alone")]
    after = [*some_days(DAY, 14, 20.0), *some_days(DAY, 14, 20.0, pool="alone")]
    reported = compare(before, after, untouched=["alone"])
    assert reported.change is not None
    assert reported.change.median == -96.0
    assert reported.control is not None
    assert reported.control.median == -96.0
    assert reported.net_change is not None
    assert reported.net_change.median == 0.0
    assert reported.verdict.startswith("no clear change")
    # by itself it looks like a success
    assert "shorter" in compare(some_days(DAY - 14, 14, 60.0), some_days(DAY, 14, 20.0)).verdict


def test_pools_that_were_left_alone_without_data_are_named() -> None:
    reported = compare(some_days(DAY - 14, 14), some_days(DAY, 14, 20.0), untouched=["alone"])
    assert reported.net_change is None
    assert reported.verdict.endswith("; but insufficient data of the control group")


def test_a_pool_that_is_known_on_one_side_only_is_left_out() -> None:
    reported = compare(some_days(DAY - 14, 14), [*some_days(DAY, 14), *some_days(DAY, 14, 9_000.0, pool="new")])
    assert (reported.before, reported.after) == (144.0, 144.0)


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"cpu_share": 0.54}, ()),
        ({"cpu_share": 0.56}, ("pool general used 12% more CPU",)),
        ({"cpu_share": 0.4}, ("pool general used 20% less CPU",)),
        ({"nodes": 12, "cpu_share": 0.5 * 10 / 12}, ("pool general had 12 nodes, 10 before",)),
    ],
)
def test_what_else_moved_is_named(changes: dict[str, float], moved: tuple[str, ...]) -> None:
    reported = two_weeks(60.0, 20.0, **changes)
    assert reported.confounders == moved
    assert reported.verdict.endswith("".join(f"; but {each}" for each in moved))


def an_event(first_day: int, days: int, *pools: str) -> Event:
    at = [datetime.fromtimestamp(day * 86_400, UTC).isoformat() for day in (first_day, first_day + days)]
    return Event.model_validate({"name": "sale", "from": at[0], "to": at[1], "pools": list(pools), "uplift": 50})


def test_declared_events_are_named_with_the_side_they_were_on() -> None:
    before, after = some_days(DAY - 14, 14), some_days(DAY, 14)
    assert compare(before, after, events=[an_event(DAY + 3, 1)]).confounders == ("declared event sale was after",)
    assert compare(before, after, events=[an_event(DAY - 3, 5)]).confounders == (
        "declared event sale was before and after",
    )
    assert compare(before, after, events=[an_event(DAY + 3, 1, "batch")]).confounders == ()
    assert compare(before, after, events=[an_event(DAY + 14, 1)]).confounders == ()
    assert compare(before, after, events=[an_event(DAY - 20, 6)]).confounders == ()


def test_the_spread_between_nodes_is_compared_too() -> None:
    reported = two_weeks(60.0, 60.0, share_stddev=0.06)
    assert reported.share_stddev is not None
    assert reported.share_stddev.median == pytest.approx(-0.04)
    assert two_weeks(60.0, 60.0, share_stddev=math.nan).share_stddev is None


@given(st.lists(st.floats(0, 600), min_size=5, max_size=40))
def test_the_median_lies_in_its_interval_and_more_days_are_surer(minutes: list[float]) -> None:
    days = len(minutes)
    reported = compare(some_days(DAY - 42, 42, 0.0, hours=12), some_days(DAY, days, lambda day: minutes[day], hours=12))
    assert reported.matched_days == days
    assert reported.change is not None
    assert reported.change.low <= reported.change.median <= reported.change.high
    assert reported.change.confidence >= (0.95 if days > 5 else 0.9375)


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    dice = random.Random(7)
    hits = 0
    for _ in range(200):
        minutes = [60.0 + dice.gauss(0.0, 5.0) for _ in range(10)]
        reported = compare(some_days(DAY - 14, 10, 60.0, hours=12), some_days(DAY, 10, minutes.__getitem__, hours=12))
        assert reported.change is not None
        assert reported.change.confidence == pytest.approx(0.978515625)
        hits += reported.change.low <= 0 <= reported.change.high
    assert hits >= 186  # 195.7 are expected; fewer than 186 come once in ten thousand
