"""What a strategy is given, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.alerts import NodeMarks
from rebalancer.model.peaks import Peaks
from rebalancer.model.plan import Finding, Loads
from rebalancer.model.reason import Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import RecentMove, Usage
from rebalancer.policy.schema import Pool, Strategy, UsageSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyView:
    """Everything that a strategy may look at."""

    snapshot: ClusterSnapshot
    usage: Usage
    pools: Sequence[Pool]
    pool_of: NDArray[np.int32]
    """(nodes,) index into `pools`, -1 for none."""
    strategy: Strategy
    source: UsageSource
    recent: Sequence[RecentMove]
    now: float
    only: frozenset[int] | None = None
    """Indices of the nodes to look at; None = all. The others still count as landings."""
    marks: Mapping[int, NodeMarks] = field(default_factory=dict)
    """Node index -> what an alert calls hot there, instead of the pool's own marks."""
    peaks: Peaks | None = None
    """What is expected; None where nothing may be decided by it."""
    due: frozenset[int] = frozenset()
    """Indices of the nodes that are to be relieved now, ahead of their peak."""

    @property
    def chosen_pools(self) -> list[tuple[int, Pool]]:
        """(index, pool) of the pools that the strategy looks at."""
        names = self.strategy.pools
        return [(index, pool) for index, pool in enumerate(self.pools) if names is None or pool.name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Hottest first, with the loads that they were judged by."""

    loads: Loads
    findings: tuple[Finding, ...]
    skipped: Mapping[int, Refusal]
    """Node index -> why it was not judged, or not found although it looks hot."""
