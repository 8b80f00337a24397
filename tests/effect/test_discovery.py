"""Found or missed, by what, and why not."""

from typing import Any

import pytest

from rebalancer.effect.discovery import MISSES_BY_CODE, attribute_episode
from rebalancer.model.reason import BlockedReason, MissReason, Reason
from rebalancer.model.records.effect import HotEpisode, NodeObservation, Outcome, Step
from tests.effect.builders import MINUTE, STRATEGY, T0, a_finding, a_look, a_sighting, an_assessment, an_episode

HOUR = 60


def found(episode: HotEpisode, *sightings: NodeObservation, **changes: Any) -> HotEpisode:
    values: dict[str, Any] = {"covered": True, "every_seconds": 120.0, "paused": False, "settled": ()}
    return attribute_episode(episode, sightings, **values | changes)


def every_two_minutes(*, minutes: int = 60, **changes: Any) -> list[NodeObservation]:
    return [a_look(minute, **changes) for minute in range(1, minutes, 2)]


# ---- found


def test_the_first_cycle_with_a_finding_has_found_it() -> None:
    shown = found(an_episode(), a_look(1), a_finding(5, trigger="alert", evictions=2), a_finding(9, evictions=1))
    assert shown.discovered_at == T0 + 5 * MINUTE
    assert (shown.discovery_trigger, shown.strategy, shown.evictions) == ("alert", STRATEGY, 3)
    assert (shown.miss_reason, shown.blocked_reason, shown.codes) == (None, None, None)
    assert shown.detail == "discovered 5m after it became hot, 3 evictions"


def test_what_we_measured_meanwhile_is_the_highest_share_of_any_cycle() -> None:
    shown = found(an_episode(), a_look(-5, 0.99), a_look(1, 0.6), a_look(3, None), a_look(5, 0.72), a_look(61, 0.98))
    assert shown.measured_peak_share == 0.72


@pytest.mark.parametrize(
    ("minute", "trigger", "counts"),
    [
        (-14, "periodic", True),
        (-16, "periodic", False),
        (-16, "forecast", True),
        (-24 * HOUR, "forecast", True),
        (-24 * HOUR - 1, "forecast", False),
        (60, "periodic", True),
        (61, "periodic", False),
        (61, "forecast", False),
    ],
)
def test_a_finding_counts_shortly_before_too_and_a_forecasts_a_day(minute: float, trigger: str, counts: bool) -> None:
    reported = found(an_episode(), a_finding(minute, trigger=trigger), *every_two_minutes())
    assert (reported.discovered_at is not None) is counts
    assert reported.discovery_trigger == (trigger if counts else "")


def test_where_looks_are_further_apart_the_last_one_before_counts() -> None:
    reported = found(an_episode(), a_finding(-29), a_look(1), every_seconds=1800.0)
    assert reported.discovered_at == T0 - 29 * MINUTE
    assert reported.detail.startswith("discovered 29m before it became hot")


def test_what_was_found_in_the_episode_before_is_not_found_in_this_one() -> None:
    reported = found(an_episode(), a_finding(-300, trigger="forecast"), *every_two_minutes(), after=T0 - 100 * MINUTE)
    assert reported.discovered_at is None


def test_evictions_of_a_cycle_ahead_count_and_those_of_a_dry_run_or_for_another_heat_do_not() -> None:
    ahead, dry = a_finding(-90, trigger="forecast", evictions=2), a_finding(3, dry_run=True, evictions=5)
    reported = found(an_episode(), ahead, dry, a_finding(70, evictions=1))
    assert (reported.discovery_trigger, reported.evictions) == ("forecast", 2)
    ahead, between = a_finding(-600, trigger="forecast", evictions=1), a_finding(-300, evictions=4)
    assert found(an_episode(), ahead, between, a_finding(3, evictions=2)).evictions == 3


