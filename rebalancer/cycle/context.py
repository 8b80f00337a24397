"""What a cycle needs of the outside world, behind the ports of `model`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rebalancer.cycle.steering import SoftTaintController
from rebalancer.effect.feedback import Feedback
from rebalancer.model.effect import EffectRecords
from rebalancer.model.eviction import Eviction
from rebalancer.model.peaks import Peaks, ServiceDayProfiles
from rebalancer.model.plan import CycleReport
from rebalancer.model.ports import Clock, ClusterReader, Evictor, Lease, Ledger, Progress, Records, UsageReader
from rebalancer.model.scheduler import SchedulerConfig
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import RecentMove, Usage


class SystemClock:
    """`model.ports.Clock` of the machine."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class NullProgress:
    """`model.ports.Progress` for nobody."""

    def step(self, label: str, done: int, total: int | None) -> None:
        """Say nothing."""


class NullRecords:
    """`model.ports.Records` that keep nothing: for `plan`, which reads the ledger and writes nothing."""

    def __init__(self, ledger: Records | None = None) -> None:
        self._ledger = ledger

    def begin(self, report: CycleReport) -> None:
        """Nothing is written."""

    def planned(self, report: CycleReport, eviction: Eviction) -> int:
        return 0

    def outcome(self, eviction: Eviction) -> None:
        """Nothing is written."""

    def finish(self, report: CycleReport) -> None:
        """Nothing is written."""

    def recent_moves(self, since: float) -> Sequence[RecentMove]:
        return self._ledger.recent_moves(since) if self._ledger is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleContext:
    """One cluster, as the cycle sees it."""

    cluster: ClusterReader
    usage: UsageReader
    evictor: Evictor
    records: Records
    ledger: Ledger | None
    """None where there is no database yet (only to look)."""
    lease: Lease | None
    """None where nothing is evicted for good."""
    clock: Clock
    progress: Progress
    scheduler: SchedulerConfig = SchedulerConfig()  # noqa: RUF009 - frozen
    """How kube-scheduler is configured."""
    soft_taint_controller: SoftTaintController
    """Our taints and cordons on nodes."""
    peaks: Callable[[ClusterSnapshot, float], Peaks | None] = lambda _snapshot, _now: None
    """What is expected of a snapshot's nodes at a moment; None where nothing may be decided by it."""
    service_day_profiles: Callable[[ClusterSnapshot, float], ServiceDayProfiles | None] = lambda _snapshot, _now: None
    """How the services' usual days go; None where nobody knows."""
    effect: EffectRecords | None = None
    """What is looked at again after evictions; None where nobody will."""
    feedback: Callable[[], Feedback | None] = lambda: None
    """What earlier evictions taught."""
    record_usage: Callable[[ClusterSnapshot, Usage], None] = lambda _snapshot, _usage: None
    """Told of every usage that was read."""
    stopping: Callable[[], bool] = lambda: False
    """Whether no new eviction may be begun, because the program is to end."""
    own_pod: tuple[str, str] | None = None
    """(namespace, name) of the pod that we run in."""
