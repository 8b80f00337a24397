"""Recorded forecasts, their actuals and the sums that accuracy is computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from rebalancer.model.decisions.eviction import Eviction

TOLERANCE: Final = 1e-6
"""Relative tolerance of comparisons between forecasts and actuals: history is kept in single precision."""


class ForecastKind(StrEnum):
    """Why a forecast was recorded."""

    DAILY = "daily"
    """The first of a UTC day for a node: accuracy is of these."""
    AHEAD = "ahead"
    """The one that a cycle was started for."""


class Verdict(StrEnum):
    """Result of a proactive relief: a node was forecast to become hot."""

    PREVENTED = "prevented"
    """It did not become hot, and would have with the pods that were moved away."""
    FALSE_ALARM = "falseAlarm"
    """It did not become hot, and would not have either."""
    TOO_LATE = "tooLate"
    """Pods were moved, and it became hot nevertheless."""
    NOT_MOVED = "notMoved"
    """Nothing could be moved, and it became hot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForecast:
    """One node's recorded forecast. Shares are of the node's capacity."""

    kind: ForecastKind
    node: str
    pool: str
    made_at: float
    """Seconds since the epoch."""
    until: float
    """End of the time that it covers."""
    predictor: str
    peak_millicores: float
    """Daily P95 with its margin."""
    peak_at: float
    margin_millicores: float
    capacity_millicores: float
    high: float | None
    """Share over which the node counts as hot; None where that isn't fixed."""
    days_used: int
    confidence: float
    pods: tuple[tuple[str, float], ...] = ()
    """(first eight characters of the uid, share of the peak) of the pods that it was made of, largest first. Empty =
    not known; they are dropped at its verification."""
    hot_from: float | None = None
    """When it was expected to become hot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuals:
    """What was measured for the time a forecast covers. NaN = not known."""

    p95_millicores: float
    """Of the node's own samples from `made_at` to `until`."""
    peak_millicores: float
    """Its busiest quarter of an hour."""
    peak_at: float
    """When that quarter's middle step begins, as in forecasts."""
    departed_peak_share: float
    """Share of the peak whose pods had left the node by `until`; NaN = not checked in time. Pods that arrived
    are not counted."""
    counterfactual_peak_millicores: float
    """The busiest quarter of an hour as it would have been with the pods that we moved away from there."""
    verdict: Verdict | None = None
    """Of a forecast that was acted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedForecast:
    """Both."""

    forecast: StoredForecast
    actuals: Actuals


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSums:
    """Sums over the daily forecasts of one pool that were made in some time and have actuals.

    Errors are shares of a node's capacity. A day is relieved when it would have been busier without our evictions, or
    that is not known; the others are steady.
    """

    pool: str
    count: int
    error: float
    """Sum of |what came - what was expected before the margin|."""
    covered: int
    """That stayed at or under the forecast, its margin included."""
    steady_count: int
    """The same three of days that are not relieved."""
    steady_error: float
    steady_covered: int
    hot: int
    """Days over `high` that are not relieved,"""
    called_hot: int
    """those that were forecast to be,"""
    both: int
    """and those that were both."""


class ForecastRecords(Protocol):
    """Keeps the forecasts of one cluster."""

    def keep(self, forecasts: Sequence[StoredForecast]) -> None:
        """Write them down. A second one of the same kind, node and UTC day (of `made_at`; for those ahead of a peak: of
        `hot_from`) is left out. Raises ConnectError."""
        ...

    def kept(self, kind: ForecastKind, at: float) -> frozenset[str]:
        """Nodes of which one of that kind is kept for the UTC day of `at`. Raises ConnectError."""
        ...

    def due(self, now: float) -> Sequence[tuple[int, StoredForecast]]:
        """(id, forecast) of those that are over and not verified yet, oldest first. Raises ConnectError."""
        ...

    def judge(self, truths: Sequence[tuple[int, Actuals]]) -> None:
        """Store the actuals. Raises ConnectError."""
        ...

    def judged(self, since: float) -> Sequence[VerifiedForecast]:
        """Those made at or after `since`, oldest first. Raises ConnectError."""
        ...

    def sums(self, since: float, until: float) -> Sequence[ForecastSums]:
        """Of those made from `since` up to, not including, `until`, by pool. Raises ConnectError."""
        ...

    def minutes_off(self, since: float, until: float) -> Mapping[str, Mapping[int, int]]:
        """Of the same: pool -> minutes between the predicted and the real busiest quarter of an hour -> forecasts.
        Raises ConnectError."""
        ...

    def evicted_pods(self, since: float, until: float) -> Mapping[str, Sequence[Eviction]]:
        """Node -> the pods that we evicted from it then, for whatever reason, oldest first; not those that are known to
        have come back to it. Raises ConnectError."""
        ...
