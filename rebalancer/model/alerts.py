"""Alerts as Alertmanager sends them, and the episodes that they open.

Source: Alertmanager's webhook payload, version 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert of a payload, as far as we read it."""

    fingerprint: str
    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    starts_at: float
    """Seconds since the epoch."""
    ends_at: float | None = None
    """When it was resolved; None while it fires."""

    @property
    def name(self) -> str:
        """Empty when it has none."""
        return self.labels.get("alertname", "")


class EpisodeState(StrEnum):
    """What became of an alert."""

    OPEN = "open"
    RESOLVED = "resolved"
    """Alertmanager says that it is over."""
    EXPIRED = "expired"
    """It was open for too long."""
    REFUSED = "refused"
    """Nothing can be done about it: no such node, not in a pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEpisode:
    """An alert from its start until it is over: one for each (cluster, fingerprint, start)."""

    id: int
    alert: Alert
    received_at: float
    next_at: float
    """Not to be tried earlier."""
    tries: int = 0
    reason: str = ""
    """Why nothing, or not enough, came of it so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What came of one delivery."""

    opened: int = 0
    known: int = 0
    """Episodes that were there already, open or over."""
    resolved: int = 0
    too_old: int = 0
    """Not known, and began too long ago: a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdOverride:
    """Marks that an alert sets for one node, as shares of its capacity (0..1)."""

    node: str
    strategy: str
    high: float
    target: float
    source: str
    """What set them, for the record: `alert NodeCPUHigh`."""
