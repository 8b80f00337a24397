"""Forecasts and what came of them, as the learner of `forecast.learning.learner` needs them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU

KEPT_DAYS = 90
"""Outcomes are kept for so many days."""
PERIOD_SECONDS = 21_600
"""One forecast of a pool is kept in each period of this length, counted from the epoch: four a day."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastOutcomes:
    """Forecasts of one resource of some nodes of one pool, made at one time, with their actuals."""

    pool: str
    """Empty for nodes in no pool."""
    made_at: float
    """Seconds since the epoch."""
    layout: int
    """Version of the columns of `features` and `uppers`; outcomes of another version are not learned from."""
    nodes: tuple[str, ...]
    features: Floats
    """(nodes, features) statistics of the history, millicores and days."""
    capacity: Floats
    """(nodes,) millicores."""
    usage: Floats
    """(nodes,) mean millicores of the history."""
    uppers: Floats
    """(nodes, forecasts) millicores with margin: of each expert, and of the forecast itself last."""
    actual: Floats
    """(nodes,) P95 of the 24 hours from `made_at`, millicores; of memory the highest. NaN where unknown."""
    resource: str = CPU
    """Figures of resources besides CPU are in units of day blocks."""

    @property
    def period(self) -> int:
        """Number of its period."""
        return int(self.made_at // PERIOD_SECONDS)

    def judged_by(self, actual: Floats) -> "ForecastOutcomes":
        """The same with (nodes,) actuals."""
        return replace(self, actual=actual)


class OutcomeRecords(Protocol):
    """Keeps the outcomes of one cluster for `KEPT_DAYS` days."""

    def keep_outcomes(self, forecasts: Sequence[ForecastOutcomes]) -> None:
        """Write down forecasts without actuals. A second one of a resource, pool and period is left out. Raises
        ConnectError."""
        ...

    def outcomes_due(self, now: float) -> Sequence[ForecastOutcomes]:
        """Those without actuals whose 24 hours are over, oldest first. Raises ConnectError."""
        ...

    def judge_outcomes(self, outcomes: Sequence[ForecastOutcomes]) -> None:
        """Store the actuals. Raises ConnectError."""
        ...

    def outcomes(self, since: float) -> Sequence[ForecastOutcomes]:
        """Those with actuals that were made at or after `since`, oldest first. Raises ConnectError."""
        ...
