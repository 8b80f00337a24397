"""Records of cycles as the database returns them and the dashboard shows them.

Shares are used cores / capacity, times are seconds since the epoch, None is what is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason

_REASONS = {code.value: code for code in Reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSummary:
    """One cycle in a list."""

    id: str
    trigger: str
    dry_run: bool
    started_at: float
    finished_at: float | None
    """None: still running, or its process died."""
    version: str = ""
    """Of rebalancer."""
    nodes: int | None
    hot_nodes: int | None
    findings: int | None
    refusals: int | None
    hot_node_minutes: float | None = None
    """As in `PlanScore`; None: nothing was evicted."""
    price: float | None = None
    outcomes: Mapping[str, int]
    """Outcome -> evictions."""
    stopped: str
    """Why nothing was decided; empty for a cycle that was not stopped."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFinding:
    """A node that a strategy wanted relieved."""

    at: float
    """Start of the cycle."""
    cycle: str
    node: str
    strategy: str
    share: float | None
    high: float | None
    target: float | None
    reason: str
    resource: str = CPU
    """Of the three shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalExample:
    """One refused pod or node."""

    pod: str
    """`namespace/name`; empty for the node itself."""
    message: str
    cpu_millicores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalGroup:
    """Refusals of a node and its pods with one code."""

    node: str
    code: str
    count: int
    """Pods, in this cycle."""
    examples: tuple[RefusalExample, ...]
    cycle: str
    at: float
    """Start of the cycle."""
    cycles: int = 1
    """Cycles that refused for it, this one being the newest."""

    @property
    def sentence(self) -> str:
        """The code's sentence; the code itself where another version wrote it."""
        known = _REASONS.get(self.code)
        return self.code if known is None else known.sentence

    @property
    def lifted_by(self) -> str:
        """What lifts it; empty where another version wrote the code."""
        known = _REASONS.get(self.code)
        return "" if known is None else known.lifted_by

    @property
    def of_node(self) -> bool:
        """It is the node that was not evaluated, not its pods."""
        return not any(each.pod for each in self.examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleNode:
    """A node in one cycle."""

    node: str
    pool: str
    cpu_before: float | None
    cpu_planned: float | None
    cpu_after: float | None
    high: float | None
    hot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """All records of one cycle."""

    summary: CycleSummary
    findings: tuple[RecordedFinding, ...]
    evictions: tuple[Eviction, ...]
    refusals: tuple[RefusalGroup, ...]
    """By node, the largest groups first."""
    nodes: tuple[CycleNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEvictions:
    """Evictions of one service over some time, by trigger, strategy, target node and effect."""

    service: str
    kind: str
    evictions: int
    last_at: float
    triggers: Mapping[str, int]
    strategies: Mapping[str, int]
    target_nodes: Mapping[str, int]
    """Node -> replacements, most first: where they are, or are expected."""
    effects: Mapping[str, int]
    """Assessment outcomes of the nodes that they left -> how often."""
    returned: int
    """Replacements that landed on the node that their predecessor left."""
    late: int


class ExpectedPeak(NamedTuple):
    """The newest daily forecast of a node."""

    node: str
    peak_millicores: float | None
    """Without margin, as plans count it."""
    peak_at: float
    made_at: float


class EvictionTotals(NamedTuple):
    """Evictions of a cluster over some time."""

    happened: int = 0
    """Those that happened, or may have: replaced, in flight or closed."""
    replaced: int = 0
    """With a Ready replacement, or none that was wanted."""
    in_flight: int = 0
    late: int = 0
    """Of those in flight."""
    oldest_at: float | None = None
    """When the oldest of those in flight was planned."""
    dry: int = 0
    """Pods that dry runs would have evicted, each once."""

    @property
    def closed(self) -> int:
        """No longer in flight, although no replacement was seen Ready."""
        return self.happened - self.replaced - self.in_flight


class PoolMeasurement(NamedTuple):
    """CPU of a pool's nodes that one cycle evaluated."""

    cycle: str
    at: float
    """Start of the cycle."""
    pool: str
    nodes: int
    """Those that were evaluated."""
    hottest: float | None
    """The highest share; None where none is known."""


class PoolEviction(NamedTuple):
    """An eviction from a node of a pool."""

    at: float
    pool: str
    node: str
    """That the pod left."""
    pod: str
    """`namespace/name`."""
