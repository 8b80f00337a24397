"""Ports of a cycle to the outside world. Adapters implement these protocols, and so do test fakes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import Alert, AlertEpisode, EpisodeState, Received
from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.decisions.eviction import Answer, Eviction
from rebalancer.model.decisions.limits import (
    Check,
    Denied,
    EvictionBackoff,
    LedgerEntry,
    Pause,
    RemoteReadiness,
    ReplacementLineage,
)
from rebalancer.model.decisions.past import RequestedSample
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.proposals import Proposal, ProposalState, ProposedPlan
from rebalancer.model.measured.usage import Usage


class Clock(Protocol):
    """The clock of decisions. The lab's runs faster; lease and HTTP timeouts never use it."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock have passed."""
        ...


class Progress(Protocol):
    """Progress of a long step. Implementations draw on stderr, and only on a terminal."""

    def step(self, label: str, done: int, total: int | None) -> None:
        """`done` of `total` (None = not known yet) of the step named `label`."""
        ...

    def event(self, text: str) -> None:
        """What has just happened: an eviction, a replacement that is Ready."""
        ...


class ClusterReader(Protocol):
    """Reads the cluster."""

    def snapshot(self) -> ClusterSnapshot:
        """Read everything. Raises ConnectError, or UnsafeDataError when a consistent list can't be had."""
        ...

    def services(self, namespaces: Collection[str]) -> ClusterSnapshot:
        """Read at least the nodes, and the pods of these namespaces with their owners: enough to follow evictions in
        flight. No budgets, volumes, quotas or autoscalers need be in it. Raises as `snapshot` does."""
        ...

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], "PodState"]:
        """Current state of single (namespace, name) pods; a missing one is not in the result."""
        ...


