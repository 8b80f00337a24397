"""How often the descheduler runs, by the values of its chart: as a Deployment at an interval, or as a CronJob."""

import re
from datetime import date
from itertools import pairwise

from rebalancer.model.notation.schedules import NAMED
from rebalancer.policy.schema.schedule import DAY_SECONDS, read_cron

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_DURATION = re.compile(r"(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h))+")
_DAYS = range(date(2024, 1, 1).toordinal(), date(2028, 1, 1).toordinal())
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
    cron = read_cron(NAMED.get(schedule, schedule))
    days = [day for day in _DAYS if cron.starts_on(day)]
    if not days:
        raise ValueError(f"expected a schedule with a day that comes every year, got {schedule!r}")
    gaps = [60.0 * (later - earlier) for earlier, later in pairwise(cron.minutes)]
    over_midnight = 60.0 * (cron.minutes[-1] - cron.minutes[0])
    gaps += [(later - earlier) * DAY_SECONDS - over_midnight for earlier, later in pairwise(days)]
    return min(gaps, default=len(_DAYS) * DAY_SECONDS)
