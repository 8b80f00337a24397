"""Which nodes will be hot, and when each must be relieved at the latest: cases worked out by hand (see mornings.py)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.measured.peaks import Peaks
from rebalancer.planner.ahead import PredictedHotNode
from tests.builders import a_node, a_pod
from tests.planner.scenarios.morning import (
    BY_REQUESTS,
    ENOUGH,
    EVENING,
    EXCESS,
    HEAD,
    MORNING,
    NIGHT,
    NODES,
    OTHER,
    WEB,
    general,
    in_words,
    of_the_day,
    seen,
    service,
    the_one,
    utc,
    window,
)

DECEMBER = {"n1": [("2027-12-02 09:40", 12_800.0), ("2027-12-02 10:20", 14_560.0), ("2027-12-02 11:00", 6_000.0)]}


# --- Without windows: the deadline.


def test_without_windows_a_node_is_relieved_as_late_as_draining_and_starting_allow() -> None:
    assert seen(WEB, ENOUGH) == [
        PredictedHotNode(
            node=0,
            node_name="n1",
            pool="general",
            peak_share=0.91,
            peak_at=utc("2027-01-15 10:20"),
            hot_from=utc("2027-01-15 09:40"),
            over_from=utc("2027-01-15 09:40"),
            made_at=EVENING,
            high=0.75,
            target=0.65,
            start_by=utc("2027-01-15 09:18"),
            start_why="to be relieved by 2027-01-15 09:18 UTC",
        )
    ]
    assert seen(WEB, ENOUGH)[0].why == HEAD + "to be relieved by 2027-01-15 09:18 UTC"


def test_the_slowest_candidate_and_the_policys_margin_and_lead_make_the_deadline() -> None:
    # web 30 s + 270 s, slow 600 s + 60 s, patient 60 s + 300 s: 11 minutes, + 4 + 30
    pods = [
        *WEB,
        *service("slow", template={"graceSeconds": 600.0}),
        *service("patient", template={"graceSeconds": 60.0}),
    ]
    relief = {"web-0": 2_000.0, "slow-0": 2_000.0, "patient-0": 2_000.0}
    (found,) = seen(
        pods,
        relief,
        start_up={"shop/web": 270.0, "shop/slow": 60.0, "shop/patient": 300.0}.__getitem__,
        safety={"inFlight": {"margin": "4m"}},
        forecast={"leadTime": "30m"},
    )
    assert in_words(found.start_by) == "Fri 08:55:00"


def test_what_is_guarded_or_relieves_nothing_neither_counts_nor_delays() -> None:
    slow = {"graceSeconds": 7_200.0}
    pods = [
        *WEB,
        a_pod("bare", "n1", template=slow),
        *service("listed", template=slow),
        *service("idle", template=slow),
        *service("unknown", template=slow),
    ]
    relief = {"web-0": 2_080.0, "bare": 9_000.0, "listed-0": 9_000.0, "idle-0": 83.0, "unknown-0": float("nan")}
    lists = {"deny": [{"services": ["shop/listed"]}]}
    assert the_one(pods, relief, lists=lists) == (
        "Fri 09:18:00",
        "to be relieved by 09:18; only 50% of the excess may be moved then",
    )
    # two percent of the excess are 83.2 millicores: from there on it is a candidate
    (found,) = seen(pods, {**relief, "idle-0": 83.2}, lists=lists)
    assert in_words(found.start_by) == "Fri 07:18:30"


def test_a_node_of_which_nothing_may_go_has_no_start() -> None:
    pods = [a_pod("bare", "n1"), *service("gone", "allow 0 0 * * * 6h", labels={"rebalancer.dev/evict": "false"})]
    relief = {"bare": 9_000.0, "gone-0": 9_000.0}
    assert the_one(pods, relief) == (None, "nothing on it may be moved that would help")


def test_pods_with_the_same_windows_count_together() -> None:
    assert the_one([*WEB, *service("api")], {"web-0": 2_080.0, "api-0": 2_000.0}) == (
        "Fri 09:18:00",
        "to be relieved by 09:18; only 98% of the excess may be moved then",
    )


# --- With windows.


def test_a_node_is_relieved_before_the_window_closes_that_is_the_last_one_before_its_peak() -> None:
    windows = {"cluster": [NIGHT]}
    assert the_one(WEB, ENOUGH, windows=windows) == (
        "Fri 05:45:00",
        "to be relieved by 05:45, before the window 'night' closes at 06:00",
    )
    (found,) = seen(WEB, ENOUGH, windows=windows, forecast={"leadTime": "30m"})
    assert of_the_day(found.why.removeprefix(HEAD)) == (
        "to be relieved by 05:30, before the window 'night' closes at 06:00"
    )


@pytest.mark.parametrize(
    "closing",
    [
        {"windows": {"global": [NIGHT]}},
        {"windows": {"cluster": [NIGHT]}},
        {"pools": [general(windows=[NIGHT])]},
        {"serviceLevels": {"default": "gold", "levels": [{"name": "gold", "windows": [NIGHT]}]}},
    ],
)
def test_the_windows_of_every_scope_count(closing: dict[str, Any]) -> None:
    assert the_one(WEB, ENOUGH, **closing)[0] == "Fri 05:45:00"


def test_all_scopes_of_a_pod_must_be_open_and_the_first_that_closes_is_named() -> None:
    closing = {
        "windows": {"global": [window("0 23 * * *", "10h", "wide")], "cluster": [window("0 1 * * *", "3h", "early")]},
        "pools": [general(windows=[window("0 2 * * *", "4h", "late")])],
    }
    assert the_one(WEB, ENOUGH, **closing) == (
        "Fri 03:45:00",
        "to be relieved by 03:45, before the window 'early' closes at 04:00",
    )


def test_a_service_carries_its_windows_itself() -> None:
    assert the_one(service("web", "allow 0 1 * * * 2h"), ENOUGH, windows={"cluster": [NIGHT]}) == (
        "Fri 02:45:00",
        "to be relieved by 02:45, before the window 'allow 0 1 * * * 2h UTC' closes at 03:00",
    )


def test_a_deny_window_ends_the_time_when_it_begins() -> None:
    assert the_one(WEB, ENOUGH, windows={"cluster": [window("0 6 * * *", "12h", "office", "Deny")]}) == (
        "Fri 05:45:00",
        "to be relieved by 05:45, before the deny window 'office' begins at 06:00",
    )


def test_only_while_the_earlier_of_two_services_may_go_is_it_enough() -> None:
    pods = [*service("web", "allow 0 0 * * * 2h"), *service("api", "allow 0 1 * * * 3h")]
    early = ("Fri 01:45:00", "to be relieved by 01:45, before the window 'allow 0 0 * * * 2h UTC' closes at 02:00")
    assert the_one(pods, {"web-0": EXCESS, "api-0": EXCESS - 1}) == early
    # neither alone, but both together from 01:00
    assert the_one(pods, {"web-0": 4_000.0, "api-0": 160.0}) == early
    # the later one does it too
    assert the_one(pods, {"web-0": EXCESS, "api-0": EXCESS})[0] == "Fri 03:45:00"


def test_a_sum_that_is_enough_but_for_its_rounding_is_enough() -> None:
    names = [f"web{number}" for number in range(11)]
    relief = {f"{name}-0": EXCESS / 11 for name in names}
    assert sum(relief.values()) < EXCESS
    pods = [*service("early", "allow 0 0 * * * 2h"), *(pod for name in names for pod in service(name))]
    assert the_one(pods, {**relief, "early-0": 1_000.0}) == ("Fri 09:18:00", "to be relieved by 09:18")


def test_what_is_never_enough_begins_when_most_may_go_and_says_how_much_that_is() -> None:
    pods = [*service("web", "allow 0 0 * * * 2h"), *service("api", "allow 0 1 * * * 3h"), *service("db", "allow x")]
    relief = {"web-0": 2_000.0, "api-0": 1_000.0, "db-0": 9_000.0}
    assert the_one(pods, relief) == (
        "Fri 01:45:00",
        "to be relieved by 01:45, before the window 'allow 0 0 * * * 2h UTC' closes at 02:00; "
        "only 72% of the excess may be moved then",
    )
    # of two moments at which as much may go the later one counts
    pods = [*service("web", "allow 0 0 * * * 1h"), *service("api", "allow 0 2 * * * 1h")]
    assert the_one(pods, {"web-0": 1_000.0, "api-0": 1_000.0})[0] == "Fri 02:45:00"


def test_a_window_that_closes_soon_after_the_deadline_comes_before_it() -> None:
    assert the_one(WEB, ENOUGH, windows={"cluster": [window("0 0 * * *", "9h25m")]})[0] == "Fri 09:10:00"
    assert the_one(WEB, ENOUGH, windows={"cluster": [window("0 0 * * *", "9h33m")]}) == (
        "Fri 09:18:00",
        "to be relieved by 09:18",
    )


def test_a_window_shorter_than_the_lead_is_taken_at_its_start() -> None:
    assert the_one(WEB, ENOUGH, windows={"cluster": [window("0 5 * * *", "10m", "short")]}) == (
        "Fri 05:00:00",
        "to be relieved by 05:00, before the window 'short' closes at 05:10",
    )


def test_without_a_lead_there_is_still_a_minute_before_the_window_closes() -> None:
    (found,) = seen(WEB, ENOUGH, windows={"cluster": [NIGHT]}, forecast={"leadTime": "0s"})
    assert in_words(found.start_by) == "Fri 05:59:00"


def test_in_the_last_minutes_of_the_last_window_it_is_now() -> None:
    now = utc("2027-01-15 05:50")
    found = seen(WEB, ENOUGH, now=now, windows={"cluster": [NIGHT]})[0]
    assert (found.start_by, found.due(now, 900)) == (now, True)
    assert of_the_day(found.why.removeprefix(HEAD)) == (
        "to be relieved by 05:50, before the window 'night' closes at 06:00"
    )


@pytest.mark.parametrize(
    ("day", "start", "closes"),
    [
        # clocks go forward at 01:00 UTC: eight hours from 22:00 CET end at 07:00 CEST
        ("2027-03-28", "04:45", "05:00"),
        # and back at 01:00 UTC: from 22:00 CEST they end at 05:00 CET
        ("2027-10-31", "03:45", "04:00"),
    ],
)
def test_a_night_in_which_the_clocks_change(day: str, start: str, closes: str) -> None:
    curve = [(f"{day} 09:40", 12_800.0), (f"{day} 10:20", 14_560.0), (f"{day} 11:00", 6_000.0)]
    (found,) = seen(
        WEB,
        ENOUGH,
        now=utc(f"{day} 09:40") - 12 * 3600,
        curves={"n1": curve},
        windows={"cluster": [window("0 22 * * *", "8h", "sleep", zone="Europe/Berlin")]},
    )
    assert found.start_by == utc(f"{day} {start}")
    assert found.why == (
        f"peak 91% expected at {day} 10:20 UTC, over 75% from {day} 09:40 UTC; to be relieved by {day} {start} UTC, "
        f"before the window 'sleep' closes at {day} {closes} UTC"
    )


# --- Too late, or never.


def test_after_the_deadline_it_is_now_until_the_node_is_hot() -> None:
    now = utc("2027-01-15 09:25")
    found = seen(WEB, ENOUGH, now=now)[0]
    assert (found.start_by, found.why) == (now, HEAD + "late: it should have begun by 2027-01-15 09:18 UTC")
    assert found.due(now, 900)
    assert not found.due(found.hot_from, 900)
    # expected over it already, and worse to come
    shoulder = seen(WEB, ENOUGH, now=utc("2027-01-15 09:45"))[0]
    assert (shoulder.start_by, shoulder.hot_from) == (utc("2027-01-15 09:58"), utc("2027-01-15 10:20"))
    assert seen(WEB, ENOUGH, now=utc("2027-01-15 10:20")) == []


def test_a_window_that_opens_after_the_deadline_is_better_than_none() -> None:
    morning = {"cluster": [window("25 9 * * *", "2h", "morning")]}
    late = ("Fri 09:25:00", "late: it should begin by 09:18, but the window 'morning' opens at 09:25")
    assert the_one(WEB, ENOUGH, windows=morning) == late
    assert the_one(WEB, ENOUGH, windows=morning, now=utc("2027-01-15 09:20")) == late
    assert the_one(WEB, ENOUGH, windows={"cluster": [window("30 21 * * *", "12h", "rest", "Deny")]})[0] == (
        "Thu 21:15:00"
    )
    assert the_one(WEB, ENOUGH, windows={"cluster": [window("0 21 * * *", "12h30m", "rest", "Deny")]}) == (
        "Fri 09:30:00",
        "late: it should begin by 09:18, but the deny window 'rest' ends at 09:30",
    )


def test_when_no_window_opens_in_time_the_next_one_is_named() -> None:
    assert the_one(WEB, ENOUGH, windows={"cluster": [window("40 9 * * *", "8h", "day")]}) == (
        None,
        "no window opens in time: the window 'day' opens at 09:40",
    )
    pods = [*service("web", "allow 0 12 * * * 1h"), *service("api", "allow 45 9 * * * 1h")]
    assert the_one(pods, {"web-0": 5_000.0, "api-0": 1_000.0}) == (
        None,
        "no window opens in time: the window 'allow 45 9 * * * 1h UTC' opens at 09:45",
    )
    # the soonest of two services, and of each the window that opens last
    pods = [*service("web", "allow 0 12 * * 1-5 1h"), *service("api", "allow 0 0 * * 6 24h")]
    closing = {"cluster": [window("0 20 * * 6,0", "6h", "weekend")]}
    (found,) = seen(pods, {"web-0": 5_000.0, "api-0": 5_000.0}, windows=closing)
    assert (found.start_by, found.due(EVENING, 900)) == (None, False)
    assert found.why == HEAD + "no window opens in time: the window 'weekend' opens at 2027-01-16 20:00 UTC"


def test_the_next_window_is_found_also_when_it_is_far_off() -> None:
    pods = [*service("web", "allow 0 3 29 2 * 1h America/New_York"), *service("api", "deny * * * * * 1m")]
    (found,) = seen(pods, {"web-0": 5_000.0, "api-0": 1_000.0}, now=utc("2027-12-01 21:00"), curves=DECEMBER)
    assert found.start_by is None
    assert found.why == (
        "peak 91% expected at 2027-12-02 10:20 UTC, over 75% from 2027-12-02 09:40 UTC; no window opens in time: "
        "the window 'allow 0 3 29 2 * 1h America/New_York' opens at 2028-02-29 08:00 UTC"
    )


def test_that_windows_are_never_open_together_is_said() -> None:
    pods = service("web", "allow 0 4 * * * 2h")
    assert the_one(pods, ENOUGH, windows={"cluster": [window("0 0 * * *", "2h", "night")]}) == (
        None,
        "no window opens in time: those of shop/web don't open within 400 days",
    )


def test_a_broken_annotation_closes() -> None:
    pods = service("web", "allow 0 25 * * * 8h")
    assert the_one(pods, ENOUGH) == (None, "no window opens in time: those of shop/web can't be understood")
    whole = [*pods, *service("api")]
    assert the_one(whole, {"web-0": 5_000.0, "api-0": 2_080.0}) == (
        "Fri 09:18:00",
        "to be relieved by 09:18; only 50% of the excess may be moved then",
    )


# --- Which nodes.


def test_marks_around_the_mean_lie_around_the_mean_of_the_expected_peaks() -> None:
    thresholds = {"high": 20, "target": 10, "low": 5, "relativeToMean": True, "floor": 30}
    nodes = [*NODES, a_node("n3"), a_node("n4")]
    # 91%, 30% and 29%, one not known: on average 50%
    curves = {"n1": MORNING, "n2": [("2027-01-15 03:00", 4_800.0)], "n3": [("2027-01-14 22:00", 4_640.0)]}

    def change(peaks: Peaks) -> Peaks:
        peak, grid = np.array([14_560.0, 4_800.0, 4_640.0, np.nan]), peaks.expected.copy()
        grid[3] = np.nan
        return replace(peaks, node_millicores=peak, expected=grid)

    (found,) = seen(
        WEB, ENOUGH, nodes=nodes, curves=curves, change=change, pools=[general(thresholds=thresholds)], windows={}
    )
    assert (found.node_name, round(found.high, 9), round(found.target, 9)) == ("n1", 0.7, 0.6)
    assert found.why == HEAD.replace("75%", "70%") + "to be relieved by 2027-01-15 09:18 UTC"


@pytest.mark.parametrize(
    "fields",
    [
        {"pools": [general(selector={"matchLabels": {"pool": "other"}})]},
        {"strategies": [{"name": "LowNodeUtilization", "pools": ["other"]}], "pools": [general(), OTHER]},
        {"pools": [BY_REQUESTS], "strategies": [{"name": "LowNodeUtilization", "args": {"source": "Requests"}}]},
        {"curves": {"n1": [("2027-01-15 10:00", 12_000.0)]}},
        {"curves": {"n1": [("2027-01-14 21:00", 13_000.0)]}},
        {"forecast": {"horizon": "12h"}},
    ],
    ids=["no pool", "no strategy", "by requests", "at high", "hot now", "beyond the horizon"],
)
def test_a_node_that_nobody_asks_for_is_not_upcoming(fields: dict[str, Any]) -> None:
    assert seen(WEB, ENOUGH, **fields) == []


def test_one_strategy_that_looks_at_the_pool_is_enough() -> None:
    strategies = [
        {"name": "LowNodeUtilization", "pools": ["other"]},
        {"name": "LowNodeUtilization", "args": {"source": "Requests"}},
        {"name": "LowNodeUtilization", "pools": ["general"]},
    ]
    assert the_one(WEB, ENOUGH, strategies=strategies, pools=[BY_REQUESTS, OTHER])[0] == "Fri 09:18:00"


def test_a_node_of_which_nothing_is_known_is_not_upcoming() -> None:
    def unknown(peaks: Peaks) -> Peaks:
        nothing = np.full(2, np.nan)
        grid = np.full_like(peaks.expected, np.nan)
        return replace(peaks, expected=grid, node_millicores=nothing, node_at=nothing)

    assert seen(WEB, ENOUGH, change=unknown) == []


def test_the_soonest_start_comes_first_and_those_without_one_last() -> None:
    nodes = [a_node(name) for name in ("b", "n2", "a", "never", "soon")]
    pods = [
        *service("web", node="b"),
        *service("api", node="a"),
        *service("shut", "deny * * * * * 1m", node="never"),
        *service("early", "allow 0 3 * * * 1h", node="soon"),
    ]
    relief = dict.fromkeys(("web-0", "api-0", "shut-0", "early-0"), 5_000.0)
    found = seen(pods, relief, nodes=nodes, curves=dict.fromkeys(("b", "a", "never", "soon"), MORNING))
    assert [(each.node_name, each.node, in_words(each.start_by)) for each in found] == [
        ("soon", 4, "Fri 03:45:00"),
        ("a", 2, "Fri 09:18:00"),
        ("b", 0, "Fri 09:18:00"),
        ("never", 3, None),
    ]


def test_a_start_is_due_at_the_last_look_before_it() -> None:
    (found,) = seen(WEB, ENOUGH)
    start = utc("2027-01-15 09:18")
    assert [found.due(start - ago, 900) for ago in (901, 900, 0)] == [False, True, True]
    assert found.due(found.hot_from - 1, 900)
    assert not found.due(found.hot_from, 900)
