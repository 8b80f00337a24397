"""The outside world, as the story of a cycle needs it. Adapters implement these; tests may too."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rebalancer.model.limits import (
    Check,
    Denied,
    Entry,
    GaveUp,
    OpenEviction,
    Pause,
    ReadyElsewhere,
    ReservationDetails,
    Scope,
)
from rebalancer.model.plan import Answer, CycleReport, Eviction, Move
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import RecentMove, Usage


class Clock(Protocol):
    """Time. The lab's runs faster; lease and HTTP timeouts never use it."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock have passed."""
        ...


class Progress(Protocol):
    """Tells a person how far a long step is. Implementations draw on stderr, and only on a terminal."""

    def step(self, label: str, done: int, total: int | None) -> None:
        """`done` of `total` (None = not known yet) of the step named `label`."""
        ...


class ClusterReader(Protocol):
    """Reads the cluster."""

    def snapshot(self) -> ClusterSnapshot:
        """Read everything. Raises ConnectError, or UnsafeDataError when a consistent list can't be had."""
        ...

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], "PodState"]:
        """What the API server says now of single (namespace, name) pods; a missing one is not in the answer."""
        ...


class PodState(Protocol):
    """A pod as re-read: enough to settle an eviction whose answer never came."""

    @property
    def uid(self) -> str: ...

    @property
    def terminating(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def node(self) -> str: ...


class UsageReader(Protocol):
    """Reads real CPU."""

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage of the snapshot's nodes and pods. Raises ConnectError, or ConfigError when no metric exists."""
        ...


class Evictor(Protocol):
    """The Eviction API."""

    def evict(self, move: Move, *, server_dry_run: bool = False) -> Answer:
        """Re-read the pod, then evict it with its uid as precondition. Never raises for an API answer.

        A server-side dry run that is accepted is answered as PLANNED.
        """
        ...


class NodeTaints(Protocol):
    """Sets and removes our own taint on nodes; never touches anybody else's."""

    def granted(self) -> bool:
        """Whether we may patch nodes. Raises ConnectError."""
        ...

    def put(self, node: str, *, value: str) -> bool:
        """Taint a node (PreferNoSchedule, our key), or change the value; False when that could not be done."""
        ...

    def take(self, node: str) -> bool:
        """Remove our taint; True when it is gone, also when the node is. False when that could not be done."""
        ...


class Lease(Protocol):
    """The right to evict in this cluster."""

    @property
    def term(self) -> int | None:
        """The number of this leadership: it grows with each new holder."""
        ...

    def holds(self, margin_seconds: float = 0.0) -> bool:
        """Whether the lease is ours for at least `margin_seconds` more."""
        ...


class Records(Protocol):
    """The database: what was decided is written before the call, its outcome after."""

    def begin(self, report: CycleReport) -> None: ...

    def planned(self, report: CycleReport, eviction: Eviction) -> int:
        """Write the eviction before its call; the row's id."""
        ...

    def outcome(self, eviction: Eviction) -> None: ...

    def finish(self, report: CycleReport) -> None: ...

    def recent_moves(self, since: float) -> Sequence[RecentMove]:
        """Evictions of this cluster that happened, or may have, at or after `since`."""
        ...


class Ledger(Protocol):
    """Counts evictions over every scope and cluster that shares the database; all times are by its clock."""

    def now(self) -> float: ...

    def reserve(
        self,
        report: CycleReport,
        eviction: Eviction,
        *,
        scopes: Sequence[Scope],
        checks: Sequence[Check],
        term: int | None,
        details: ReservationDetails,
    ) -> int | Denied:
        """Count the eviction and write its row in one transaction, before the call; the row's id.

        Raises UnsafeDataError for a stale lease term.
        """
        ...

    def outcome(self, eviction: Eviction) -> None:
        """Write what the call came to; what certainly did not happen is refunded."""
        ...

    def entries(self, since_seconds: float) -> Sequence[Entry]: ...

    def open_evictions(self) -> Sequence[OpenEviction]: ...

    def landed(self, record: int, *, at: float, pod: str = "", uid: str = "", node: str = "") -> None: ...

    def late(self, record: int) -> None: ...

    def pauses(self) -> Sequence[Pause]: ...

    def memories(self) -> Sequence[GaveUp]: ...

    def give_up(self, *, service_identity: str, node: str, reason: str, seconds: Callable[[int], float]) -> GaveUp: ...

    def services_evicted_elsewhere(self, since_seconds: float) -> Mapping[str, float]: ...

    def report_ready(self, services: Mapping[str, tuple[int, int]]) -> None: ...

    def ready_elsewhere(self, services: Sequence[str], *, max_age_seconds: float) -> Mapping[str, ReadyElsewhere]: ...

    def state_global_limits(self, *, digest: str, text: str) -> None: ...
