"""Notifications: messages to people and Alertmanager about evictions, circuit breakers and their effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Event(StrEnum):
    """What a notification is about. Receivers choose by it."""

    EVICTIONS = "Evictions"
    PROPOSAL = "Proposal"
    CIRCUIT_BREAKER = "CircuitBreaker"
    NOT_EFFECTIVE = "NotEffective"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One message, before it is rendered for a receiver."""

    event: Event
    cluster: str
    title: str
    """One line."""
    text: str
    """Further lines; may be empty."""
    at: float
    """Seconds since the epoch."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Identify an alert of Alertmanager: scope, pool, node, trigger."""
    ends_at: float
    """When an alert of Alertmanager ends by itself; not after `at` for one that has ended."""
    repeated: bool = False
    """Sent before. It keeps an alert of Alertmanager firing."""

    @property
    def resolved(self) -> bool:
        """Whether it says that something has ended."""
        return self.ends_at <= self.at