@pytest.mark.parametrize(
    ("outcomes", "cooled"),
    [
        ([], None),
        ([None], None),
        ([Outcome.COOLED], True),
        ([Outcome.REMAINING_PODS_GREW], False),
        ([Outcome.REMAINING_PODS_GREW, Outcome.COOLED], True),
        ([Outcome.COOLED, Outcome.NEW_PODS_ARRIVED], False),
        ([Outcome.COOLED, Outcome.UNKNOWN], None),
        ([Outcome.COOLED, None], None),
    ],
)
def test_it_has_cooled_when_the_last_cycle_that_took_something_cooled_it(
    outcomes: list[Outcome | None], cooled: bool | None
) -> None:
    minutes = range(3, 3 + 20 * len(outcomes), 20)
    settled = [an_assessment(minute=minute, outcome=outcome) for minute, outcome in zip(minutes, outcomes, strict=True)]
    reported = found(an_episode(), *(a_finding(minute, evictions=1) for minute in minutes or [3]), settled=settled)
    assert reported.cooled is cooled


def test_assessments_of_other_cycles_nodes_and_times_say_nothing_of_it() -> None:
    others = [
        an_assessment(minute=3, outcome=Outcome.COOLED, node="node-2"),
        an_assessment(minute=3, outcome=Outcome.COOLED, step=Step.HOUR),
        an_assessment(minute=200, outcome=Outcome.COOLED),
    ]
    assert found(an_episode(), a_finding(3, evictions=1), settled=others).cooled is None


def test_what_was_missed_before_is_found_anew() -> None:
    missed = found(an_episode(), *every_two_minutes())
    assert missed.miss_reason is MissReason.BELOW_THRESHOLD
    again = found(missed, *every_two_minutes(), a_finding(30, evictions=1))
    assert (again.miss_reason, again.discovered_at) == (None, T0 + 30 * MINUTE)


# ---- missed: why


def sightings(**changes: Any) -> list[NodeObservation]:
    return [a_sighting(minute, **changes) for minute in range(1, 60, 2)]


def without_samples(*codes: Reason) -> list[NodeObservation]:
    return every_two_minutes(share=None, refusals=dict.fromkeys(codes, 1))


def looked_hot(code: Reason) -> list[NodeObservation]:
    return [a_look(1), a_look(3, 0.76, refusals={code: 1}), a_look(5), a_look(7)]


NOT_COVERED, DOWN, NOT_EVALUATED = MissReason.NOT_COVERED, MissReason.DAEMON_DOWN, MissReason.NOT_EVALUATED
BELOW, WINDOW, NO_METRICS = MissReason.BELOW_THRESHOLD, MissReason.STABILIZATION_WINDOW, MissReason.NO_METRICS
Miss = tuple[list[NodeObservation], dict[str, Any], MissReason, str]


def a_miss(reason: MissReason, seen: list[NodeObservation], detail: str = "", **changes: Any) -> Miss:
    return seen, changes, reason, detail


