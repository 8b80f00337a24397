"""What the dashboard's views are made from."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.dashboard.nodes import StoredPeaks
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.ports import Clock, Inbox, Ledger
from rebalancer.model.parts import FailedPart
from rebalancer.model.records.cycles import (
    CycleRecord,
    CycleSummary,
    EvictionTotals,
    PoolEviction,
    PoolMeasurement,
    RecordedFinding,
    RefusalGroup,
    ServiceEvictions,
)
from rebalancer.model.records.effect import EffectRecords
from rebalancer.model.records.forecasts import ForecastRecords


class Archive(StoredPeaks, Protocol):
    """Reads the database; see `store.cycles.reading`. All methods raise ConnectError."""

    def cycles(
        self, limit: int, *, before: float | None = None, after: float | None = None, acted: bool = False
    ) -> Sequence[CycleSummary]: ...

    def cycle(self, cycle: str) -> CycleRecord | None: ...

    def evictions_from(self, node: str, *, limit: int) -> Sequence[Eviction]: ...

    def findings_of(self, node: str, *, since: float, limit: int) -> Sequence[RecordedFinding]: ...

    def refusals_of(self, node: str, *, since: float) -> Sequence[RefusalGroup]: ...

    def services(self, since: float, *, like: str = "") -> Sequence[ServiceEvictions]: ...

    def evictions_of(self, service: str, *, limit: int) -> Sequence[Eviction]: ...

    def evictions_since(self, since: float, *, like: str = "", limit: int) -> Sequence[Eviction]: ...

    def eviction_totals(self, since: float) -> EvictionTotals: ...

    def pool_evictions(self, since: float, *, limit: int) -> Sequence[PoolEviction]: ...

    def refusals_on(self, nodes: Sequence[str], *, since: float) -> Sequence[RefusalGroup]: ...

    def pool_measurements(self, since: float, *, known: Collection[str] = ()) -> Sequence[PoolMeasurement]: ...


class LeaderStatus(Protocol):
    """Leadership of this process."""

    waiting_for: str

    @property
    def term(self) -> int | None: ...

    def holds(self, margin_seconds: float = 0.0) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources of the views."""

    current: Callable[[], Active]
    leadership: LeaderStatus
    ledger: Ledger
    inbox: Inbox
    archive: Archive
    effect: EffectRecords
    forecasts: ForecastRecords
    clock: Clock
    dry_run: bool = False
    policy_data: Callable[[], bytes] = lambda: b"{}"
    """Content of the policy file."""
    grafana_url: str = ""
    docs_url: str = ""
    history_dir: str = ""
    """Folder of the history, with the newest replay; empty for none."""
    failed_parts: Callable[[], Sequence[FailedPart]] = tuple
    overdue: Callable[[], str] = str
    """Why this leader's cycles are late; empty where they are not, and on a follower."""
