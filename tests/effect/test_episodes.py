"""Spans over the standard's threshold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.effect.episodes import HotSpan, hot_spans, overlap_seconds

T0 = 1_800_000_000.0
MINUTE = 60.0
COOL, HOT, GAP = 0.5, 0.8, math.nan


def column(text: str) -> np.ndarray:
    """`.` cool, `#` hot, `?` not known."""
    return np.array([{".": COOL, "#": HOT, "?": GAP}[each] for each in text])


def spans(text: str, *, for_minutes: float = 0, end: int | None = None) -> list[tuple[float, float | None]]:
    """(first minute, minute of the end) of the spans of one node with a sample a minute."""
    found = hot_spans(
        T0 + MINUTE * np.arange(len(text)),
        column(text)[:, None],
        threshold=0.75,
        for_seconds=for_minutes * MINUTE,
        end=T0 + MINUTE * (len(text) - 1 if end is None else end),
    )
    return [minutes(each) for each in found]


def minutes(span: HotSpan) -> tuple[float, float | None]:
    return (span.started_at - T0) / MINUTE, None if span.ended_at is None else (span.ended_at - T0) / MINUTE


@pytest.mark.parametrize(
    ("text", "for_minutes", "expected"),
    [
        ("......", 0, []),
        ("..#...", 0, [(2, 3)]),
        ("..##..", 0, [(2, 4)]),
        ("..####", 0, [(2, None)]),
        ("######", 0, [(0, None)]),
        ("..###..", 2, [(2, 5)]),
        ("..##..", 2, []),
        ("...##", 2, []),
        ("..###.###", 2, [(2, 5), (6, None)]),
        ("#?#", 0, [(0, None)]),
        ("##???##..", 0, [(0, 7)]),
        ("##????##..", 0, [(0, 1), (6, 8)]),
        ("##????##..", 4, [(0, 8)]),
        ("#####????#####", 4, [(0, None)]),
        ("#####?????#####", 4, [(0, 4), (10, None)]),
        ("##?.", 0, [(0, 3)]),
        ("##????.", 0, [(0, 1)]),
        ("##???", 0, [(0, None)]),
        ("##????", 0, [(0, 1)]),
        ("??????", 0, []),
    ],
)
def test_a_span_begins_at_the_first_hot_sample_and_ends_at_the_first_cool_one(
    text: str, for_minutes: float, expected: list[tuple[float, float | None]]
) -> None:
    assert spans(text, for_minutes=for_minutes) == expected


def test_samples_that_have_not_come_until_the_end_of_the_reading_end_a_span_too() -> None:
    assert spans("..##", end=6) == [(2, None)]
    assert spans("..##", end=7) == [(2, 3)]


def test_a_share_of_exactly_the_threshold_is_not_hot() -> None:
    assert hot_spans(np.array([T0]), np.array([[0.75]]), threshold=0.75, for_seconds=0, end=T0) == []


def test_the_peak_is_the_highest_share_of_the_span() -> None:
    shares = np.array([[0.9], [0.5], [0.8], [0.83], [math.nan], [0.79], [0.2]])
    found = hot_spans(T0 + MINUTE * np.arange(7), shares, threshold=0.75, for_seconds=0, end=T0 + 360)
    assert [each.peak_share for each in found] == [0.9, 0.83]


def test_nodes_have_thresholds_of_their_own_and_one_without_is_never_hot() -> None:
    own = np.array([0.75, 0.85, math.nan])
    times = T0 + MINUTE * np.arange(3)
    found = hot_spans(times, np.full((3, 3), 0.8), threshold=own, for_seconds=0, end=T0 + 120)
    assert [each.node for each in found] == [0]


def test_nothing_read_leaves_the_open_spans_as_they_were() -> None:
    still = [HotSpan(node=0, started_at=T0, ended_at=None, peak_share=0.8)]
    assert hot_spans(np.zeros(0), np.zeros((0, 1)), threshold=0.75, for_seconds=0, end=T0 + 60, still_open=still) == (
        still
    )


def test_a_span_that_was_open_keeps_its_start_and_its_peak() -> None:
    still = [HotSpan(node=0, started_at=T0 - 86_400, ended_at=None, peak_share=0.95)]
    times = T0 + MINUTE * np.arange(4)
    for text, ended_at in (("####", None), ("##..", T0 + 120), ("....", T0), ("??##", None)):
        [found] = hot_spans(
            times,
            column(text)[:, None],
            threshold=0.75,
            for_seconds=600,
            end=T0 + 180,
            still_open=still,
            read_until=T0 - 60,
        )
        assert (found.started_at, found.peak_share) == (T0 - 86_400, 0.95)
        assert found.ended_at == ended_at


def test_an_open_span_of_which_the_samples_now_say_otherwise_is_closed() -> None:
    still = [HotSpan(node=0, started_at=T0 + 120, ended_at=None, peak_share=0.8)]
    [found] = hot_spans(
        T0 + MINUTE * np.arange(4),
        column("....")[:, None],
        threshold=0.75,
        for_seconds=0,
        end=T0 + 180,
        still_open=still,
        read_until=T0 + 120,
    )
    assert (found.started_at, found.ended_at) == (T0 + 120, T0 + 120)


@given(
    texts=st.lists(st.text("..##?", min_size=60, max_size=60), min_size=1, max_size=3),
    for_minutes=st.integers(0, 6),
    cuts=st.lists(st.integers(1, 58), min_size=1, max_size=5, unique=True),
)
def test_reading_in_pieces_finds_the_same_spans_as_reading_at_once(
    texts: list[str], for_minutes: int, cuts: list[int]
) -> None:
    times = T0 + MINUTE * np.arange(60)
    shares = np.column_stack([column(text) for text in texts])
    overlap = round(overlap_seconds(for_minutes * MINUTE, MINUTE) / MINUTE)
    known: dict[tuple[int, float], HotSpan] = {}
    read: int | None = None
    for cut in [*sorted(cuts), 59]:
        begin = 0 if read is None else max(read - overlap, 0)
        part = slice(begin, cut + 1)
        for each in hot_spans(
            times[part],
            shares[part],
            threshold=0.75,
            for_seconds=for_minutes * MINUTE,
            end=float(times[cut]),
            still_open=[each for each in known.values() if each.ended_at is None],
            read_until=None if read is None else float(times[read]),
        ):
            known[each.node, each.started_at] = each
        read = cut
    at_once = hot_spans(times, shares, threshold=0.75, for_seconds=for_minutes * MINUTE, end=float(times[-1]))
    assert sorted(known.values(), key=lambda each: (each.node, each.started_at)) == at_once


@given(text=st.text("..##?", min_size=2, max_size=40), for_minutes=st.integers(0, 5))
def test_a_loop_over_the_samples_finds_the_same(text: str, for_minutes: int) -> None:
    assert spans(text, for_minutes=for_minutes) == by_a_loop(text, for_minutes)


def by_a_loop(text: str, for_minutes: int) -> list[tuple[float, float | None]]:
    found: list[tuple[float, float | None]] = []
    start = last = None
    may_miss = max(for_minutes, 3)
    for at, each in enumerate(text):
        if (
            start is not None
            and last is not None
            and at - last > may_miss
            and text[last + 1 : at + 1] == "?" * (at - last)
        ):
            found += [(start, last)] if last - start >= for_minutes else []
            start = None
        if each == "#":
            start = at if start is None else start
            last = at
        elif each == "." and start is not None and last is not None:
            found += [(start, at)] if last - start >= for_minutes else []
            start = None
    if start is not None and last is not None and last - start >= for_minutes:
        found.append((start, None))
    return found


def test_five_thousand_nodes_are_read_in_columns() -> None:
    shares = np.full((60, 5_000), COOL)
    shares[20:40, ::10] = HOT
    found = hot_spans(T0 + MINUTE * np.arange(60), shares, threshold=0.75, for_seconds=600, end=T0 + 59 * MINUTE)
    assert [each.node for each in found] == list(range(0, 5_000, 10))
    assert {minutes(each) for each in found} == {(20, 40)}
