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
    told = found(
        an_episode(),
        a_look(1),
        a_finding(5, trigger="alert", evictions=2),
        a_finding(9, evictions=1),
    )
    assert told.discovered_at == T0 + 5 * MINUTE
    assert (told.discovery_trigger, told.strategy, told.evictions) == ("alert", STRATEGY, 3)
    assert (told.miss_reason, told.blocked_reason, told.codes) == (None, None, None)
    assert told.detail == "discovered 5m after it became hot, 3 evictions"


def test_what_we_measured_meanwhile_is_the_highest_share_of_any_cycle() -> None:
    told = found(an_episode(), a_look(-5, 0.99), a_look(1, 0.6), a_look(3, None), a_look(5, 0.72), a_look(61, 0.98))
    assert told.measured_peak_share == 0.72


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
    told = found(an_episode(), a_finding(minute, trigger=trigger), *every_two_minutes())
    assert (told.discovered_at is not None) is counts
    assert told.discovery_trigger == (trigger if counts else "")


def test_where_looks_are_further_apart_the_last_one_before_counts() -> None:
    told = found(an_episode(), a_finding(-29), a_look(1), every_seconds=1800.0)
    assert told.discovered_at == T0 - 29 * MINUTE
    assert told.detail.startswith("discovered 29m before it became hot")


def test_what_was_found_in_the_episode_before_is_not_found_in_this_one() -> None:
    told = found(an_episode(), a_finding(-300, trigger="forecast"), *every_two_minutes(), after=T0 - 100 * MINUTE)
    assert told.discovered_at is None


def test_evictions_of_a_cycle_ahead_count_and_those_of_a_dry_run_do_not() -> None:
    told = found(
        an_episode(),
        a_finding(-90, trigger="forecast", evictions=2),
        a_finding(3, dry_run=True, evictions=5),
        a_finding(70, evictions=1),
    )
    assert (told.discovery_trigger, told.evictions) == ("forecast", 2)


def test_what_left_in_between_for_another_heat_does_not_count() -> None:
    ahead, between, during = (
        a_finding(-600, trigger="forecast", evictions=1),
        a_finding(-300, evictions=4),
        a_finding(3, evictions=2),
    )
    assert found(an_episode(), ahead, between, during).evictions == 3


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
    told = found(an_episode(), *(a_finding(minute, evictions=1) for minute in minutes or [3]), settled=settled)
    assert told.cooled is cooled


def test_assessments_of_other_cycles_nodes_and_times_say_nothing_of_it() -> None:
    others = [
        an_assessment(minute=3, outcome=Outcome.COOLED, node="node-2"),
        an_assessment(minute=3, outcome=Outcome.COOLED, step=Step.HOUR),
        an_assessment(minute=200, outcome=Outcome.COOLED),
    ]
    assert found(an_episode(), a_finding(3, evictions=1), settled=others).cooled is None


def test_what_was_told_before_is_told_anew() -> None:
    missed = found(an_episode(), *every_two_minutes())
    assert missed.miss_reason is MissReason.BELOW_THRESHOLD
    again = found(missed, *every_two_minutes(), a_finding(30, evictions=1))
    assert (again.miss_reason, again.discovered_at) == (None, T0 + 30 * MINUTE)


# ---- missed: why


def test_a_node_in_no_pool_is_not_covered() -> None:
    told = found(an_episode(), *every_two_minutes(), covered=False)
    assert told.miss_reason is MissReason.NOT_COVERED
    assert told.detail == "it is in no pool of a strategy for hot nodes; by the hot-node SLO 78.4% over 75%"


def test_without_any_cycle_the_daemon_was_down() -> None:
    told = found(an_episode(), a_look(-1), a_look(61))
    assert told.miss_reason is MissReason.DAEMON_DOWN
    assert told.detail.startswith("no cycle ran in the 1h that it was hot")


def test_without_cycles_for_most_of_it_the_daemon_was_down_whatever_the_others_say() -> None:
    told = found(an_episode(), *every_two_minutes(minutes=20))
    assert told.miss_reason is MissReason.DAEMON_DOWN
    assert told.detail.startswith("no cycle ran for 41m of the 1h it was hot")
    assert found(an_episode(), *every_two_minutes(minutes=40)).miss_reason is MissReason.BELOW_THRESHOLD


def test_an_episode_shorter_than_the_time_between_looks_was_not_looked_at() -> None:
    told = found(an_episode(minutes=9), every_seconds=600.0)
    assert told.miss_reason is MissReason.NOT_EVALUATED
    assert told.detail.startswith("hot for 9m, and it is evaluated every 10m")


def test_cycles_that_looked_elsewhere_did_not_look_at_it() -> None:
    told = found(an_episode(), *(a_sighting(minute) for minute in range(1, 60, 2)))
    assert told.miss_reason is MissReason.NOT_EVALUATED
    assert told.detail.startswith("30 cycles ran, none evaluated it")


