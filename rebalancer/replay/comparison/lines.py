"""The document of a replay: its runs side by side, by pool, by service, and what kept nodes hot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from rebalancer.model.notation.document import INLINE, Amount, Count, Instant
from rebalancer.replay.comparison.lifted import LIFTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run."""

    label: str
    until: Instant
    """End of the simulated time; before the end of the replay in a run that was interrupted."""
    hot_node_hours: Amount
    hot_share: float
    """Share of the nodes' time in which they were hot, 0..1; null without nodes."""
    evictions: Count
    services: Count
    """Services with evictions."""
    most_in_flight: Count
    """Evictions in flight at once, at most."""
    cycles: Count
    stopped_cycles: Count
    """Cycles in which nothing was decided."""
    on_frontier: bool
    """No other run has fewer evictions without more hot node-hours, or fewer hot node-hours without more evictions. Of
    equal runs the first one."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLine:
    """A pool in a run."""

    run: str
    pool: str
    """Empty for nodes in no pool."""
    nodes: Count
    high: float
    """Share of CPU over which its nodes count as hot, 0..1; null where nothing counts."""
    hot_node_hours: Amount
    hot_share: float
    """Share of its nodes' time in which they were hot, 0..1; null without nodes."""
    evictions: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLine:
    """A service with evictions in a run."""

    run: str
    service: str
    evictions: Count
    nodes: Count
    """Nodes that its pods were evicted from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedLine:
    """A reason why nodes stayed hot in a run."""

    run: str
    code: str
    """A reason code, or `stopped` for cycles that stopped without one."""
    meaning: str
    hot_node_hours: Amount
    """Time for which nodes were hot while it was their newest reason."""
    nodes: Count
    worst_at: Instant
    """Beginning of the hour in which it kept most nodes hot."""
    worst_nodes: Count
    """Nodes in that hour."""
    example: str
    """Message of a node in that hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionLine:
    """An eviction of a run."""

    run: str
    at: Instant
    namespace: str
    pod: str
    service: str
    node: str
    pool: str
    replacement_node: str
    """Empty where it is not known."""
    cpu_millicores: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GapLine:
    """Something that the recording does not say, and what is assumed instead."""

    text: str
    pods: Count
    """Pods that it touches; 0 where it is not about pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalLine:
    """The cheapest run that meets a goal."""

    text: str
    run: str
    """The run with the fewest evictions of those that meet it; empty where none does."""
    part: str
    """What the run's policy has, as YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundLine:
    """Hot node-hours that no eviction can remove, wherever the pods lay: a lower bound of every run."""

    hot_node_hours: Amount
    large_pods: Amount
    """Of these: pods use more than any node has left under `high`."""
    capacity: Amount
    """Of these: all pods together use more than all nodes have left under `high`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Whole hours."""

    since: Instant
    until: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityLine:
    """Nodes that a pool lacks, or has to spare, with its pods placed and moved at will within it."""

    pool: str
    nodes: Count
    """Nodes of its most common size, the fewest at once."""
    node_millicores: Amount
    """CPU capacity of that size."""
    missing: int | None
    """Nodes of that size, at least; null where no number of them is enough."""
    hot_node_hours: Amount
    """That no eviction removes without them."""
    short: tuple[Span, ...]
    """When the pool lacks them."""
    spare_by_usage: Count
    """Nodes of that size that are to spare for the whole time, at most: by what pods use."""
    spare_by_requests: Count
    """The same by what pods request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """What a rule of the first policy costs: the run with it alone lifted, less the run with all rules."""

    rule: str
    """The setting."""
    hot_node_hours: Amount
    """That it keeps; negative where its run has more."""
    evictions: float
    """That it saves; negative where its run has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What was replayed."""

    cluster: str
    source: str
    """Where the recording is from."""
    since: Instant
    until: Instant
    """End of the compared time."""
    interrupted: bool
    """Some runs did not reach the end of the recording."""
    nodes: Count
    pods: Count
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """A replay: recorded days of a cluster, simulated again under other policies."""

    replayed: Annotated[Replayed, INLINE]
    measured_hot_node_hours: Amount
    """As recorded, not simulated."""
    bound: BoundLine
    capacity: tuple[CapacityLine, ...]
    """Of each pool in which nodes can be hot; empty where the replay was interrupted."""
    error: float
    """Hot node-hours of the run `as recorded` / those measured - 1: the error of the simulation; null without any."""
    runs: tuple[RunLine, ...]
    """`as recorded` first, then without evictions where that differs, then the policies in their order."""
    pools: tuple[PoolLine, ...]
    services: tuple[ServiceLine, ...]
    """Most evictions first."""
    blocked: tuple[BlockedLine, ...]
    """Most hot node-hours first."""
    rules: tuple[RuleLine, ...]
    """With `--lift`; most hot node-hours first."""
    evictions: tuple[EvictionLine, ...]
    """Oldest first."""
    gaps: tuple[GapLine, ...]
    goal: GoalLine | None
    policies: Mapping[str, str]
    """Run -> its policy as YAML, or the part in which it differs from the first."""
    notes: tuple[str, ...]

    @property
    def before(self) -> RunLine:
        """The run that the others are compared with: as recorded."""
        return self.runs[0]

    @property
    def of_policies(self) -> tuple[RunLine, ...]:
        """The runs of policies."""
        return tuple(line for line in self.runs[1:] if line.label in self.policies and not line.label.endswith(LIFTED))

    def of(self, run: str) -> "RunDetails":
        """Pools, services and reasons of one run."""
        return RunDetails(
            pools=tuple(each for each in self.pools if each.run == run),
            services=tuple(each for each in self.services if each.run == run),
            blocked=tuple(each for each in self.blocked if each.run == run),
            evictions=tuple(each for each in self.evictions if each.run == run),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """Details of one run."""

    pools: tuple[PoolLine, ...]
    services: tuple[ServiceLine, ...]
    blocked: tuple[BlockedLine, ...]
    evictions: tuple[EvictionLine, ...]
