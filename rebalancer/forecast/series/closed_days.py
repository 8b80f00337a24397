"""Closed days: weekdays of a pool on which load went like on a weekend, as on a holiday that no calendar names.

After a long weekend the newest days say little about the next workday, and a week later neither does the same weekday.
So the load of a closed day is replaced by that of an ordinary workday: the same weekday a week before or after, or else
the nearest workday. Days are dates in UTC.
"""

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Bools, Floats

Ints = NDArray[np.int64]

REST_SHARE = 0.8
"""Most that a rest day has of the mean load of workdays."""
NEARER = 1 / 3
"""A closed day is in the lower third between weekend and workdays."""
LIKE_A_WEEKEND = 0.7
"""Least that it has of the load of a day of the weekend: less is another cause."""
LEAST_GAP = 0.5
"""Least distance from a closed day to the lowest other workday, in times of that from the weekend to workdays: loads
that change from day to day have no closed days."""
MOST_CLOSED, LEAST_WORKDAYS = 2, 3
"""More low weekdays than that, or fewer others, are a new level."""
KNOWN_SHARE = 0.8
"""Share of the window that is known of the nodes that are looked at."""
WEEK = 7
SATURDAY = 5


def weekday_of(date: int) -> int:
    """Weekday of the ordinal of a date; Monday is 0."""
    return (date - 1) % WEEK


def find_closed(series: Grid, dates: Ints, *, besides: Collection[int] = ()) -> tuple[int, ...]:
    """Ordinals of the closed days of a pool, oldest first, other than those in `besides`. `series` (nodes, days, 288);
    `dates` (days, 288): ordinals of the dates of its steps."""
    flat, of_step = series.reshape(len(series), -1), dates.reshape(-1)
    known = np.isfinite(flat).mean(axis=1) >= KNOWN_SHARE
    if not known.any():
        return ()
    load = np.nan_to_num(flat[known]).mean(axis=0)
    looked_at = [int(date) for date in np.unique(of_step) if date not in besides]
    first_slot = np.searchsorted(of_step, of_step[-1]) if len(of_step) else 0
    days = np.full((len(looked_at), SLOTS), np.nan)
    slot_of = (np.arange(len(of_step)) - first_slot) % SLOTS
    for row, date in enumerate(looked_at):
        steps = of_step == date
        days[row, slot_of[steps]] = load[steps]
    rests = np.array([weekday_of(date) >= SATURDAY for date in looked_at])
    shares = np.array([_share(days, row, rests) for row in range(len(days))])
    weekend = shares[rests & np.isfinite(shares)]
    if len(weekend) < 2 or weekend.max() > REST_SHARE:
        return ()
    below = 1.0 - float(weekend.max())
    most = min(float(weekend.max()) + NEARER * below, REST_SHARE)
    low = ~rests & (shares <= most) & (shares >= LIKE_A_WEEKEND * weekend.min())
    others = ~rests & (shares > most)
    if not 0 < np.count_nonzero(low) <= MOST_CLOSED or np.count_nonzero(others) < LEAST_WORKDAYS:
        return ()
    if shares[others].min() - shares[low].max() < LEAST_GAP * below:
        return ()
    return tuple(date for date, closed in zip(looked_at, low.tolist(), strict=True) if closed)


def _share(days: Floats, row: int, rests: Bools) -> float:
    """Mean load of a day / median of that of workdays at the same times; NaN with less than half of a day."""
    slots = np.isfinite(days[row])
    if 2 * np.count_nonzero(slots) < SLOTS:
        return float("nan")
    whole = np.isfinite(days[:, slots]).all(axis=1) & ~rests
    usual = float(np.median(days[whole][:, slots].mean(axis=1))) if whole.any() else 0.0
    return float(days[row, slots].mean()) / usual if usual > 0 else float("nan")


def as_ordinary(series: Grid, dates: Ints, closed: Collection[int]) -> tuple[Grid, Bools]:
    """`series` with the steps of these dates as on an ordinary day, and (nodes,) where that was done: nodes that used
    much less on one of them. The same object where nothing changed."""
    flat, of_step = series.reshape(len(series), -1), dates.reshape(-1)
    workdays = {int(date) for date in np.unique(of_step) if weekday_of(int(date)) < SATURDAY} - set(closed)
    out, changed = flat, np.zeros(len(series), dtype=np.bool_)
    for date in sorted(closed):
        steps = np.flatnonzero(of_step == date)
        source = np.full(len(steps), -1, dtype=np.int64)
        for days in _offsets(date, workdays):
            other = steps + days * SLOTS
            free = (source < 0) & (other >= 0) & (other < len(of_step))
            source[free] = other[free]
        steps, source = steps[source >= 0], source[source >= 0]
        if not len(steps):
            continue
        with np.errstate(invalid="ignore"):
            low = flat[:, steps].sum(axis=1) <= REST_SHARE * flat[:, source].sum(axis=1)
        if low.any():
            out = out.copy() if out is flat else out
            out[np.ix_(low, steps)] = flat[np.ix_(low, source)]
            changed |= low
    return (series if out is flat else out.reshape(series.shape)), changed


def _offsets(date: int, workdays: Collection[int]) -> Iterator[int]:
    """Days from a date to the ordinary ones that it may be replaced by, the best first."""
    same = [-WEEK, WEEK]
    near = [] if weekday_of(date) >= SATURDAY else [sign * days for days in range(1, WEEK) for sign in (-1, 1)]
    yield from (days for days in (*same, *near) if date + days in workdays or weekday_of(date) >= SATURDAY)
