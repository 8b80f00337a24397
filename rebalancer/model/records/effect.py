"""Effectiveness: hot episodes by the hot-node SLO, assessments of nodes after evictions, and daily counts.

The unit is a node-episode: a node, from becoming hot to being cool again. Shares are used cores / capacity, times are
seconds since the epoch.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Protocol

from rebalancer.model.notation.document import Amount, Count, Share, Shown
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import BlockedReason, Code, MissReason, Reason

if TYPE_CHECKING:
    # its snapshot needs numpy, which commands load late
    from rebalancer.model.decisions.drains import DrainedNode
    from rebalancer.model.decisions.eviction import Eviction
    from rebalancer.model.decisions.plan import PlanScore


class Outcome(Code):
    """The code that an assessment ends with."""

    COOLED = "cooled", "at or under the target"
    TOO_FEW_EVICTED = "tooFewEvicted", "the evicted pods would not have been enough even if nothing else had changed"
    NEW_PODS_ARRIVED = "newPodsArrived", "other pods arrived and took the headroom"
    REMAINING_PODS_GREW = "remainingPodsGrew", "the remaining pods use more"
    POOL_GREW = "poolGrew", "the pool's nodes without evictions use more as well"
    REPLACEMENTS_NOT_READY = (
        "replacementsNotReady",
        "the remaining pods carry the load of replacements that were not Ready yet",
    )
    REPLACEMENTS_RETURNED = "replacementsReturned", "replacements returned to the node"
    UNEXPLAINED = "unexplained", "the largest part of the change belongs to none of its pods"
    UNKNOWN = "unknown", "the node is gone, or its usage wasn't known"


def effect_reason(outcome: Outcome, resource: str) -> str:
    """The key in `Counts.reasons` of assessments by a resource."""
    return f"effect/{outcome}" if resource == CPU else f"effect/{outcome}/{resource}"


def resource_of_reason(key: str) -> str:
    """The resource of a key in `Counts.reasons`; the hot-node SLO is one of CPU."""
    _, _, resource = key.partition("/")[2].partition("/")
    return resource or CPU


class Step(StrEnum):
    """When an assessment is due after the last eviction of a cycle from the node."""

    SETTLED = "settled"
    """After the settling time."""
    HOUR = "hour"
    DAY = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBreakdown:
    """after - before = - evicted - departed + arrived + returned + remaining_change + pool_growth + surplus +
    residual.

    In the unit of the resource: millicores of CPU, bytes of memory. A pod whose amount is not known counts nothing in
    its part, so it is in the residual.
    """

    before: Annotated[float, Shown(name="before_millicores")]
    after: Annotated[float, Shown(name="after_millicores")]
    evicted: float
    """Amount before of the evicted pods."""
    departed: float
    """Amount before of the pods that left without an eviction of ours."""
    arrived: float
    """Amount after of the pods that arrived since and replace no evicted pod."""
    returned: float
    """Amount after of replacements of evicted pods that landed on the same node."""
    remaining_change: float
    """Change of the pods that stayed, the next two apart."""
    pool_growth: float = 0.0
    """The change of what stayed on the node if it changed as the pool's nodes without evictions did."""
    surplus: float = 0.0
    """Of CPU, the part of their change that passes: used for replacements of their services that are not Ready."""
    growth_unknown: bool = False
    """Whether the pool's growth could not be measured: it counts as 0, and is in the next parts."""
    residual: float
    """Not explained by pods: the machine's own use changed, or the node's figure and the sum of its pods disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBefore:
    """A pod of the node before the evictions."""

    uid: str
    pod: str
    """`namespace/name`"""
    amount: float
    """Of the assessment's resource, what its node is relieved of when it leaves; NaN = not known."""
    evicted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A scheduled or completed assessment: one for each step, cycle and node with evictions."""

    id: int = 0
    """Database row; 0 = not written yet."""
    cycle: str
    node: str
    pool: str
    strategy: str
    trigger: str
    step: Step
    last_eviction_at: float
    due_at: float
    before_share: float
    """Measured at planning."""
    planned_share: float
    target: float
    high: float
    capacity: float
    """The whole of a share, in the unit of the resource."""
    resource: str = CPU
    """The resource that the node was to be relieved of: all shares and amounts are of it."""
    pods: tuple[PodBefore, ...]
    assessed_at: float | None = None
    late: bool = False
    """Assessed so long after `due_at` that it isn't counted: the daemon was down."""
    after_share: float | None = None
    breakdown: ChangeBreakdown | None = None
    outcome: Outcome | None = None
    detail: str = ""
    """A sentence with the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotEpisode:
    """A node that was hot by the hot-node SLO."""

    id: int = 0
    node: str
    pool: str
    """Empty for none."""
    started_at: float
    ended_at: float | None
    """None: still hot."""
    peak_share: float
    threshold: float
    discovered_at: float | None = None
    """The first cycle that found the node."""
    discovery_trigger: str = ""
    """That cycle's trigger."""
    strategy: str = ""
    evictions: int = 0
    measured_peak_share: float | None = None
    """The highest share that cycles measured during the episode."""
    miss_reason: MissReason | None = None
    blocked_reason: BlockedReason | None = None
    codes: Mapping[Reason, int] | None = None
    """Refusals of its candidates by code."""
    detail: str = ""
    """A sentence with the numbers; of a blocked episode, with the pods that would have helped most."""
    cooled: bool | None = None
    """Whether it was at or under target after settling; None: no eviction, or not assessed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHour:
    """One hour of one pool."""

    pool: str
    hour: int
    """Hours since the epoch, UTC."""
    nodes: int
    hot_nodes: float
    """Mean number of nodes over the SLO's threshold."""
    hot_node_minutes: float
    cpu_share: float
    """Mean use of the whole pool."""
    requested_share: float
    share_stddev: float
    """Standard deviation of the nodes' shares, mean over the hour."""
    highest_share: float
    new_pods: int
    """Pods scheduled in this hour,"""
    new_pods_over_target: int
    """and those of them on a node over its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """What one cycle measured and decided about one node."""

    cycle: str
    at: float
    trigger: str
    dry_run: bool
    finding: str | None
    """The strategy that found it."""
    share: float | None
    """As measured; None = not known."""
    high: float | None
    """Share over which it would have been found by its CPU; None = the cycle did not evaluate it."""
    refusals: Mapping[Reason, int]
    """Of the node and its candidates."""
    examples: Sequence[str] = ()
    """`namespace/name: reason`, the pods that would have helped most first; then those of the node itself: `reason`."""
    evictions: int = 0
    """That happened, or may have; of a dry run, that were planned."""
    stopped: Reason | None = None
    """Why the whole cycle was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`part` of `whole`."""

    part: Count
    whole: Count
    share: Share | None = field(init=False)
    """None: the whole is 0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", self.part / self.whole if self.whole else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of hot episodes and of what was done about them; they add up over days and groups."""

    hot: Count = 0
    """Hot episodes by the hot-node SLO."""
    discovered: Count = 0
    """Those that were discovered."""
    evicted_from: Count = 0
    """Discovered episodes with at least one eviction."""
    cooled: Count = 0
    """Assessed episodes at or under target after the settling time."""
    assessed: Count = 0
    """Episodes with evictions that could be assessed."""
    evictions: Count = 0
    """Evicted pods."""
    relief_planned: Annotated[float, Shown(name="relief_planned_cores")] = 0.0
    """Planned reduction of the nodes' CPU, in cores; of nodes that were relieved of CPU."""
    relief_measured: Annotated[float, Shown(name="relief_measured_cores")] = 0.0
    """Measured reduction on the same nodes, in cores."""
    hot_node_minutes: Amount = 0.0
    prevented: Count = 0
    """Proactive evictions on nodes that would have become hot and did not."""
    false_alarms: Count = 0
    """Proactive evictions on nodes that would not have become hot."""
    too_late: Count = 0
    """Proactive evictions on nodes that became hot nevertheless."""
    nodes_emptied: Count = 0
    """Nodes that HighNodeUtilization has drained."""
    nodes_removed: Count = 0
    """Those that were removed while they were cordoned for it."""
    nodes_in_vain: Count = 0
    """Those that were not removed in time and were uncordoned."""
    core_hours_saved: Amount = 0.0
    """CPU capacity of removed nodes, until their pool has as many nodes again."""
    reasons: Annotated[
        Mapping[str, Count] | None, Shown(schema={"propertyNames": {"pattern": "^(discovery|eviction|effect)/"}})
    ] = None
    """`discovery/<MissReason>`, `eviction/<BlockedReason>`: episodes; `effect/<Outcome>`: assessments after the
    settling time, whether or not the node was hot by the SLO; `effect/<Outcome>/<resource>` those of resources besides
    CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRow(Counts):
    """Counts of one day, cluster, pool, strategy and trigger, kept when details are pruned. Strategy and trigger are
    empty for episodes that were not discovered."""

    cluster: str
    pool: str
    strategy: str
    trigger: str
    day: int
    """Days since the epoch, UTC, of the episode's start (for evictions and assessments: of the cycle)."""


