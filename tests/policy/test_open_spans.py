"""When windows are open between two instants: against the states that they have on the way, and by hand."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from rebalancer.policy.schema.windows import (
    Spans,
    Window,
    common_spans,
    decided_by,
    is_open,
    open_spans,
    parse_change_window,
    spans,
)
from tests.policy.test_windows import BERLIN, CASES, a_window, utc

DAY = 86_400.0


def stepped(windows: tuple[Window, ...], now: float, end: float) -> list[tuple[float, float]]:
    """The same, going from one state to the next."""
    out = []
    while now < end:
        state = is_open(windows, now)
        until = min(end, end if state.until is None else state.until)
        if state.open:
            out.append((now, until))
        now = until
    return out


def pairs(found: Spans) -> list[tuple[float, float]]:
    return list(zip(*(side.tolist() for side in found), strict=True))


def in_words(found: Spans) -> list[str]:
    return [
        f"{datetime.fromtimestamp(begin, UTC):%d %H:%M} {datetime.fromtimestamp(end, UTC):%d %H:%M}"
        for begin, end in pairs(found)
    ]


@pytest.mark.parametrize(("text", "now"), [(text, now) for text, now, _, _ in CASES])
def test_they_are_what_the_states_say_one_after_the_other(text: str, now: str) -> None:
    windows, begin = parse_change_window(text), utc(now)
    found = pairs(open_spans(windows, now=begin, end=begin + 3 * DAY))
    assert found == stepped(windows, begin, begin + 3 * DAY)
    assert all(one[1] < next_one[0] for one, next_one in pairwise(found))


@pytest.mark.parametrize(("text", "now"), [(text, now) for text, now, _, until in CASES if until is not None])
def test_the_window_that_decides_is_one_that_begins_or_ends_then(text: str, now: str) -> None:
    windows, begin = parse_change_window(text), utc(now)
    state = is_open(windows, begin)
    assert state.until is not None
    window = decided_by(windows, state.until, opens=not state.open)
    begins, ends = spans(window.schedule, window.duration, window.time_zone, now=begin, end=state.until)
    assert state.until in begins or state.until in ends


def test_what_reaches_beyond_is_cut() -> None:
    night = parse_change_window("allow 0 22 * * * 8h")

    def between(now: str, end: str) -> list[str]:
        return in_words(open_spans(night, now=utc(now), end=utc(end)))

    assert between("2026-01-15 12:00", "2026-01-17 12:00") == ["15 22:00 16 06:00", "16 22:00 17 06:00"]
    assert between("2026-01-15 23:00", "2026-01-16 23:00") == ["15 23:00 16 06:00", "16 22:00 16 23:00"]
    assert between("2026-01-16 06:00", "2026-01-16 22:00") == []
    assert between("2026-01-15 22:00", "2026-01-16 06:00") == ["15 22:00 16 06:00"]
    assert in_words(open_spans((), now=utc("2026-01-15 12:00"), end=utc("2026-01-16 12:00"))) == ["15 12:00 16 12:00"]


def test_what_several_have_in_common() -> None:
    now, end = utc("2026-01-15 12:00"), utc("2026-01-17 00:00")

    def common(*texts: str) -> list[str]:
        each = [open_spans(parse_change_window(text), now=now, end=end) for text in texts]
        return in_words(common_spans(each, now=now, end=end))

    assert common("allow 0 22 * * * 8h", "allow 0 4 * * * 20h") == [
        "15 22:00 16 00:00",
        "16 04:00 16 06:00",
        "16 22:00 17 00:00",
    ]
    # they touch and have nothing in common
    assert common("allow 0 22 * * * 2h", "allow 0 0 * * * 2h") == []
    assert common("allow 0 22 * * * 2h") == ["15 22:00 16 00:00", "16 22:00 17 00:00"]
    never = np.empty(0), np.empty(0)
    whole = open_spans((), now=now, end=end)
    assert in_words(common_spans([whole, never], now=now, end=end)) == []
    assert in_words(common_spans([whole, whole], now=now, end=end)) == ["15 12:00 17 00:00"]


def test_a_deny_window_opens_by_its_end_and_closes_by_its_start() -> None:
    night = a_window("0 22 * * *", "8h", name="night", timeZone=BERLIN)
    party = a_window("0 23 * * *", "1h", "Deny", name="party", timeZone=BERLIN)

    def decides(at: str, **asked: Any) -> str | None:
        return decided_by((night, party), utc(at), **asked).name

    assert decides("2026-01-15 21:00", opens=True) == "night"
    assert decides("2026-01-15 22:00", opens=False) == "party"
    assert decides("2026-01-15 23:00", opens=True) == "party"
    assert decides("2026-01-16 05:00", opens=False) == "night"