class PodState(Protocol):
    """A pod as re-read: enough to reconcile an eviction whose answer never came."""

    @property
    def uid(self) -> str: ...

    @property
    def terminating(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def ready_since(self) -> float:
        """Seconds since the epoch; NaN while it is not Ready, 0 where the time is not known."""
        ...

    @property
    def node(self) -> str: ...

    @property
    def eviction_in_progress(self) -> bool:
        """Whether another component is carrying out its eviction."""
        ...


class UsageReader(Protocol):
    """Reads CPU usage."""

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage of the snapshot's nodes and pods. Raises ConnectError, or ConfigError when no metric exists."""
        ...


class Evictor(Protocol):
    """The Eviction API."""

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """Re-read the pod, then evict it with its uid as precondition. Never raises for an API error.

        A server-side dry run that is accepted is answered as PLANNED.
        """
        ...


class NodeTaints(Protocol):
    """Sets and removes the rebalancer's own taint on nodes, and with it its own cordons; other taints are never
    changed.

    A value of `steering.CORDONS` means that the cordon (`spec.unschedulable`) is ours, too. Both are changed in one
    patch, so neither exists without the other, unless the node is changed by hand.
    """

    def granted(self) -> bool:
        """Whether nodes may be patched. Raises ConnectError."""
        ...

    def put(self, node: str, *, value: str) -> bool:
        """Taint a node (PreferNoSchedule, our key), or change the value; with a value of `steering.CORDONS` the node is
        cordoned as well, with any other a cordon of ours ends. False when that fails, and where a node to be cordoned
        is cordoned by another actor: then it is left unchanged."""
        ...

    def take(self, node: str) -> bool:
        """Remove our taint, and with it a cordon of ours; True when it is gone, also when the node is. False when that
        fails."""
        ...


class EventSink(Protocol):
    """Publishes Kubernetes Events about evictions. Never raises, and may drop some."""

    def about_service(
        self, owner: Owner, *, reason: str, note: str, warning: bool = False, eviction: Eviction | None = None
    ) -> None:
        """An event on a service's top owner. `reason` is one word in CamelCase, `note` a sentence. What is needed to
        count the `eviction` again is written beside them."""
        ...

    def about_node(self, node: str, *, reason: str, note: str, warning: bool = False) -> None: ...


class Lease(Protocol):
    """The right to evict in this cluster."""

    @property
    def term(self) -> int | None:
        """The number of this leadership: it grows with each new holder."""
        ...

    def holds(self, margin_seconds: float = 0.0) -> bool:
        """Whether the lease stays valid for at least `margin_seconds` more."""
        ...


class Records(Protocol):
    """The database: what was decided is written before the call, its outcome after."""

    def begin(self, report: CycleReport) -> None: ...

    def begun(self, cycle: str) -> float | None:
        """When the cycle of this id began, in seconds since the epoch; None where there is none."""
        ...

    def planned(self, report: CycleReport, eviction: Eviction) -> int:
        """Write the eviction before its call; the row's id."""
        ...

    def outcome(self, eviction: Eviction) -> None: ...

    def finish(self, report: CycleReport) -> None: ...

    def recent_moves(self, since: float) -> Sequence[Eviction]:
        """Evictions of this cluster that happened, or may have, at or after `since`."""
        ...

    def drains(self, since: float) -> Sequence[DrainedNode]:
        """Nodes of this cluster emptied at or after `since`, oldest first."""
        ...

    def put_drains(self, drains: Sequence[DrainedNode]) -> None:
        """New, or the same (node, emptied_at) updated."""
        ...

    def requested(self, since: float) -> Sequence[RequestedSample]:
        """What pods requested on nodes of this cluster at or after `since`, oldest first."""
        ...

    def put_requested(self, sample: RequestedSample) -> None:
        """A sample."""
        ...


class Proposals(Protocol):
    """Plans that wait for an approval; one is open for each pool and strategy."""

    def propose(
        self, cycle: str, plans: Sequence[tuple[ProposedPlan, bool]], *, pods: Collection[str], valid_seconds: float
    ) -> Sequence[Proposal]:
        """Keep the plans of a cycle; the open proposals that stand for them. With each plan, whether the cycle looked
        at all nodes of the pool; `pods` are the UIDs of all pods of the cluster.

        An open proposal stays while it stands for the plan (`ProposedPlan.stands_for`). Any other one is superseded,
        unless it is approved already.
        """
        ...

    def named(self, name: str) -> Proposal | None:
        """The one with this id; None where there is none."""
        ...

    def approved(self) -> Sequence[Proposal]:
        """Those that are to be carried out, oldest first. Those that a dead process had begun are closed before."""
        ...

    def begin(self, proposal: Proposal) -> bool:
        """Note that it is being carried out; False where it is not approved any more."""
        ...

    def close(self, proposal: Proposal, *, state: ProposalState, reason: str) -> None:
        """Note the end of one that was approved."""
        ...


class Inbox(Protocol):
    """Alerts, stored from before their acknowledgement until they are resolved or expired."""

    def receive(self, alerts: Sequence[Alert], *, max_age_seconds: float) -> Received:
        """Store them, as many as there is time for; a repeated delivery changes nothing. A resolved alert closes its
        episode for good; one that had expired or been refused is opened again by the next delivery.

        Raises ConnectError when the database can't be written.
        """
        ...

    def due(self, *, expire_after_seconds: float) -> Sequence[AlertEpisode]:
        """Open episodes that are due for an attempt, those that wait longest first, some hundreds at a time; expired
        ones are closed."""
        ...

    def next_at(self) -> float | None:
        """The next attempt at an open episode; None without any."""
        ...

    def tried(self, episode: AlertEpisode, *, reason: str, next_at: float) -> None:
        """Keep the episode open and attempt it again at this time."""
        ...

    def close(self, episode: AlertEpisode, *, state: EpisodeState, reason: str) -> None: ...


class Ledger(Protocol):
    """Counts evictions over every scope and cluster that shares the database; all times are by its clock."""

    def now(self) -> float: ...

    def reserve_all(
        self, report: CycleReport, evictions: Sequence[tuple[Eviction, Sequence[Check]]], *, term: int | None
    ) -> Sequence[int | Denied]:
        """Count each eviction in its `scopes` and write its row, before the call, in one transaction: the row's id, or
        the check of its own that denies it when those before it are counted.

        Raises UnsafeDataError for a stale lease term.
        """
        ...

    def outcomes(self, evictions: Sequence[Eviction]) -> None:
        """Record the outcomes of calls; an eviction that certainly did not happen is refunded."""
        ...

    def entries(self, since_seconds: float) -> Sequence[LedgerEntry]: ...

    def open_evictions(self) -> Sequence[Eviction]: ...

    def surges(self) -> Mapping[int, str]:
        """Row of each eviction in flight that has a surge -> why that did not move the pod; empty while it may."""
        ...

    def surging(self) -> frozenset[str]:
        """UIDs of the Deployments with a surge that is not over, or whose eviction is in flight still."""
        ...

    def landed(self, record: int, *, at: float, pod: str = "", uid: str = "", node: str = "") -> None: ...

    def late(self, record: int) -> None: ...

    def close(self, record: int, *, by: str, reason: str) -> None:
        """Close an eviction whose replacement was not seen Ready: it is no longer in flight."""
        ...

    def pauses(self) -> Sequence[Pause]: ...

    def backoffs(self) -> Sequence[EvictionBackoff]: ...

    def lineages(self, since: float) -> Mapping[str, ReplacementLineage]:
        """uid of each replacement of a pod evicted at or after `since` -> its predecessors."""
        ...

    def back_off(
        self, *, service_identity: str, node: str, reason: str, seconds: Callable[[int], float], resource: str = ""
    ) -> EvictionBackoff:
        """Start a longer backoff of the service on the node, with an empty `node` on every node; of evictions for
        `resource`, empty = all."""
        ...

    def services_evicted_remotely(self, since_seconds: float) -> Mapping[str, float]: ...

    def publish_readiness(self, services: Mapping[str, tuple[int, int]]) -> None: ...

    def remote_readiness(self, services: Sequence[str], *, max_age_seconds: float) -> Mapping[str, RemoteReadiness]: ...

    def publish_global_limits(self, *, digest: str, text: str, longest_window_seconds: float, nodes: int) -> None: ...

    def nodes_elsewhere(self) -> int:
        """Nodes of the other clusters, as they published them last."""
        ...

    def replacements(self, since: float) -> Mapping[str, str]:
        """UID of each replacement that was Ready at or after `since` -> the node that the evicted pod had left."""
        ...

    def evicted(self, since: float) -> Sequence[Eviction]:
        """Evictions that happened, or may have, at or after `since`; oldest first."""
        ...

    def replaced(self, since: float) -> Sequence[Eviction]:
        """Evictions whose replacement was Ready at or after `since`; oldest first."""
        ...

    def start_ups(self, service: str) -> Sequence[float]:
        """Seconds that the newest replacements of `namespace/name` took from their predecessor's end to Ready."""
        ...

    def start_ups_by_service(self) -> Mapping[str, Sequence[float]]:
        """The same of each service that has any."""
        ...

    def reconcile_outcomes(self, reader: ClusterReader) -> Sequence[Eviction]:
        """Reconcile evictions without an outcome with the API server's state; those whose outcome is known now."""
        ...

    def prune_at_times(self, *, keep_details: float | None = None) -> None:
        """Delete entries that no limit counts any more, and this cluster's details older than `keep_details` seconds,
        unless that was done recently."""
        ...
