"""The journal of a lab day: what it says of pods and evictions is what the lab counted."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.day.account import MINUTE
from bench.day.cluster import HOUR, SMALL, make
from bench.day.run import MIDNIGHT, daemon_of, policy_of, thresholds_of
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.journal import journal_covers, recording_from_journal, stored_usage
from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.cycle.context import NullProgress
from rebalancer.lab import Lab
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.recordings.recording import Recording
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.runner.job import Job, run_job
from tests.stories.scenarios.stage import TURN_SECONDS, a_scenario, a_stage, burner, journal_writer, service


def without_forecast(policy: RebalancerPolicy) -> RebalancerPolicy:
    return policy.model_copy(update={"forecast": policy.forecast.model_copy(update={"mode": "Off"})})


def recorded(
    policy: RebalancerPolicy, settings: Settings, today: ClusterSnapshot, *, start: float, end: float, clock: Clock
) -> Recording:
    usage = stored_usage(policy, settings, today, start=start, clock=clock, progress=NullProgress())
    return recording_from_journal(policy, settings, start=start, end=end, today=today, usage=usage)


def test_evictions_and_replacements_of_the_journal_are_those_of_the_lab(tmp_path: Path) -> None:
    scenario = a_scenario(
        ("hot", "cool", "free"),
        burner("burner", "hot", 6.0),
        *(service(f"web-{at}", {"hot": 2}, cpu=0.8) for at in range(6)),
    )
    with a_stage(scenario, tmp_path) as stage:
        stage.settings.history_dir = str(tmp_path / "history")
        writer = journal_writer(tmp_path / "history", stage.world, stage.lab.clock, cluster="test")
        start = stage.lab.clock.now()
        start -= start % STEP_SECONDS
        for _ in range(8):
            stage.turn()
            assert writer.turn(done=True)
        today, end = stage.world.cluster.snapshot(), stage.lab.clock.now() + STEP_SECONDS
        stage.lab.clock.sleep(2 * STEP_SECONDS)
        assert journal_covers(stage.policy, stage.settings, start=start, end=end)
        recording = recorded(stage.policy, stage.settings, today, start=start, end=end, clock=stage.lab.clock)
        moved = stage.log.moves
    assert recording.source == "the journal"
    pods = recording.pods
    row_of = {uid: row for row, uid in enumerate(pods.uids)}
    chained = {
        (pods.uids[before], pods.uids[after]) for after, before in enumerate(pods.replaced.tolist()) if before >= 0
    }
    assert len(moved) > 3
    assert chained == {(each.uid, each.new_uid) for each in moved}
    for each in moved:
        gone, came = row_of[each.uid], row_of[each.new_uid]
        assert recording.nodes.names[pods.node[gone]] == each.source
        assert recording.nodes.names[pods.node[came]] == each.target
        assert abs(pods.ended[gone] - each.at) <= TURN_SECONDS
        assert each.ready_at is not None
        assert abs(pods.ready[came] - each.ready_at) <= 1.0
        assert pods.bound[came] <= each.ready_at
    assert recording.owners[pods.owner[row_of[moved[0].uid]]].kind == "ReplicaSet"
    there = np.isfinite(pods.bound) & (pods.ended == np.inf)
    assert sorted(np.array(pods.names)[there]) == sorted(today.pods.names)


def test_a_run_of_the_journals_recording_has_the_labs_hot_minutes(tmp_path: Path) -> None:
    size = replace(SMALL, nodes=12, hours=3.0, greedy=4, ordinary=8, idle=2, outage_hour=30.0, load=0.68)
    start, end = MIDNIGHT + 9 * HOUR, MIDNIGHT + 12 * HOUR
    with Lab.start(make(1, size), stepped=True, start_time=start - 600.0, seed=1) as lab:
        policy = without_forecast(policy_of(lab.prometheus_url))
        settings = Settings(history_dir=str(tmp_path))
        with daemon_of(lab, policy) as (context, _):
            writer = journal_writer(tmp_path, context, lab.clock, cluster=policy.cluster)
            while lab.clock.now() < end + 120.0:
                lab.clock.sleep(60.0)
                writer.turn(done=False)
            today = context.cluster.snapshot()
        recording = recorded(policy, settings, today, start=start, end=end, clock=lab.clock)
        figures = lab.usage.window_means(np.arange(start + MINUTE, end + 1.0, MINUTE))
    high = thresholds_of(policy).high
    cores = np.array([machine.cores for machine in figures.columns.machines])[:, None]
    counted = int(np.count_nonzero((figures.nodes / cores > high) & figures.up))
    run = run_job(Job(policy=policy, mode="none", label="", high={"general": high}), recording, policy_run)
    assert recording.source == "the journal"
    assert recording.end == end
    assert counted > 200
    assert abs(run.hot_node_minutes / counted - 1.0) <= 0.03
