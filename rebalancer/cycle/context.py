"""The adapters of a cycle, behind the ports of `model`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rebalancer.cycle.isolation import failed_parts
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.effect.feedback import Feedback
from rebalancer.forecast.memory.leaks import MemoryLeak
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.past import RequestedSample
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import (
    Clock,
    ClusterReader,
    Evictor,
    Lease,
    Ledger,
    Progress,
    Proposals,
    Records,
    UsageReader,
)
from rebalancer.model.decisions.surges import Surges
from rebalancer.model.measured.peaks import Peaks, ServiceDayProfiles
from rebalancer.model.measured.usage import Usage
from rebalancer.model.parts import FailedParts
from rebalancer.model.records.effect import EffectRecords

MAX_PLANNING_SECONDS = 20.0
"""Planning time of a cycle, the simulation's included. What is undecided by then is left to the next cycle."""


class NullProgress:
    """`model.decisions.ports.Progress` without output."""

    def event(self, text: str) -> None:
        """Nothing."""

    def step(self, label: str, done: int, total: int | None) -> None:
        """Print nothing."""


class NullRecords:
    """`model.decisions.ports.Records` that write nothing, for `plan`: it reads the ledger only."""

    def __init__(self, ledger: Records | None = None) -> None:
        self._ledger = ledger

    def begin(self, report: CycleReport) -> None:
        """Nothing is written."""

    def begun(self, cycle: str) -> float | None:
        return self._ledger.begun(cycle) if self._ledger is not None else None

    def planned(self, report: CycleReport, eviction: Eviction) -> int:
        return 0

    def outcome(self, eviction: Eviction) -> None:
        """Nothing is written."""

    def finish(self, report: CycleReport) -> None:
        """Nothing is written."""

    def recent_moves(self, since: float) -> Sequence[Eviction]:
        return self._ledger.recent_moves(since) if self._ledger is not None else ()

    def drains(self, since: float) -> Sequence[DrainedNode]:
        return self._ledger.drains(since) if self._ledger is not None else ()

    def put_drains(self, drains: Sequence[DrainedNode]) -> None:
        """Nothing is written."""

    def requested(self, since: float) -> Sequence[RequestedSample]:
        return self._ledger.requested(since) if self._ledger is not None else ()

    def put_requested(self, sample: RequestedSample) -> None:
        """Nothing is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastReaders:
    """What a cycle reads of forecasts, of a snapshot at an instant; by default nothing is known."""

    peaks: Callable[[ClusterSnapshot, float], Peaks | None] = lambda _snapshot, _now: None
    """Predicted peaks of the nodes; None where no decision may be based on them."""
    service_day_profiles: Callable[[ClusterSnapshot, float], ServiceDayProfiles | None] = lambda _snapshot, _now: None
    """Usual days of services; None where unknown."""
    memory_leaks: Callable[[ClusterSnapshot, float], Sequence[MemoryLeak]] = lambda _snapshot, _now: ()
    """Pods with growing memory that will be OOM-killed, the first to be killed first."""
    basis: Callable[[float], str] = lambda _now: ""
    """Which usage history the predicted peaks are from, as a note of a command's cycle; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleContext:
    """One cluster and everything that a cycle reads and writes."""

    cluster: ClusterReader
    usage: UsageReader
    evictor: Evictor
    records: Records
    ledger: Ledger | None
    """None in a dry run without a database."""
    lease: Lease | None
    """None in a dry run."""
    clock: Clock
    progress: Progress
    scheduler: SchedulerConfig = SchedulerConfig()  # noqa: RUF009 - frozen
    """Configuration of kube-scheduler."""
    soft_taint_controller: SoftTaintController
    """Our taints and cordons on nodes."""
    forecasts: ForecastReaders = ForecastReaders()
    proposals: Proposals | None = None
    """None where nothing is proposed: in a command that writes nothing."""
    surges: Surges | None = None
    """None where nothing is moved by replacement first: without a database or the Lease."""
    effect: EffectRecords | None = None
    """Scheduled outcome assessments; None where evictions are not assessed."""
    feedback: Callable[[], Feedback | None] = lambda: None
    """Effectiveness of earlier evictions; None where unknown."""
    record_usage: Callable[[ClusterSnapshot, Usage], None] = lambda _snapshot, _usage: None
    """Called with every usage that was read."""
    stopping: Callable[[], bool] = lambda: False
    """Whether the process is stopping: then no new eviction begins."""
    parts: FailedParts = field(default_factory=failed_parts)
    """Readers and strategies that fail unexpectedly."""
    max_calls: int = 1
    """The most eviction calls in flight together."""
    planning_seconds: float = MAX_PLANNING_SECONDS
    """Limit on the planning time, by the machine's clock; infinite where the result must not depend on the machine."""
    own_pod: tuple[str, str] | None = None
    """(namespace, name) of the pod of this process."""
