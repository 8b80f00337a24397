"""Of one service only so many pods may be on their way at once: what needs several rounds begins that much earlier."""

import pytest

from rebalancer.planner.ahead import rounds_needed
from tests.builders import replicas
from tests.planner.scenarios.morning import the_one, window

COOL = {"cooldowns": {"node": "5m", "service": "5m", "serviceNode": "20m"}}
THREE = replicas("web", {"n1": 3, "n2": 3})
EACH = {"web-0": 1_400.0, "web-1": 1_400.0, "web-2": 1_400.0}
"""All three are needed: 4200 of 4160."""
ROOM = {"service": {"inFlight": 1}}


def test_three_pods_of_a_service_need_threerounds_needed() -> None:
    # two of them before the last, 20 minutes each: 40 before 09:18
    assert the_one(THREE, EACH, safety=COOL, limits=ROOM) == ("Fri 08:38:00", "to be relieved by 08:38")


def test_a_round_is_no_shorter_than_the_time_between_two_looks() -> None:
    start, _ = the_one(THREE, EACH, safety=COOL, limits=ROOM, forecast={"interval": "30m"})
    assert start == "Fri 08:18:00"


@pytest.mark.parametrize(("at_once", "start"), [(2, "Fri 08:58:00"), (3, "Fri 09:18:00"), ("50%", "Fri 09:18:00")])
def test_the_more_may_go_at_once_the_later_it_begins(at_once: int | str, start: str) -> None:
    assert the_one(THREE, EACH, safety=COOL, limits={"service": {"inFlight": at_once}})[0] == start


def test_the_rounds_before_the_last_lie_in_the_window_too() -> None:
    night = [window("0 0 * * *", "6h", "night")]
    start, why = the_one(THREE, EACH, safety=COOL, limits=ROOM, windows={"cluster": night})
    assert start == "Fri 05:05:00"
    assert why == "to be relieved by 05:05, before the window 'night' closes at 06:00"


@pytest.mark.parametrize(
    ("pods", "at_once", "excess", "per_round", "rounds"),
    [
        ({"a": [5.0, 5.0], "b": [5.0]}, {"a": 1, "b": 1}, 10.0, 10, 1),
        ({"a": [5.0, 5.0], "b": [5.0]}, {"a": 1, "b": 1}, 15.0, 10, 2),
        ({"a": [5.0, 5.0], "b": [5.0, 5.0]}, {"a": 9, "b": 9}, 20.0, 2, 2),
        ({"a": [5.0, 5.0], "b": [5.0, 5.0]}, {"a": 9, "b": 9}, 15.0, 1, 3),
        ({"a": [1.0]}, {"a": 1}, 100.0, 10, 1),
        ({}, {}, 100.0, 10, 1),
    ],
)
def test_rounds_are_counted(
    pods: dict[str, list[float]], at_once: dict[str, int], excess: float, per_round: int, rounds: int
) -> None:
    assert rounds_needed(pods, at_once, excess=excess, per_round=per_round) == rounds