BY_SLO = "by the hot-node SLO 78.4% over 75%"
AT_MOST = "measured at most 76%, high is 75%"
WITHOUT_SAMPLES = (Reason.NO_SAMPLE, Reason.STALE_SAMPLE, Reason.NOT_FINITE, Reason.AMBIGUOUS_NODE)
NOT_READY_EITHER = without_samples(Reason.NODE_NOT_READY, Reason.NO_SAMPLE)
MISSES: dict[str, Miss] = {
    "in no pool": a_miss(
        NOT_COVERED, every_two_minutes(), f"it is in no pool of a strategy for hot nodes; {BY_SLO}", covered=False
    ),
    "no cycle": a_miss(DOWN, [a_look(-1), a_look(61)], "no cycle ran in the 1h that it was hot"),
    "no cycle for most of it": a_miss(DOWN, every_two_minutes(minutes=20), "no cycle ran for 41m of the 1h it was hot"),
    "cycles for most of it": a_miss(BELOW, every_two_minutes(minutes=40)),
    "shorter than the time between looks": a_miss(
        NOT_EVALUATED, [], "hot for 9m, and it is evaluated every 10m", minutes=9, every_seconds=600.0
    ),
    "cycles that looked elsewhere": a_miss(NOT_EVALUATED, sightings(), "30 cycles ran, none evaluated it"),
    "a less sensitive mark of ours, with both values": a_miss(
        BELOW, every_two_minutes(), f"measured at most 71.2%, high is 75%; {BY_SLO}"
    ),
    "over our mark without a finding: a move still settles": a_miss(WINDOW, every_two_minutes(share=0.8)),
    **{
        f"hot, but not for long enough: {code}": a_miss(
            WINDOW, looked_hot(code), f"{code} 1 in 4 cycles; {AT_MOST}", minutes=8
        )
        for code in (Reason.STABILIZATION_WINDOW, Reason.SETTLING)
    },
    **{
        f"without samples: {code}": a_miss(NO_METRICS, without_samples(code), f"{code} 30 in 30 cycles")
        for code in WITHOUT_SAMPLES
    },
    **{
        f"stopped for their data: {code}": a_miss(NO_METRICS, sightings(stopped=code), str(code))
        for code in (Reason.COVERAGE_TOO_LOW, Reason.PARTIAL_USAGE)
    },
    "stopped for themselves: as good as none": a_miss(DOWN, sightings(stopped=Reason.LEASE_LOST), "LeaseLost 30"),
    "not Ready, though its samples are missing too": a_miss(MissReason.NOT_READY, NOT_READY_EITHER),
}


@pytest.mark.parametrize(("seen", "changes", "reason", "detail"), MISSES.values(), ids=MISSES.keys())
def test_why_an_episode_was_missed(
    seen: list[NodeObservation], changes: dict[str, Any], reason: MissReason, detail: str
) -> None:
    minutes = changes.get("minutes", 60)
    shown = found(
        an_episode(minutes=minutes), *seen, **{key: each for key, each in changes.items() if key != "minutes"}
    )
    assert shown.miss_reason is reason
    assert detail in shown.detail


def test_looks_without_metrics_decide_only_when_they_are_the_most() -> None:
    blind = [a_look(minute, None, refusals={Reason.NO_SAMPLE: 1}) for minute in range(1, 60, 2)]
    debounced = [a_look(minute, 0.8, refusals={Reason.STABILIZATION_WINDOW: 1}) for minute in range(1, 60, 2)]
    elsewhere = [a_sighting(minute) for minute in range(0, 60, 2)]
    more_blind = sorted([*blind[:16], *debounced[16:], *elsewhere], key=lambda each: each.at)
    less_blind = sorted([*blind[:15], *debounced[15:], *elsewhere], key=lambda each: each.at)
    assert found(an_episode(), *more_blind).miss_reason is MissReason.NO_METRICS
    assert found(an_episode(), *less_blind).miss_reason is MissReason.STABILIZATION_WINDOW


def test_a_node_that_is_still_hot_is_not_missed_before_a_cycle_has_come_by() -> None:
    reported = found(an_episode(minutes=None))
    assert (reported.miss_reason, reported.discovered_at, reported.detail) == (None, None, "")
    assert found(an_episode(minutes=None), a_look(1)).miss_reason is MissReason.BELOW_THRESHOLD


def test_each_miss_has_a_case_here() -> None:
    reached = {NOT_COVERED, DOWN, NOT_EVALUATED, BELOW, *MISSES_BY_CODE}
    assert reached == set(MissReason)
    assert set(MISSES_BY_CODE) == {code.group for code in Reason if isinstance(code.group, MissReason)}


def test_a_found_node_that_nothing_left_says_why() -> None:
    reported = found(an_episode(), a_finding(3, {Reason.LIMIT_POOL: 4}), a_finding(5, {Reason.LIMIT_POOL: 4}))
    assert reported.blocked_reason is BlockedReason.LIMITS
    assert reported.codes == {Reason.LIMIT_POOL: 8}
    assert reported.detail == (
        "discovered 3m after it became hot, nothing evicted: limits were used up: LimitPool 8 in 2 cycles"
    )
    assert reported.cooled is None
