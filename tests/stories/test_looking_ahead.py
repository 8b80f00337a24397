"""What a look ahead remembers, when the next one is, and what a restart or an outage leaves of it."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np

from rebalancer.bootstrap.commands.contexts import planning_context
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.forecasting.loop import MAX_HISTORY_GAP_SECONDS, RETRIGGER_SECONDS, STALE_AFTER_RUNS
from rebalancer.model.decisions.plan import Trigger
from tests.stories.scenarios.stage import ForeseeingStage
from tests.stories.test_ahead_of_the_peak import HOUR, MIDNIGHT, a_night

EVERY = 1800.0


def test_a_forecast_serves_until_three_looks_have_failed(tmp_path: Path) -> None:
    with a_night(tmp_path) as stage:
        snapshot, now = stage.world.cluster.snapshot(), stage.lab.clock.now()
        assert stage.lookout.peaks(snapshot, now) is None
        assert stage.lookout.next_at() <= now
        seen = stage.lookout.look(snapshot)
        assert seen.request() is None
        assert stage.lookout.next_at() == seen.at + EVERY
        peaks = stage.lookout.peaks(snapshot, now)
        assert peaks is not None
        assert np.isfinite(peaks.node_millicores).all()
        assert stage.lookout.peaks(snapshot, now + STALE_AFTER_RUNS * EVERY) is not None
        assert stage.lookout.peaks(snapshot, now + STALE_AFTER_RUNS * EVERY + 1) is None


def test_what_is_due_asks_for_a_cycle_of_those_nodes_and_one_that_opens_sooner_is_looked_at_then(
    tmp_path: Path,
) -> None:
    with a_night(tmp_path) as stage:
        stage.lab.clock.sleep(4 * HOUR + 50 * 60)
        seen = stage.lookout.look(stage.world.cluster.snapshot())
        (coming,) = seen.coming
        assert coming.start_by == MIDNIGHT + 5 * HOUR + 15 * 60
        assert seen.due == (coming,)
        request = seen.request()
        assert request is not None
        assert (request.trigger, request.due) == (Trigger.FORECAST, {("node-1", "cpu"): coming.hot_from})
        assert request.nodes_for("LowNodeUtilization", {"node-1": "all", "node-2": "all"}) == {"node-1"}
        # what is due is looked at again soon, and what begins sooner than that then
        assert stage.lookout.next_at() == seen.at + RETRIGGER_SECONDS
        sooner = replace(coming, start_by=seen.at + 60.0)
        assert replace(stage.lookout, last=replace(seen, coming=(sooner,))).next_at() == seen.at + 60.0
        assert replace(stage.lookout, last=replace(seen, due=())).next_at() == coming.start_by


def a_plan_of(stage: ForeseeingStage) -> AbstractContextManager[CycleContext]:
    return planning_context(stage.policy, stage.settings, progress=NullProgress(), clock=stage.lab.clock)


def test_a_plan_goes_by_the_days_that_are_kept_here(tmp_path: Path) -> None:
    with a_night(tmp_path) as stage:
        snapshot = stage.world.cluster.snapshot()
        with a_plan_of(stage) as plan:
            assert plan.forecasts.peaks(snapshot, stage.lab.clock.now()) is None
        seen = stage.lookout.look(snapshot)
        with a_plan_of(stage) as plan:
            kept = plan.forecasts.peaks(snapshot, stage.lab.clock.now())
            assert kept is not None
            np.testing.assert_allclose(kept.node_millicores, seen.peaks.node_millicores)


def test_a_history_that_ended_hours_ago_decides_nothing_and_says_so(tmp_path: Path) -> None:
    with a_night(tmp_path) as stage:
        snapshot = stage.world.cluster.snapshot()
        stage.lookout.look(snapshot)
        stage.lookout.reads_history = False  # Prometheus doesn't answer any more: what is kept is all there is
        stage.lab.clock.sleep(5 * HOUR)
        seen = stage.lookout.look(snapshot)
        assert (seen.notes, [each.node_name for each in seen.due]) == ((), ["node-1"])
        stage.lab.clock.sleep(MAX_HISTORY_GAP_SECONDS - 5 * HOUR + 600.0)
        seen = stage.lookout.look(snapshot)
        assert stage.lookout.peaks(snapshot, stage.lab.clock.now()) is None
        assert seen.due == ()
        assert any("nothing is decided by forecasts: history ends 6h" in note for note in seen.notes), seen.notes


def test_another_policy_knows_who_has_left_a_node(tmp_path: Path) -> None:
    with a_night(tmp_path) as stage:
        stage.lab.clock.sleep(5 * HOUR)
        request = stage.lookout.look(stage.world.cluster.snapshot()).request()
        assert request is not None
        report = run_cycle(stage.world, stage.policy, request=request, dry_run=False).report
        assert len(report.evictions) == 4
        stage.lab.clock.sleep(600.0)
        snapshot = stage.world.cluster.snapshot()
        reloaded = replace(
            stage.lookout, last=None, before=stage.lookout.last.node_forecasts if stage.lookout.last else None
        )
        again = stage.lookout.look(snapshot).peaks.node_millicores
        np.testing.assert_allclose(reloaded.look(snapshot).peaks.node_millicores, again)


def test_what_was_due_is_no_reason_any_more_once_its_time_is_over(tmp_path: Path) -> None:
    with a_night(tmp_path) as stage:
        stage.lab.clock.sleep(5 * HOUR)
        request = stage.lookout.look(stage.world.cluster.snapshot()).request()
        assert request is not None
        late = replace(request, due={("node-1", "cpu"): stage.lab.clock.now() - 1.0})
        assert run_cycle(stage.world, stage.policy, request=late, dry_run=True).report.findings == []
        assert run_cycle(stage.world, stage.policy, request=request, dry_run=True).report.findings != []


def test_observing_asks_for_no_cycle(tmp_path: Path) -> None:
    with a_night(tmp_path, mode="Observe") as stage:
        stage.lab.clock.sleep(4 * HOUR + 50 * 60)
        seen = stage.lookout.look(stage.world.cluster.snapshot())
        assert [each.node_name for each in seen.coming] == ["node-1"]
        assert seen.due == ()
