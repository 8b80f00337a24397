"""Recordings from the daemon's journal and its day blocks."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.forecasting.history import DAYS
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock, Progress
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock, slot_of
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.policy import RebalancerPolicy
from rebalancer.store.journal import entry_times, journal_days, recording_of

LATE_SECONDS = 1800.0
"""A journal with nothing for so long still serves for a recording: at its start, at its end or in between."""


def journal_covers(policy: RebalancerPolicy, settings: Settings, *, start: float, end: float) -> bool:
    """Whether there is a journal of every day from `start` to `end`, in seconds since the epoch, and all of that time:
    the daemon ran, and no day was cut. Raises ConfigError."""
    folder = Path(settings.history_dir)
    days = range(slot_of(start)[0], slot_of(end - 1.0)[0] + 1)
    if not set(days) <= set(journal_days(folder, policy.cluster)):
        return False
    times = (at for day in days for at in entry_times(folder, policy.cluster, day) if start <= at < end)
    return all(after - before <= LATE_SECONDS for before, after in pairwise(chain([start], times, [end])))


def recording_from_journal(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    start: float,
    end: float,
    today: ClusterSnapshot,
    usage: Mapping[str, Sequence[DayBlock]],
) -> Recording:
    """The recording of the whole steps in [start, end), as far as CPU is known. `usage`: resource -> its days, oldest
    first, those before `start` included.

    Raises ConfigError where the journal has nothing of that time, and UnsafeDataError without any CPU.
    """
    begin, until = (at - at % STEP_SECONDS for at in (start, end))
    days = usage.get(CPU, ())
    if days and days[-1].filled < SLOTS:
        until = min(until, days[-1].day * DAY_SECONDS + days[-1].filled * STEP_SECONDS)
    if until <= begin:
        raise UnsafeDataError(f"{settings.history_dir}: no CPU is known in the time of the recording")
    recording = recording_of(
        Path(settings.history_dir), cluster=policy.cluster, start=begin, end=until, today=today, usage=usage
    )
    if CPU not in recording.usage or not np.isfinite(recording.usage[CPU].pod_values).any():
        raise UnsafeDataError(f"{settings.history_dir}: no CPU of pods is known in the time of the recording")
    return recording


def stored_usage(
    policy: RebalancerPolicy,
    settings: Settings,
    today: ClusterSnapshot,
    *,
    start: float,
    clock: Clock,
    progress: Progress,
    stopping: Callable[[], bool] = lambda: False,
) -> Mapping[str, Sequence[DayBlock]]:
    """Resource -> its days, oldest first, from DAYS before `start` on. With Prometheus, days that the daemon has not
    stored are read and stored. Raises ConfigError."""
    days = slot_of(clock.now())[0] - slot_of(start)[0] + DAYS
    collected = policy.usage.source == "MetricsServer"
    with history_keepers(
        policy, settings, progress=progress, clock=clock, days=days, stopping=stopping, unlimited=True
    ) as keepers:
        return {
            resource: list((keeper.kept() if collected else keeper.update(today)).days)
            for resource, keeper in keepers.items()
        }
