"""What a forecast is of: CPU, memory, or another resource with thresholds.

The learner is the same for all of them, and so are the sums over the pods of a node. They differ in the statistic of a
day: for CPU and most others the P95, which short peaks don't change. A node that is out of memory for a minute kills
pods, so for memory it is the highest, with more coverage.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.forecast.series.percentiles import P95
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import MIB, block_units
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.policy.schema.forecast import Forecast

HIGHEST = 1.0
MEMORY_COVERAGE = 95.0
"""Least coverage of forecasts of memory, in percent."""
USUAL_LOSS_AT = 0.9


def statistic_of(resource: str) -> float:
    """Quantile of a day's samples that is forecast, 0..1."""
    return HIGHEST if resource == MEMORY else P95


@dataclass(frozen=True, kw_only=True)
class ForecastResource:
    """A resource that is forecast. Amounts are in the units of day blocks."""

    name: str = CPU
    capacities: Mapping[str, float] | None = None
    """Node -> the whole of it, of a resource besides CPU and memory; None: amounts are shares."""
    of_allocatable: bool = False
    """Whether the whole of memory is a node's allocatable, as metrics-server measures it; otherwise its capacity."""

    @property
    def statistic(self) -> float:
        """Quantile of a day's samples that is forecast, 0..1."""
        return statistic_of(self.name)

    @property
    def overlaps(self) -> bool:
        """Whether the amounts of pods may add up to more than their node uses: working sets contain caches that the
        node counts as available."""
        return self.name == MEMORY

    @property
    def keeps_margin(self) -> bool:
        """Whether plans go by the peak with its margin. Others go by the median: by replay, plans that kept the margin
        of CPU left as many hot node-hours as plans without forecasts, with two to nine times the evictions. A node that
        is out of memory for a minute kills pods. Source: docs/forecast.md."""
        return self.name == MEMORY

    @property
    def loss_at(self) -> float:
        """Quantile of the pinball loss that backtests compare, 0..1."""
        return MEMORY_COVERAGE / 100.0 if self.name == MEMORY else USUAL_LOSS_AT

    def section(self, policy: Forecast) -> Forecast:
        """The policy of its forecasts. Declared events and the speed of machines are of CPU."""
        if self.name == CPU:
            return policy
        coverage = max(policy.coverage, MEMORY_COVERAGE) if self.name == MEMORY else policy.coverage
        return policy.model_copy(update={"coverage": coverage, "events": (), "generation": None})

    def capacity(self, snapshot: ClusterSnapshot) -> Floats:
        """(nodes,) the whole of each node."""
        nodes = snapshot.nodes
        if self.name == CPU:
            return nodes.cpu_capacity_millicores
        if self.name == MEMORY:
            return (nodes.memory_allocatable_bytes if self.of_allocatable else nodes.memory_capacity_bytes) / MIB
        unit = block_units(self.name)
        if self.capacities is None:
            return np.full(len(nodes), unit)
        # a node that is new to the source is like most of them
        usual = float(np.median(list(self.capacities.values()))) if self.capacities else 1.0
        return np.array([self.capacities.get(name, usual) for name in nodes.names]) * unit

    def requested(self, snapshot: ClusterSnapshot) -> Floats:
        """(pods,) requests; 0 of a resource besides CPU and memory."""
        if self.name == CPU:
            return snapshot.pods.cpu_request_millicores
        if self.name == MEMORY:
            return snapshot.pods.memory_request_bytes / MIB
        return np.zeros(len(snapshot.pods))


OF_CPU = ForecastResource()
