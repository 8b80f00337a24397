"""The backtest: nothing of the future reaches a forecast, margins cover, and the default beats the simple ones."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rebalancer.cli.output.backtest_report import less_loss
from rebalancer.cli.traces import read_traces
from rebalancer.forecast.backtest.backtest import TraceRun, backtest
from rebalancer.forecast.backtest.traces import cluster_of_traces
from rebalancer.forecast.learning.prediction_interval import Outcome, learn, weighted_quantile
from rebalancer.forecast.peaks.predict import look_ahead
from rebalancer.forecast.predictors import predictors
from rebalancer.forecast.predictors.base import Past, Prediction
from rebalancer.forecast.series.percentiles import day_weights, quantile, slot_profile
from rebalancer.model.measured.history import SLOTS, STEP_SECONDS, Grid, History
from rebalancer.policy.schema.forecast import DayWeights, Forecast

FAST = ("lastDay", "max", "decayingHistogram", "combined")


def some_traces(days: int = 13, seed: int = 1) -> dict[str, Grid]:
    """One that follows the day, one that changes its level, one that is only noise."""
    random = np.random.default_rng(seed)
    wave = 40 + 30 * np.sin(np.arange(SLOTS) / SLOTS * 2 * np.pi)
    steps = np.where(np.arange(days) % 5 < 3, 20.0, 60.0)[:, None] + np.zeros(SLOTS)
    noise = np.full((days, SLOTS), 30.0)
    return {
        name: (values * random.lognormal(0, 0.1, (days, SLOTS))).astype(np.float32)
        for name, values in (("wave", np.tile(wave, (days, 1))), ("steps", steps), ("noise", noise))
    }


def a_past(days: int = 8, nodes: int = 3, seed: int = 2) -> Past:
    random = np.random.default_rng(seed)
    series = random.gamma(3, 100, (nodes, days, SLOTS)).astype(np.float32)
    return Past(series, weights=day_weights(DayWeights(), days))


@pytest.mark.parametrize("name", list(predictors()))
def test_every_predictor_says_a_constant_is_that_constant(name: str) -> None:
    past = Past(np.full((2, 8, SLOTS), 750, dtype=np.float32), weights=day_weights(DayWeights(), 8))
    assert predictors()[name].predict(past).centres == pytest.approx(750, rel=1e-3)


@pytest.mark.parametrize("name", list(predictors()))
def test_every_predictor_takes_days_and_nodes_without_samples(name: str) -> None:
    past = a_past()
    past.series[0, 2] = np.nan
    past.series[1, 5, 30:40] = np.nan
    past.series[2] = np.nan
    guess = predictors()[name].predict(past).centres
    assert np.isfinite(guess[:, :2]).all()
    assert np.isnan(guess[:, 2]).all()


def test_the_decaying_histogram_forgets_half_in_a_day() -> None:
    days = np.full((1, 8, SLOTS), 100, dtype=np.float32)
    days[0, -1] = 10  # weighs a bit more than half of everything
    past = Past(days, weights=day_weights(DayWeights(), 8))
    assert predictors()["decayingHistogram"].predict(past).centres[0, 0] == 100
    days[0, :-5] = 10  # what is left at 100 weighs 1/2 + 1/4 + ... of a whole that is nearly 2: over 5%
    days[0, -5:-4] = 100
    days[0, -4:] = 10  # now 1/16 of about 2: under 5%
    assert predictors()["decayingHistogram"].predict(past).centres[0, 0] == 10


def test_a_margin_covers_what_it_says_and_no_more() -> None:
    random = np.random.default_rng(4)
    outcomes = [
        Outcome(
            prediction=Prediction(centres=np.full((1, 500), 1000.0)),
            swing=np.full(500, 300.0),
            level=np.full(500, 1000.0),
            actual=1000 + random.normal(0, 100, 500),
        )
        for _ in range(50)
    ]
    margin = learn(outcomes[:25], 0.9)
    assert margin is not None
    covered = np.mean([each.actual <= margin.upper(each.prediction, each.swing) for each in outcomes[25:]])
    assert covered == pytest.approx(0.91, abs=0.02)


def test_nodes_that_swing_more_get_more_margin() -> None:
    random = np.random.default_rng(5)
    swing = np.tile([10.0, 1000.0], 100)
    outcomes = [
        Outcome(
            prediction=Prediction(centres=np.full((1, 200), 1000.0)),
            swing=swing,
            level=np.full(200, 1000.0),
            actual=1000 + random.normal(0, 1, 200) * swing / 3,
        )
        for _ in range(10)
    ]
    margin = learn(outcomes, 0.9)
    assert margin is not None
    added = margin.millicores(outcomes[0].prediction, swing)
    assert added[1] == pytest.approx(100 * added[0])


def test_the_version_that_was_right_before_is_chosen() -> None:
    actual = np.linspace(500, 900, 50)
    guess = Prediction(centres=np.stack([actual * 0 + 700, actual]))
    outcomes = [Outcome(prediction=guess, swing=actual * 0 + 100, level=actual, actual=actual)] * 5
    margin = learn(outcomes, 0.9)
    assert margin is not None
    assert margin.version == 1
    assert learn([], 0.9) is None


def test_percentiles_leave_out_what_is_unknown() -> None:
    values = np.arange(SLOTS, dtype=np.float32)
    holed = values.copy()
    holed[200:] = np.nan
    lost = np.full(SLOTS, np.nan, dtype=np.float32)
    lost[:100] = 5
    found = quantile(np.stack([values, holed, lost]), 0.95)
    assert found[:2] == pytest.approx([0.95 * 287, 0.95 * 199])
    assert np.isnan(found[2])
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.9) == 2.0
    series = np.array([[[1.0] * SLOTS, [2.0] * SLOTS, [3.0] * SLOTS]], dtype=np.float32)
    assert slot_profile(series, np.array([1.0, 8.0, 1.0]))[0, 0] == 2.0
    assert slot_profile(series, np.array([1.0, 1.0, 8.0]))[0, 0] == 3.0


def test_the_future_reaches_no_forecast() -> None:
    cluster = cluster_of_traces(some_traces(14), 3)
    at = 12 * SLOTS
    pods = tuple(
        replace(pod, millicores=np.concatenate([pod.millicores[:at], pod.millicores[at:] * 3])) for pod in cluster.pods
    )
    actual = np.concatenate([cluster.actual[:, :12], cluster.actual[:, 12:] * 3], axis=1)
    changed = replace(cluster, pods=pods, actual=actual)
    one, other = (TraceRun(each, Forecast(), FAST) for each in (cluster, changed))
    for origin in range(3 * SLOTS, 13 * SLOTS + 1, SLOTS // 4):
        one.predict(origin)
        other.predict(origin)
    for name in FAST:
        for place, day in enumerate(map(float, one.days)):
            same = np.allclose(one.series[name].upper[place], other.series[name].upper[place], rtol=1e-6)
            assert same == (day <= 12), (name, day)


def test_a_cluster_of_traces_is_the_same_for_the_same_seed_and_never_over_its_capacity() -> None:
    traces = some_traces()
    one, again, other = (cluster_of_traces(traces, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.actual, again.actual)
    assert not np.array_equal(one.actual, other.actual)
    assert (one.actual <= one.capacity_millicores[:, None, None] * (1 + 1e-6)).all()
    first, later = one.members(0), one.members(10 * SLOTS)
    assert len(first.pods) == len(later.pods)
    assert set(first.pods) != set(later.pods)  # some left, some came
    assert (np.diff(later.node) >= 0).all()


def test_loss_is_nine_parts_of_too_low_and_one_of_too_high() -> None:
    result = backtest(some_traces(), seed=1, only=FAST)
    for score in result.total.scores:
        assert score.errors.pinball == pytest.approx(0.9 * score.errors.under + 0.1 * score.errors.over)
        assert score.errors.mae == pytest.approx(score.errors.under + score.errors.over)
    assert {score.predictor for score in result.total.scores if score.simple} == {"lastDay", "max", "decayingHistogram"}


def test_pools_are_parts_of_the_whole_and_each_gets_a_verdict() -> None:
    result = backtest(some_traces(), seed=1, only=FAST)
    assert set(result.pools) == {"small", "large"}
    assert sum(each.forecasts for each in result.pools.values()) == result.total.forecasts
    assert sum(each.hot_days for each in result.pools.values()) == result.total.hot_days
    for place, score in enumerate(result.total.scores):
        parts = [each.scores[place].errors.pinball for each in result.pools.values()]
        assert score.errors.pinball == pytest.approx(sum(parts) / 2)  # as many node days in each
    assert [each.pool for each in result.proposals] == ["small", "large"]
    assert result.left_out == 0


def test_missing_samples_of_a_trace_are_no_zero_usage() -> None:
    traces = some_traces()
    traces["wave"][10:12] = np.nan
    cluster = cluster_of_traces(traces, 1)
    assert np.isnan(cluster.actual).any()
    result = backtest(traces, seed=1, only=FAST)
    assert result.left_out > 0


def test_coverage_is_counted_by_weekday_and_hour() -> None:
    result = backtest(some_traces(20), seed=1, only=FAST)
    score = result.score("combined")
    assert set(score.hours) == {0, 6, 12, 18}
    assert len(score.weekdays) == 7
    assert np.mean(list(score.hours.values())) == pytest.approx(score.errors.coverage, abs=0.02)


def test_the_forecasts_of_the_backtest_are_those_of_the_daemon() -> None:
    """One learner: from the same history and outcomes `look_ahead` makes the same forecast."""
    cluster = cluster_of_traces(some_traces(14), 3)
    policy = Forecast()
    run = TraceRun(cluster, policy, ("combined",))
    at = 12 * SLOTS
    for origin in range(3 * SLOTS, at + 1, SLOTS // 4):
        run.predict(origin)
    assert run.learned is not None
    now = float(at * STEP_SECONDS)
    ahead = look_ahead(
        History(days=tuple(run.blocks[:12])),
        cluster.members(at),
        policy=policy,
        now=now,
        outcomes=[each for each in run.learned.outcomes if each.made_at + 86_400 <= now],
    )
    peaks = [each.peak_millicores for each in ahead.forecasts.nodes]
    assert peaks == pytest.approx(run.learned.upper[-1], rel=1e-6)


def test_the_default_holds_its_aims_on_real_traces() -> None:
    folders = os.environ.get("REBALANCER_TRACES", "").split(os.pathsep)
    if folders == [""]:
        pytest.skip("REBALANCER_TRACES is unset: it names folders of recorded CPU traces (timestamp,value)")
    for folder in folders:
        result = backtest(read_traces(Path(folder)), seed=1, only=FAST)
        assert result.total.hot_days > 100
        loss = less_loss(result)
        assert loss > -0.1, (folder, loss)
        assert result.score("combined").errors.coverage == pytest.approx(0.9, abs=0.04)
        assert result.score("combined").hot_recall > 0.87
