"""Change windows: by instants worked out by hand, by a minute-by-minute oracle of their own, and by cronsim's walk."""

import time
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rebalancer.policy.schema.schedule import spans
from rebalancer.policy.schema.types import FieldError
from rebalancer.policy.schema.windows import (
    MOST_IN_ANNOTATION,
    Window,
    Windows,
    is_open,
    parse_change_window,
    state_of_annotation,
)

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def utc(text: str) -> float:
    """`2026-03-29 01:00` or with seconds, in UTC, as seconds since the epoch."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def a_window(schedule: str = "0 22 * * *", duration: str = "8h", kind: str = "Allow", **fields: Any) -> Window:
    return Window.model_validate({"kind": kind, "schedule": schedule, "duration": duration, **fields})


def in_words(text: str, now: str) -> tuple[bool, str | None]:
    """(open, until) of windows in the annotation's grammar, in UTC."""
    state = is_open(parse_change_window(text), utc(now))
    assert not state.broken
    assert state.next_open == (None if state.open else state.until)
    return state.open, None if state.until is None else f"{datetime.fromtimestamp(state.until, UTC):%Y-%m-%d %H:%M:%S}"


NIGHT_BERLIN = f"allow 0 22 * * * 8h {BERLIN}"
NIGHT_NEW_YORK = f"allow 0 22 * * * 8h {NEW_YORK}"

