"""Did it help: node-episodes by the organisation's own standard, and assessments of what we did to a node.

The unit is a node-episode: a node, from becoming hot to being cool again. Shares are used cores / capacity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from rebalancer.model.reason import BlockedReason, Code, MissReason, Reason


class Outcome(Code):
    """The code that an assessment ends with."""

    COOLED = "cooled", "at or under the target"
    TOO_FEW_EVICTED = "tooFewEvicted", "the evicted pods would not have been enough even if nothing else had changed"
    NEW_PODS_ARRIVED = "newPodsArrived", "other pods arrived and took the headroom"
    REMAINING_PODS_GREW = "remainingPodsGrew", "the remaining pods use more"
    REPLACEMENTS_RETURNED = "replacementsReturned", "replacements returned to the node"
    UNEXPLAINED = "unexplained", "the largest part of the change belongs to none of its pods"
    UNKNOWN = "unknown", "the node is gone, or its usage wasn't known"


class Step(StrEnum):
    """When an assessment is made after the last eviction of a cycle from the node."""

    SETTLED = "settled"
    """After the settle time."""
    HOUR = "hour"
    DAY = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """after - before = - evicted - left + landed + came_back + grew + unexplained, in millicores."""

    before_millicores: float
    after_millicores: float
    evicted: float
    """What the pods that we evicted used before."""
    left: float
    """What pods used before that left by themselves."""
    landed: float
    """What pods use that came since and are no replacement of ours."""
    came_back: float
    """What replacements of the evicted pods use that landed here again."""
    grew: float
    """Change of the pods that stayed."""
    unexplained: float
    """What is left over: the machine's own use changed, or the node's figure and the sum of its pods don't agree. A
    pod whose CPU isn't known counts nothing in its part, so it ends here too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBefore:
    """A pod of the node before the evictions."""

    uid: str
    pod: str
    """`namespace/name`"""
    cpu_millicores: float
    """NaN = not known."""
    evicted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """To be made, or made: one for each step, cycle and node that something was evicted from."""

    id: int = 0
    """Its row; 0 = not written yet."""
    cycle: str
    node: str
    pool: str
    strategy: str
    trigger: str
    step: Step
    acted_at: float
    """The last eviction."""
    due_at: float
    before_share: float
    """Measured when it was planned."""
    planned_share: float
    target: float
    high: float
    capacity_millicores: float
    pods: tuple[PodBefore, ...]
    made_at: float | None = None
    late: bool = False
    """Made so long after it was due that it says less: the daemon was down."""
    after_share: float | None = None
    account: Account | None = None
    outcome: Outcome | None = None
    detail: str = ""
    """A sentence with the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotEpisode:
    """A node that was hot by the standard."""

    id: int = 0
    node: str
    pool: str
    """Empty for none."""
    started_at: float
    ended_at: float | None
    """None: still hot."""
    peak_share: float
    threshold: float
    found_at: float | None = None
    """When a cycle of ours found it first."""
    found_by: str = ""
    """That cycle's trigger."""
    strategy: str = ""
    evictions: int = 0
    ours: float | None = None
    """The highest share that we measured meanwhile."""
    miss: MissReason | None = None
    stuck: BlockedReason | None = None
    codes: Mapping[Reason, int] | None = None
    """Refusals of its candidates by code."""
    detail: str = ""
    """A sentence with the numbers; for a stuck one, with the pods that would have helped most."""
    cooled: bool | None = None
    """Whether it was at or under target after settling; None: nothing was evicted, or not assessed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHour:
    """One hour of one pool."""

    pool: str
    hour: int
    """Hours since the epoch, UTC."""
    nodes: int
    hot_nodes: float
    """Mean number of nodes over the standard's threshold."""
    hot_node_minutes: float
    cpu_share: float
    """Mean use of the whole pool."""
    requested_share: float
    spread: float
    """Standard deviation of the nodes' shares, mean over the hour."""
    highest_share: float
    new_pods: int
    """Pods that were placed in this hour,"""
    new_pods_on_warm: int
    """and those of them on a node over its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """What one cycle of ours said about one node."""

    cycle: str
    at: float
    trigger: str
    dry_run: bool
    finding: str | None
    """The strategy that found it."""
    share: float | None
    """As measured; None = not known."""
    high: float | None
    """Share over which it would have been found by its CPU; None = the cycle did not look at it."""
    refusals: Mapping[Reason, int]
    """Of the node and its candidates."""
    examples: Sequence[str] = ()
    """`namespace/name: why`, those that would have helped most first; then what is said of the node: `why`."""
    evictions: int = 0
    """That happened, or may have; of a dry run, that were planned."""
    stopped: Reason | None = None
    """The whole cycle was stopped."""


class Moved(NamedTuple):
    """An eviction that happened, or may have; no dry runs."""

    service: str
    """Its identity, the same in every cluster."""
    node: str
    cycle: str
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`part` of `whole`."""

    part: int
    whole: int

    @property
    def share(self) -> float | None:
        """None of nothing."""
        return self.part / self.whole if self.whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRow:
    """A day's counts for one cluster, pool, strategy and trigger: what is kept when details are pruned. For episodes
    that were not found, strategy and trigger are empty."""

    cluster: str
    pool: str
    strategy: str
    trigger: str
    day: int
    """Days since the epoch, UTC, of the episode's start (for evictions and assessments: of the cycle)."""
    hot: int = 0
    """Episodes hot by the standard,"""
    found: int = 0
    """those of them that we found,"""
    acted: int = 0
    """those of the found ones with at least one eviction,"""
    cooled: int = 0
    """those of the acted ones that were at or under target after settling,"""
    assessed: int = 0
    """and those of the acted ones that could be assessed."""
    evictions: int = 0
    relief_planned: float = 0.0
    """Cores."""
    relief_measured: float = 0.0
    hot_node_minutes: float = 0.0
    prevented: int = 0
    false_alarms: int = 0
    too_late: int = 0
    reasons: Mapping[str, int] | None = None
    """`discovery/<MissReason>`, `eviction/<BlockedReason>` -> how many episodes; `effect/<Outcome>` -> how many
    assessments after the settling time, hot by the hot-node SLO or not."""


