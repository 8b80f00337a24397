"""The three rates, from counts that add up."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.effect.messages import shown
from rebalancer.effect.rates import RateLine, day_of, day_rows, merged, monday_of, rates, trend
from rebalancer.model.notation.document import DIMENSIONS
from rebalancer.model.reason import BlockedReason, MissReason
from rebalancer.model.records.effect import Assessment, DayRow, HotEpisode, Outcome, Rate, Step
from rebalancer.model.records.forecasts import ForecastKind, Verdict, VerifiedForecast
from tests.effect.builders import DAY, MINUTE, STRATEGY, T0, a_pod, a_row, an_assessment, an_episode
from tests.forecast.builders import a_stored_forecast, an_actual


def a_forecast(verdict: Verdict | None, *, hot_from: float | None = T0, pool: str = "general") -> VerifiedForecast:
    forecast = a_stored_forecast(T0 - 86_400, kind=ForecastKind.AHEAD, node="node-1", pool=pool, hot_from=hot_from)
    return VerifiedForecast(forecast=forecast, actuals=an_actual(1.0, T0, verdict=verdict))


def rows_of(episodes: list[HotEpisode], assessments: list[Assessment] | None = None, **changes: Any) -> list[DayRow]:
    values: dict[str, Any] = {"cluster": "test", "days": range(DAY, DAY + 1), "until": T0 + 86_400}
    return day_rows(episodes=episodes, assessments=assessments or [], **values | changes)


FOUND = {"discovered_at": T0, "discovery_trigger": "periodic", "strategy": STRATEGY}
ALERTED = {"discovered_at": T0, "discovery_trigger": "alert", "strategy": STRATEGY}


def a_day() -> tuple[list[HotEpisode], list[Assessment], list[VerifiedForecast]]:
    """Eight hot nodes of two pools: two missed, two stuck, four acted on, of which two cooled and one is unknown."""
    episodes = [
        an_episode(minutes=10, miss_reason=MissReason.BELOW_THRESHOLD),
        an_episode(minutes=20, miss_reason=MissReason.DAEMON_DOWN, pool="batch"),
        an_episode(minutes=30, blocked_reason=BlockedReason.LIMITS, **FOUND),
        an_episode(minutes=40, blocked_reason=BlockedReason.LIMITS, **ALERTED),
        an_episode(minutes=50, evictions=2, cooled=True, **FOUND),
        an_episode(minutes=60, evictions=1, cooled=False, **FOUND),
        an_episode(minutes=70, evictions=1, cooled=True, pool="batch", **ALERTED),
        an_episode(minutes=80, evictions=1, cooled=None, pool="batch", **ALERTED),
    ]
    alerted = {"trigger": "alert", "pool": "batch"}
    assessments = [
        an_assessment(a_pod("a", evicted=True), a_pod("b", evicted=True), outcome=Outcome.COOLED, after_share=0.66),
        an_assessment(a_pod("c", evicted=True), a_pod("stays"), outcome=Outcome.REMAINING_PODS_GREW, after_share=0.75),
        an_assessment(a_pod("d", evicted=True), outcome=Outcome.COOLED, after_share=0.7, **alerted),
        an_assessment(a_pod("e", evicted=True), outcome=Outcome.UNKNOWN, **alerted),
        # the same moves, looked at again
        an_assessment(a_pod("a", evicted=True), outcome=Outcome.COOLED, after_share=0.5, step=Step.HOUR),
        # not made yet
        an_assessment(a_pod("f", evicted=True), **alerted),
    ]
    judged = [a_forecast(Verdict.PREVENTED), a_forecast(Verdict.PREVENTED), a_forecast(Verdict.TOO_LATE)]
    return episodes, assessments, [*judged, a_forecast(Verdict.NOT_MOVED), a_forecast(None)]


def test_a_day_counted_by_hand() -> None:
    episodes, assessments, judged = a_day()
    rows = rows_of(episodes, assessments, judged=judged)
    none: dict[str, Any] = {"strategy": "", "trigger": ""}
    missed, limits = {"discovery/daemonDown": 1}, {"eviction/limits": 1}
    of_batch = {"hot": 2, "discovered": 2, "evicted_from": 2, "cooled": 1, "assessed": 1, "evictions": 3}
    relief_of_batch = {"relief_planned": pytest.approx(1.2), "relief_measured": pytest.approx(1.0)}
    effects_of_batch = {"effect/cooled": 1, "effect/unknown": 1}
    of_timer = {"hot": 3, "discovered": 3, "evicted_from": 2, "cooled": 1, "assessed": 2, "evictions": 3}
    relief_of_timer = {"relief_planned": pytest.approx(2.4), "relief_measured": pytest.approx(1.9)}
    effects_of_timer = {"effect/cooled": 1, "effect/remainingPodsGrew": 1, **limits}
    alerts: dict[str, Any] = {"pool": "batch", "trigger": "alert", "hot_node_minutes": 150.0}
    assert rows == [
        a_row(pool="batch", **none, hot=1, hot_node_minutes=20.0, reasons=missed),
        a_row(**alerts, **of_batch, **relief_of_batch, reasons=effects_of_batch),
        a_row(**none, hot=1, hot_node_minutes=10.0, reasons={"discovery/belowThreshold": 1}),
        a_row(strategy="", trigger="forecast", prevented=2, too_late=1, reasons={}),
        a_row(trigger="alert", hot=1, discovered=1, hot_node_minutes=40.0, reasons=limits),
        a_row(**of_timer, **relief_of_timer, hot_node_minutes=140.0, reasons=effects_of_timer),
    ]
    [everything] = rates(rows, ())
    assert everything.discovery == Rate(part=6, whole=8)
    assert everything.eviction == Rate(part=4, whole=6)
    assert everything.effectiveness == Rate(part=2, whole=3)
    assert [shown(rate) for rate in (everything.discovery, everything.eviction, everything.effectiveness)] == [
        "6 of 8 (75%)",
        "4 of 6 (66.7%)",
        "2 of 3 (66.7%)",
    ]
    assert everything.counts.hot_node_minutes == 360.0


def by(rows: list[DayRow], *names: str) -> dict[tuple[str, ...], RateLine]:
    return {tuple(line.key(name) for name in names): line for line in rates(rows, names)}  # type: ignore[arg-type]


def test_rates_are_split_by_pool() -> None:
    episodes, assessments, _ = a_day()
    lines = by(rows_of(episodes, assessments), "pool")
    assert lines["general",].discovery == Rate(part=4, whole=5)
    assert lines["batch",].discovery == Rate(part=2, whole=3)
    assert lines["batch",].effectiveness == Rate(part=1, whole=1)


def test_split_by_trigger_discovery_is_of_all_hot_episodes_and_the_missed_ones_have_no_rate() -> None:
    episodes, assessments, _ = a_day()
    lines = by(rows_of(episodes, assessments), "trigger")
    assert lines["periodic",].discovery == Rate(part=3, whole=8)
    assert lines["alert",].discovery == Rate(part=3, whole=8)
    missed = lines["",]
    assert missed.missed
    assert missed.counts.hot == 2
    assert shown(missed.discovery) == shown(missed.eviction) == "-"
    of_pools = by(rows_of(episodes, assessments), "pool", "trigger")
    assert of_pools["batch", "alert"].discovery == Rate(part=2, whole=3)


def test_a_rate_of_nothing_is_none() -> None:
    assert rates([], ()) == []
    [line] = rates([a_row(evictions=2)], ())
    assert [each.share for each in (line.discovery, line.eviction, line.effectiveness)] == [None] * 3
    assert not line.missed


def test_an_episode_that_is_still_hot_lasts_until_it_was_evaluated_and_counts_once_something_is_known_of_it() -> None:
    [row] = rows_of([an_episode(minutes=None, **FOUND), an_episode(minutes=None)], until=T0 + 25 * MINUTE)
    assert (row.hot, row.discovered, row.hot_node_minutes) == (1, 1, 25.0)


def test_an_episode_counts_on_its_first_day_and_its_hot_time_on_each_day_that_it_is_of() -> None:
    midnight = (DAY + 1) * 86_400.0
    over_night = an_episode(start=midnight - 30 * MINUTE, minutes=50, **FOUND)
    rows = rows_of([over_night], days=range(DAY, DAY + 2))
    assert [(row.day, row.hot, row.discovered, row.hot_node_minutes) for row in rows] == [
        (DAY, 1, 1, 30.0),
        (DAY + 1, 0, 0, 20.0),
    ]
    # a day by itself has the same
    assert rows_of([over_night], days=range(DAY + 1, DAY + 2)) == rows[1:]


def test_only_the_days_asked_for_have_rows() -> None:
    late = an_episode(start=T0 + 86_400, miss_reason=MissReason.STABILIZATION_WINDOW)
    early = an_assessment(a_pod("a", evicted=True), minute=-9 * 60)
    assert rows_of([late], [early], judged=[a_forecast(Verdict.PREVENTED, hot_from=None)]) == []
    assert [row.day for row in rows_of([late], [early], days=range(DAY - 1, DAY + 2))] == [DAY - 1, DAY + 1]


def test_a_row_that_nothing_is_left_of_becomes_zeros() -> None:
    before = rows_of([an_episode(miss_reason=MissReason.STABILIZATION_WINDOW)])
    after = rows_of([an_episode(**FOUND)], replaces=[*before, a_row(cluster="other", pool="x"), a_row(day=DAY - 1)])
    assert [(row.strategy, row.hot) for row in after] == [("", 0), (STRATEGY, 1)]
    assert after[0].reasons == {}


# ---- merging

episode_kinds = st.sampled_from(
    [
        {"miss_reason": MissReason.STABILIZATION_WINDOW},
        {"miss_reason": MissReason.BELOW_THRESHOLD},
        FOUND | {"blocked_reason": BlockedReason.GUARDS},
        ALERTED | {"evictions": 2, "cooled": True},
        FOUND | {"evictions": 1, "cooled": False},
        FOUND | {"evictions": 1},
    ]
)
episodes = st.lists(
    st.builds(
        lambda kind, minutes, pool, day: an_episode(minutes=minutes, pool=pool, start=T0 + day * 86_400, **kind),
        episode_kinds,
        st.integers(0, 300),
        st.sampled_from(["general", "batch"]),
        st.integers(0, 20),
    ),
    max_size=12,
)
assessments = st.lists(
    st.builds(
        lambda outcome, after, day: an_assessment(
            a_pod("a", evicted=True), outcome=outcome, after_share=after, last_eviction_at=T0 + day * 86_400
        ),
        st.sampled_from([None, *Outcome]),
        st.one_of(st.none(), st.floats(0, 1)),
        st.integers(0, 20),
    ),
    max_size=8,
)


def same(left: list[DayRow], right: list[DayRow]) -> bool:
    """But for the last digit of the sums."""
    names = ("relief_planned", "relief_measured", "hot_node_minutes")
    zeros = dict.fromkeys(names, 0.0)
    return [replace(row, **zeros) for row in left] == [replace(row, **zeros) for row in right] and all(
        math.isclose(getattr(a, name), getattr(b, name), rel_tol=1e-12, abs_tol=1e-9)
        for a, b in zip(left, right, strict=True)
        for name in names
    )


@given(first=episodes, second=episodes, made=assessments, more=assessments)
def test_merged_rows_are_the_rows_of_all(
    first: list[HotEpisode], second: list[HotEpisode], made: list[Assessment], more: list[Assessment]
) -> None:
    days = range(DAY, DAY + 21)
    apart = [*rows_of(first, made, days=days), *rows_of(second, more, days=days)]
    assert same(merged(apart), rows_of([*first, *second], [*made, *more], days=days))


@given(hot=episodes, made=assessments, names=st.lists(st.sampled_from(DIMENSIONS), unique=True))
def test_rates_lie_between_nothing_and_all_and_lines_add_up(
    hot: list[HotEpisode], made: list[Assessment], names: list[Any]
) -> None:
    rows = rows_of(hot, made, days=range(DAY, DAY + 21))
    lines = rates(rows, names)
    for line in lines:
        for rate in (line.discovery, line.eviction, line.effectiveness):
            assert 0 <= rate.part <= rate.whole
            assert (rate.share is None) == (rate.whole == 0)
    if not rows:
        return
    [everything] = rates(rows, ())
    assert everything.discovery == Rate(part=sum(each.discovered_at is not None for each in hot), whole=len(hot))
    for name in ("hot", "discovered", "evicted_from", "cooled", "assessed", "evictions"):
        assert sum(getattr(line.counts, name) for line in lines) == getattr(everything.counts, name)
    assert sum(line.discovery.part for line in lines) == everything.discovery.part
    reasons = everything.counts.reasons or {}
    missed = sum(count for key, count in reasons.items() if key.startswith("discovery/"))
    stuck = sum(count for key, count in reasons.items() if key.startswith("eviction/"))
    assert missed == everything.counts.hot - everything.counts.discovered
    assert stuck == everything.counts.discovered - everything.counts.evicted_from


# ---- trends


def test_a_trend_is_by_day_or_by_week_from_monday() -> None:
    assert day_of(T0) == DAY
    monday = monday_of(DAY)
    assert (monday - 4) % 7 == 0  # 1970-01-05 was a Monday
    rows = [a_row(day=monday + each, hot=2, discovered=each % 2) for each in range(9)]
    daily, weekly = trend(rows), trend(rows, days=7)
    assert [point.day for point in daily] == [monday + each for each in range(9)]
    assert [point.line.discovery for point in daily[:2]] == [Rate(part=0, whole=2), Rate(part=1, whole=2)]
    assert [(point.day, point.days, point.line.discovery) for point in weekly] == [
        (monday, 7, Rate(part=3, whole=14)),
        (monday + 7, 7, Rate(part=1, whole=4)),
    ]