CASES = [
    # over midnight, half open at both ends
    (NIGHT_BERLIN, "2026-01-15 20:59:59", False, "2026-01-15 21:00:00"),
    (NIGHT_BERLIN, "2026-01-15 21:00", True, "2026-01-16 05:00:00"),
    (NIGHT_BERLIN, "2026-01-15 23:00", True, "2026-01-16 05:00:00"),
    (NIGHT_BERLIN, "2026-01-16 04:59:59", True, "2026-01-16 05:00:00"),
    (NIGHT_BERLIN, "2026-01-16 05:00", False, "2026-01-16 21:00:00"),
    (NIGHT_BERLIN, "2026-07-15 20:00", True, "2026-07-16 04:00:00"),
    # Berlin, spring: 22:00 CET to 07:00 CEST; the next evening starts at 22:00 CEST
    (NIGHT_BERLIN, "2026-03-28 20:59", False, "2026-03-28 21:00:00"),
    (NIGHT_BERLIN, "2026-03-29 04:59", True, "2026-03-29 05:00:00"),
    (NIGHT_BERLIN, "2026-03-29 05:00", False, "2026-03-29 20:00:00"),
    # Berlin, autumn: 22:00 CEST to 05:00 CET
    (NIGHT_BERLIN, "2026-10-24 20:00", True, "2026-10-25 04:00:00"),
    (NIGHT_BERLIN, "2026-10-25 04:00", False, "2026-10-25 21:00:00"),
    # New York, spring: 22:00 EST to 07:00 EDT; autumn: 22:00 EDT to 05:00 EST
    (NIGHT_NEW_YORK, "2026-03-08 03:00", True, "2026-03-08 11:00:00"),
    (NIGHT_NEW_YORK, "2026-03-08 11:00", False, "2026-03-09 02:00:00"),
    (NIGHT_NEW_YORK, "2026-11-01 02:00", True, "2026-11-01 10:00:00"),
    (NIGHT_NEW_YORK, "2026-11-01 10:00", False, "2026-11-02 03:00:00"),
    # skipped: 02:30 doesn't exist, the window starts when the clocks have gone forward
    (f"allow 30 2 * * * 1h {BERLIN}", "2026-03-29 00:59:59", False, "2026-03-29 01:00:00"),
    (f"allow 30 2 * * * 1h {BERLIN}", "2026-03-29 01:00", True, "2026-03-29 02:00:00"),
    (f"allow 30 2 * * * 1h {NEW_YORK}", "2026-03-08 06:30", False, "2026-03-08 07:00:00"),
    (f"allow 30 2 * * * 1h {NEW_YORK}", "2026-03-08 07:00", True, "2026-03-08 08:00:00"),
    (f"allow 0,30 2 * * * 30m {BERLIN}", "2026-03-29 01:00", True, "2026-03-29 01:30:00"),
    # repeated: 02:30 (01:30) comes twice, the window the first time only
    (f"allow 30 2 * * * 30m {BERLIN}", "2026-10-25 00:30", True, "2026-10-25 01:00:00"),
    (f"allow 30 2 * * * 30m {BERLIN}", "2026-10-25 01:30", False, "2026-10-26 01:30:00"),
    (f"allow 30 1 * * * 30m {NEW_YORK}", "2026-11-01 05:30", True, "2026-11-01 06:00:00"),
    (f"allow 30 1 * * * 30m {NEW_YORK}", "2026-11-01 06:30", False, "2026-11-02 06:30:00"),
    # but every hour is every hour
    (f"allow 0 * * * * 30m {BERLIN}", "2026-10-25 00:00", True, "2026-10-25 00:30:00"),
    (f"allow 0 * * * * 30m {BERLIN}", "2026-10-25 00:30", False, "2026-10-25 01:00:00"),
    (f"allow 0 * * * * 30m {BERLIN}", "2026-10-25 01:00", True, "2026-10-25 01:30:00"),
    # what is meant to hold without a break does so over both changes
    (f"deny 0 */2 * * * 2h {BERLIN}", "2026-03-28 12:00", False, None),
    (f"deny 0 * * * * 1h {NEW_YORK}", "2026-03-01 12:00", False, None),
    (f"deny * * * * * 1m {BERLIN}", "2026-03-28 12:00", False, None),
    # clocks that go forward at midnight (Havana), or by half an hour (Lord Howe, at 15:30 UTC)
    ("allow 0 0 * * * 1h America/Havana", "2026-03-08 04:59", False, "2026-03-08 05:00:00"),
    ("allow 30 0 * * * 1h America/Havana", "2026-03-08 05:00", True, "2026-03-08 06:00:00"),
    ("allow 15 2 * * * 1h Australia/Lord_Howe", "2026-10-03 15:00", False, "2026-10-03 15:30:00"),
    ("allow 45 1 * * * 5m Australia/Lord_Howe", "2026-04-04 14:45", True, "2026-04-04 14:50:00"),
    ("allow 45 1 * * * 5m Australia/Lord_Howe", "2026-04-04 15:15", False, "2026-04-05 15:15:00"),
    # weekdays: Friday's night reaches into Saturday; 0 and 7 are Sunday (the 18th), 1 is Monday
    (f"allow 0 22 * * 1-5 8h {BERLIN}", "2026-01-17 04:59", True, "2026-01-17 05:00:00"),
    (f"allow 0 22 * * 1-5 8h {BERLIN}", "2026-01-17 05:00", False, "2026-01-19 21:00:00"),
    ("allow 0 0 * * 0 24h", "2026-01-16 12:00", False, "2026-01-18 00:00:00"),
    ("allow 0 0 * * 7 24h", "2026-01-18 00:00", True, "2026-01-19 00:00:00"),
    ("allow 0 0 * * sun 24h", "2026-01-18 00:00", True, "2026-01-19 00:00:00"),
    ("allow 0 0 * * 1 24h", "2026-01-16 12:00", False, "2026-01-19 00:00:00"),
    # two day fields: either, unless one is a star
    ("allow 0 0 20 * 5 1h", "2026-01-15 12:00", False, "2026-01-16 00:00:00"),
    ("allow 0 0 20 * 5 1h", "2026-01-17 12:00", False, "2026-01-20 00:00:00"),
    # rare days
    ("allow 0 2 29 2 * 4h", "2027-06-01 00:00", False, "2028-02-29 02:00:00"),
    ("allow 0 2 29 2 * 4h", "2026-01-01 00:00", False, None),
    ("deny 0 2 29 2 * 4h", "2026-01-01 00:00", True, None),
    ("deny 0 0 29 2 * 366d", "2028-12-01 00:00", False, "2029-03-01 00:00:00"),
    ("allow 0 0 31 * * 1h", "2026-01-31 01:00", False, "2026-03-31 00:00:00"),
    ("deny 0 0 5 2 * 366d", "2026-01-01 00:00", False, None),
    # not further than 400 days
    ("allow 0 0 29 2 * 1h", "2027-01-25 00:00:00", False, "2028-02-29 00:00:00"),
    ("allow 0 0 29 2 * 1h", "2027-01-24 23:59:59", False, None),
    # longer than the time between two starts
    ("allow 0 0 * * * 36h", "2026-01-01 12:00", True, None),
    ("allow 0 0 * * 1 10d", "2026-01-01 12:00", True, None),
    ("allow 0 0 1 * * 30d", "2026-01-30 23:59", True, "2026-01-31 00:00:00"),
    # spring carries the end over one more midnight
    (f"allow 59 23 18 3 * 10d23h30m {BERLIN}", "2026-03-29 22:10", True, "2026-03-29 22:29:00"),
    # sets: touching and overlapping windows are one, deny wins, only denied means open
    ("allow 0 22 * * * 2h; allow 0 0 * * * 2h", "2026-01-15 22:00", True, "2026-01-16 02:00:00"),
    ("allow 0 22 * * * 3h; allow 0 0 * * * 2h", "2026-01-15 22:00", True, "2026-01-16 02:00:00"),
    ("allow 0 22 * * * 8h; deny 0 0 * * * 1h", "2026-01-15 23:00", True, "2026-01-16 00:00:00"),
    ("allow 0 22 * * * 8h; deny 0 0 * * * 1h", "2026-01-16 00:00", False, "2026-01-16 01:00:00"),
    ("allow 0 22 * * * 8h; deny 0 4 * * * 2h", "2026-01-16 05:00", False, "2026-01-16 22:00:00"),
    ("deny 0 0 24 12 * 72h", "2026-12-23 12:00", True, "2026-12-24 00:00:00"),
    ("deny 0 0 24 12 * 72h", "2026-12-24 00:00", False, "2026-12-27 00:00:00"),
    (f"allow 0 22 * * * 1h {BERLIN}; allow 0 22 * * * 1h {NEW_YORK}", "2026-01-15 22:00", False, "2026-01-16 03:00:00"),
    ("allow 0 22 * * * 8h; deny * * * * * 1m", "2026-01-15 23:00", False, None),
    # durations in seconds
    ("allow 0 22 * * * 90s", "2026-01-15 22:01:29", True, "2026-01-15 22:01:30"),
]


