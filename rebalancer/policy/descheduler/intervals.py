"""How often the descheduler runs, by the values of its chart: as a Deployment at an interval, or as a CronJob."""

import re
from datetime import date, timedelta
from itertools import pairwise

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_DURATION = re.compile(r"(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h))+")
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = {name: at for names, first in ((_WEEKDAYS, 0), (_MONTHS, 1)) for at, name in enumerate(names, first)}
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MINUTES_OF_DAY = 1440
_FIRST, _DAYS = date(2024, 1, 1), 366 + 3 * 365
"""Days with every month length and every weekday."""


def go_seconds(text: str) -> float:
    """`"1h30m"` -> 5400.0. Raises ValueError."""
    if text == "0":
        return 0.0
    if _GO_DURATION.fullmatch(text) is None:
        raise ValueError(f"expected a duration such as 50m or 1h30m, got {text!r}")
    return sum(float(count) * _UNITS[unit] for count, unit in re.findall(r"([\d.]+)(ns|us|µs|ms|s|m|h)", text))


def shortest_gap(schedule: str) -> float:
    """Seconds between the two runs of a CronJob that are closest together. Raises ValueError for another text."""
    fields = _MACROS.get(schedule.strip(), schedule).split()
    if len(fields) != len(_RANGES):
        raise ValueError(f"expected a schedule such as 0 4 * * *, got {schedule!r}")
    minutes, hours, days, months, weekdays = (_numbers(each, *span) for each, span in zip(fields, _RANGES, strict=True))
    weekdays = {each % 7 for each in weekdays}
    either = not fields[2].startswith("*") and not fields[4].startswith("*")

    def runs(day: date) -> bool:
        by_day, by_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        return day.month in months and (by_day or by_weekday if either else by_day and by_weekday)

    times = sorted(hour * 60 + minute for hour in hours for minute in minutes)
    at = [each for each in range(_DAYS) if runs(_FIRST + timedelta(days=each))]
    if not at:
        raise ValueError(f"expected a schedule with a day that comes every year, got {schedule!r}")
    gaps = [later - earlier for earlier, later in pairwise(times)]
    gaps += [(later - earlier) * _MINUTES_OF_DAY - times[-1] + times[0] for earlier, later in pairwise(at)]
    return 60.0 * min(gaps, default=_DAYS * _MINUTES_OF_DAY)


def _numbers(text: str, low: int, high: int) -> set[int]:
    """`"*/15"`, `"1-5"` or `"mon,thu"`. Raises ValueError."""
    out: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        begin = low if span in ("*", "?") else _number(first)
        end = _number(last) if dash else high if step or span in ("*", "?") else begin
        every = int(step or 1)
        if not low <= begin <= end <= high or every < 1:
            raise ValueError(f"expected numbers from {low} to {high}, got {text!r}")
        out |= set(range(begin, end + 1, every))
    return out


def _number(text: str) -> int:
    return _NAMES[text] if text in _NAMES else int(text)
