"""The calendar of the policy: holidays are left out of ordinary days, and go like another weekday themselves."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rebalancer.forecast.series.calendar import Applied, apply_calendar
from rebalancer.forecast.series.window import Window
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid
from rebalancer.policy.schema.forecast import Forecast
from tests.builders import a_node, a_pod, a_policy
from tests.forecast.builders import AGED, MIDNIGHT, expect, forecasts, history, the_forecast, world

HOLIDAY = {"date": "2026-12-25", "name": "Christmas", "like": "sunday"}


def instant(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def applied(now: float, series: Grid, *calendar: dict[str, Any], pool: str = "general") -> Applied:
    window = Window.before(now)
    return apply_calendar(
        series,
        times=window.times(),
        ahead=np.arange(window.end_step, window.end_step + SLOTS, dtype=np.float64) * STEP_SECONDS,
        calendar=Forecast.model_validate({"calendar": calendar}).calendar,
        pool=pool,
    )


def numbered() -> Grid:
    """(1, 8, 288): the day's number (1..8) + the step / 1,000."""
    return (np.arange(1, 9)[:, None] + np.arange(SLOTS) / 1_000)[None].astype(np.float32)


def known_days(series: Grid) -> list[int]:
    return (np.flatnonzero(np.isfinite(series[0]).any(axis=1)) + 1).tolist()


def test_a_holiday_is_left_out_of_ordinary_days() -> None:
    # Friday is day 6 of the window before Monday 2026-12-28
    found = applied(instant("2026-12-28"), numbered(), HOLIDAY)
    assert known_days(found.ordinary) == [1, 2, 3, 4, 5, 7, 8]
    assert found.expected is found.ordinary
    assert found.notes == ()


def test_days_that_touch_the_date_are_left_out_but_not_for_an_hour() -> None:
    # days end at noon: Friday lies in two of them
    found = applied(instant("2026-12-28 12:00"), numbered(), HOLIDAY)
    assert known_days(found.ordinary) == [1, 2, 3, 4, 7, 8]
    # days end at 01:00: an hour of Friday is in the day before
    found = applied(instant("2026-12-28 01:00"), numbered(), HOLIDAY)
    assert known_days(found.ordinary) == [1, 2, 3, 4, 5, 7, 8]


def test_the_target_day_goes_by_the_newest_day_of_the_other_weekday() -> None:
    # before Friday 2026-12-25 the days are 17 to 24: Sunday the 20th is the fourth
    series = numbered()
    found = applied(instant("2026-12-25"), series, HOLIDAY)
    assert found.ordinary is series
    assert found.expected[0].tolist() == [series[0, 3].tolist()] * 8
    assert found.notes == ("2026-12-25 (Christmas) in pool general goes by sunday, 2026-12-20",)
    # of two days of that weekday the newest: Friday the 18th and 25th are in the window of the 26th
    found = applied(instant("2026-12-26"), series, {**HOLIDAY, "date": "2026-12-26", "like": "friday"})
    assert found.expected[0, 0].tolist() == series[0, 7].tolist()


def test_a_horizon_that_begins_the_day_before_goes_by_both() -> None:
    series = numbered()
    found = applied(instant("2026-12-24 12:00"), series, HOLIDAY)
    # the horizon's first half is Thursday as usual, the second half Friday: its times of day are of Sunday the 20th,
    # the second half of day 4 (19th 12:00 to 20th 12:00)
    assert found.expected[0, :, :144].tolist() == series[0, :, :144].tolist()
    assert found.expected[0, :, 144:].tolist() == [series[0, 3, 144:].tolist()] * 8


def test_the_date_is_of_its_time_zone_and_pools() -> None:
    now = instant("2026-12-28")
    tokyo = applied(now, numbered(), {**HOLIDAY, "timeZone": "Asia/Tokyo"})  # 24th 15:00 to 25th 15:00
    assert known_days(tokyo.ordinary) == [1, 2, 3, 4, 7, 8]
    series = numbered()
    assert applied(now, series, {**HOLIDAY, "pools": ["other"]}).ordinary is series
    assert known_days(applied(now, series, {**HOLIDAY, "pools": ["general"]}).ordinary) == [1, 2, 3, 4, 5, 7, 8]


