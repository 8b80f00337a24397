"""A sweep of replays of what a cluster did finds the setting that the cluster itself finds, tried six times."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.lab import Lab, Scenario
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.replay.comparison.variants import Variants, cheapest, read_goal, variants
from rebalancer.replay.runner.job import Job
from rebalancer.replay.runner.jobs import Runner
from rebalancer.replay.runner.workers import open_workers
from tests.builders import a_policy
from tests.programs.cli import policy_for
from tests.prometheus.fakes import Clock
from tests.real.builders.lab_history import lab_history
from tests.real.builders.prometheus_days import fill_days
from tests.real.servers.prometheus import prometheus_server
from tests.stories.readers import Log
from tests.stories.scenarios.stage import a_scenario, burner, service

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HOURS, PERIOD, WARM_UP, HIGH = 2, 300.0, 600.0, 0.75
NODES = dict.fromkeys(("a", "b", "c", "d", "e", "f"), "general")
START = float(int(time.time() // STEP_SECONDS * STEP_SECONDS) - (HOURS + 1) * 3600)


class Outcome(NamedTuple):
    """What a setting came to in the lab."""

    hot_minutes: float
    evictions: int


def six_nodes() -> Scenario:
    """`a` is at 82 %, `b` at 70 %, the others are at 34 % and less."""
    return a_scenario(
        NODES,
        *(service(f"web{at}", {"a": 1, "cdef"[at % 4]: 1}) for at in range(9)),
        *(service(f"api{at}", {"b": 1, "cdef"[at % 4]: 1}) for at in range(8)),
        burner("burner-a", "a", 4.1),
        burner("burner-b", "b", 3.2),
    )


def swept(prometheus_url: str) -> Variants:
    """Three marks, with no window and with one in the last half hour."""
    opens = time.gmtime(START + WARM_UP + (HOURS - 0.5) * 3600)
    late = f'{{name: late, kind: Allow, schedule: "{opens.tm_min} {opens.tm_hour} * * *", duration: 1h}}'
    document = policy_for(
        prometheus_url,
        pools=[{"name": "all", "selector": {}, "thresholds": {"high": 75, "target": 60, "low": 50}}],
        strategies=[{"name": "LowNodeUtilization", "interval": f"{PERIOD:g}s"}],
    )
    return variants(
        yaml.safe_dump(document).encode(),
        source="policy.yaml",
        sweeps=["pools[0].thresholds.high=68,75,90", f"windows.cluster=[],[{late}]"],
    )


def settings_of(lab: Lab, folder: Path) -> Settings:
    folder.mkdir(exist_ok=True)
    return Settings(
        database=f"sqlite:///{folder / 'rebalancer.db'}",
        kubeconfig=str(lab.write_kubeconfig(folder / "config")),
        history_dir=str(folder / "days"),
    )


def lived(number: int, folder: Path) -> Outcome:
    """The lab under one setting."""
    with Lab.start(six_nodes(), stepped=True, start_time=START) as lab:
        policy = swept(lab.prometheus_url).policies[number].policy
        with acting_context(policy, settings_of(lab, folder), progress=NullProgress(), clock=lab.clock) as context:
            lab.clock.sleep(WARM_UP)
            while lab.clock.now() < START + WARM_UP + HOURS * 3600:
                next_at = lab.clock.now() + PERIOD
                lab.clock.sleep(PERIOD)
                run_cycle(context, policy, dry_run=False)
                # a cycle with waits ends later
                lab.clock.sleep(max(next_at - lab.clock.now(), 0.0))
        times = np.arange(START + WARM_UP, START + WARM_UP + HOURS * 3600, 60.0)
        figures = lab.usage.window_means(times)
        cores = np.array([machine.cores for machine in figures.columns.machines])[:, None]
        hot = np.count_nonzero(figures.nodes / cores > HIGH)
        return Outcome(hot_minutes=float(hot), evictions=len(Log.of(lab).evicted))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """The same hours without rebalancer, from a real Prometheus."""
    folder = tmp_path_factory.mktemp("lab")
    until = START + WARM_UP + HOURS * 3600 + 60.0
    with Lab.start(six_nodes(), stepped=True, start_time=START) as lab:
        lab.clock.sleep(until - START)

        def fill(data: Path) -> None:
            days = range(int(START // DAY_SECONDS), int(until // DAY_SECONDS) + 1)
            series = lab_history(lab, since=START, until=until, pools=dict.fromkeys(NODES, "all"))
            fill_days(data, series, days=days, since=START, until=until, spacing=30.0)

        with prometheus_server([], fill=fill) as server:
            yield read_recording(
                a_policy(usage={"prometheus": {"url": server.url}}),
                settings_of(lab, folder),
                since_seconds=HOURS * 3600.0,
                progress=NullProgress(),
                clock=Clock(until),
            )


@pytest.fixture(scope="module")
def replayed(recording: Recording) -> list[ReplayRun]:
    """The six settings, replayed."""
    made = swept("http://127.0.0.1:9090")
    jobs = [Job(policy=each.policy, mode="policy", label=each.label, high={"all": HIGH}) for each in made.policies]
    with open_workers() as one:
        return [run for run in Runner(workers=one, compose=policy_run).run(jobs, recording) if run is not None]


@pytest.fixture(scope="module")
def in_the_lab(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """The six settings, one after the other in the lab."""
    return [lived(number, tmp_path_factory.mktemp(f"setting{number}")) for number in range(6)]


@pytest.mark.parametrize("most_hours", [0.5, 1.7])
def test_a_sweep_over_three_marks_and_two_windows_finds_the_same_best_setting_as_running_the_lab_six_times(
    recording: Recording, replayed: list[ReplayRun], in_the_lab: list[Outcome], most_hours: float
) -> None:
    best = cheapest(replayed, read_goal(f"hot-node-hours<={most_hours}"), end=recording.end)
    meeting = [number for number, each in enumerate(in_the_lab) if each.hot_minutes <= most_hours * 60]
    expected = min(meeting, key=lambda number: (in_the_lab[number].evictions, in_the_lab[number].hot_minutes))
    assert best is replayed[expected]
    assert best.label == "high=75, cluster=[]"


def test_each_setting_of_the_sweep_evicts_and_cools_as_in_the_lab(
    replayed: list[ReplayRun], in_the_lab: list[Outcome]
) -> None:
    none, few, many = (in_the_lab[at].evictions for at in (4, 2, 0))  # marks 90, 75 and 68 without a window
    assert none < few < many
    for run, outcome in zip(replayed, in_the_lab, strict=True):
        assert len(run.evictions) == pytest.approx(outcome.evictions, abs=1), run.label
        assert run.hot_node_minutes == pytest.approx(outcome.hot_minutes, abs=6.0), run.label
