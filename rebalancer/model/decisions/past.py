"""What strategies read of the past: what pods requested on nodes, and evictions of the last day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalancer.model.decisions.eviction import Eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSample:
    """What pods requested on the nodes that took pods at an instant."""

    at: float
    """Seconds since the epoch."""
    nodes: Mapping[str, Mapping[str, float]]
    """Node -> resource -> amount, in millicores, bytes and pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """See the module."""

    requested: Sequence[RequestedSample] = ()
    """Oldest first."""
    moves: Sequence[Eviction] = ()
    """Evictions that happened, or may have, oldest first."""
