"""What strategies find, what the planner wants moved, and what became of it."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import Service

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


PEAK = "cpu at its peak"
"""A resource of `Loads`: what is expected, not what is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """The load that a strategy balances, in one or more resources, and the marks that judge it.

    Real CPU is one resource; `source: Requests` has three (cpu, memory, pods). All figures are in the resource's own
    unit (millicores, bytes, pieces), marks too, so that a share is never rounded. NaN = not known, not judged.
    """

    resources: tuple[str, ...]
    node: Floats
    """(nodes, resources) load now, corrected for moves that the measurement doesn't show yet."""
    room: Floats
    """(nodes, resources) what a share is a share of: capacity for real CPU, allocatable for requests."""
    high: Floats
    """(nodes, resources) a node above it in any resource is hot."""
    target: Floats
    """(nodes, resources) a hot node is cooled to it, a landing stays under it."""
    low: Floats
    """(nodes, resources) a node under it in all resources is a landing of choice."""
    pod: Floats
    """(pods, resources) what a node's load grows by when the pod comes."""
    relief: Floats | None = None
    """(pods, resources) what its node loses when it leaves, where that is something else; None = the same."""

    @property
    def relieved(self) -> Floats:
        """(pods, resources) what its node loses when a pod leaves."""
        return self.pod if self.relief is None else self.relief

    @property
    def over(self) -> NDArray[np.bool_]:
        """(nodes,) over `high` in any resource."""
        out: NDArray[np.bool_] = np.asarray((self.node > self.high).any(axis=1), dtype=np.bool_)
        return out

    @property
    def hot(self) -> NDArray[np.bool_]:
        """(nodes,) over `high` now, whatever is expected."""
        now = [name != PEAK for name in self.resources]
        out: NDArray[np.bool_] = np.asarray((self.node > self.high)[:, now].any(axis=1), dtype=np.bool_)
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A node that a strategy wants relieved. A strategy never evicts, never counts and never asks about limits."""

    strategy: str
    node: int
    pool: str
    reason: str
    """A sentence with the numbers."""
    cpu_share: float
    high: float
    target: float
    candidates: Ints
    """Indices of the pods that could serve; the planner orders them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A node where the replacement may land, with its probability (shares of one eviction sum to 1)."""

    node: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One eviction that the planner wants."""

    pod: int
    namespace: str
    name: str
    uid: str
    node: int
    node_name: str
    pool: str
    service: Service
    strategy: str
    cpu_millicores: float
    """Real CPU where known, else NaN."""
    landings: tuple[Landing, ...]
    """Likeliest first."""
    reason: str
    identity: str = ""
    """Its service, the same in every cluster."""
    level: str = ""
    """Its service level; empty where the policy has none."""
    landing_name: str = ""
    """Name of the likeliest landing; empty while that isn't known."""
    landing_pool: str = ""
    """Its pool."""
    pull_bytes: float = 0.0
    """Images that the landing has to pull; of several likely landings, the most."""
    owner_uid: str = ""
    """Of the service's top owner."""


class Outcome(StrEnum):
    """What became of an eviction."""

    PLANNED = "planned"
    """Reserved and written down; the call has not been made, or a dry run."""
    EVICTED = "evicted"
    REFUSED = "refused"
    """The API server said no."""
    FAILED = "failed"
    """The API server answered with an error, or the pod was gone."""
    UNKNOWN = "unknown"
    """The call timed out or was cut off: it may have happened. It stays counted until the pod is seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The API server's answer to one eviction call."""

    outcome: Outcome
    refusal: Refusal | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRefusal:
    """A candidate that was not moved (or a node that was not judged, then `namespace` and `name` are empty)."""

    node: str
    namespace: str
    name: str
    code: Reason
    message: str
    next_at: float | None = None
    """As in `Refusal`."""
    cpu_millicores: float | None = None
    """What moving it would have taken away; None = not known."""


@dataclass(slots=True, kw_only=True)
class Eviction:
    """One move and what became of it."""

    move: Move
    landings: tuple[tuple[str, float], ...]
    """(node name, share), likeliest first."""
    outcome: Outcome
    code: Reason | None = None
    """Why the API server did not do it."""
    detail: str = ""
    record: int | None = None
    """Its row in the database."""
    not_before: float | None = None
    """Of a planned eviction: seconds since the epoch from when it may be made, where moves have to be spaced out."""


class Trigger(StrEnum):
    """What started a cycle."""

    MANUAL = "manual"
    PERIODIC = "periodic"
    ALERT = "alert"
    FORECAST = "forecast"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """A node's CPU share before, as planned, and as measured afterwards."""

    name: str
    pool: str
    cpu_before: float | None
    cpu_planned: float | None
    cpu_after: float | None = None
    hot: bool = False
    high: float | None = None
    """Share of real CPU over which the cycle would have found it; None = it did not look at it."""


@dataclass(slots=True, kw_only=True)
class CycleReport:
    """All that one cycle saw, decided and did: what the CLI prints and the database keeps."""

    id: str
    cluster: str
    trigger: Trigger
    dry_run: bool
    started_at: float
    finished_at: float | None = None
    nodes: list[NodeLine] = field(default_factory=list)
    findings: list[tuple[Finding, str]] = field(default_factory=list)
    """(finding, node name)"""
    steered: dict[str, str] = field(default_factory=dict)
    """Node -> why it carries our soft taint while the plan runs."""
    evictions: list[Eviction] = field(default_factory=list)
    refusals: list[PodRefusal] = field(default_factory=list)
    limits_left: dict[str, int] = field(default_factory=dict)
    """Kind of scope -> evictions left in its tightest limit, of global, cluster, pools and levels."""
    stages: dict[str, float] = field(default_factory=dict)
    """Stage -> how many seconds of the machine's clock it took."""
    notes: list[str] = field(default_factory=list)
    """Why the cycle as a whole did nothing, or less than it could."""
    stopped: Refusal | None = None
    """Set when the data was not safe to act on."""
    interrupted: Refusal | None = None
    """Set when evictions ended before the plan was done: lease lost, API server throttling or refusing us."""
