"""Sums that the database makes of forecasts say the same as counting them one by one."""

import math
import random
from dataclasses import fields

import pytest

from rebalancer.forecast.evaluation.accuracy import BEFORE_SECONDS, RECENT_SECONDS, Figures, accuracy, figures
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.records.forecasts import Actuals, ForecastKind, StoredForecast
from rebalancer.store import SqlForecasts, SqlRecords
from tests.store.builders import NOW
from tests.store.scenarios.ledger_cluster import Cluster

DAYS, NODES = 22, 75
SINCE = NOW - 12 * DAY_SECONDS
HOUR = 3600.0
POOLS = ("general", "batch", "")


def some_forecasts(dice: random.Random) -> list[StoredForecast]:
    """Some are not known, some have no mark, a few no capacity; every fifth is one that a cycle was started for."""
    return [
        StoredForecast(
            kind=ForecastKind.AHEAD if (day + number) % 5 == 0 else ForecastKind.DAILY,
            node=f"n{number}",
            pool=POOLS[number % 3],
            made_at=(made := NOW - (day + dice.uniform(0.2, 0.8)) * DAY_SECONDS),
            until=made + DAY_SECONDS,
            predictor="combined",
            peak_millicores=dice.choice([2400.0, 3000.0, 3300.0, 3300.0] * 4 + [math.nan]),
            peak_at=dice.choice([made + dice.uniform(0, 24) * HOUR, math.nan]),
            margin_millicores=dice.choice([200.0, 400.0, 400.0, 400.0] * 4 + [math.nan]),
            capacity_millicores=dice.choice([4000.0] * 19 + [0.0]),
            high=dice.choice([0.7, 0.75, 0.75, None]),
            days_used=8,
            confidence=1.0,
            hot_from=made + HOUR,
        )
        for day in range(DAYS)
        for number in range(NODES)
    ]


def some_truth(dice: random.Random, forecast: StoredForecast) -> Actuals:
    recent = forecast.until > NOW - RECENT_SECONDS
    came = dice.choice([1900.0, 2400.0, 2600.0, 3100.0, 3300.0, math.nan]) + (900.0 if recent else 0.0)
    return Actuals(
        p95_millicores=came,
        peak_millicores=came + 100.0,
        peak_at=dice.choice([forecast.made_at + dice.uniform(0, 72) * HOUR, math.nan]),
        departed_peak_share=0.0,
        counterfactual_peak_millicores=came + dice.choice([100.0, 100.0, 100.0, 300.0, math.nan]),
    )


@pytest.fixture
def forecasts(records: SqlRecords) -> SqlForecasts:
    """With a month of them, judged as far as they are over."""
    dice = random.Random(11)
    made = records.forecasts()
    made.keep(some_forecasts(dice))
    made.judge([(number, some_truth(dice, each)) for number, each in made.due(NOW)])
    return made


def summed(forecasts: SqlForecasts, *, pool: str | None = None, until: float = NOW) -> Figures:
    recent = until - RECENT_SECONDS - DAY_SECONDS
    before = recent - BEFORE_SECONDS

    def of(since: float, until: float) -> list[object]:
        return [each for each in forecasts.sums(since, until) if pool in (None, each.pool)]

    off = forecasts.minutes_off(SINCE, until)
    return figures(
        of(SINCE, until),
        minutes_off=[each for name, each in off.items() if pool in (None, name)],
        recent=of(recent, until),
        before=of(before, recent),
    )


def test_sums_say_what_counting_one_by_one_says(forecasts: SqlForecasts) -> None:
    one_by_one = accuracy(forecasts.judged(0.0), since=SINCE, now=NOW)
    for pool, scores in [(None, one_by_one.everything), *one_by_one.pools.items()]:
        found = summed(forecasts, pool=pool)
        assert scores.count > 100
        assert scores.drift
        assert 0 < scores.hot_recall < 1
        for field in fields(Figures):
            one = getattr(scores, field.name)
            # minutes are whole
            slack = 1 / 60 if field.name == "peak_hour_error" else 1e-9
            assert getattr(found, field.name) == (one if field.name == "drift" else pytest.approx(one, abs=slack))


def test_nothing_of_other_clusters_and_times_is_in_the_sums(
    forecasts: SqlForecasts, records: SqlRecords, green: Cluster
) -> None:
    assert green.records.forecasts().sums(0.0, NOW) == []
    assert green.records.forecasts().minutes_off(0.0, NOW) == {}
    assert forecasts.sums(NOW, NOW + DAY_SECONDS) == []
    week = [each.count for each in forecasts.sums(NOW - 7 * DAY_SECONDS, NOW)]
    days = [forecasts.sums(NOW - (day + 1) * DAY_SECONDS, NOW - day * DAY_SECONDS) for day in range(7)]
    assert sum(week) == sum(each.count for day in days for each in day) > 0


def test_before_anything_was_judged_the_sums_are_empty(records: SqlRecords) -> None:
    records.forecasts().keep(some_forecasts(random.Random(3)))
    found = summed(records.forecasts())
    assert (found.count, found.drift) == (0, "")
    assert all(math.isnan(getattr(found, name)) for name in ("mae", "coverage", "hot_recall", "peak_hour_error"))
