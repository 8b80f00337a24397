"""What a strategy is given, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.alerts import ThresholdOverride
from rebalancer.model.eviction import Eviction
from rebalancer.model.peaks import Peaks, ServiceDayProfiles
from rebalancer.model.plan import Finding, Loads
from rebalancer.model.reason import Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import Usage
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.policy import Pool
from rebalancer.policy.schema.strategies import Strategy
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.strategies.loads import CpuLoads


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyView:
    """Everything that a strategy may look at."""

    snapshot: ClusterSnapshot
    usage: Usage
    node_pools: NodePools
    cpu: CpuLoads
    """Effective CPU of nodes and pods."""
    base: Loads
    """Real CPU of all nodes with the thresholds of their pools: what every landing is checked against."""
    strategy: Strategy
    source: UsageSource
    recent: Sequence[Eviction]
    now: float
    only: frozenset[int] | None = None
    """Indices of the nodes to look at; None = all. The others still count as landings."""
    overrides: Mapping[int, ThresholdOverride] = field(default_factory=dict)
    """Node index -> thresholds of an alert, instead of the pool's own."""
    peaks: Peaks | None = None
    """What is expected; None where nothing may be decided by it."""
    due: frozenset[int] = frozenset()
    """Indices of the nodes that are to be relieved now, ahead of their peak."""
    cordons: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    """Node index -> (why, since when in seconds since the epoch) of the cordons that are ours: `steering.CORDONS`."""
    days: ServiceDayProfiles | None = None
    """What services' usual days look like; None where nobody knows."""

    @property
    def chosen_pools(self) -> list[tuple[int, Pool]]:
        """(index, pool) of the pools that the strategy looks at."""
        names = self.strategy.pools
        return [
            (index, pool) for index, pool in enumerate(self.node_pools.pools) if names is None or pool.name in names
        ]

    @property
    def in_chosen_pools(self) -> NDArray[np.bool_]:
        """(nodes,) whether a node is in one of them."""
        return np.isin(self.node_pools.of_node, [index for index, _ in self.chosen_pools])


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one strategy found, most urgent first."""

    findings: tuple[Finding, ...]
    loads: Loads | None = None
    """What the strategy balances: its nodes and landings are judged by it. None where it balances nothing; its
    landings are held to the pools' CPU targets all the same."""
    skipped: Mapping[int, Refusal] = field(default_factory=dict)
    """Node index -> why it was not judged, or not found although it looks as if it should be."""
    cordons: Mapping[int, str] = field(default_factory=dict)
    """Nodes that are to take nothing new, and why (`steering.CORDONS`). A cordon of ours that no strategy asks for any
    more is lifted, so they are told in every cycle, also when the strategy was not asked to look (`only`)."""
    maintenance_nodes: frozenset[int] = frozenset()
    """Nodes that people chose to be emptied, now or later: steering away from them costs nothing of
    `softTaint.maxNodes`."""
    empty_at_most: int | None = None
    """So many findings with the goal EMPTY are worked on at a time; None = all."""
    progress: Mapping[str, int] = field(default_factory=dict)
    """Of a strategy that empties chosen nodes: state (`empty`, `working`, `waiting`) -> how many nodes; told in every
    cycle."""
    notes: tuple[str, ...] = ()
    """What people should know besides: progress, or why nothing was looked at."""