class EffectRecords(Protocol):
    """Assessments, episodes and daily counts of one cluster. All methods raise ConnectError.

    Spans reach from `since` up to, not including, `until`; times are kept to the microsecond.
    """

    def expect(self, assessments: Sequence[Assessment]) -> None:
        """Schedule assessments, in the cycle that evicted, so that a restart misses none. A second one of the same
        cycle, node and step replaces the first until that is made."""
        ...

    def due(self, now: float) -> Sequence[Assessment]:
        """Those due and not made, oldest first."""
        ...

    def made(self, assessments: Sequence[Assessment]) -> None:
        """Store the results of scheduled assessments. Of their pods only the evicted ones are kept."""
        ...

    def assessments(
        self, since: float, until: float, *, node: str | None = None, step: Step | None = None
    ) -> Sequence[Assessment]:
        """Made or not, of evictions (`last_eviction_at`) in the span, oldest first; None = of all."""
        ...

    def node_observations(
        self, nodes: Sequence[str], since: float, until: float
    ) -> Mapping[str, Sequence[NodeObservation]]:
        """Node -> an observation by each cycle that began in the span, oldest first. A cycle without any record of the
        node is in the list too, with no finding and no refusals."""
        ...

    def nodes_before(self, at: float) -> Mapping[str, str]:
        """Node -> pool, of the nodes that the last cycle begun before `at` evaluated."""
        ...

    def drains(self, since: float) -> "Sequence[DrainedNode]":
        """Nodes emptied at or after `since`, oldest first."""
        ...

    def eviction_counts(self, since: float, until: float) -> Mapping[tuple[str, str], int]:
        """(identity of a service, node that was left) -> evictions that were planned in the span."""
        ...

    def worth_of_plans(self, since: float, until: float) -> "PlanScore | None":
        """The sum of the scores of the cycles that began in the span and evicted, dry runs apart; None where no cycle
        has one."""
        ...

    def moved(self, since: float, until: float, *, services: Collection[str] | None = None) -> "Sequence[Eviction]":
        """Evictions that were planned in the span, oldest first; of the services with these identities, None = all."""
        ...

    def put_episodes(self, episodes: Sequence[HotEpisode]) -> None:
        """New, or the same (node, started_at) updated."""
        ...

    def episodes(self, since: float, until: float, *, node: str | None = None) -> Sequence[HotEpisode]:
        """Those hot at any time of the span, also when they began before it or still last, by their start."""
        ...

    def slo_evaluated_until(self) -> float | None:
        """Up to when the hot-node SLO was evaluated."""
        ...

    def put_hours(self, hours: Sequence[PoolHour], *, read_until: float) -> None:
        """New, or the same (pool, hour) updated; and how far the hot-node SLO was evaluated."""
        ...

    def hours(self, since: float, until: float) -> Sequence[PoolHour]:
        """Those that the span touches, oldest first."""
        ...

    def roll_up(self, rows: Sequence[DayRow]) -> None:
        """Replace the rows of the same pool, strategy, trigger and day. Of this cluster only."""
        ...

    def days(self, since_day: int, until_day: int, *, clusters: Sequence[str] | None = None) -> Sequence[DayRow]:
        """Of this cluster, or of others that share the database; oldest first."""
        ...
