"""Evictions in the cluster, by all components."""

from dataclasses import dataclass

from rebalancer.model.notation.document import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEviction:
    """One pod that was evicted, or is to be."""

    at: Instant
    """Seconds since the epoch."""
    evictor: str
    """The component that wrote the Event, by the name that its users know."""
    namespace: str
    pod: str
    uid: str
    service: str
    """`namespace/name` of the top owner; empty where it isn't known."""
    node: str
    """Empty where the Event doesn't say."""
    reason: str
    """The Event's, such as Preempted or LowNodeUtilization."""
    message: str
