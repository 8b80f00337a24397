"""Results of a replay: runs of one recording that differ by their policy only.

A node is hot in the minutes in which its CPU, as a mean over the rate window, is over `high` of its pool. `high` is
that of the first policy in every run, so that runs can be compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.recordings.recording import Gap

Grid32 = NDArray[np.float32]

HOUR_MINUTES = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A hot node that a cycle didn't cool."""

    node: str
    code: str
    """`Reason` that kept most of its load there, or that stopped the cycle."""
    message: str
    pod: str = ""
    """Namespace and name of the largest pod with this reason; empty = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCycle:
    """One cycle of a run."""

    at: float
    trigger: str
    hot: int
    """Nodes that it found hot."""
    evicted: int
    stopped: str = ""
    """Why nothing was decided; empty where it was."""
    blocked: tuple[Blocked, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReplayRun:
    """One run over the recording."""

    label: str
    """`as recorded`, `without rebalancer`, or what distinguishes its policy from those of the other runs."""
    until: float
    """It ran so far; before the end of the recording where it was interrupted."""
    share: Grid32
    """(nodes, steps) CPU as a share of the capacity, NaN where the node wasn't there."""
    hot_minutes: Grid32
    """(nodes, steps) minutes, 0..5."""
    evictions: tuple[Eviction, ...] = ()
    """Those that happened, oldest first."""
    cycles: tuple[ReplayedCycle, ...] = ()
    most_in_flight: int = 0
    """Evictions in flight at once."""
    waiting_pod_minutes: float = 0.0
    """Time in which pods found no node, of all pods together."""
    notes: tuple[str, ...] = ()
    unsure: frozenset[str] = frozenset()
    """UIDs of recorded pods that kube-scheduler's model would have placed elsewhere although everything else was as
    recorded; of the run as recorded only."""

    @property
    def hot_node_minutes(self) -> float:
        """Of all nodes together."""
        return float(np.nansum(self.hot_minutes))

    def hot_share(self) -> float:
        """Share of the nodes' time in which they were hot, 0..1; NaN without any."""
        there = int(np.count_nonzero(np.isfinite(self.share)))
        return self.hot_node_minutes / (there * STEP_SECONDS / 60.0) if there else float("nan")


class HotBound(NamedTuple):
    """(steps,) hot node-minutes that no eviction can remove, of each step those of the cause that needs more nodes."""

    large_pods: Floats
    """Pods use more than any node has left under `high`."""
    capacity: Floats
    """All pods together use more than all nodes have left."""

    @property
    def hours(self) -> float:
        """Node-hours of both."""
        return float(self.large_pods.sum() + self.capacity.sum()) / HOUR_MINUTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapacity:
    """The nodes that a pool lacks, or has to spare, with its pods placed and moved at will within it."""

    pool: str
    nodes: int
    """Nodes of its most common size, the fewest at once."""
    node_millicores: float
    """CPU capacity of that size."""
    missing: int | None
    """The fewest nodes of that size to be added so that the pool never lacks capacity; None where no number of them is
    enough, because each is hot by itself."""
    hot_node_minutes: float
    """Without them, as all its pods together use more than its nodes have left."""
    short: tuple[tuple[float, float], ...]
    """Begin and end of the whole hours in which it lacks capacity."""
    spare_by_usage: int
    """Nodes of that size that could be removed for the whole time: the others take all pods under `high`."""
    spare_by_requests: int
    """The same by what pods request: the others' allocatable CPU, memory and pods are enough."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """All runs over one recording."""

    cluster: str
    source: str
    start: float
    end: float
    nodes: tuple[str, ...]
    pools: tuple[str, ...]
    """(nodes,) pool of each by the first policy, empty for none."""
    high: Mapping[str, float]
    """Pool -> share of CPU over which its nodes count as hot."""
    pods: int
    """Pods of the recording."""
    measured_share: Grid32
    """(nodes, steps) as recorded, not simulated."""
    measured_hot_minutes: Grid32
    """(nodes, steps)"""
    as_recorded: ReplayRun
    """With the evictions that rebalancer made then, and no others. Its difference from what was measured is the
    replay's own error."""
    without: ReplayRun
    """Without any eviction. The same run as `as_recorded` where rebalancer made none."""
    runs: tuple[ReplayRun, ...]
    """Of each policy, in their order."""
    bound: HotBound
    capacity: tuple[PoolCapacity, ...] = ()
    """Of each pool in which nodes can be hot, over the whole recording."""
    gaps: tuple[Gap, ...] = ()
    seed: int = 0
    parts: Mapping[str, str] = field(default_factory=dict)
    """Label of a run -> its policy as YAML, or the part in which it differs from the first."""

    @property
    def measured_hot_node_minutes(self) -> float:
        """As recorded, of all nodes together."""
        return float(np.nansum(self.measured_hot_minutes))

    @property
    def error(self) -> float:
        """Hot node-minutes of the run as recorded / those measured - 1; NaN where none was measured."""
        measured = self.measured_hot_node_minutes
        return self.as_recorded.hot_node_minutes / measured - 1.0 if measured else float("nan")