def test_a_less_sensitive_mark_of_ours_is_told_with_both_values() -> None:
    told = found(an_episode(), *every_two_minutes())
    assert told.miss_reason is MissReason.BELOW_THRESHOLD
    assert told.detail == ("measured at most 71.2%, high is 75%; by the hot-node SLO 78.4% over 75%")


@pytest.mark.parametrize("code", [Reason.STABILIZATION_WINDOW, Reason.SETTLING])
def test_a_node_that_looked_hot_but_not_for_long_enough_was_debounced(code: Reason) -> None:
    told = found(an_episode(minutes=8), a_look(1), a_look(3, 0.76, refusals={code: 1}), a_look(5), a_look(7))
    assert told.miss_reason is MissReason.STABILIZATION_WINDOW
    assert f"{code} 1 in 4 cycles; measured at most 76%, high is 75%" in told.detail


def test_what_is_measured_over_our_mark_without_a_finding_is_a_move_that_still_settles() -> None:
    assert found(an_episode(), *every_two_minutes(share=0.8)).miss_reason is MissReason.STABILIZATION_WINDOW


@pytest.mark.parametrize("code", [Reason.NO_SAMPLE, Reason.STALE_SAMPLE, Reason.NOT_FINITE, Reason.AMBIGUOUS_NODE])
def test_a_node_without_samples_had_no_metrics(code: Reason) -> None:
    told = found(an_episode(), *every_two_minutes(share=None, refusals={code: 1}))
    assert told.miss_reason is MissReason.NO_METRICS
    assert f"{code} 30 in 30 cycles" in told.detail


@pytest.mark.parametrize("code", [Reason.COVERAGE_TOO_LOW, Reason.PARTIAL_USAGE])
def test_cycles_that_were_stopped_for_their_data_had_no_metrics(code: Reason) -> None:
    told = found(an_episode(), *(a_sighting(minute, stopped=code) for minute in range(1, 60, 2)))
    assert told.miss_reason is MissReason.NO_METRICS
    assert str(code) in told.detail


def test_cycles_that_were_stopped_for_themselves_are_as_good_as_none() -> None:
    told = found(an_episode(), *(a_sighting(minute, stopped=Reason.LEASE_LOST) for minute in range(1, 60, 2)))
    assert told.miss_reason is MissReason.DAEMON_DOWN
    assert "LeaseLost 30" in told.detail


def test_a_node_that_was_not_ready_is_told_as_such_though_its_samples_are_missing_too() -> None:
    told = found(an_episode(), *every_two_minutes(share=None, refusals={Reason.NODE_NOT_READY: 1, Reason.NO_SAMPLE: 1}))
    assert told.miss_reason is MissReason.NOT_READY


def test_looks_without_metrics_decide_only_when_they_are_the_most() -> None:
    blind = [a_look(minute, None, refusals={Reason.NO_SAMPLE: 1}) for minute in range(1, 60, 2)]
    debounced = [a_look(minute, 0.8, refusals={Reason.STABILIZATION_WINDOW: 1}) for minute in range(1, 60, 2)]
    elsewhere = [a_sighting(minute) for minute in range(0, 60, 2)]
    more_blind = sorted([*blind[:16], *debounced[16:], *elsewhere], key=lambda each: each.at)
    less_blind = sorted([*blind[:15], *debounced[15:], *elsewhere], key=lambda each: each.at)
    assert found(an_episode(), *more_blind).miss_reason is MissReason.NO_METRICS
    assert found(an_episode(), *less_blind).miss_reason is MissReason.STABILIZATION_WINDOW


def test_a_node_that_is_still_hot_is_not_missed_before_a_cycle_has_come_by() -> None:
    told = found(an_episode(minutes=None))
    assert (told.miss_reason, told.discovered_at, told.detail) == (None, None, "")
    assert found(an_episode(minutes=None), a_look(1)).miss_reason is MissReason.BELOW_THRESHOLD


def test_each_miss_has_a_case_here() -> None:
    reached = {
        MissReason.NOT_COVERED,
        MissReason.DAEMON_DOWN,
        MissReason.NOT_EVALUATED,
        MissReason.BELOW_THRESHOLD,
        *MISSES_BY_CODE,
    }
    assert reached == set(MissReason)
    assert set(MISSES_BY_CODE) == {code.group for code in Reason if isinstance(code.group, MissReason)}


def test_a_found_node_that_nothing_left_says_why() -> None:
    told = found(an_episode(), a_finding(3, {Reason.LIMIT_POOL: 4}), a_finding(5, {Reason.LIMIT_POOL: 4}))
    assert told.blocked_reason is BlockedReason.LIMITS
    assert told.codes == {Reason.LIMIT_POOL: 8}
    assert told.detail == (
        "discovered 3m after it became hot, nothing evicted: limits were used up: LimitPool 8 in 2 cycles"
    )
    assert told.cooled is None
