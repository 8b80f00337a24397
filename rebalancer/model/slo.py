"""Nodes' CPU as the organisation's own standard of a hot node sees it, read after the fact."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.snapshot import Nodes

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSamples:
    """What was read: neither debounced nor corrected for anything that we moved."""

    nodes: tuple[str, ...]
    times: Floats
    """(times,) seconds since the epoch, ascending."""
    shares: Floats
    """(times, nodes) used cores / capacity; NaN where not known."""
    partial: tuple[str, ...] = ()
    """Not empty: what was answered is partial, as the source says."""


class SloReader(Protocol):
    """Reads the standard."""

    def read(self, nodes: Nodes, *, start: float, end: float, step: float) -> SloSamples:
        """At start, start + step, … up to and including end (seconds since the epoch).

        Raises ConnectError, or ConfigError for a query that is refused or doesn't answer shares of nodes.
        """
        ...
