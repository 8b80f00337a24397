"""Times as kubectl shows them: ages, and the local time of the machine (`--utc`: UTC)."""

import math
import os
import time
from datetime import UTC, datetime
from typing import Final

from rebalancer.model.notation.figures import TIMES, age, seconds_of

UNKNOWN: Final = "-"


def use_utc() -> None:
    """From here on local time is UTC, in this process."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def moment(at: float | None) -> str:
    """`14:05 CET`, with its date unless that is today; `-` for an unknown time."""
    if at is None or not math.isfinite(at):
        return UNKNOWN
    today = local(at).date() == local(time.time()).date()
    return local(at).strftime("%H:%M %Z" if today else "%Y-%m-%d %H:%M %Z")


def dated(at: float) -> str:
    """`2026-11-23 14:05 CET`"""
    return local(at).strftime("%Y-%m-%d %H:%M %Z")


def local(at: float) -> datetime:
    """A time in the zone of the machine, from seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).astimezone()


def zone() -> str:
    """Abbreviation of the local time zone, of now."""
    return local(time.time()).strftime("%Z")


def ago(at: float | None) -> str:
    """The age of a time that has passed."""
    return UNKNOWN if at is None or not math.isfinite(at) else age(time.time() - at)


def ahead(at: float | None) -> str:
    """`in 12m (14:05 CET)`; `now` for a time that has passed."""
    if at is None or not math.isfinite(at):
        return UNKNOWN
    return until(at) if at <= time.time() else f"{until(at)} ({moment(at)})"


def until(at: float | None) -> str:
    """`in 12m`; `now` for a time that has passed."""
    if at is None or not math.isfinite(at):
        return UNKNOWN
    left = at - time.time()
    return "now" if left <= 0 else f"in {age(left)}"


def localised(text: str) -> str:
    """A message with its times in local time."""
    return TIMES.sub(lambda found: moment(seconds_of(found[0])), text)
