"""Replays: where a recording is read from, and the cycles of a run with a database of its own."""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import cast

from rebalancer.bootstrap.commands.contexts import read_cluster
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.journal import journal_covers, recording_from_journal, stored_usage
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.bootstrap.wiring.active import active_of
from rebalancer.bootstrap.wiring.adapters import scheduler_of
from rebalancer.bootstrap.wiring.database import create_database, records_of
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.forecasting.history import DAYS
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.decisions.ports import Ledger, Progress, Records
from rebalancer.model.parts import FailedParts
from rebalancer.model.recordings.recording import Recording
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.cycles.history import keepers_of
from rebalancer.replay.cycles.ports import ReplayClock, ReplayedCluster, ReplayedEvictor, ReplayedTaints, ReplayLease
from rebalancer.replay.cycles.readings import Errors
from rebalancer.replay.cycles.remembered import Remembered
from rebalancer.replay.cycles.run import PolicyRun
from rebalancer.replay.cycles.usage import ReplayedUsage
from rebalancer.replay.runner import replay as runner
from rebalancer.replay.simulation.cluster import SimulatedCluster


class Source(StrEnum):
    """Where a recording is read from."""

    JOURNAL = "journal"
    PROMETHEUS = "prometheus"


def recorded(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    start: float,
    end: float,
    source: Source | None,
    progress: Progress,
    earlier_days: int = DAYS,
) -> Recording:
    """The recording from `start` to `end`, in seconds since the epoch; by default from the daemon's journal where the
    history folder has one of each day, else from Prometheus; `earlier_days` as in `read_recording`.

    Raises ConfigError, ConnectError, and UnsafeDataError without any CPU.
    """
    today = read_cluster(settings, progress=progress)
    if source is Source.JOURNAL or (source is None and journal_covers(policy, settings, start=start, end=end)):
        usage = stored_usage(policy, settings, today, start=start, clock=SystemClock(), progress=progress)
        return recording_from_journal(policy, settings, start=start, end=end, today=today, usage=usage)
    return read_recording(
        policy,
        settings,
        since_seconds=end - start,
        until=end,
        progress=progress,
        today=today,
        earlier_days=earlier_days,
    )


@contextmanager
def policy_run(
    cluster: SimulatedCluster, policy: RebalancerPolicy, scheduler: SchedulerConfig, errors: Errors | None
) -> Iterator[PolicyRun]:
    """The cycles of a policy over a simulated cluster. The database is deleted afterwards."""
    clock = ReplayClock(cluster)
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        settings = Settings(database=f"sqlite:///{Path(folder) / 'replay.db'}")
        create_database(settings)
        with records_of(settings, policy, clock) as records:
            stored, lease = records.ledger(clock=clock), ReplayLease()
            stored.fence(lease.term)
            remembered = Remembered(stored, records)
            context = CycleContext(
                cluster=ReplayedCluster(cluster),
                usage=ReplayedUsage(cluster, policy.usage, errors),
                evictor=ReplayedEvictor(cluster),
                records=cast("Records", remembered),
                ledger=cast("Ledger", remembered),
                lease=lease,
                clock=clock,
                progress=NullProgress(),
                scheduler=scheduler,
                soft_taint_controller=SoftTaintController(taints=ReplayedTaints(cluster)),
                planning_seconds=math.inf,
                parts=FailedParts(now=clock.now, monotonic=clock.now),
            )
            keepers = keepers_of(cluster, clock) if policy.forecast.mode == "Act" else None
            outcomes = OutcomeKeeper(records=records.outcomes())
            active = active_of(policy, context, records, keepers=keepers, outcomes=outcomes, replayed=True)
            evaluation = active.evaluation
            assert evaluation is not None
            yield PolicyRun(
                cluster=cluster,
                context=active.context,
                policy=policy,
                evaluate=lambda: evaluation.turn() if remembered.evicts else (),
                forecasts=active.forecast_loop,
            )


replay = partial(runner.replay, compose=policy_run, scheduler_of=scheduler_of)
"""`replay.runner.replay.replay` with the cycles of this program."""
