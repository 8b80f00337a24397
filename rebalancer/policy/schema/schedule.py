"""Start times of cron schedules on the wall clock of a time zone, and the time spans they open.

Each match of the schedule on the wall clock is a start. At a clock change:

- a start in the hour skipped in spring moves to the end of that hour;
- a start in the hour repeated in autumn counts once, or twice if the minute or the hour starts with `*`
  (as in cron, `0 * * * *` means every elapsed hour).

`cronsim` parses the schedule and matches days. Times are computed per day with numpy, not per minute, so `* * * * *`
costs no more than `0 22 * * *`.
"""

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
from cronsim import CronSim, CronSimError
from numpy.typing import NDArray

Instants = NDArray[np.float64]
"""Seconds since the epoch."""

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed schedule: its days, and the minutes of each day."""

    days: CronSim
    minutes: tuple[int, ...]
    every: bool
    """Whether minute or hour starts with `*`: the schedule then starts in both hours repeated in autumn."""

    def starts_on(self, ordinal: int) -> bool:
        day = date.fromordinal(ordinal)
        return day.month in self.days.months and self.days.match_day(day)


@lru_cache(maxsize=4096)
def read_cron(schedule: str) -> Cron:
    """Raises ValueError for an invalid schedule."""
    expected = "expected five cron fields (minute hour day-of-month month weekday)"
    fields = schedule.split()
    if len(fields) != 5:
        raise ValueError(expected)
    try:
        read = CronSim(schedule, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError) as error:
        raise ValueError(f"{expected}: {str(error).lower() or 'bad field'}") from None
    return Cron(
        days=read,
        minutes=tuple(sorted(hour * 60 + minute for hour in read.hours for minute in read.minutes)),
        every=fields[0].startswith("*") or fields[1].startswith("*"),
    )


def spans(schedule: str, duration_seconds: float, zone: str, *, now: float, end: float) -> tuple[Instants, Instants]:
    """(begins, ends) of the time within `duration_seconds` of a start, as far as [now, end] sees it: disjoint, in
    order. The first span may have begun earlier than it says.

    Raises ValueError when `schedule` is not cron. `zone` is the name of an IANA zone.
    """
    cron, here = read_cron(schedule), ZoneInfo(zone)
    first, last = (datetime.fromtimestamp(at, here).toordinal() for at in (now, end))
    days = [day for day in range(first - 1, last + 2) if cron.starts_on(day)]
    # of the starts before that only the latest can still hold
    oldest = first - 2 - int(duration_seconds // DAY_SECONDS)
    days = [*[day for day in range(first - 2, oldest - 1, -1) if cron.starts_on(day)][:1], *days]
    midnights = [_day(zone, day) for day in days]
    plain = np.array([midnight for midnight, changes in midnights if not changes])
    begins, ends = ([np.add.outer(plain, side).ravel()] for side in _plain_day(schedule, duration_seconds))
    for day, (_, changes) in zip(days, midnights, strict=True):
        if changes:
            starts = np.array(_starts_on_a_change(schedule, zone, day))
            begins.append(starts)
            ends.append(starts + duration_seconds)
    return _merged(np.concatenate(begins), np.concatenate(ends))


def spans_a_day(schedule: str, duration_seconds: float) -> int:
    """How many separate spans a day has on which the schedule starts; 1 for `* * * * *` with 1m."""
    return len(_plain_day(schedule, duration_seconds)[0])


def _merged(begins: Instants, ends: Instants) -> tuple[Instants, Instants]:
    """The same spans, joined where they overlap or touch."""
    begins, ends = np.sort(begins), np.sort(ends)
    gap = begins[1:] > ends[:-1]
    edge = np.ones(min(len(begins), 1), dtype=bool)
    return begins[np.concatenate([edge, gap])], ends[np.concatenate([gap, edge])]


@lru_cache(maxsize=4096)
def _plain_day(schedule: str, duration: float) -> tuple[Instants, Instants]:
    """The spans of a day without a change of the clocks, in seconds after midnight."""
    starts = np.array(read_cron(schedule).minutes) * 60.0
    return _merged(starts, starts + duration)


@lru_cache(maxsize=16_384)
def _day(zone: str, ordinal: int) -> tuple[float, bool]:
    """The instant of a day's midnight (seconds since the epoch), and whether the clocks change during the day."""
    midnight = datetime.fromordinal(ordinal)
    first = midnight.replace(tzinfo=ZoneInfo(zone))
    last = (midnight + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone), fold=1)
    return first.timestamp(), first.utcoffset() != last.utcoffset()


@lru_cache(maxsize=1024)
def _starts_on_a_change(schedule: str, zone: str, ordinal: int) -> tuple[float, ...]:
    """The instants at which a schedule starts on a day on which the clocks change."""
    cron, here, midnight = read_cron(schedule), ZoneInfo(zone), datetime.fromordinal(ordinal)
    starts: set[float] = set()
    for minute in cron.minutes:
        wall = midnight + timedelta(minutes=minute)
        before, after = (wall.replace(tzinfo=here, fold=fold).timestamp() for fold in (0, 1))
        if before > after:  # skipped: read with the old offset it lies behind the change, with the new one before it
            starts.add(_change_between(int(after), int(before), here))
        elif before < after and cron.every:
            starts |= {before, after}
        else:
            starts.add(before)
    return tuple(sorted(starts))


def _change_between(old: int, new: int, zone: ZoneInfo) -> float:
    """The first instant after `old` that has the UTC offset of `new`."""
    wanted = datetime.fromtimestamp(new, zone).utcoffset()
    instants = range(old, new + 1)
    return float(
        instants[bisect_left(instants, True, key=lambda at: datetime.fromtimestamp(at, zone).utcoffset() == wanted)]
    )
