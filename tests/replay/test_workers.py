"""Runs of a recording in this process, in a process pool, and on a Dask cluster."""

import multiprocessing
import os
import signal
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import structlog

from bench.replays.cluster import make
from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.model.cluster.scheduler import DEFAULT_SCHEDULER, SchedulerConfig, SchedulerProfile
from rebalancer.model.errors import ConfigError, RebalancerError
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.cycles.run import PolicyRun
from rebalancer.replay.runner.job import Job
from rebalancer.replay.runner.jobs import Runner
from rebalancer.replay.runner.process_pool import process_pool, read_recording, write_recording
from rebalancer.replay.runner.workers import Task, Workers, open_workers, run_tasks
from rebalancer.replay.simulation.cluster import SimulatedCluster

HIGH = {"general": 0.6, "compute": 0.6}


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Two hours of two pools with 10 nodes each, some of them hot in both."""
    return make(20, 300, 1 / 12, 1, compute_share=0.5)


@pytest.fixture(scope="module")
def alone(recording: Recording) -> list[ReplayRun | None]:
    """The runs of `jobs`, in this process."""
    with open_workers(workers=1) as one:
        return run_jobs(jobs(), recording, executor=one)


def run_jobs(jobs: list[Job], recording: Recording, *, executor: Workers, **options: Any) -> list[ReplayRun | None]:
    return Runner(workers=executor, compose=policy_run, **options).run(jobs, recording)


def policy_of(high: int = 66, **limits: Any) -> RebalancerPolicy:
    return RebalancerPolicy.model_validate(
        {
            "apiVersion": "rebalancer.dev/v1alpha1",
            "kind": "RebalancerPolicy",
            "cluster": "bench",
            "pools": [
                {
                    "name": name,
                    "selector": {"matchLabels": {"pool": name}},
                    "thresholds": {"high": high, "target": high - 5, "low": high - 15},
                }
                for name in HIGH
            ],
            "usage": {"prometheus": {"url": "http://127.0.0.1:9090"}},
            "strategies": [{"name": "LowNodeUtilization", "interval": "10m"}],
            "limits": limits,
        }
    )


def jobs() -> list[Job]:
    policy = policy_of()
    return [
        Job(policy=policy, mode="none", label="without rebalancer", high=HIGH),
        Job(policy=policy, mode="policy", label="a policy", high=HIGH),
    ]


def pids() -> list[int]:
    """Processes of the pool."""
    return [each.pid for each in multiprocessing.active_children() if each.pid]


class Steps:
    """The last progress of each label, and events."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, int | None]] = {}
        self.events: list[str] = []

    def step(self, label: str, done: int, total: int | None) -> None:
        self.last[label] = done, total

    def event(self, text: str) -> None:
        self.events.append(text)


def assert_same(one: ReplayRun | None, other: ReplayRun | None) -> None:
    assert one is not None
    assert other is not None
    assert (one.label, one.until, one.notes) == (other.label, other.until, other.notes)
    np.testing.assert_array_equal(one.share, other.share)
    np.testing.assert_array_equal(one.hot_minutes, other.hot_minutes)
    assert [(each.full_name, each.at, each.replaced.replacement_node) for each in one.evictions] == [
        (each.full_name, each.at, each.replaced.replacement_node) for each in other.evictions
    ]
    assert one.cycles == other.cycles


def test_processes_give_the_same_runs_as_this_process_and_report_their_progress(
    recording: Recording, alone: list[ReplayRun | None]
) -> None:
    steps = Steps()
    with open_workers(workers=2) as two:
        together = run_jobs(jobs(), recording, executor=two, progress=steps)
    for expected, run in zip(alone, together, strict=True):
        assert_same(run, expected)
    assert alone[1] is not None
    assert alone[1].evictions  # the policy has something to do
    assert steps.last == {"without rebalancer": (2, 2), "a policy": (2, 2)}


def with_recorded() -> list[Job]:
    """The same, with a run as recorded."""
    return [Job(policy=jobs()[0].policy, mode="recorded", label="as recorded", high=HIGH), *jobs()]


