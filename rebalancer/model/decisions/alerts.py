"""Alerts from Alertmanager, and the episodes they open.

Source: Alertmanager's webhook payload, version 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rebalancer.model.notation.resource_names import CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """The fields used of one alert in a payload."""

    fingerprint: str
    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    starts_at: float
    """Seconds since the epoch."""
    ends_at: float | None = None
    """Time of resolution, or at which the sender expects it; None = not known."""

    @property
    def name(self) -> str:
        """The label `alertname`; empty without it."""
        return self.labels.get("alertname", "")

    def fires_at(self, now: float) -> bool:
        """Whether it is firing at this time, in seconds since the epoch: not resolved, and its end has not passed."""
        return self.firing and (self.ends_at is None or self.ends_at > now)


class EpisodeState(StrEnum):
    """State of an alert's episode."""

    OPEN = "open"
    RESOLVED = "resolved"
    """Alertmanager resolved the alert."""
    EXPIRED = "expired"
    """No news for `alerts.expireAfter`."""
    REFUSED = "refused"
    """It names no usable node or thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEpisode:
    """One alert from start to end; identified by (cluster, fingerprint, start)."""

    id: int
    alert: Alert
    received_at: float
    next_at: float
    """Earliest retry, in seconds since the epoch."""
    attempts: int = 0
    reason: str = ""
    """Result of the last cycle that handled it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Counts of one webhook delivery."""

    opened: int = 0
    duplicate: int = 0
    """Alerts whose episode already existed."""
    resolved: int = 0
    too_old: int = 0
    """New alerts that started before `alerts.maxAge`: replays."""
    deferred: int = 0
    """Alerts that were not written: there was no time for them."""

    def __add__(self, other: "Received") -> "Received":
        """The counts of both."""
        return Received(
            opened=self.opened + other.opened,
            duplicate=self.duplicate + other.duplicate,
            resolved=self.resolved + other.resolved,
            too_old=self.too_old + other.too_old,
            deferred=self.deferred + other.deferred,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdOverride:
    """Thresholds that an alert sets for one resource of one node, as shares of its capacity (0..1)."""

    node: str
    strategy: str
    high: float
    target: float
    resource: str = CPU
    source: str
    """Origin, such as `alert NodeCPUHigh`."""
    max_excess: float = 1.0
    """Most usage over the target that is taken off the node, as a share of its capacity. The pool's own target holds in
    any case."""

    def bounded_target(self, share: float, own: float) -> float:
        """The target with `max_excess` applied; `share` is the node's usage and `own` the pool's target (0..1)."""
        return max(self.target, min(own, share - self.max_excess))
