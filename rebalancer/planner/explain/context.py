"""What an explanation goes by."""

from collections.abc import Sequence
from dataclasses import dataclass

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.forecast.memory.leaks import MemoryLeak
from rebalancer.forecast.series.pod_cpu import PodCpu
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.measured.usage import Usage
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.strategies.interface.view import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainContext:
    """A cluster and the result of a dry cycle."""

    snapshot: ClusterSnapshot
    usage: Usage
    pools: Sequence[str]
    """(nodes,) names of the nodes' pools, empty for none."""
    found: Sequence[Findings]
    admission: EvictionAdmission
    """With no move counted."""
    report: CycleReport
    config: SchedulerConfig
    placement: PlacementModel
    """The scheduler's view; explanations start it over."""
    now: float
    cpu: PodCpu | None = None
    """What the pods use on other nodes; None where it isn't known."""
    leaks: Sequence[MemoryLeak] = ()
