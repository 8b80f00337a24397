"""Runs over a recording: the simulated cluster behind the ports of a cycle, with a database of its own."""

import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import numpy as np

from rebalancer.bootstrap.adapters import scheduler_of
from rebalancer.bootstrap.database import create_database, records_of
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.evaluation.loop import EvaluationLoop
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.model.eviction import Eviction
from rebalancer.model.history import STEP_SECONDS
from rebalancer.model.ports import Clock, Ledger, Progress, Records
from rebalancer.model.recording import Recording
from rebalancer.model.replay import ReplayedCycle, ReplayRun
from rebalancer.model.scheduler import SchedulerConfig
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.comparison.hot_minutes import hot_minutes
from rebalancer.replay.cycles.history import keepers_of
from rebalancer.replay.cycles.ports import ReplayClock, ReplayedCluster, ReplayedEvictor, ReplayedTaints, ReplayLease
from rebalancer.replay.cycles.readings import Errors, errors_of
from rebalancer.replay.cycles.remembered import Remembered
from rebalancer.replay.cycles.run import PolicyRun, high_millicores, recorded_evictions, slowed
from rebalancer.replay.cycles.usage import ReplayedUsage
from rebalancer.replay.runner.merge import most_in_flight
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import Loads, loads_of
from rebalancer.store import SqlLedger

Mode = Literal["recorded", "none", "policy"]

FORECAST_SECONDS = 3600.0
"""A replay renews its forecasts at most so often: each costs as much as many cycles."""
CHUNK_SECONDS = 6 * 3600.0
"""A run without cycles reports its progress, and may be stopped, so often."""


