"""docs/effect.md says what the code does."""

import re
from pathlib import Path

import yaml

from rebalancer.effect.comparison import ENOUGH_DAYS, MOVED
from rebalancer.evaluation.reporting import FORECASTS_SECONDS
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.reason import BlockedReason, MissReason
from rebalancer.model.records.effect import Outcome
from rebalancer.policy.schema.policy import Effect
from rebalancer.store.retention import details, pruning
from rebalancer.web.metrics import described
from tests.builders import a_policy

PAGE = (Path(__file__).parents[2] / "docs" / "effect.md").read_text()


def test_the_page_explains_every_reason_and_no_other() -> None:
    for heading, codes in (
        ("Why an episode was missed", MissReason),
        ("Why nothing was evicted from a found node", BlockedReason),
        ("Assessments", Outcome),
    ):
        section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| (`.*?) \|", section, flags=re.M)
        assert sorted(code for row in rows for code in re.findall(r"`(\w+)`", row)) == sorted(codes)


def test_its_example_is_a_valid_section() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)
    a_policy(**yaml.safe_load(example))


def test_the_metrics_that_it_names_exist() -> None:
    named = set(re.findall(r"`(rebalancer_\w+)`", PAGE))
    assert len(named) == 6
    assert named <= {each.name for each in described()}


def test_its_numbers_are_those_of_the_code() -> None:
    kept = Effect().detail_retention / DAY_SECONDS
    for message, holds in [
        ("`effect.detailRetention`, 30 days by default", kept == 30),
        ("evictions, hours of the pools | 400 days", details.HISTORY_SECONDS == 400 * DAY_SECONDS),
        ("forecasts and their outcomes | 90 days", pruning.FORECASTS_SECONDS == 90 * DAY_SECONDS),
        ("covers the last 30 days of the report", FORECASTS_SECONDS == 30 * DAY_SECONDS),
        ("fewer than five matched days", ENOUGH_DAYS == 5),
        ("nodes over 10%", MOVED == 0.10),
        ("94% certain", round(1 - 2 * 0.5**ENOUGH_DAYS, 2) == 0.94),
    ]:
        assert message in " ".join(PAGE.split())
        assert holds, message
