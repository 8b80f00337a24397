"""Recordings from the daemon's journal and its day blocks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rebalancer.bootstrap.history import history_keepers
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import NullProgress, SystemClock
from rebalancer.forecasting.history import DAYS
from rebalancer.model.history import DAY_SECONDS, STEP_SECONDS, DayBlock, slot_of
from rebalancer.model.ports import Clock
from rebalancer.model.recording import Recording
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import journal_days, recording_of

__all__ = ["journal_covers", "kept_usage", "recording_from_journal"]


def journal_covers(policy: RebalancerPolicy, settings: Settings, *, start: float, end: float) -> bool:
    """Whether there is a journal of every day from `start` to `end`, in seconds since the epoch."""
    kept = journal_days(Path(settings.history_dir), policy.cluster)
    return set(range(slot_of(start)[0], slot_of(end - 1.0)[0] + 1)) <= set(kept)


def recording_from_journal(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    start: float,
    end: float,
    snapshot_today: ClusterSnapshot,
    usage: Mapping[str, Sequence[DayBlock]] | None = None,
    clock: Clock | None = None,
) -> Recording:
    """The recording of the whole steps in [start, end). `usage`: resource -> its days, oldest first, those before
    `start` included; None: the day blocks that the daemon keeps.

    Raises ConfigError where the journal has nothing of that time.
    """
    begin, until = (at - at % STEP_SECONDS for at in (start, end))
    if usage is None:
        usage = kept_usage(policy, settings, start=begin, clock=clock)
    return recording_of(
        Path(settings.history_dir), cluster=policy.cluster, start=begin, end=until, today=snapshot_today, usage=usage
    )


def kept_usage(
    policy: RebalancerPolicy, settings: Settings, *, start: float, clock: Clock | None = None
) -> Mapping[str, Sequence[DayBlock]]:
    """Resource -> the day blocks that the daemon keeps, oldest first, from DAYS before `start` on. Raises
    ConfigError."""
    clock = clock or SystemClock()
    days = int((clock.now() - start) // DAY_SECONDS) + 1 + DAYS
    with history_keepers(policy, settings, progress=NullProgress(), clock=clock, days=days) as keepers:
        return {resource: list(keeper.kept().days) for resource, keeper in keepers.items()}
