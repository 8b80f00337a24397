"""How good forecasts were, by hand; and when they are getting worse."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from rebalancer.forecast.evaluation.accuracy import LEAST, LOOKS_BACK_SECONDS, Scores, accuracy
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.records.forecasts import ForecastKind, Verdict, VerifiedForecast
from tests.forecast.builders import a_stored_forecast, an_actual

NOW = 20_000 * DAY_SECONDS + 3600.0
HOUR = 3600.0
LONG_AGO = 0.0


def a_day(
    actual: float = 2000.0,
    *,
    peak: float = 2400.0,
    margin: float = 400.0,
    ago: float = 1.0,
    without_us: float | None = None,
    changed: float = 0.0,
    hours_off: float = 0.0,
    verdict: Verdict | None = None,
    **fields: Any,
) -> VerifiedForecast:
    """A node of 4000: expected at 2000, with its margin at 2400; the forecast was over `ago` days before NOW."""
    made = NOW - (ago + 1) * DAY_SECONDS
    expected = {"peak_millicores": peak, "margin_millicores": margin, "peak_at": made + 10 * HOUR, **fields}
    busiest = actual + 200.0
    came = {"peak_millicores": busiest, "departed_peak_share": changed, "verdict": verdict}
    alone = {"counterfactual_peak_millicores": busiest if without_us is None else without_us}
    return VerifiedForecast(
        forecast=a_stored_forecast(made, **expected),
        actuals=an_actual(actual, made + (10 + hours_off) * HOUR, **came, **alone),
    )


def ahead(verdict: Verdict | None, **fields: Any) -> VerifiedForecast:
    return a_day(verdict=verdict, kind=ForecastKind.AHEAD, **fields)


def scores(judged: Iterable[VerifiedForecast], *, since: float = LONG_AGO) -> Scores:
    return accuracy(list(judged), since=since, now=NOW).everything


def test_errors_are_shares_of_capacity_before_the_margin() -> None:
    """Ten days 200 (5% of 4000) too low, ten 400 (10%) too high, five right."""
    found = scores([*[a_day(2200.0)] * 10, *[a_day(1600.0)] * 10, *[a_day(2000.0)] * 5])
    assert found.count == 25
    assert found.under == pytest.approx(10 * 0.05 / 25)
    assert found.over == pytest.approx(10 * 0.10 / 25)
    assert found.mae == pytest.approx(found.under + found.over)


def test_a_day_is_covered_at_or_under_the_forecast_with_its_margin() -> None:
    found = scores([*[a_day(2400.0)] * 18, *[a_day(2401.0)] * 6])
    assert found.coverage == 0.75


def test_large_and_small_nodes_count_alike() -> None:
    large = a_day(20_000.0, peak=24_000.0, margin=8_000.0, capacity_millicores=40_000.0)
    assert scores([*[large] * 10, *[a_day(2400.0)] * 10]).mae == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("days", "recall", "precision"),
    [
        # hot is over 3000: (actual, peak) x how many
        pytest.param({(3100, 3200): 6, (3100, 2900): 2, (2900, 3100): 4, (2000, 2400): 8}, 6 / 8, 6 / 10, id="some"),
        pytest.param({(3000, 3000): 20}, math.nan, math.nan, id="at high is not over it"),
        pytest.param({(2000, 3200): 20}, math.nan, 0.0, id="none was hot"),
        pytest.param({(3100, 2400): 20}, 0.0, math.nan, id="none was called hot"),
    ],
)
def test_hot_days(days: Mapping[tuple[int, int], int], recall: float, precision: float) -> None:
    found = scores(
        [a_day(float(actual), peak=float(peak)) for (actual, peak), times in days.items() for _ in range(times)]
    )
    assert found.hot_recall == pytest.approx(recall, nan_ok=True)
    assert found.hot_precision == pytest.approx(precision, nan_ok=True)


def test_the_other_hot_figures_count_days() -> None:
    found = scores([*[a_day(3100.0, peak=3200.0)] * 6, *[a_day(2900.0, peak=3200.0)] * 4, *[a_day()] * 10])
    assert (found.hot_days, found.called_hot, found.relieved) == (6, 10, 0)


@pytest.mark.parametrize("without_us", [3400.0, math.nan], ids=["busier", "not known"])
def test_a_day_that_we_made_cooler_says_nothing_about_hot_days(without_us: float) -> None:
    """Called hot, and not hot because we acted: no false alarm."""
    ours = a_day(2600.0, peak=3200.0, without_us=without_us)
    found = scores([*[ours] * 10, *[a_day(3100.0, peak=3200.0)] * 10])
    assert (found.count, found.relieved, found.called_hot, found.hot_precision) == (20, 10, 10, 1.0)


def test_without_a_fixed_high_no_day_is_hot() -> None:
    found = scores([a_day(3900.0, peak=4000.0, high=None)] * 20)
    assert (found.hot_days, found.called_hot, found.relieved) == (0, 0, 0)
    assert math.isnan(found.hot_recall)


@pytest.mark.parametrize(
    ("hours", "median"), [([0, 2, 9], 2.0), ([23, 23, 23], 1.0), ([-13, 13, 11], 11.0), ([12, 12, 12], 12.0)]
)
def test_the_hour_of_the_peak_is_off_by_the_short_way_round(hours: list[float], median: float) -> None:
    found = scores([a_day(hours_off=each) for each in hours for _ in range(7)])
    assert found.peak_hour_error == pytest.approx(median)


def test_nodes_whose_pods_stayed_are_scored_apart() -> None:
    days = [
        *[a_day(2200.0, changed=0.05)] * 30,
        *[a_day(2800.0, changed=0.06)] * 10,
        *[a_day(2800.0, changed=math.nan)] * 20,  # nobody looked
    ]
    found = scores(days)
    assert found.unchanged_share == pytest.approx(30 / 40)
    assert found.unchanged_mae == pytest.approx(0.05)
    assert found.mae == pytest.approx((30 * 0.05 + 30 * 0.2) / 60)


def test_verdicts_are_counted_and_those_forecasts_are_not_scored() -> None:
    days = [
        *[ahead(Verdict.PREVENTED, peak=4000.0)] * 3,
        *[ahead(Verdict.FALSE_ALARM)] * 2,
        ahead(Verdict.TOO_LATE),
        ahead(None),
        *[a_day()] * 20,
    ]
    found = scores(days)
    others = {Verdict.FALSE_ALARM: 2, Verdict.TOO_LATE: 1, Verdict.NOT_MOVED: 0}
    assert dict(found.verdicts) == {Verdict.PREVENTED: 3, **others}
    assert (found.count, found.mae) == (20, 0.0)


def test_days_without_samples_are_counted_and_not_scored() -> None:
    unknown = [a_day(math.nan), a_day(peak=math.nan), a_day(capacity_millicores=0.0)]
    found = scores([*[a_day(2200.0)] * 20, *unknown])
    assert (found.count, found.unknown) == (20, 3)
    assert found.mae == pytest.approx(0.05)


def test_too_few_tell_nothing() -> None:
    few, enough = ([a_day(3100.0, peak=3200.0, changed=0.0)] * count for count in (LEAST - 1, LEAST))
    found = scores([*few, ahead(Verdict.PREVENTED)])
    errors = (found.mae, found.under, found.over, found.coverage, found.peak_hour_error)
    shares = (found.hot_recall, found.hot_precision, found.unchanged_share, found.unchanged_mae)
    assert all(math.isnan(figure) for figure in (*errors, *shares))
    assert not found.enough
    assert (found.count, found.hot_days, found.verdicts[Verdict.PREVENTED]) == (LEAST - 1, LEAST - 1, 1)
    assert scores(enough).enough
    assert scores(enough).hot_recall == 1.0


def test_pools_are_scored_apart_and_together() -> None:
    days = [*[a_day(2200.0)] * 20, *[a_day(2400.0, pool="batch")] * 20, *[a_day(2000.0, pool="")] * 20]
    found = accuracy(days, since=LONG_AGO, now=NOW)
    maes = {"": 0.0, "batch": pytest.approx(0.1), "general": pytest.approx(0.05)}
    assert {name: each.mae for name, each in found.pools.items()} == maes
    assert found.everything.count == 60


def test_only_what_was_made_since_is_counted() -> None:
    days = [*[a_day(2200.0, ago=3)] * 20, *[a_day(2400.0, ago=9, pool="old")] * 20, ahead(Verdict.TOO_LATE, ago=9)]
    found = accuracy(days, since=NOW - 4 * DAY_SECONDS, now=NOW)
    assert (found.everything.count, sum(found.everything.verdicts.values())) == (20, 0)
    assert list(found.pools) == ["general"]
    assert list(accuracy(days, since=NOW - 4 * DAY_SECONDS + 1, now=NOW).pools) == []


def test_without_judged_forecasts_nothing_is_scored() -> None:
    found = accuracy([], since=LONG_AGO, now=NOW)
    assert (found.everything.count, dict(found.pools)) == (0, {})


# ---- drift


def days(count: int, actual: float, *, ago: float, covered: int = 0, **fields: Any) -> list[VerifiedForecast]:
    """`covered` of them just under the forecast with its margin, the others at `actual`."""
    return [a_day(2390.0 if number < covered else actual, ago=ago, **fields) for number in range(count)]


def drifts(recent: float, before: float, drift: str = "", *, case: str, **fields: Any) -> Any:
    """Two times of days that came at one level each; further `fields` are of the recent ones."""
    count, ago, covered = fields.pop("count", (20, 20)), fields.pop("ago", (1, 5)), fields.pop("covered", (0, 0))
    lately = days(count[0], recent, ago=ago[0], covered=covered[0], **fields)
    return pytest.param(lately, days(count[1], before, ago=ago[1], covered=covered[1]), drift, id=case)


COVERED = "{}% of the last 3 days stayed at or under the forecast, {}% before"
ERROR = "the error of the last 3 days is {}% of capacity, 2.5% before"


@pytest.mark.parametrize(
    ("recent", "before", "drift"),
    [
        drifts(2410.0, 2410.0, COVERED.format(75, 90), covered=(15, 18), case="15 points less covered"),
        drifts(2410.0, 2410.0, covered=(16, 18), case="10 points less covered"),
        drifts(2200.0, 2100.0, ERROR.format(5), case="twice the error"),
        drifts(2190.0, 2100.0, case="not quite twice"),
        drifts(1800.0, 2100.0, ERROR.format(5), case="too high is an error too"),
        drifts(2039.0, 2010.0, case="four times as much of nothing"),
        drifts(2800.0, 2100.0, f"{COVERED.format(0, 100)}; {ERROR.format(20)}", case="both"),
        drifts(2800.0, 2100.0, count=(19, 20), case="too few lately"),
        drifts(2800.0, 2100.0, count=(20, 19), case="too few before"),
        drifts(2000.0, 2800.0, case="better than before"),
        drifts(1200.0, 2100.0, without_us=2300.0, case="we made them cooler ourselves"),
        drifts(2800.0, 2100.0, ago=(3, 5), case="three days ago is not the last three"),
        drifts(2800.0, 2100.0, ago=(1, 17), case="17 days ago is before the 14"),
        drifts(2200.0, 2100.0, ERROR.format(5), ago=(2.9, 16.9), case="just within both"),
    ],
)
def test_a_drift_is_named_with_its_numbers(
    recent: list[VerifiedForecast], before: list[VerifiedForecast], drift: str
) -> None:
    assert scores([*recent, *before]).drift == drift


def test_a_drift_is_found_however_short_the_time_that_is_asked_for() -> None:
    judged = [*days(20, 2200.0, ago=1), *days(20, 2100.0, ago=16.9, pool="general")]
    assert min(each.forecast.made_at for each in judged) > NOW - LOOKS_BACK_SECONDS
    found = accuracy(judged, since=NOW - 3 * DAY_SECONDS, now=NOW)
    assert (found.everything.count, found.pools["general"].count) == (20, 20)
    assert found.pools["general"].drift
