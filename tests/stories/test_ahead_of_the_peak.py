"""A node that is cool at night and hot every morning, in services that may be touched at night only."""

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab, Scenario
from rebalancer.lab.loads.truth import Episode
from rebalancer.model.decisions.plan import Trigger
from tests.stories.scenarios.stage import HIGH, ForeseeingStage, a_foreseeing_stage, a_machine, a_scenario, service

MIDNIGHT = 1_790_035_200.0 - 1_790_035_200.0 % 86_400.0
HOUR = 3600.0
LOOK_SECONDS = 1800.0
CLOSES_AT = MIDNIGHT + 6 * HOUR
AT_NIGHT = {"cluster": [{"name": "night", "kind": "Allow", "schedule": "0 0 * * *", "duration": "6h"}]}
MORNING = {"base": 0.62, "amplitude": 0.9, "peak_hour": 10.0}
"""1.18 cores at ten, a tenth of it at night."""


def the_cluster() -> Scenario:
    """Twelve replicas on the first of five machines: 90% of it at ten, with the node's own."""
    others = [f"node-{number}" for number in range(2, 6)]
    return a_scenario(
        [a_machine(f"node-{number}", overhead_cores=0.3) for number in range(1, 6)],
        service("busy", {"node-1": 6}, cpu=MORNING),
        service("eager", {"node-1": 6}, cpu=MORNING),
        *(service(f"calm-{name}", {name: 3}, cpu={"base": 1.2}) for name in others),
        anchor_hour=0.0,
    )


def a_night(folder: Path, **forecast: Any) -> AbstractContextManager[ForeseeingStage]:
    sections = {"windows": AT_NIGHT, "forecast": {"mode": "Act", "interval": "30m", **forecast}}
    return a_foreseeing_stage(the_cluster(), folder, start=MIDNIGHT, **sections)


def live_through(stage: ForeseeingStage, *, hours: float) -> None:
    """A cycle every half hour, and ahead of it a look ahead where the forecast is on."""
    while stage.lab.clock.now() < MIDNIGHT + hours * HOUR:
        stage.cycle()
        stage.lab.clock.sleep(LOOK_SECONDS)


def hot_times(lab: Lab) -> list[Episode]:
    return list(lab.truth.episodes(high=HIGH / 100, start=MIDNIGHT, end=lab.clock.now(), step_seconds=300.0))


@pytest.mark.timeout(300)
def test_a_node_that_would_be_hot_at_ten_is_relieved_before_its_window_closes(tmp_path: Path) -> None:
    with a_night(tmp_path, leadTime="15m") as stage:
        assert stage.lab.truth.node_cpu_share()["node-1"] < 0.2
        live_through(stage, hours=13)
        assert hot_times(stage.lab) == []
        gone = stage.log.evicted
        # of each service one pod at a time: the cycle waits for the replacements; and not earlier than they had to be
        assert all(CLOSES_AT - HOUR <= each.at < CLOSES_AT for each in gone)
        assert len(gone) == 4
        ahead = [each for each in stage.reports if each.findings]
        assert [each.trigger for each in ahead] == [Trigger.FORECAST]
        assert [name for report in ahead for _, name in report.findings] == ["node-1"]
        assert ahead[0].evictions[0].waits_for == "" != ahead[0].evictions[2].waits_for
        reason = re.compile(r"of (86|87|88)(\.\d)?% expected at \d{4}-\d\d-\d\d 09:55 UTC, over high 75%")
        assert all(reason.search(each.reason) for each in ahead[0].evictions)


@pytest.mark.timeout(300)
def test_the_same_morning_without_a_forecast_is_hot_and_nothing_may_be_done(tmp_path: Path) -> None:
    with a_night(tmp_path, mode="Off") as stage:
        live_through(stage, hours=13)
        assert {each.node for each in hot_times(stage.lab)} == {"node-1"}
        assert stage.log.evicted == []
        assert {str(each.code) for report in stage.reports for each in report.refusals if each.name} == {"WindowClosed"}


@pytest.mark.timeout(300)
def test_observing_says_what_is_coming_and_moves_nothing(tmp_path: Path) -> None:
    with a_night(tmp_path, mode="Observe") as stage:
        seen = stage.lookout.look(stage.world.cluster.snapshot())
        assert [each.node_name for each in seen.coming] == ["node-1"]
        assert "before" in seen.coming[0].why
        live_through(stage, hours=6)
        assert stage.log.evicted == []