def run_recording(
    recording: Recording,
    policy: RebalancerPolicy,
    *,
    mode: Mode,
    label: str,
    high: Mapping[str, float],
    seed: int = 0,
    scheduler: SchedulerConfig | None = None,
    unsure: Collection[str] | None = None,
    progress: Progress | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> ReplayRun:
    """One run; see `Replay` for what the modes are. `high`: pool -> share over which its nodes count as hot.
    `scheduler`: the configuration of kube-scheduler, None = read by the policy. `unsure`: that of the run as recorded
    with the same seed and configuration, None = found first, which takes as long as that run.

    A run that is stopped is as far as it came: `until` says how far.
    """
    progress = progress or NullProgress()
    if scheduler is None:
        scheduler = scheduler_of(policy)

    remembered = policy.usage.rate_window + policy.usage.stabilization_window.duration
    if recording.readings is not None:
        # the recorded cycles may have read longer windows than those of this policy
        remembered = max(remembered, float(recording.readings.window_seconds.max(initial=0.0)))

    def simulated(loads: Loads, *, as_recorded: bool, unsure: Collection[str] = ()) -> SimulatedCluster:
        return SimulatedCluster(
            recording,
            loads,
            seed=seed,
            scheduler=scheduler,
            as_recorded=as_recorded,
            remembered_seconds=remembered,
            unsure=unsure,
        )

    errors = None
    if mode == "recorded":
        cluster = simulated(loads_of(recording, joined=False), as_recorded=True)
    else:
        readings, loads = recording.readings if mode == "policy" else None, loads_of(recording, joined=True)
        if unsure is None or readings is not None:
            recorded = simulated(loads_of(recording, joined=False), as_recorded=True)
            if readings is not None:
                errors = errors_of(recorded, readings, loads, stopping=stopping)
            if unsure is None:
                _advance(recorded, recording.end, stopping=stopping)
                unsure = recorded.scheduling.disagreed
            del recorded  # it is as large as the run
        cluster = simulated(loads, as_recorded=False, unsure=unsure)
    hours = round((recording.end - recording.start) / 3600.0)

    def passed(now: float) -> None:
        progress.step(label, min(round((now - recording.start) / 3600.0), hours), hours)

    cycles, evictions, notes = list[ReplayedCycle](), list[Eviction](), list[str]()
    if mode == "policy":
        cycles, evictions = _with_policy(cluster, policy, errors, scheduler, passed, stopping)
    else:
        _advance(cluster, recording.end, stopping=stopping, passed=passed)
    if mode == "recorded":
        evictions = [each for each in recorded_evictions(recording, policy) if each.at <= cluster.now]
    passed(cluster.now)
    capacity = np.maximum(recording.nodes.cpu_capacity_millicores, 1.0)
    hot_over = high_millicores(recording, policy, high) / capacity
    if cluster.scheduling.by_record:
        notes.append(
            f"{cluster.scheduling.by_record} pods were placed where they had been: their scheduler or volumes are not "
            "modelled"
        )
    if cluster.scheduling.disagreed:
        notes.append(
            f"kube-scheduler's model would have placed {len(cluster.scheduling.disagreed)} of "
            f"{cluster.scheduling.placed} pods elsewhere; in every run they go where they went"
        )
    return ReplayRun(
        label=label,
        until=min(cluster.now, recording.end),
        share=cluster.share,
        hot_minutes=hot_minutes(cluster.share, hot_over),
        evictions=tuple(evictions),
        cycles=tuple(cycles),
        most_in_flight=most_in_flight(evictions),
        notes=tuple(notes),
        unsure=frozenset(cluster.scheduling.disagreed),
    )


def _advance(
    cluster: SimulatedCluster,
    end: float,
    *,
    stopping: Callable[[], bool],
    passed: Callable[[float], None] = lambda _now: None,
) -> None:
    """Let time pass until `end`, or until `stopping`."""
    while cluster.now < end and not stopping():
        cluster.run_to(min(cluster.now + CHUNK_SECONDS, end))
        passed(cluster.now)


def _with_policy(
    cluster: SimulatedCluster,
    policy: RebalancerPolicy,
    errors: Errors | None,
    scheduler: SchedulerConfig,
    passed: Callable[[float], None],
    stopping: Callable[[], bool],
) -> tuple[list[ReplayedCycle], list[Eviction]]:
    # usage of steps doesn't change within one
    often = STEP_SECONDS if cluster.recording.readings is None else 0.0
    policy = slowed(policy, cycle_seconds=often, forecast_seconds=FORECAST_SECONDS)
    with _database(policy, scheduler, ReplayClock(cluster)) as (context_of, ledger):
        run = context_of(cluster, policy, errors)
        run.passed, run.stopping = passed, stopping
        run.run()
        return run.cycles, list(ledger.evicted(cluster.recording.start))


@contextmanager
def _database(
    policy: RebalancerPolicy, scheduler: SchedulerConfig, clock: Clock
) -> Iterator[tuple[Callable[[SimulatedCluster, RebalancerPolicy, Errors | None], PolicyRun], SqlLedger]]:
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        settings = Settings(database=f"sqlite:///{Path(folder) / 'replay.db'}")
        create_database(settings)
        with records_of(settings, policy, clock) as records:
            stored = records.ledger(clock=clock)
            lease = ReplayLease()
            stored.fence(lease.term)
            remembered = Remembered(stored, records)
            ledger = cast("Ledger", remembered)

            def context_of(cluster: SimulatedCluster, policy: RebalancerPolicy, errors: Errors | None) -> PolicyRun:
                reader, usage = ReplayedCluster(cluster), ReplayedUsage(cluster, policy.usage, errors)
                evaluation = EvaluationLoop(
                    policy=policy,
                    cluster=reader,
                    usage=usage,
                    effect=records.effect(),
                    forecasts=records.forecasts(),
                    ledger=ledger,
                    standard=None,
                    clock=clock,
                    quiet=True,
                    slo=False,
                )
                forecasts = None
                if policy.forecast.mode == "Act":
                    forecasts = ForecastLoop(
                        policy=policy, keepers=keepers_of(cluster, clock), clock=clock, ledger=ledger
                    )
                context = CycleContext(
                    cluster=reader,
                    usage=usage,
                    evictor=ReplayedEvictor(cluster),
                    records=cast("Records", remembered),
                    ledger=ledger,
                    lease=lease,
                    clock=clock,
                    progress=NullProgress(),
                    scheduler=scheduler,
                    soft_taint_controller=SoftTaintController(taints=ReplayedTaints(cluster)),
                    effect=records.effect(),
                    feedback=lambda: evaluation.feedback,
                    planning_seconds=math.inf,
                )
                if forecasts is not None:
                    context = replace(
                        context,
                        peaks=forecasts.peaks,
                        service_day_profiles=forecasts.service_day_profiles,
                        memory_leaks=forecasts.memory_leaks,
                        record_usage=forecasts.record_usage,
                    )
                return PolicyRun(
                    cluster=cluster,
                    context=context,
                    policy=policy,
                    evaluate=lambda: evaluation.turn() if remembered.evicts else (),
                    forecasts=forecasts,
                )

            yield context_of, stored