@pytest.mark.parametrize("split_nodes", [1_000, 1])
def test_what_the_run_as_recorded_found_is_handed_to_the_others(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, split_nodes: int
) -> None:
    shared = [replace(each, policy=policy_of(perCycle=100), scheduler=SchedulerConfig()) for each in with_recorded()]
    with open_workers(workers=1) as one:
        expected = [run_jobs([job], recording, executor=one, split_nodes=split_nodes)[0] for job in shared]
        made: list[bool] = []

        def counted(*args: Any, as_recorded: bool, **more: Any) -> SimulatedCluster:
            made.append(as_recorded)
            return SimulatedCluster(*args, as_recorded=as_recorded, **more)

        monkeypatch.setattr("rebalancer.replay.runner.job.SimulatedCluster", counted)
        together = run_jobs(shared, recording, executor=one, split_nodes=split_nodes)
    parts = 2 if split_nodes == 1 else 1
    assert made == [True] * parts + [False] * 2 * parts
    assert together[0] is not None
    assert together[0].unsure
    for run, same in zip(together, expected, strict=True):
        assert_same(run, same)


def test_another_scheduler_is_simulated_as_recorded_for_itself(recording: Recording) -> None:
    most = SchedulerConfig(profiles={DEFAULT_SCHEDULER: SchedulerProfile(fit_strategy="MostAllocated")})
    different = replace(jobs()[1], scheduler=most)
    with open_workers(workers=1) as one:
        _, together = run_jobs(
            [replace(with_recorded()[0], scheduler=SchedulerConfig()), different], recording, executor=one
        )
        (alone_,) = run_jobs([different], recording, executor=one)
    assert_same(together, alone_)


def test_a_large_cluster_that_is_one_part_is_said_with_the_reason(recording: Recording) -> None:
    steps = Steps()
    job = Job(policy=policy_of(cluster={"inFlight": "50%"}), mode="policy", label="a share", high=HIGH)
    with open_workers(workers=1) as one:
        run_jobs([job], recording, executor=one, split_nodes=1, progress=steps, stopping=lambda: True)
    assert steps.events == [
        "the whole cluster runs as one part: limits.cluster has a percentage of what all parts have"
    ]


def test_an_interrupted_replay_of_parts_has_the_first_policies(recording: Recording) -> None:
    policies = [replace(jobs()[1], label=f"policy {number}", unsure=frozenset()) for number in range(2)]
    begun, third_has_begun, stop_was_seen = count(1), Event(), Event()

    def compose(*args: Any) -> AbstractContextManager[PolicyRun]:
        if next(begun) == 3:  # the first part of the second policy
            third_has_begun.set()
            assert stop_was_seen.wait(60)
        return policy_run(*args)

    def stopping() -> bool:
        if third_has_begun.is_set():
            stop_was_seen.set()
        return third_has_begun.is_set()

    with open_workers(workers=1) as one:
        runs = Runner(workers=one, compose=compose, split_nodes=1, stopping=stopping).run(policies, recording)
    assert runs[0] is not None
    assert runs[0].until == recording.end
    assert runs[1] is None


def test_an_order_to_stop_ends_the_runs_where_they_are() -> None:
    days = make(10, 120, 4, 3)  # takes longer than to stop
    steps = Steps()
    # of one process only
    with process_pool(1) as pool:
        two = [replace(jobs()[1], label=label) for label in ("a policy", "another one")]
        done, not_begun = run_jobs(two, days, executor=pool, progress=steps, stopping=lambda: bool(steps.last))
    assert not_begun is None
    assert done is not None
    assert days.start < done.until < days.end


def test_runs_log_nothing_and_leave_the_log_of_the_process_as_it_is(recording: Recording) -> None:
    before = structlog.get_config()
    with structlog.testing.capture_logs() as logs, open_workers(workers=1) as one:
        assert run_jobs(jobs(), recording, executor=one)[1] is not None
    assert not logs
    assert structlog.get_config() == before