@pytest.mark.parametrize(("text", "now", "opened", "until"), CASES)
def test_a_set_of_windows_is_open_or_closed_until(text: str, now: str, opened: bool, until: str | None) -> None:
    assert in_words(text, now) == (opened, until)


def test_no_windows_are_always_open() -> None:
    state = is_open((), utc("2026-01-01 00:00"))
    assert (state.open, state.until, state.next_open) == (True, None, None)


def test_the_state_names_the_window_that_decides() -> None:
    freeze = a_window("0 0 24 12 *", "72h", "Deny", name="Christmas", timeZone=NEW_YORK)
    night = a_window(timeZone=BERLIN)
    closed = is_open((night, freeze), utc("2026-12-24 22:00"))
    assert closed.because == "in the deny window Christmas"
    assert is_open((night,), utc("2026-01-15 12:00")).because == "outside every allow window"
    assert is_open((night,), utc("2026-01-15 23:00")).because == "in the allow window allow 0 22 * * * 8h Europe/Berlin"
    assert is_open((freeze,), utc("2026-01-15 23:00")).because == "in no deny window"


# --- What is refused when it's read.


def mistakes(**fields: Any) -> list[tuple[Any, ...]]:
    with pytest.raises(ValidationError) as caught:
        a_window(**fields)
    errors = caught.value.errors()
    assert not any(isinstance(each.get("ctx", {}).get("error"), FieldError) for each in errors)
    return [(*each["loc"], str(each.get("ctx", {}).get("error", each["msg"]))) for each in errors]


WRONG_CRONS = (
    "0 25 * * *;60 * * * *;* * * *;0 0 22 * * *;@daily;0 22 * * 8;0 22 * * 5-1;0 0 30 2 *;0 22 0 * *;0 */0 * * *"
)