class EffectRecords(Protocol):
    """Keeps what became of it, by cluster. Everything raises ConnectError when the database can't be used.

    Spans reach from `since` up to, not including, `until`; times are kept to the microsecond.
    """

    def expect(self, assessments: Sequence[Assessment]) -> None:
        """Write down assessments that will be due, in the cycle that evicted: a restart misses none. The same one
        (cycle, node, step) again replaces it until it is made."""
        ...

    def due(self, now: float) -> Sequence[Assessment]:
        """Those due and not made, oldest first."""
        ...

    def made(self, assessments: Sequence[Assessment]) -> None:
        """Write what was found into those that were expected. Of their pods only the evicted ones are kept."""
        ...

    def assessments(self, since: float, until: float, *, node: str | None = None) -> Sequence[Assessment]:
        """Made or not, of evictions (`acted_at`) in the span, oldest first."""
        ...

    def node_observations(
        self, nodes: Sequence[str], since: float, until: float
    ) -> Mapping[str, Sequence[NodeObservation]]:
        """What our cycles that began in the span said of each node, oldest first. A cycle that said nothing of a node
        is in the list of that node too, with nothing found and nothing refused."""
        ...

    def moved(self, since: float, until: float) -> Sequence[Moved]:
        """Evictions that were planned in the span, oldest first."""
        ...

    def put_episodes(self, episodes: Sequence[HotEpisode]) -> None:
        """New, or the same (node, started_at) with more known."""
        ...

    def episodes(self, since: float, until: float, *, node: str | None = None) -> Sequence[HotEpisode]:
        """Those hot at any time of the span, also when they began before it or still last, by their start."""
        ...

    def standard_read_until(self) -> float | None:
        """Up to when the standard was evaluated."""
        ...

    def put_hours(self, hours: Sequence[PoolHour], *, read_until: float) -> None:
        """New, or the same (pool, hour) with more known; and how far the standard was evaluated."""
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
