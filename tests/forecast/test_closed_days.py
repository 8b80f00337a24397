"""Closed days: weekdays that went like a weekend are no ordinary days for the forecasts of workdays."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from rebalancer.forecast import Forecasts, forecast
from rebalancer.forecast.series.calendar import apply_calendar
from rebalancer.forecast.series.window import Window
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock, Grid, History
from rebalancer.policy.schema.forecast import Forecast
from tests.builders import a_node, a_pod
from tests.forecast.builders import AGED, in_general, world

HOLIDAY = "2026-05-25"
"""A Monday."""
NODES = 12
SHAPE = 0.2 + 0.8 * np.exp(-(((np.arange(SLOTS) / 12 - 13) / 3.5) ** 2))
"""Of a workday, in UTC."""


def day_of(date: str) -> int:
    return int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp() // DAY_SECONDS)


def load(day: int, closed: tuple[str, ...], *, rest: float = 0.3, fall: str = "", weekend: str = "56") -> Grid:
    """(nodes, 288) millicores. `rest`: share of a workday on a day of rest; `fall`: the date from which all is half."""
    rng = np.random.default_rng(day)
    rests = str((day + 3) % 7) in weekend or day in map(day_of, closed)
    levels = np.linspace(500.0, 3_000.0, NODES)[:, None] * SHAPE * (rest if rests else 1.0)
    less = 0.5 if fall and day >= day_of(fall) else 1.0
    return np.asarray(less * levels * rng.normal(1.0, 0.05, (NODES, SLOTS)), dtype=np.float32)


def predicted(date: str, *closed: str, hour: int = 0, calendar: Any = (), **course: Any) -> tuple[Forecasts, float]:
    """The forecast from an hour of a date on, and the median level of the nodes as a share of what comes."""
    today, slot = day_of(date), hour * 12
    days = [load(day, closed, **course) for day in range(today - 9, today + 2)]
    known = [*days[:-2], np.where(np.arange(SLOTS) < slot, days[-2], np.float32(np.nan))]
    blocks = [
        DayBlock(
            day=today - 9 + at,
            pods=tuple(f"shop/web{node}-0" for node in range(NODES)),
            pod_millicores=each,
            nodes=(),
            node_millicores=np.zeros((0, SLOTS), dtype=np.float32),
        )
        for at, each in enumerate(known)
    ]
    names = [f"n{node}" for node in range(NODES)]
    pods = [a_pod(f"web{node}-0", node=name, owner=f"web{node}", age=AGED) for node, name in enumerate(names)]
    snapshot = world([a_node(name) for name in names], pods)
    now = today * float(DAY_SECONDS) + hour * 3_600.0
    found = forecast(History(days=blocks), snapshot, **in_general(snapshot, {"calendar": calendar}), now=now)
    came = np.quantile(np.hstack(days[-2:])[:, slot : slot + SLOTS], 0.95, axis=1)
    return found, float(np.median([each.parts.level for each in found.nodes] / came))


NAMED = [{"date": HOLIDAY, "name": "bank holiday", "like": "sunday"}]


@pytest.mark.parametrize("calendar", [(), NAMED], ids=["no calendar", "calendar"])
@pytest.mark.parametrize("hour", [0, 9, 20])
@pytest.mark.parametrize("date", ["2026-05-26", "2026-05-27", "2026-06-01", "2026-06-02"])
def test_workdays_after_a_bank_holiday_are_forecast_as_without_it(date: str, hour: int, calendar: Any) -> None:
    """Tuesday after it was 56% of what came, and the Monday a week later 50%."""
    _, usual = predicted(date, hour=hour)
    _, after = predicted(date, HOLIDAY, hour=hour, calendar=calendar)
    assert usual > 0.9
    assert after == pytest.approx(usual, abs=0.05)


def test_a_note_names_the_closed_day() -> None:
    found, _ = predicted("2026-05-26", HOLIDAY)
    assert found.notes == (
        "2026-05-25 in pool general went like a weekend: workdays are forecast from the other workdays",
    )
    assert predicted("2026-05-26")[0].notes == predicted("2026-05-26", HOLIDAY, calendar=NAMED)[0].notes == ()


def test_two_closed_days_of_a_week_are_two() -> None:
    """Good Friday and Easter Monday."""
    found, level = predicted("2026-04-07", "2026-04-03", "2026-04-06")
    assert [note[:10] for note in found.notes] == ["2026-04-03", "2026-04-06"]
    assert level > 0.9


@pytest.mark.parametrize("course", [{"rest": 0.9}, {"weekend": ""}, {"weekend": "45"}], ids=["flat", "none", "another"])
def test_without_a_weekend_of_low_load_no_day_is_closed(course: dict[str, Any]) -> None:
    assert predicted("2026-05-26", HOLIDAY, **course)[0].notes == ()


def test_a_weekend_is_forecast_as_before() -> None:
    assert predicted("2026-05-30", HOLIDAY)[1] == pytest.approx(predicted("2026-05-30")[1], abs=0.05)


def test_load_that_has_fallen_is_followed_from_the_third_day_on() -> None:
    """Two low weekdays may be holidays; three are a new level."""
    assert predicted("2026-05-28", fall="2026-05-26")[0].notes != ()
    assert predicted("2026-05-29", fall="2026-05-26")[0].notes == ()


def test_much_less_than_a_weekend_is_no_closed_day() -> None:
    """An outage, or a cluster that was switched off."""
    assert predicted("2026-05-26", HOLIDAY, rest=0.3)[0].notes != ()
    window = Window.before(day_of("2026-05-26") * float(DAY_SECONDS))
    series = np.stack([load(day, ()) for day in range(window.end_step // SLOTS - 8, window.end_step // SLOTS)], axis=1)
    series[:, -1] *= 0.1
    ahead = np.arange(window.end_step, window.end_step + SLOTS, dtype=np.float64) * STEP_SECONDS
    applied = apply_calendar(series, times=window.times(), ahead=ahead, calendar=Forecast().calendar, pool="general")
    assert applied.ordinary is series


def test_a_node_that_was_as_busy_as_ever_keeps_its_day() -> None:
    """Only the others get the load of an ordinary day."""
    window = Window.before(day_of("2026-05-26") * float(DAY_SECONDS))
    days = range(window.end_step // SLOTS - 8, window.end_step // SLOTS)
    series = np.stack([load(day, (HOLIDAY,)) for day in days], axis=1)
    series[0, -1] = 700.0
    ahead = np.arange(window.end_step, window.end_step + SLOTS, dtype=np.float64) * STEP_SECONDS
    ordinary = apply_calendar(
        series, times=window.times(), ahead=ahead, calendar=Forecast().calendar, pool="general"
    ).ordinary
    assert (ordinary[0] == series[0]).all()
    assert (ordinary[1:, -1] == series[1:, 0]).all()  # Monday last week
