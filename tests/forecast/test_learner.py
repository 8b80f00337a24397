"""The learner where little or odd data could mislead it."""

import numpy as np
import pytest

from rebalancer.forecast.learning.learner import FORECASTS, layout_of, learn
from rebalancer.forecast.learning.node_levels import PoolNodes
from rebalancer.forecast.predictors.base import Past
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.measured.outcomes import PERIOD_SECONDS, ForecastOutcomes

NOW = 20_000 * 86_400.0


def peaks(series: Grid, *, predictor: str = "combined") -> np.ndarray:
    """(nodes,) forecasts of nodes with that history."""
    count = len(series)
    nodes = PoolNodes(
        pool="a",
        names=[f"n{index}" for index in range(count)],
        capacity_millicores=np.full(count, 16_000.0),
        predictor=predictor,  # type: ignore[arg-type]
        coverage=0.9,
    )
    past = Past(series.astype(np.float32), weights=0.5 ** np.arange(series.shape[1] - 1, -1, -1))
    return nodes.predict(past, made_at=NOW).predicted.upper


def outcomes(layout: int, actual: float, periods: int = 40) -> list[ForecastOutcomes]:
    """Steady nodes of 1,000 millicores with that actual."""
    levels = np.full((10, 10), 1000.0)
    return [
        ForecastOutcomes(
            pool="a",
            made_at=NOW - (periods + 5 - index) * PERIOD_SECONDS,
            layout=layout,
            nodes=tuple(f"n{node}" for node in range(10)),
            features=levels,
            capacity=np.full(10, 16_000.0),
            usage=np.full(10, 800.0),
            uppers=np.full((10, len(FORECASTS) + 1), 1000.0),
            actual=np.full(10, actual),
        )
        for index in range(periods)
    ]


def test_a_rise_in_idle_hours_is_added_and_does_not_multiply_the_day() -> None:
    day = np.full(SLOTS, 50.0)
    day[: SLOTS // 2] = 2000.0  # the window ends after the quiet half
    series = np.tile(day, (2, 8, 1))
    series[0, -1, -SLOTS // 4 :] = 125.0
    assert peaks(series)[0] == pytest.approx(2075, rel=0.1)


@pytest.mark.parametrize("count", [3, 6, 20])
@pytest.mark.parametrize("idle", [20.0, 200.0])
def test_one_idle_node_that_fills_up_changes_no_other_nodes_forecast(count: int, idle: float) -> None:
    random = np.random.default_rng(3)
    series = 1000 * random.lognormal(0, 0.02, (count, 8, SLOTS))
    series[0, :6], series[0, 6:] = idle, 1500
    assert (peaks(series)[1:] < 1300).all()


def test_a_lasting_fall_is_no_rest_day() -> None:
    series = np.full((2, 7, SLOTS), 2000.0)
    series[0, 2:] = 500.0
    assert peaks(series)[0] < 1700


def test_outcomes_of_another_predictor_are_not_learned_from() -> None:
    mine, others = layout_of("lastDay"), layout_of("max")
    assert mine != others
    learned = learn(outcomes(mine, 1500.0), pool="a", coverage=0.9, now=NOW, predictor="lastDay")
    other = learn(outcomes(others, 1500.0), pool="a", coverage=0.9, now=NOW, predictor="lastDay")
    assert learned.margins[0] == pytest.approx(0.5)
    assert other.margins[0] == pytest.approx(0.3)


def test_weekdays_do_not_undo_another_coverage() -> None:
    """Forecasts that were made for a high coverage were above most actuals: that is no property of a weekday."""
    known = outcomes(layout_of("combined"), 700.0, periods=240)
    assert all(
        shift == pytest.approx(0.0, abs=1e-9)
        for shift in learn(known, pool="a", coverage=0.9, now=NOW).weekdays.values()
    )