@pytest.mark.parametrize("schedule", [*WRONG_CRONS.split(";"), "0 22 * 13 *", "a b c d e", "9" * 5000 + " * * * *"])
def test_a_wrong_cron_is_refused_at_its_field(schedule: str) -> None:
    [(field, message)] = mistakes(schedule=schedule)
    assert field == "schedule"
    assert message.startswith("expected five cron fields") or "digits" in message


def test_a_wrong_cron_field_is_named() -> None:
    assert mistakes(schedule="0 25 * * *")[0][1].endswith("weekday): bad hour")


@pytest.mark.parametrize(
    "zone",
    ["Europe/Berln", "Europe", "../etc/passwd", "/etc/localtime", "right/UTC", "localtime", "CEST", "x\0", "\ud800"],
)
def test_a_wrong_time_zone_is_refused_at_its_field(zone: str) -> None:
    [(field, *_)] = mistakes(timeZone=zone)
    assert field == "timeZone"


@pytest.mark.parametrize("duration", ["0s", "367d", "8", "", "-1h"])
def test_a_wrong_duration_is_refused_at_its_field(duration: str) -> None:
    assert [each[0] for each in mistakes(duration=duration)] == ["duration"]


def test_a_name_stays_on_one_line() -> None:
    assert [each[0] for each in mistakes(name="a\nb")] == ["name"]


def test_windows_are_hashable_and_sections_take_lists() -> None:
    section = Windows.model_validate(
        {"global": [{"kind": "Deny", "schedule": "0 0 24 12 *", "duration": "72h"}], "cluster": []}
    )
    assert section.global_ == (a_window("0 0 24 12 *", "72h", "Deny"),)
    assert hash(section.global_) == hash((a_window("0 0 24 12 *", "72h", "Deny"),))


# --- Annotations.


def test_an_annotation_holds_windows_on_one_line_or_as_json() -> None:
    line = parse_change_window(" Allow  0 22 * * 1-5  8h Europe/Berlin;\n deny 0 0 24 12 * 72h ; ")
    assert line == (a_window("0 22 * * 1-5", timeZone=BERLIN), a_window("0 0 24 12 *", "72h", "Deny"))
    assert line == parse_change_window(
        '[{"kind": "Allow", "schedule": "0 22 * * 1-5", "duration": "8h", "timeZone": "Europe/Berlin"},'
        ' {"kind": "Deny", "schedule": "0 0 24 12 *", "duration": "72h"}]'
    )


BROKEN = {
    "": "expected 1 to 32 windows, got none",
    " ; ": "expected 1 to 32 windows, got none",
    "[]": "expected 1 to 32 windows, got none",
    "always": "expected allow|deny, five cron fields, a duration and optionally a time zone, got 'always'",
    "allow 0 22 * * 8h": "expected allow|deny, five cron fields, a duration and optionally a time zone",
    "permit 0 22 * * * 8h": "expected allow|deny",
    "allow 0 25 * * * 8h": "schedule: expected five cron fields",
    "allow 0 22 * * * 8h Europe/Berln": "timeZone: expected an IANA time zone",
    "allow 0 22 * * * 8": "duration: expected a duration such as",
    "allow 0 22 * * * " + "9" * 400 + "d": "duration: expected a duration such as",
    "allow 0 22 * * * 8h; deny": "expected allow|deny",
    "[{": "Invalid JSON",
    "[" * 100_000: "Invalid JSON",
    '[{"kind": "Allow", "schedule": "0 22 * * *", "duration": "8h", "zone\\n": "UTC"}]': "0.zone?: Extra inputs",
    '["allow 0 22 * * * 8h"]': "0: Input should be",
    "allow * * * * * 30s": "expected windows that begin at most 96 times a day, got 1440 times",
    "; ".join(["allow 0 22 * * * 8h"] * (MOST_IN_ANNOTATION + 1)): "expected 1 to 32 windows, got 33",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_annotation_closes_and_says_why(text: str) -> None:
    state = state_of_annotation(text, utc("2026-01-15 23:00"))
    assert (state.open, state.broken, state.until, state.next_open) == (False, True, None, None)
    assert state.because.startswith(BROKEN[text])
    assert len(state.because) < 400
    assert state.because.isprintable()


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*'0*/,-;[]{}":5#L', "allow", "deny", "22", "8h", "1-5", " ", "UTC"])).map(" ".join)
)
@example("allow 0 0 LW * * 1h")
@example("allow 0 0 L * 5L 1h; deny 0 0 * * 1#5 1h")
def test_no_annotation_raises_or_opens_without_being_understood(text: str) -> None:
    state = state_of_annotation(text, utc("2026-01-15 23:00"))
    assert not (state.broken and state.open)


