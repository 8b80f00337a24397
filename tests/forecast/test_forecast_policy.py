"""The `forecast` section of the policy file."""

from typing import Any

import pytest
from pydantic import ValidationError

from rebalancer.forecast.predictors import COMBINED, own_predictor, predictors
from rebalancer.forecast.series.percentiles import day_weights
from rebalancer.policy.schema.forecast import DayWeights, Forecast
from tests.builders import a_policy

EVENT = {"name": "sale", "from": "2026-11-27T08:00:00Z", "to": "2026-11-28T08:00:00Z", "uplift": 50}


def test_a_pools_own_days_go_before_the_others() -> None:
    section = a_policy(
        forecast={"dayWeights": {"halfLife": "2d"}, "pools": [{"pool": "general", "halfLife": "6h"}]}
    ).forecast
    assert section.day_weights_of("general").half_life == 6 * 3600
    assert section.day_weights_of("other").half_life == 2 * 86_400


def test_days_count_half_for_each_half_life_and_listed_weights_begin_with_the_newest() -> None:
    half = day_weights(DayWeights.model_validate({"halfLife": "2d"}), 8)
    assert half[-3] == pytest.approx(half[-1] / 2)
    assert day_weights(DayWeights.model_validate({"weights": [5.0, 2.0]}), 8).tolist() == [0, 0, 0, 0, 0, 0, 2, 5]


def test_every_predictor_of_the_policy_exists() -> None:
    names = Forecast.model_json_schema()["properties"]["predictor"]["enum"]
    assert set(names) - {COMBINED} <= predictors().keys()
    assert own_predictor(COMBINED).name == "weightedP95"


def test_an_events_times_are_read_with_their_zones() -> None:
    event = Forecast.model_validate({"events": [{**EVENT, "from": "2026-11-27T09:00:00+01:00"}]}).events[0]
    assert event.from_ == Forecast.model_validate({"events": [EVENT]}).events[0].from_


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"events": [{**EVENT, "to": "2026-11-26T08:00:00Z"}]}, "expected to after from"),
        ({"events": [{**EVENT, "from": "soon"}]}, "expected a time such as"),
        ({"events": [{**EVENT, "pools": ["nowhere"]}]}, "expected pools to name one of general"),
        ({"pools": [{"pool": "nowhere"}]}, "expected pools to name one of general"),
        ({"pools": [{"pool": "general"}, {"pool": "general"}]}, "expected each pool once"),
        ({"dayWeights": {"weights": [0.0, 0.0]}}, "expected at most 8 weights, not all 0"),
        ({"dayWeights": {"weights": [1.0] * 9}}, "expected at most 8 weights, not all 0"),
    ],
)
def test_a_mistake_names_what_was_expected(section: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        a_policy(forecast=section)
