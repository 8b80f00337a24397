"""Trajectories of a workday after rest days: never below the course of the same weekday last week."""

from datetime import UTC, datetime

import numpy as np

from rebalancer.model.measured.history import SLOTS, Grid
from tests.builders import a_node, a_pod
from tests.forecast.builders import AGED, MIDNIGHT, expect, history, world

WORK, REST = "work", "rest"
SUNDAY_NIGHT = [REST, *[WORK] * 5, REST, REST]
NOON = slice(98, 214)
"""Steps of the day's plateau of workdays, without its smoothed ends."""


def a_week(days: list[str], busy: float = 2_000.0) -> Grid:
    series = np.full((len(days), SLOTS), 200.0, dtype=np.float32)
    series[[day == WORK for day in days], 96:216] = busy
    return series


def courses(*weeks: Grid, **options: object) -> Grid:
    """(nodes, 288) trajectories of nodes with one pod each."""
    names = [f"n{index}" for index in range(len(weeks))]
    pods = [a_pod(f"web{index}-0", node=name, owner=f"web{index}", age=AGED) for index, name in enumerate(names)]
    past = history({f"shop/web{index}-0": week for index, week in enumerate(weeks)})
    return expect(past, world([a_node(name) for name in names], pods), **options).expected


def test_on_sunday_night_mondays_course_is_that_of_last_monday() -> None:
    (course,) = courses(a_week(SUNDAY_NIGHT))
    assert (course[NOON] >= 2_000.0 - 1e-3).all()
    assert course[NOON].max() <= 1.1 * 2_000.0
    assert course[:90].max() <= 1.1 * 200.0


def test_a_node_whose_own_last_days_were_workdays_is_not_raised() -> None:
    steady = a_week([WORK] * 8, busy=900.0)
    monday, other = courses(a_week(SUNDAY_NIGHT), steady)
    assert monday[NOON].max() >= 2_000.0 - 1e-3
    assert other.max() <= 1.1 * 900.0


def test_one_node_with_a_single_high_day_is_raised_only_with_its_pool() -> None:
    once = a_week([REST, WORK, *[REST] * 6], busy=1_000.0)
    alone = courses(once)[0]
    among = courses(once, *[a_week([WORK] * 8, busy=3_000.0)] * 9)[0]
    assert alone[NOON].max() >= 1_000.0 - 1e-3
    assert among.max() < 950.0  # what the learner makes of one high day in eight, not the course of that day


def test_a_calendar_day_is_no_workday() -> None:
    target = datetime.fromtimestamp(MIDNIGHT, UTC)
    like = f"{datetime.fromtimestamp(MIDNIGHT - 86_400, UTC):%A}".lower()  # yesterday, a rest day
    calendar = [{"date": target.date().isoformat(), "name": "holiday", "like": like}]
    (course,) = courses(a_week(SUNDAY_NIGHT), calendar=calendar)
    assert course.max() < 1_000.0