def test_no_search_is_slow() -> None:
    now = utc("2026-01-15 23:00")
    texts = [
        "deny * * * * * 1m Europe/Berlin",
        "deny * * * * * 366d Europe/Berlin",
        "allow 0 2 29 2 * 366d Europe/Berlin",
        "allow 15 * * * * 1m; deny 15 * * * * 1m",
        "; ".join(f"{kind} {minute} */2 * * * 1m {BERLIN}" for kind in ("allow", "deny") for minute in (1, 11, 21, 31)),
    ]
    began = time.perf_counter()
    for text in texts:
        assert is_open(parse_change_window(text), now).until is None
    assert time.perf_counter() - began < 2.0  # a tenth of a second, on a machine with nothing else to do


# --- An oracle that walks minutes and reads cron in its own way.


def numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        body, _, step = term.partition("/")
        first, _, last = body.partition("-")
        first, last = (str(low), str(high)) if body == "*" else (first, last or (str(high) if step else first))
        span = range(int(first), int(last) + 1)
        found |= set(span[:: int(step or 1)])
    return found


class Oracle:
    """Every minute of 18 days, by the wall clock of a zone."""

    def __init__(self, zone: str, start: float) -> None:
        self.minutes = [start + 60.0 * index for index in range(18 * 1440)]
        walls = [datetime.fromtimestamp(at, ZoneInfo(zone)) for at in self.minutes]
        self.walls: list[tuple[float, int, list[datetime]]] = []
        """(instant, fold, the wall time then and those that were skipped just before)"""
        for at, (old, wall) in zip(self.minutes[1:], pairwise(walls), strict=True):
            here = wall.replace(tzinfo=None)
            passed = max(round((here - old.replace(tzinfo=None)).total_seconds()) // 60, 1)
            self.walls.append((at, wall.fold, [here - timedelta(minutes=back) for back in range(passed)]))

    def starts(self, schedule: str) -> Iterator[float]:
        fields = schedule.split()
        minute, hour, day, month = (
            numbers(field, *bounds) for field, bounds in zip(fields, ((0, 59), (0, 23), (1, 31), (1, 12)), strict=False)
        )
        weekday = {number % 7 for number in numbers(fields[4], 0, 7)}
        both = fields[2].startswith("*") or fields[4].startswith("*")
        repeats = fields[0].startswith("*") or fields[1].startswith("*")
        for at, fold, walls in self.walls:
            for wall in walls if repeats or fold == 0 else ():
                if wall.minute in minute and wall.hour in hour and wall.month in month:
                    days = (wall.day in day, wall.isoweekday() % 7 in weekday)
                    if all(days) if both else any(days):
                        yield at


@lru_cache
def oracle(zone: str, start: float) -> Oracle:
    return Oracle(zone, start)


@lru_cache(maxsize=500)
def starts(zone: str, start: float, schedule: str) -> list[float]:
    return sorted(set(oracle(zone, start).starts(schedule)))


CHANGES = {
    BERLIN: ("2026-03-24 00:00", "2026-10-20 00:00", "2025-12-24 00:00"),
    NEW_YORK: ("2026-03-03 00:00", "2026-10-27 00:00"),
    "America/Havana": ("2026-03-03 00:00", "2026-10-27 00:00"),
    "Australia/Lord_Howe": ("2026-03-31 00:00", "2026-09-29 00:00"),
    "Asia/Kolkata": ("2026-03-03 00:00",),
}
FIELDS = st.tuples(
    st.sampled_from(["0", "30", "15,45", "*/20", "5-50/15", "*"]),
    st.sampled_from(["*", "*/3", "2", "1,2", "22", "0-3", "20-23", "0,23", "3"]),
    st.sampled_from(["*", "*", "*", "1-7", "29", "8,25", "*/2"]),
    st.sampled_from(["*", "*", "3,10", "11"]),
    st.sampled_from(["*", "*", "1-5", "0", "7", "6,0", "*/2"]),
).map(" ".join)
DURATIONS = st.sampled_from(["1m", "10m", "90s", "20m", "1h", "3h", "8h", "1d", "1d12h", "3d", "59s"])
PARTS = st.tuples(st.sampled_from(["Allow", "Deny"]), FIELDS, DURATIONS)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), parts=st.lists(PARTS, min_size=1, max_size=4), minute=st.integers(0, 12 * 1440 - 1))
def test_it_agrees_with_a_walk_over_every_minute(
    data: st.DataObject, parts: list[tuple[str, str, str]], minute: int
) -> None:
    zone = data.draw(st.sampled_from(sorted(CHANGES)))
    first = utc(data.draw(st.sampled_from(CHANGES[zone])))
    now = oracle(zone, first).minutes[4 * 1440 + minute] + data.draw(st.sampled_from([0.0, 0.5, 30.0, 59.0]))
    last = oracle(zone, first).minutes[-1]
    windows = tuple(a_window(schedule, duration, kind, timeZone=zone) for kind, schedule, duration in parts)
    walked = [(window.kind, window.duration, starts(zone, first, window.schedule)) for window in windows]

    def opened(at: float) -> bool:
        held: dict[str, list[bool]] = {"Allow": [], "Deny": []}
        for kind, duration, its in walked:
            latest = bisect_right(its, at) - 1
            held[kind].append(latest >= 0 and at < its[latest] + duration)
        return not any(held["Deny"]) and (not held["Allow"] or any(held["Allow"]))

    state = is_open(windows, now)
    assert state.open == opened(now)
    assert state.next_open == (None if state.open else state.until)
    seen = min(state.until or last, last)
    changes = {at for _, duration, its in walked for start in its for at in (start, start + duration)}
    assert all(opened(at) == state.open for at in changes if now < at < seen)
    if state.until is not None and state.until < last:
        assert state.until in changes
        assert opened(state.until) != state.open
        assert opened(state.until - 0.25) == state.open
        assert is_open(windows, state.until).open != state.open


