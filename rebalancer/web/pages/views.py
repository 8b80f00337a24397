"""View models of the dashboard's pages, and the protocol that provides them.

Shares are used cores / capacity, times are seconds since the epoch, None is not known.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from rebalancer.effect.report import Report
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import EvictionBackoff, LimitLine, Pause
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.document import Dimension
from rebalancer.model.records.cycles import CycleRecord, CycleSummary, RecordedFinding, RefusalGroup, ServiceEvictions
from rebalancer.model.records.effect import Assessment, HotEpisode
from rebalancer.web.pages.overview import Due, Evaluated, PoolHeat, WhyNot
from rebalancer.web.pages.verdict import Verdict

MOST_TILES = 500
"""Nodes on one page."""


class NodeState(StrEnum):
    """State of a node, most severe first."""

    HOT = "hot"
    """Above its pool's `high` now."""
    EXPECTED = "expected"
    """Not hot, but forecast to become hot within the horizon."""
    COOL = "cool"
    UNKNOWN = "unknown"
    """Its CPU is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Header and footer of every page."""

    cluster: str
    now: float
    leads: bool
    leadership: str
    """The term it leads since, or why it does not lead."""
    dry_run: bool
    version: str
    parts_in: Mapping[str, str] = field(default_factory=dict)
    """Mode besides Act -> the pools and strategies in it, as a phrase; empty for none, and where all are in dry run."""
    grafana: str = ""
    """URL of the Grafana dashboard; empty for no link."""
    docs: str = ""
    """Base URL of the repository's files, without a slash at its end; empty for no links."""
    has_replay: bool = False
    """There is a page of a replay."""
    failed_parts: tuple[str, ...] = ()
    """Parts of the daemon that are skipped or restarted: a sentence each."""
    overdue: str = ""
    """Why this leader's cycles are late; empty where they are not, and on a follower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """One node, now and forecast."""

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
    """When it is forecast to become hot."""
    soft_tainted: str = ""
    """Reason of its soft taint; empty for none."""
    cordoned: bool = False
    ready: bool = True
    problem: str = ""
    """Why its CPU is not known, or unreliable."""
    capacity_millicores: float = 0.0
    pods: int = 0
    resources: "tuple[ResourceNow, ...]" = ()
    """Besides CPU; the same names in the same order on all nodes."""

    @property
    def hot_by(self) -> list[str]:
        """The resources besides CPU that it is hot by."""
        return [each.resource for each in self.resources if each.hot]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNow:
    """A resource besides CPU on a node."""

    resource: str
    share: float | None
    high: float | None
    """None where the node's pool has no thresholds of it."""

    @property
    def hot(self) -> bool:
        """Over `high`."""
        return self.share is not None and self.high is not None and self.share > self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLine:
    """Counts and mean CPU of a pool."""

    name: str
    """Empty for the nodes of none."""
    nodes: int
    states: Mapping[NodeState, int]
    soft_tainted: int
    cordoned: int
    share: float | None
    """Mean of the known shares."""
    high: float | None
    """None where the nodes' thresholds differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelection:
    """Filter of the node list."""

    pool: str | None = None
    state: NodeState | None = None
    text: str = ""
    """Part of the name."""
    first: int = 0
    """Number of nodes to skip, the hottest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """The selected nodes of the cluster."""

    selection: NodeSelection
    at: float | None
    """When CPU was measured; None = not yet."""
    forecast_mode: str
    """Off, Observe or Act."""
    forecast_at: float | None
    """When the forecast behind the peaks was made."""
    pools: tuple[PoolLine, ...]
    """All of the cluster."""
    nodes: tuple[NodeLine, ...]
    """At most MOST_TILES of the selected nodes, hottest first."""
    of: int
    """Number of selected nodes."""
    obstacles: tuple[Obstacle, ...] = ()
    """Objects of the cluster that can't be read, and nodes that two pools match."""
    problem: str = ""
    """Why it is out of date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The first page."""

    verdict: Verdict
    map: Map
    last_cycle: CycleSummary | None
    due: tuple[Due, ...]
    more_due: int
    """Further nodes that are forecast to become hot."""
    open_breakers: tuple[str, ...]
    pauses: tuple[Pause, ...]
    leaks: tuple[Due, ...] = ()
    """Expected OOM kills of pods that leak memory, the first ones."""
    more_leaks: int = 0
    evaluated: Evaluated | None = None
    """By the last cycle; None where that is not known."""
    why_not: tuple[WhyNot, ...] = ()
    """The most frequent reasons why pods stay on nodes that are hot now."""
    heat: tuple[PoolHeat, ...] = ()
    """Of the pools that are closest to their high, the first."""
    hot_hours: str = ""
    """Hot node-hours of the last day and its evictions, a sentence; empty where that is not known."""
    problem: str = ""
    """Why part of it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A node's CPU, measured and forecast: (seconds since the epoch, share) in order."""

    past: tuple[tuple[float, float | None], ...]
    source: str
    """Source of the measured part."""
    ahead: tuple[tuple[float, float | None], ...]
    now: float
    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNow:
    """A pod that is bound to a node, now."""

    namespace: str
    name: str
    node: str
    service: str
    """Empty for a pod without owner."""
    cpu_millicores: float | None = None
    cpu_share: float | None = None
    """Of its node's capacity."""
    cpu_request_millicores: float = 0.0
    created: float = 0.0
    code: str = ""
    """Why it stays; empty where it may be evicted."""
    message: str = ""
    refused_at: float | None = None
    """Start of the cycle that refused it; None for a guard, list, level or change window as of now."""

    @property
    def full_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage:
    """One node."""

    line: NodeLine
    at: float | None
    """When its CPU was measured."""
    plan: str
    """The planned proactive relief, in a sentence; empty for none."""
    curve: Curve
    evictions: tuple[Eviction, ...]
    findings: tuple[RecordedFinding, ...]
    refusals: tuple[RefusalGroup, ...]
    assessments: tuple[Assessment, ...]
    """Newest first."""
    episodes: tuple[HotEpisode, ...]
    gone: bool = False
    """No longer in the cluster: only its records are shown."""
    pods: tuple[PodNow, ...] = ()
    """Most CPU first."""
    soon: tuple[str, ...] = ()
    """What differs in the next minutes, in sentences."""

    @property
    def stays(self) -> Mapping[str, int]:
        """Reason code -> pods that stay for it, most first."""
        return dict(Counter(each.code for each in self.pods if each.code).most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclesPage:
    """Cycles, newest first."""

    cycles: tuple[CycleSummary, ...]
    older: float | None
    """Start of the last one, where older ones exist."""
    newer: float | None
    acted: bool
    """Only those with evictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePage:
    """One cycle with its records."""

    record: CycleRecord
    stages: Mapping[str, float]
    """Stage -> seconds; empty where they are no longer known."""
    assessments: tuple[Assessment, ...]


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
    """A scope in its cooldown."""

    scope: str
    until: float
    last_at: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsPage:
    """Limits, change windows and everything else that stops evictions."""

    at: float
    limits: tuple[LimitLine, ...]
    windows: tuple[WindowLine, ...]
    pauses: tuple[Pause, ...]
    open_breakers: tuple[str, ...]
    cooldowns: tuple[Cooldown, ...]
    backoffs: tuple[EvictionBackoff, ...]
    open_evictions: tuple[Eviction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesPage:
    """Services with evictions, most first."""

    services: tuple[ServiceEvictions, ...]
    of: int
    days: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePage:
    """One service."""

    name: str
    evictions: tuple[Eviction, ...]
    pods: tuple[PodNow, ...] = ()
    """By node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNow:
    """A service of the cluster."""

    name: str
    """`namespace/name`."""
    kind: str
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """Nodes, pods and services whose name contains the text; the first ones of each, exact names first."""

    text: str
    nodes: tuple[NodeLine, ...] = ()
    more_nodes: int = 0
    pods: tuple[PodNow, ...] = ()
    more_pods: int = 0
    services: tuple[ServiceNow, ...] = ()
    more_services: int = 0
    evictions: tuple[Eviction, ...] = ()
    """Of pods of such a name, newest first."""
    problem: str = ""
    """Why part of it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePage:
    """Evictions of all nodes over some time."""

    since: float
    until: float
    evictions: tuple[Eviction, ...]
    """Newest first."""
    more: bool
    """There are older ones in this time."""
    reliefs: tuple[Assessment, ...]
    """Of the nodes that these evictions left, after settling, made or not; newest first."""
    counts: Mapping[tuple[str, str], int]
    """(cycle, node) -> evictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField:
    """One effective value of the policy."""

    path: str
    value: str
    line: int | None
    """Of the policy file; None for a default."""

    @property
    def section(self) -> str:
        """The first part of the path; `document` for a field that is in no section."""
        first = re.split(r"[.\[]", self.path, maxsplit=1)
        return first[0] if len(first) > 1 else "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsPage:
    """The report over some days."""

    days: int
    by: Dimension | None
    """Dimension of the rates."""
    report: Report


class Views(Protocol):
    """Provides the view models; thread-safe. All but `head` and `overview` raise ConnectError when the database is
    unavailable."""

    def head(self) -> Head: ...

    def overview(self, selection: NodeSelection) -> Overview:
        """From memory; its `problem` says when the database is unavailable."""
        ...

    def map(self, selection: NodeSelection) -> Map: ...

    def node(self, name: str, *, behind: float = DAY_SECONDS) -> NodePage | None:
        """None for an unknown node. Its curve goes back `behind` seconds."""
        ...

    def cycles(self, *, before: float | None, after: float | None, acted: bool, behind: float = math.inf) -> CyclesPage:
        """Cycles of the last `behind` seconds."""
        ...

    def cycle(self, cycle: str) -> CyclePage | None: ...

    def limits(self) -> LimitsPage: ...

    def services(self, *, days: int, text: str) -> ServicesPage: ...

    def service(self, name: str) -> ServicePage | None: ...

    def reports(self, *, days: int, by: Dimension | None) -> ReportsPage: ...

    def search(self, text: str) -> SearchPage:
        """From memory, and evictions from the database; its `problem` says when that is unavailable."""
        ...

    def timeline(self, seconds: float) -> TimelinePage:
        """Of the last `seconds`."""
        ...

    def replay(self) -> bytes | None:
        """The page of the newest replay, HTML; None where there is none."""
        ...

    def policy(self) -> Sequence[PolicyField]:
        """In the order of the schema."""
        ...
