"""Which weights of the days are proposed: chosen on the first half of the days, judged on the other."""

import numpy as np
import pytest

from rebalancer.forecast.backtest.day_weights import Losses, Proposal, as_policy, choices, propose, written
from rebalancer.policy.schema.forecast import DayWeights, Forecast, PoolDayWeights

TRIED = (
    DayWeights(),
    DayWeights.model_validate({"halfLife": "2d"}),
    DayWeights.model_validate({"halfLife": "2d", "sameWeekday": 4.0}),
)


def losses(*rows: list[float]) -> Losses:
    """One row a choice, one figure a day, as means over ten nodes."""
    sums = np.array(rows) * 10
    return Losses(sums=sums, counts=np.full(sums.shape[1], 10))


def proposed(*rows: list[float]) -> Proposal:
    return propose("general", TRIED, losses(*rows))


def test_what_wins_on_both_halves_is_proposed_with_its_loss_on_the_second() -> None:
    found = proposed([0.10] * 4 + [0.20] * 4, [0.05] * 4 + [0.15] * 4, [0.09] * 8)
    assert found.best == TRIED[1]
    assert found.worth_it
    assert (found.loss_current, found.loss_best) == (pytest.approx(0.20), pytest.approx(0.15))
    assert found.gain == pytest.approx(0.25)
    assert "halfLife 2d, sameWeekday 1 instead of halfLife 1d, sameWeekday 1: 25% less loss on 4 days" in found.verdict


def test_the_days_held_out_have_no_part_in_the_choice() -> None:
    found = proposed([0.10] * 8, [0.05] * 4 + [0.11] * 4, [0.09] * 4 + [0.01] * 4)
    assert found.best == TRIED[1]
    assert not found.worth_it
    assert found.verdict.startswith("keep what you have: halfLife 2d, sameWeekday 1 has 10% more loss")


@pytest.mark.parametrize(
    ("current", "best", "worth"),
    [(0.10, 0.0981, False), (0.10, 0.0979, True), (0.004, 0.0031, False), (0.004, 0.0029, True)],
)
def test_a_change_must_save_two_percent_of_the_loss_and_a_thousandth_of_what_a_node_uses(
    current: float, best: float, worth: bool
) -> None:
    found = proposed([current] * 8, [best] * 8, [1.0] * 8)
    assert found.best == TRIED[1]
    assert found.worth_it == worth
    assert found.verdict.startswith("keep what you have") != worth


def test_of_equals_the_weights_in_use_hold() -> None:
    found = proposed(*[[0.1] * 8] * 3)
    assert found.best is None
    assert not found.worth_it
    assert found.verdict == "keep what you have: nothing lost less on the days that choose"
    assert proposed(*[[0.0] * 8] * 3).best is None


def test_five_days_are_too_few_for_any_choice() -> None:
    found = proposed([0.10] * 5, [0.01] * 5, [0.01] * 5)
    assert found.best is None
    assert found.held_out == 0
    assert "6 scored days are needed for a choice, there are 5" in found.verdict


def test_weekdays_are_weighed_only_when_each_was_seen() -> None:
    week = [0.10] * 7, [0.09] * 7, [0.05] * 7
    assert proposed(*week).best == TRIED[2]
    assert proposed(*(row[:6] for row in week)).best == TRIED[1]


def test_days_on_which_nothing_counts_are_left_out() -> None:
    sums = np.array([[1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5], [2.0] * 7])
    found = propose("general", TRIED, Losses(sums=sums, counts=np.array([10, 0, 10, 10, 10, 10, 10])))
    assert (found.chosen_on, found.held_out) == (3, 3)
    assert found.gain == pytest.approx(0.5)


def test_a_large_pool_of_nodes_counts_by_its_node_days() -> None:
    joined = Losses.joined([losses([0.1] * 6), losses([0.3] * 6)])
    assert joined.mean(0, slice(0, 6)) == pytest.approx(0.2)


def test_the_weights_in_use_are_tried_first_and_once() -> None:
    assert len(choices(DayWeights())) == 18
    assert choices(DayWeights())[0] == DayWeights()
    of_a_pool = PoolDayWeights.model_validate({"pool": "general", "halfLife": "5d"})
    tried = choices(of_a_pool)
    assert len(tried) == 19
    assert tried[0] == DayWeights.model_validate({"halfLife": "5d"})
    listed = DayWeights.model_validate({"weights": [3.0, 1.0]})
    assert choices(listed)[0] == listed


def test_what_the_policy_says_of_other_pools_stands_in_the_snippet_too() -> None:
    batch = {"pool": "batch", "weights": [2.0, 1.0]}
    general = {"pool": "general", "halfLife": "6h", "sameWeekday": 3.0}
    policy = Forecast.model_validate({"pools": [batch, general]})
    section = as_policy([proposed([0.10] * 8, [0.05] * 8, [0.2] * 8)], policy)
    best = {"pool": "general", "halfLife": "2d", "sameWeekday": 1.0}
    assert section == {"forecast": {"pools": [{**batch, "sameWeekday": 1.0}, best]}}
    assert Forecast.model_validate(section["forecast"]).day_weights_of("general").half_life == 2 * 86_400
    assert as_policy([proposed(*[[0.1] * 8] * 3)], policy) is None
    assert written(policy.day_weights) == {"halfLife": "1d", "sameWeekday": 1.0}
