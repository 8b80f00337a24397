"""Calendar days of the policy: dates, such as holidays, on which load follows the course of another weekday.

They say nothing about ordinary days, so they are left out of the history of those. A node that used much less on one
gets the load of an ordinary day in its place, as it does for closed days that the calendar doesn't name
(`closed_days`). On a calendar day the forecast goes by the newest day of the other weekday.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.closed_days import as_ordinary, find_closed
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.policy.schema.forecast import WEEKDAYS, CalendarDay

Ints = NDArray[np.int64]

SHORT_STEPS = SLOTS // 20
"""Steps of a date that a day may contain and still be an ordinary one: its P95 is blind to them."""
LEAST_DAYS = 3
"""Where fewer ordinary days are known, calendar days stay in the history."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Series (nodes, days, 288) of a pool with the calendar applied; the same object where nothing changed."""

    ordinary: Grid
    """Without calendar days (NaN), or with an ordinary day in their place."""
    expected: Grid
    """The series that the horizon goes by: `ordinary`, and at the times of day that lie on a calendar day the other
    weekday's values in all days."""
    notes: tuple[str, ...] = ()
    """What was put in place, in sentences."""


def apply_calendar(
    series: Grid, *, times: Floats, ahead: Floats, calendar: Sequence[CalendarDay], pool: str
) -> Applied:
    """`times` (days, 288) and `ahead` (288,): starts of the steps of the series and of the horizon, seconds since the
    epoch."""
    mine = [each for each in calendar if not each.pools or pool in each.pools]
    on = [_dates(times, each.time_zone) == each.date.toordinal() for each in mine]
    exceptional = np.logical_or.reduce(on) if on else np.zeros(times.shape, dtype=np.bool_)
    dates = _dates(times, "UTC")
    named = {int(date) for date in np.unique(dates) if exceptional[dates == date].mean() > 0.5}
    found = find_closed(series, dates, besides=named)
    left_out = exceptional.sum(axis=1) > SHORT_STEPS
    ordinary = _without(series, left_out)
    too_few = ordinary is series and bool(left_out.any())
    filled, changed = as_ordinary(series, dates, {*found, *(() if too_few else named)})
    if changed.any():
        ordinary = np.where(changed[:, None, None], filled, ordinary)
    expected = ordinary
    notes = [
        f"{date.fromordinal(day)} in pool {pool} went like a weekend: workdays are forecast from the other workdays"
        for day in found
    ]
    for each in mine:
        columns = np.flatnonzero(_dates(ahead, each.time_zone) == each.date.toordinal())
        if len(columns) <= SHORT_STEPS:
            continue
        said = f"{each.date} ({each.name}) in pool {pool}"
        # ordinals of Mondays are 1 modulo 7
        alike = ((_dates(times, each.time_zone) - 1) % 7 == WEEKDAYS.index(each.like)) & ~exceptional
        columns = columns[alike[:, columns].any(axis=0)]
        if not len(columns):
            notes.append(f"{said}: no {each.like} of the last {len(series[0])} days is known")
            continue
        newest = len(alike) - 1 - np.argmax(alike[::-1, columns], axis=0)
        values = series[:, newest, columns][:, None]
        if expected is ordinary:
            expected = ordinary.copy()
        expected[:, :, columns] = np.where(np.isfinite(values), values, expected[:, :, columns])
        notes.append(f"{said} goes by {each.like}, {date.fromordinal(_date(times, each, newest, columns))}")
    return Applied(ordinary=ordinary, expected=expected, notes=tuple(notes))


def _without(series: Grid, left_out: Bools) -> Grid:
    known = np.isfinite(series).any(axis=(0, 2))
    if not left_out.any() or np.count_nonzero(known & ~left_out) < LEAST_DAYS:
        return series
    out = series.copy()
    out[:, left_out] = np.nan
    return out


def _dates(times: Floats, zone: str) -> Ints:
    """Ordinals of the local dates of `times`."""
    first = datetime.fromtimestamp(float(times.min()), UTC).date() - timedelta(days=1)
    last = datetime.fromtimestamp(float(times.max()), UTC).date() + timedelta(days=2)
    days = range(first.toordinal(), last.toordinal() + 1)
    begins = [datetime.combine(date.fromordinal(day), time(), ZoneInfo(zone)).timestamp() for day in days]
    return days[0] + np.searchsorted(begins, times, side="right") - 1


def _date(times: Floats, each: CalendarDay, newest: Ints, columns: Ints) -> int:
    return int(_dates(times, each.time_zone)[newest[0], columns[0]])
