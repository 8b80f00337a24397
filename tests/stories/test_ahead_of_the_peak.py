"""A node that is cool at night and hot every morning, in services that may be touched at night only."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.lab import Lab, Scenario
from rebalancer.lab.loads.truth import Episode
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.policy import RebalancerPolicy
from tests.stories.scenarios.stage import HIGH, a_machine, a_scenario, evicted, service, stories_policy

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
        [
            service("busy", {"node-1": 6}, cpu=MORNING),
            service("eager", {"node-1": 6}, cpu=MORNING),
            *(service(f"calm-{name}", {name: 3}, cpu={"base": 1.2}) for name in others),
        ],
        anchor_hour=0.0,
    )


@contextmanager
def a_night(folder: Path, **forecast: Any) -> Iterator[tuple[Lab, RebalancerPolicy, CycleContext, ForecastLoop]]:
    with Lab.start(the_cluster(), stepped=True, start_time=MIDNIGHT) as lab:
        said = stories_policy(lab, windows=AT_NIGHT, forecast={"interval": "30m", **forecast})
        policy = RebalancerPolicy.model_validate(said)
        settings = Settings(
            database=f"sqlite:///{folder / 'rebalancer.db'}",
            history_dir=str(folder / "history"),
            kubeconfig=str(lab.write_kubeconfig(folder / "config")),
        )
        with (
            acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world,
            history_keepers(policy, settings, progress=NullProgress(), clock=lab.clock) as keepers,
        ):
            lookout = ForecastLoop(policy=policy, keepers=keepers, clock=lab.clock, ledger=world.ledger)
            yield lab, policy, replace(world, peaks=lookout.peaks), lookout


def live_through(
    lab: Lab, policy: RebalancerPolicy, world: CycleContext, lookout: ForecastLoop | None, *, hours: float
) -> list[CycleReport]:
    """A cycle every half hour, and ahead of it a look ahead where there is a lookout."""
    reports = []
    while lab.clock.now() < MIDNIGHT + hours * HOUR:
        request = CycleRequest(trigger=Trigger.PERIODIC)
        if lookout is not None and (ahead := lookout.look(world.cluster.snapshot()).request()) is not None:
            request = request.merged(ahead)
        reports.append(run_cycle(world, policy, request=request, dry_run=False).report)
        lab.clock.sleep(LOOK_SECONDS)
    return reports


def hot_times(lab: Lab) -> list[Episode]:
    return list(lab.truth.episodes(high=HIGH / 100, start=MIDNIGHT, end=lab.clock.now(), step_seconds=300.0))


@pytest.mark.timeout(300)
def test_a_node_that_would_be_hot_at_ten_is_relieved_before_its_window_closes(tmp_path: Path) -> None:
    with a_night(tmp_path, leadTime="15m") as (lab, policy, world, lookout):
        assert lab.truth.node_cpu_share()["node-1"] < 0.2
        reports = live_through(lab, policy, world, lookout, hours=13)
        assert hot_times(lab) == []
        gone = evicted(lab.log.entries())
        # of each service one pod at a time: the cycle waits for the replacements; and not earlier than they had to be
        assert all(CLOSES_AT - HOUR <= each.at < CLOSES_AT for each in gone)
        assert len(gone) == 4
        ahead = [each for each in reports if each.findings]
        assert [each.trigger for each in ahead] == [Trigger.FORECAST]
        assert [name for report in ahead for _, name in report.findings] == ["node-1"]
        assert ahead[0].evictions[0].waits_for == "" != ahead[0].evictions[2].waits_for
        said = re.compile(r"of (89|90|91)(\.\d)?% expected at \d{4}-\d\d-\d\d 09:55 UTC, over high 75%")
        assert all(said.search(each.reason) for each in ahead[0].evictions)


@pytest.mark.timeout(300)
def test_the_same_morning_without_a_forecast_is_hot_and_nothing_may_be_done(tmp_path: Path) -> None:
    with a_night(tmp_path, mode="Off") as (lab, policy, world, _):
        reports = live_through(lab, policy, world, None, hours=13)
        assert {each.node for each in hot_times(lab)} == {"node-1"}
        assert evicted(lab.log.entries()) == []
        assert {str(each.code) for report in reports for each in report.refusals if each.name} == {"WindowClosed"}


@pytest.mark.timeout(300)
def test_observing_says_what_is_coming_and_moves_nothing(tmp_path: Path) -> None:
    with a_night(tmp_path, mode="Observe") as (lab, policy, world, lookout):
        seen = lookout.look(world.cluster.snapshot())
        assert [each.node_name for each in seen.coming] == ["node-1"]
        assert "before" in seen.coming[0].why
        live_through(lab, policy, world, lookout, hours=6)
        assert evicted(lab.log.entries()) == []