def test_days_stay_where_fewer_than_three_ordinary_ones_are_known() -> None:
    holidays = [{**HOLIDAY, "date": f"2026-12-{day}", "name": f"day {day}"} for day in range(20, 26)]
    series = numbered()
    assert applied(instant("2026-12-28"), series, *holidays).ordinary is series
    assert known_days(applied(instant("2026-12-28"), series, *holidays[1:]).ordinary) == [1, 7, 8]


def test_without_a_day_of_the_other_weekday_the_ordinary_ones_count_and_a_note_says_so() -> None:
    series = numbered()
    both = [HOLIDAY, {**HOLIDAY, "date": "2026-12-20"}]
    found = applied(instant("2026-12-25"), series, *both)
    assert found.expected is found.ordinary
    assert found.notes == ("2026-12-25 (Christmas) in pool general: no sunday of the last 8 days is known",)
    gap = numbered()
    gap[0, 3] = np.nan  # this node has no Sunday
    assert np.isfinite(applied(instant("2026-12-25"), gap, HOLIDAY).expected[0, 0]).all()


def test_a_forecast_of_a_holiday_has_the_level_the_time_and_the_course_of_a_sunday() -> None:
    work, rest = np.full(SLOTS, 200.0), np.full(SLOTS, 100.0)
    work[120:180], rest[228:246] = 1_000.0, 400.0  # 10:00 to 15:00; 19:00 to 20:30
    starts = [MIDNIGHT - back * DAY_SECONDS for back in range(8, 0, -1)]
    weekdays = [datetime.fromtimestamp(at, UTC).weekday() for at in starts]
    series = np.array([rest if day >= 5 else work for day in weekdays], dtype=np.float32)
    target = datetime.fromtimestamp(MIDNIGHT, UTC)
    assert target.weekday() < 5
    past, snapshot = history({"shop/web-0": series}), world([a_node("a")], [a_pod("web-0", node="a", age=AGED)])
    calendar = [{"date": target.date().isoformat(), "name": "holiday", "like": "sunday"}]
    holiday = the_forecast(past, snapshot, calendar=calendar)
    assert holiday.parts.level == pytest.approx(400.0, rel=0.01)
    assert MIDNIGHT + 228 * STEP_SECONDS <= holiday.peak_at < MIDNIGHT + 246 * STEP_SECONDS
    assert holiday.profile.tolist() == rest.tolist()
    assert holiday.days_used == 8
    usual = the_forecast(past, snapshot)
    assert usual.peak_millicores >= 970.0
    # the same margin relative to the level
    assert holiday.peak_millicores / 400.0 == pytest.approx(usual.peak_millicores / usual.parts.level)
    assert holiday.confidence == usual.confidence
    assert "goes by sunday" in forecasts(past, snapshot, calendar=calendar).notes[0]
    course = expect(past, snapshot, calendar=calendar).expected[0]
    assert course[120:180].max() < 0.5 * course[228:246].max()


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({**HOLIDAY, "date": "Christmas"}, "expected a date such as 2026-12-25"),
        ({**HOLIDAY, "date": "2026-12-25T08:00:00Z"}, "expected a date such as 2026-12-25"),
        ({**HOLIDAY, "like": "holiday"}, "'monday', 'tuesday'"),
        ({**HOLIDAY, "pools": ["nowhere"]}, "expected pools to name one of general"),
        ({**HOLIDAY, "timeZone": "Nowhere/At"}, "expected an IANA time zone"),
        ({"date": "2026-12-25", "like": "sunday"}, "name"),
    ],
)
def test_a_mistake_in_the_calendar_is_named_with_what_was_expected(entry: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        a_policy(forecast={"calendar": [entry]})


def test_a_date_is_there_once_for_each_pool() -> None:
    with pytest.raises(ValidationError, match="expected each date once for each pool, got 2026-12-25"):
        Forecast.model_validate({"calendar": [HOLIDAY, {**HOLIDAY, "pools": ["web"], "like": "monday"}]})
    pools = [{**HOLIDAY, "pools": [name]} for name in ("web", "batch")]
    section = Forecast.model_validate({"calendar": pools})
    assert Forecast.model_validate(section.model_dump(by_alias=True)) == section
