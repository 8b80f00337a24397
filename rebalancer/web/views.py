"""What each page of the dashboard shows, and whoever can say it.

Shares are used cores / capacity, times are seconds since the epoch, None is what isn't known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rebalancer.effect.report import Report
from rebalancer.model.cycles import (
    CycleRecord,
    CycleSummary,
    RecordedFinding,
    RefusalGroup,
    ServiceEvictions,
)
from rebalancer.model.document import Dimension
from rebalancer.model.effect import Assessment, HotEpisode
from rebalancer.model.eviction import Eviction
from rebalancer.model.limits import EvictionBackoff, Pause

MOST_TILES = 500
"""Of nodes on one page: what a browser, and a person, can still cope with."""


class NodeState(StrEnum):
    """What is to be said of a node first."""

    HOT = "hot"
    """Over its pool's `high` now."""
    EXPECTED = "expected"
    """Not hot, but expected to become so within the horizon."""
    COOL = "cool"
    UNKNOWN = "unknown"
    """Its CPU isn't known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What every page says."""

    cluster: str
    now: float
    leads: bool
    leadership: str
    """Why not, or since which term."""
    dry_run: bool
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """One node, now and ahead."""

    name: str
    pool: str
    """Empty for none."""
    state: NodeState
    share: float | None
    high: float | None = None
    target: float | None = None
    peak_share: float | None = None
    peak_at: float | None = None
    hot_from: float | None = None
    """When it is expected to become hot."""
    steered: str = ""
    """Why it carries our taint."""
    cordoned: bool = False
    ready: bool = True
    problem: str = ""
    """Why its CPU isn't known, or not to be trusted."""
    capacity_millicores: float = 0.0
    pods: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLine:
    """A pool in figures."""

    name: str
    """Empty for the nodes of none."""
    nodes: int
    states: Mapping[NodeState, int]
    steered: int
    cordoned: int
    share: float | None
    """Mean of what is known."""
    high: float | None
    """None where the nodes' marks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which nodes are wanted."""

    pool: str | None = None
    state: NodeState | None = None
    text: str = ""
    """Part of the name."""
    first: int = 0
    """Leave out so many, the hottest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """The cluster's nodes, as far as they are shown."""

    asked: Asked
    at: float | None
    """When CPU was measured; None = nothing was read yet."""
    forecast_mode: str
    """Off, Observe or Act."""
    forecast_at: float | None
    """When the forecast behind the peaks was made."""
    pools: tuple[PoolLine, ...]
    """All of the cluster."""
    nodes: tuple[NodeLine, ...]
    """At most MOST_TILES of those that are asked for, the hottest first."""
    of: int
    """So many are asked for."""
    problem: str = ""
    """Why it is older than it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What comes next."""

    at: float | None
    what: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The first page."""

    map: Map
    last_cycle: CycleSummary | None
    due: tuple[Due, ...]
    more_due: int
    """Nodes that are expected to become hot and are not among them."""
    brakes: tuple[str, ...]
    """What stops evictions by itself."""
    pauses: tuple[Pause, ...]
    problem: str = ""
    """Why part of it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A node's CPU, behind and ahead: (seconds since the epoch, share) in order."""

    past: tuple[tuple[float, float | None], ...]
    source: str
    """Where the past comes from."""
    ahead: tuple[tuple[float, float | None], ...]
    now: float
    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage:
    """One node."""

    line: NodeLine
    at: float | None
    """When its CPU was measured."""
    plan: str
    """What is to be done ahead of its peak, in a sentence."""
    curve: Curve
    evictions: tuple[Eviction, ...]
    findings: tuple[RecordedFinding, ...]
    refusals: tuple[RefusalGroup, ...]
    assessments: tuple[Assessment, ...]
    """Newest first."""
    episodes: tuple[HotEpisode, ...]
    gone: bool = False
    """It is in no snapshot any more: what follows is the past."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclesPage:
    """Cycles, newest first."""

    cycles: tuple[CycleSummary, ...]
    older: float | None
    """Those that began before it come next; None = there are none."""
    newer: float | None
    acted: bool
    """Only those with evictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePage:
    """All that one cycle saw, decided and did."""

    record: CycleRecord
    stages: Mapping[str, float]
    """Stage -> seconds; empty where they are no longer known."""
    assessments: tuple[Assessment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLine:
    """One limit of one scope."""

    scope: str
    what: str
    used: int
    left: int
    in_bytes: bool
    next_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLine:
    """The change windows of one scope."""

    scope: str
    open: bool
    broken: bool
    words: str
    next_open: float | None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """What is left alone for a while."""

    scope: str
    until: float
    last_at: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsPage:
    """How many are left, and when."""

    at: float
    limits: tuple[LimitLine, ...]
    windows: tuple[WindowLine, ...]
    pauses: tuple[Pause, ...]
    brakes: tuple[str, ...]
    cooldowns: tuple[Cooldown, ...]
    gave_up: tuple[EvictionBackoff, ...]
    open_evictions: tuple[Eviction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesPage:
    """Those that were moved most first."""

    services: tuple[ServiceEvictions, ...]
    of: int
    days: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePage:
    """One service."""

    name: str
    evictions: tuple[Eviction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsPage:
    """Did it help, over some days."""

    days: int
    by: Dimension | None
    """What the rates are split by."""
    report: Report


class Views(Protocol):
    """Says what pages show; asked from several threads at once. All but `head` and `overview` raise ConnectError
    when the database can't be used."""

    def head(self) -> Head: ...

    def overview(self, asked: Asked) -> Overview:
        """From memory, whatever the database does."""
        ...

    def map(self, asked: Asked) -> Map: ...

    def node(self, name: str) -> NodePage | None:
        """None for one that was never heard of."""
        ...

    def cycles(self, *, before: float | None, after: float | None, acted: bool) -> CyclesPage: ...

    def cycle(self, cycle: str) -> CyclePage | None: ...

    def limits(self) -> LimitsPage: ...

    def services(self, *, days: int, text: str) -> ServicesPage: ...

    def service(self, name: str) -> ServicePage | None: ...

    def reports(self, *, days: int, by: Dimension | None) -> ReportsPage: ...
