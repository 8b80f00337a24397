"""CPU shares of nodes by the hot-node SLO's query, read afterwards."""

from dataclasses import dataclass
from typing import Protocol

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.notation.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSamples:
    """Samples without stabilization and without corrections for moves."""

    nodes: tuple[str, ...]
    times: Floats
    """(times,) seconds since the epoch, ascending."""
    shares: Floats
    """(times, nodes) used cores / capacity; NaN where not known."""
    partial: tuple[str, ...] = ()
    """Not empty: the response was partial, by the source's warnings."""


class SloReader(Protocol):
    """Reads the samples of the hot-node SLO."""

    def read(self, nodes: Nodes, *, start: float, end: float, step: float) -> SloSamples:
        """At start, start + step, … up to and including end (seconds since the epoch).

        Raises ConnectError, or ConfigError for a query that is refused or doesn't answer shares of nodes.
        """
        ...