def test_nothing_begins_after_the_order_to_stop(recording: Recording) -> None:
    with open_workers(workers=1) as one:
        assert run_jobs(jobs(), recording, executor=one, stopping=lambda: True) == [None, None]


def test_workers_leave_an_interrupt_to_the_process_that_waits(recording: Recording) -> None:
    with process_pool(1) as pool:
        tasks = [Task(jobs()[0], recording)]
        run_tasks(pool, tasks, policy_run)
        (pid,) = pids()
        os.kill(pid, signal.SIGINT)
        assert run_tasks(pool, tasks, policy_run)[0] is not None
        assert pids() == [pid]


def test_a_worker_that_ends_is_one_clear_line(recording: Recording) -> None:
    def killed() -> None:
        tasks = [Task(jobs()[0], recording)]
        with process_pool(1) as pool:
            run_tasks(pool, tasks, policy_run)
            os.kill(pids()[0], signal.SIGKILL)
            run_tasks(pool, tasks, policy_run)

    with pytest.raises(RebalancerError, match=r"^a worker process ended before its run did.*: use fewer workers$"):
        killed()


def test_an_error_of_a_run_is_raised_in_one_line(recording: Recording) -> None:
    broken = replace(recording, usage={})
    for workers_ in (1, 2):
        with (
            open_workers(workers=workers_) as pool,
            pytest.raises(RebalancerError, match=r"^the run a policy failed: KeyError"),
        ):
            run_jobs(jobs()[1:], broken, executor=pool)


def mistaken(*_: Any, **__: Any) -> ReplayRun:
    """A run that finds a mistake in its policy."""
    raise ConfigError("pools: a mistake")


def test_a_mistake_that_a_run_finds_keeps_its_exit_code(recording: Recording) -> None:
    with process_pool(1) as pool, pytest.raises(ConfigError, match=r"^pools: a mistake$"):
        Runner(workers=pool, compose=mistaken).run(jobs()[1:], recording)


def test_processes_map_one_file_of_the_recording(recording: Recording, tmp_path: Path) -> None:
    mapped = read_recording(write_recording(recording, tmp_path / "recording"))
    values = mapped.usage[CPU].pod_values
    np.testing.assert_array_equal(values, recording.usage[CPU].pod_values)
    assert not values.flags.owndata
    assert not values.flags.writeable
    assert values.__array_interface__["data"][0] % 64 == 0


def test_pools_that_share_no_nodes_run_apart_and_merge_to_the_same_run(recording: Recording) -> None:
    job = Job(policy=policy_of(66, perCycle=100, cluster={"inFlight": 100}), mode="policy", label="wide", high=HIGH)
    steps = Steps()
    with open_workers(workers=1) as one:
        (whole,) = run_jobs([job], recording, executor=one)
        (apart,) = run_jobs([job], recording, executor=one, split_nodes=1, progress=steps)
    assert whole is not None
    assert apart is not None
    assert {each.pool for each in whole.evictions} == {"general", "compute"}
    assert sorted((each.reserved.planned_at, each.node) for each in apart.evictions) == sorted(
        (each.reserved.planned_at, each.node) for each in whole.evictions
    )
    # what the scheduler draws differs
    assert apart.hot_node_minutes == pytest.approx(whole.hot_node_minutes, rel=0.02)
    assert [(each.at, each.hot, each.evicted) for each in apart.cycles] == [
        (each.at, each.hot, each.evicted) for each in whole.cycles
    ]
    assert steps.events == []


def test_parts_that_go_over_a_limit_together_run_once_more_as_one(recording: Recording) -> None:
    job = Job(policy=policy_of(66, cluster={"spacing": "1h"}), mode="policy", label="spaced", high=HIGH)
    steps = Steps()
    with open_workers(workers=1) as one:
        (whole,) = run_jobs([job], recording, executor=one)
        (apart,) = run_jobs([job], recording, executor=one, split_nodes=1, progress=steps)
    assert_same(apart, whole)
    assert steps.events == ["the pools together went over spacing of cluster: the whole cluster is run once more"]
