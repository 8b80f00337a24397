"""What strategies find, what the planner wants moved, and what became of it."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.eviction import Eviction
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import Floats, Ints

PEAK = "cpu at its peak"
"""A resource of `Loads`: what is expected, not what is measured."""

MIN_RELIEF = 0.02
"""Least relief of a move, as a share of the excess; a pod that relieves less is refused with NoRelief."""


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


class Goal(StrEnum):
    """What a finding asks for."""

    COOL = "cool"
    """Pods go until the node is at its target, whichever of the candidates serve best."""
    REMOVE = "remove"
    """The candidates go, as many as are wanted, in the order given."""
    EMPTY = "empty"
    """All candidates go, if every one of them can; otherwise none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evenness:
    """Pods of one group, counted over domains that should hold about as many each.

    Findings of one group share one; the planner counts their moves in. A move must leave the domains more even than
    before: its landing's domain holds at least two fewer than the one that it leaves. So no sequence of moves comes
    back to where it began.
    """

    domain: Ints
    """(nodes,) the node's domain; -1 = none, nothing of the group may land there."""
    count: Floats
    """(domains,) pods of the group there now."""
    skew: int = 1
    """A domain that has no more than so many above the emptiest is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LandingRule:
    """Which landings repair what was found, besides those that hold for every move (fits, stays under its target)."""

    elsewhere: bool = True
    """The replacement must not come back to the node that it leaves. False: a new pod is all that is wanted."""
    only: NDArray[np.bool_] | None = None
    """(nodes,) nothing is repaired anywhere else; None = anywhere."""
    even: Evenness | None = None
    """None = nothing to be evened out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A node that a strategy wants relieved of pods. A strategy never evicts, never counts, never asks about limits."""

    strategy: str
    node: int
    pool: str
    reason: str
    """A sentence with the numbers."""
    candidates: Ints
    """Indices of the pods on the node that could serve; for REMOVE best first, otherwise the planner orders them."""
    cpu_share: float = float("nan")
    """Of COOL: the share that is too high, and its marks; NaN for the others."""
    high: float = float("nan")
    target: float = float("nan")
    goal: Goal = Goal.COOL
    wanted: int | None = None
    """Of REMOVE: so many of `among`; None = all that can."""
    among: Ints | None = None
    """Of REMOVE with `wanted`: once so many of these pods are moved, by whichever finding, nothing more is wanted. They
    may be on other nodes, and needn't be candidates. None = the candidates."""
    in_order: bool = False
    """Of COOL: the candidates are taken in the order given, too."""
    landing: LandingRule = LandingRule()
    makes_room: bool = False
    """Room on the node is what is wanted: that a pod which waits would take it is no reason against a move."""
    recurs: bool = False
    """Of REMOVE: the reason comes back in the nature of things (age, a person's choice): that a predecessor was moved
    for it doesn't speak against it."""
    broken: bool = False
    """The candidates don't do their work as it is: that they are not Ready, have finished, or are their service's last,
    doesn't keep them."""


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
    cordons_before: dict[str, str] = field(default_factory=dict)
    """Node -> why it was cordoned by us when the cycle began: `steering.CORDONS`."""
    cordons: dict[str, str] = field(default_factory=dict)
    """The same while the plan runs."""
    progress: dict[str, int] = field(default_factory=dict)
    """Of nodes that were chosen to be emptied: state (`empty`, `working`, `waiting`) -> how many."""
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
