"""Input and output of a strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.drains import InVain
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.past import Past
from rebalancer.model.decisions.plan import Finding, Loads
from rebalancer.model.measured.peaks import Peaks, ServiceDayProfiles
from rebalancer.model.measured.usage import Usage
from rebalancer.model.reason import Refusal
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.policy import Pool
from rebalancer.policy.schema.safety import BackoffPolicy
from rebalancer.policy.schema.strategies import Strategy
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.projection.projection import Projection
from rebalancer.strategies.interface.loads import CpuLoads


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyView:
    """Input of a strategy."""

    snapshot: ClusterSnapshot
    usage: Usage
    node_pools: NodePools
    cpu: CpuLoads
    """Effective CPU of nodes and pods."""
    base: Loads
    """Real CPU of all nodes with the thresholds of their pools: what every target node is checked against."""
    strategy: Strategy
    projection: Projection
    """Of the next minutes."""
    source: UsageSource
    recent: Sequence[Eviction]
    now: float
    only: frozenset[int] | None = None
    """Indices of the nodes to evaluate; None = all. Others can still be target nodes."""
    overrides: Mapping[tuple[int, str], ThresholdOverride] = field(default_factory=dict)
    """(node index, resource) -> thresholds of an alert, instead of the pool's own."""
    peaks: Peaks | None = None
    """Predicted peaks; None unless forecasts act."""
    due: frozenset[tuple[int, str]] = frozenset()
    """(node index, resource) to relieve now, ahead of its peak."""
    cordons: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    """Node index -> (reason, time in seconds since the epoch) of rebalancer's own cordons: `steering.CORDONS`."""
    in_vain: Mapping[int, InVain] = field(default_factory=dict)
    """Nodes that were drained and then not removed."""
    days: ServiceDayProfiles | None = None
    """Services' usual days; None where the strategy doesn't declare the need, or they aren't known."""
    past: Past | None = None
    """None for a strategy that reads no past."""
    backoff: BackoffPolicy = BackoffPolicy()  # noqa: RUF009 - frozen
    """Of evictions that were in vain."""

    @property
    def chosen_pools(self) -> list[tuple[int, Pool]]:
        """(index, pool) of the strategy's pools."""
        names = self.strategy.pools
        return [
            (index, pool) for index, pool in enumerate(self.node_pools.pools) if names is None or pool.name in names
        ]

    @property
    def in_chosen_pools(self) -> NDArray[np.bool_]:
        """(nodes,) whether a node is in one of the strategy's pools."""
        return np.isin(self.node_pools.of_node, [index for index, _ in self.chosen_pools])


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Output of a strategy, most urgent first."""

    findings: tuple[Finding, ...]
    loads: Loads | None = None
    """The loads that the strategy balances; its nodes and target nodes are checked against them. None: it balances
    nothing. Target nodes are checked against the pools' CPU targets in any case."""
    skipped: Mapping[int, Refusal] = field(default_factory=dict)
    """Node index -> why it was not evaluated, or not found although it looks hot or low."""
    cordons: Mapping[int, str] = field(default_factory=dict)
    """Nodes to cordon, and why (`steering.CORDONS`). A cordon of ours without a strategy that wants it is removed, so
    they are stated in every cycle, also for nodes outside of `only`."""
    emptied: Mapping[int, bool] = field(default_factory=dict)
    """Drained nodes behind our cordon, for an autoscaler to remove them, and whether the time for that is over."""
    maintenance_nodes: frozenset[int] = frozenset()
    """Nodes chosen for maintenance, now or later: soft taints on them don't count in `softTaint.maxNodes`."""
    empty_at_most: int | None = None
    """Findings with the goal EMPTY that are worked on at a time; None = all."""
    stays: Mapping[int, Refusal] = field(default_factory=dict)
    """Pod -> why the strategy doesn't find it now, although it is one for it; `explain` shows it."""
    rooms: Mapping[int, int] = field(default_factory=dict)
    """Pending pod -> the node on which its room is held: the soft taint stays, and no other pod is planned there."""
    progress: Mapping[str, int] = field(default_factory=dict)
    """Of node maintenance: state (`drained`, `draining`, `pending`) -> number of nodes."""
    notes: tuple[str, ...] = ()
    """Notes for people: progress, or why nothing was evaluated."""
    failed: str = ""
    """The error of a strategy that failed unexpectedly, and so found nothing."""
