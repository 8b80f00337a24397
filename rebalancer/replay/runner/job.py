"""One run over a recording."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayedCycle, ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.comparison.hot_minutes import hot_minutes
from rebalancer.replay.comparison.variants import Change
from rebalancer.replay.cycles.readings import Errors, errors_of
from rebalancer.replay.cycles.run import PolicyRun, high_millicores, recorded_evictions, slowed
from rebalancer.replay.runner.merge import most_in_flight
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import Loads, loads_of

Mode = Literal["recorded", "none", "policy"]
"""See `Replay`; those before others are what these are compared with."""
Compose = Callable[
    [SimulatedCluster, RebalancerPolicy, SchedulerConfig, Errors | None], AbstractContextManager[PolicyRun]
]
"""Makes the cycles of a policy over a simulated cluster, with a database of their own. Can be pickled."""

FORECAST_SECONDS = 3600.0
"""A replay renews its forecasts at most so often: each costs as much as many cycles."""
CHUNK_SECONDS = 6 * 3600.0
"""A run without cycles reports its progress, and may be stopped, so often."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run."""

    policy: RebalancerPolicy
    mode: Mode
    label: str
    high: Mapping[str, float]
    """Pool -> share of CPU over which its nodes count as hot."""
    seed: int = 0
    scheduler: SchedulerConfig = SchedulerConfig()  # noqa: RUF009 - frozen
    unsure: frozenset[str] | None = None
    """That of the run as recorded with the same seed and configuration; None = found first, which takes as long as
    that run."""
    change: Change | None = None
    """Makes the recording of a run with a policy; what it is compared with is as recorded."""


def run_job(
    job: Job,
    recording: Recording,
    compose: Compose,
    *,
    passed: Callable[[float], None] = lambda _done: None,
    stopping: Callable[[], bool] = lambda: False,
) -> ReplayRun:
    """One run. `passed` is called with the share of the recording that is done, in whole hours.

    A run that is stopped is as far as it came: `until` says how far.
    """
    policy = job.policy
    remembered = policy.usage.rate_window + policy.usage.stabilization_window.duration
    if recording.readings is not None:
        # the recorded cycles may have read longer windows than those of this policy
        remembered = max(remembered, float(recording.readings.window_seconds.max(initial=0.0)))

    def simulated(
        loads: Loads, *, as_recorded: bool, unsure: frozenset[str] = frozenset(), change: Change | None = None
    ) -> SimulatedCluster:
        return SimulatedCluster(
            recording if change is None else change(recording),
            loads,
            seed=job.seed,
            scheduler=job.scheduler,
            as_recorded=as_recorded,
            remembered_seconds=remembered,
            unsure=unsure,
        )

    errors, unsure = None, job.unsure
    if job.mode == "recorded":
        cluster = simulated(loads_of(recording, joined=False), as_recorded=True)
    else:
        readings, loads = recording.readings if job.mode == "policy" else None, loads_of(recording, joined=True)
        if unsure is None or readings is not None:
            recorded = simulated(loads_of(recording, joined=False), as_recorded=True)
            if readings is not None:
                errors = errors_of(recorded, readings, loads, stopping=stopping)
            if unsure is None:
                _advance(recorded, stopping=stopping)
                unsure = frozenset(recorded.scheduling.disagreed)
            del recorded  # it is as large as the run
        cluster = simulated(loads, as_recorded=False, unsure=unsure, change=job.change)
    hours = round((recording.end - recording.start) / 3600.0)

    def report(now: float) -> None:
        passed(min(round((now - recording.start) / 3600.0), hours) / hours if hours else 0.0)

    cycles, evictions = list[ReplayedCycle](), list[Eviction]()
    if job.mode == "policy":
        # usage of steps doesn't change within one
        often = STEP_SECONDS if recording.readings is None else 0.0
        slow = slowed(policy, cycle_seconds=often, forecast_seconds=FORECAST_SECONDS)
        with compose(cluster, slow, job.scheduler, errors) as run:
            run.run(passed=report, stopping=stopping)
            cycles, evictions = run.cycles, run.evictions()
    else:
        _advance(cluster, stopping=stopping, passed=report)
    if job.mode == "recorded":
        evictions = [each for each in recorded_evictions(recording, policy) if each.at <= cluster.now]
    report(cluster.now)
    capacity = np.maximum(recording.nodes.cpu_capacity_millicores, 1.0)
    return ReplayRun(
        label=job.label,
        until=min(cluster.now, recording.end),
        share=cluster.share,
        hot_minutes=hot_minutes(cluster.share, high_millicores(recording, policy, job.high) / capacity),
        evictions=tuple(evictions),
        cycles=tuple(cycles),
        most_in_flight=most_in_flight(evictions),
        waiting_pod_minutes=cluster.waiting_pod_minutes,
        notes=cluster.scheduling.notes(),
        unsure=frozenset(cluster.scheduling.disagreed),
    )


def _advance(
    cluster: SimulatedCluster,
    *,
    stopping: Callable[[], bool],
    passed: Callable[[float], None] = lambda _now: None,
) -> None:
    """Let time pass until the end of the recording, or until `stopping`."""
    end = cluster.recording.end
    while cluster.now < end and not stopping():
        cluster.run_to(min(cluster.now + CHUNK_SECONDS, end))
        passed(cluster.now)