# --- cronsim's own walk.


def walked(schedule: str, zone: str, now: float, end: float) -> list[float]:
    """Every start by cronsim."""
    walk = CronSim(schedule, datetime.fromtimestamp(now, ZoneInfo(zone)))
    return list(takewhile(lambda at: at <= end, (each.timestamp() for each in walk)))


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
@pytest.mark.parametrize(
    "schedule",
    ["0 22 * * *", "30 2 * * *", "0,30 2 * * *", "0 1-3 * * 0", "15 1,2 1-7 * 1", "0 0 L * *", "59 23 * * 5#2"],
)
def test_fixed_times_start_exactly_where_cronsim_says(zone: str, schedule: str) -> None:
    now, end = utc("2026-01-01 12:00"), utc("2027-01-01 12:00")
    begins, _ = spans(schedule, 1.0, zone, now=now, end=end)
    assert [at for at in begins if now < at <= end] == walked(schedule, zone, now, end)


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
@pytest.mark.parametrize("schedule", ["0 * * * *", "*/15 2 * * *", "*/30 * * * 0", "0 */2 * * *"])
def test_recurring_times_differ_from_cronsim_only_by_a_start_where_the_clocks_skip(zone: str, schedule: str) -> None:
    now, end = utc("2026-01-01 12:00"), utc("2027-01-01 12:00")
    wanted = set(walked(schedule, zone, now, end))
    begins, _ = spans(schedule, 1.0, zone, now=now, end=end)
    ours = {float(at) for at in begins if now < at <= end}
    assert wanted <= ours
    assert ours - wanted <= {utc("2026-03-29 01:00"), utc("2026-03-08 07:00")}
