"""Search for better day weights of a pool, with a holdout.

Each choice is evaluated like a predictor of the backtest: predictions and margin from earlier days only. The first half
of the scored days selects; the selected weights must have less loss than the current ones on the second half.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.backtest.rolling_origin import RollingOrigin
from rebalancer.forecast.learning.prediction_interval import outcome_of, pinball
from rebalancer.forecast.predictors.base import Past, Predictor
from rebalancer.forecast.series.percentiles import day_weights
from rebalancer.forecast.series.resource import USUAL_LOSS_AT
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.figures import percent
from rebalancer.policy.schema.forecast import DayWeights, Forecast
from rebalancer.policy.schema.types import format_duration

HALF_LIVES_SECONDS = tuple(hours * 3600.0 for hours in (12, 24, 48, 72, 96, 192))
SAME_WEEKDAY = (1.0, 2.0, 4.0)
LEAST_GAIN, LEAST_SAVED = 0.02, 0.001
"""Least gain worth a change of the policy: share of the holdout loss, and share of a node's usage."""
LEAST_DAYS = 6
"""Scored days: half for the selection, half held out."""
WEEK_DAYS = 7
"""Scored days that weights by weekday need."""
SAME = 0.001
"""Relative difference up to which losses are equal; the earlier choice wins then."""


def choices(current: DayWeights) -> tuple[DayWeights, ...]:
    """Choices, the current weights first."""
    tried = (
        DayWeights.model_validate({"halfLife": format_duration(seconds), "sameWeekday": times})
        for times in SAME_WEEKDAY
        for seconds in HALF_LIVES_SECONDS
    )
    current = DayWeights.model_validate(current.model_dump(by_alias=True, include=set(DayWeights.model_fields)))
    return (current, *(each for each in tried if each != current))


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Losses of each choice on each scored day."""

    sums: Floats
    """(choices, days) sums of loss over the scored nodes, as shares of their mean usage."""
    counts: NDArray[np.int64]
    """(days,) scored nodes."""

    @classmethod
    def joined(cls, parts: Sequence["Losses"]) -> "Losses":
        """Sum over several sets of nodes on the same days."""
        return cls(
            sums=np.sum([part.sums for part in parts], axis=0), counts=np.sum([part.counts for part in parts], axis=0)
        )

    @property
    def known(self) -> "Losses":
        """Without days that have no scored node."""
        some = self.counts > 0
        return Losses(sums=self.sums[:, some], counts=self.counts[some])

    def mean(self, choice: int, days: slice) -> float:
        """Mean over node days."""
        return float(self.sums[choice, days].sum() / self.counts[days].sum())


class WeightSearch:
    """Evaluation of all choices on some nodes. Call `see` for each day, in order."""

    def __init__(
        self,
        *,
        predictor: Predictor,
        current: DayWeights,
        coverage: float,
        capacity_millicores: Floats,
        loss_at: float = USUAL_LOSS_AT,
    ) -> None:
        self._loss_at = loss_at
        self.choices = choices(current)
        self._predictor = predictor
        self._rolling_origins = [
            RollingOrigin(coverage=coverage, capacity_millicores=capacity_millicores) for _ in range(len(self.choices))
        ]
        self._actual: list[Floats] = []

    def see(self, past: Past, actual: Floats, *, scored: bool) -> None:
        """Add one day: its history `past`, and (nodes,) the actual P95, NaN where not scored."""
        for choice, forward in zip(self.choices, self._rolling_origins, strict=True):
            then = past.weighted(day_weights(choice, past.series.shape[1]))
            forward.see(outcome_of(then, self._predictor.predict(then), actual), scored=scored)
        if scored:
            self._actual.append(actual)

    def losses(self, nodes: NDArray[np.bool_], mean_millicores: Floats) -> Losses:
        """Losses on the nodes of a pool; `mean_millicores` (nodes,) is their mean usage."""
        actual = np.array(self._actual).reshape(-1, len(nodes))[:, nodes]
        counted = np.isfinite(actual)
        sums = []
        for forward in self._rolling_origins:
            upper = np.array(forward.upper).reshape(-1, len(nodes))[:, nodes]
            loss = pinball((actual - np.nan_to_num(upper)) / mean_millicores[nodes], self._loss_at)
            sums.append(np.where(counted, loss, 0.0).sum(axis=1))
        return Losses(sums=np.array(sums), counts=counted.sum(axis=1))


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Result of the search for one pool. Losses are means over node days, NaN with too few days."""

    pool: str
    current: DayWeights
    best: DayWeights | None
    """Weights with the least loss on the selection days; None if those are the current ones, or with too few days."""
    chosen_on: int
    held_out: int
    """Number of days."""
    loss_current: float = math.nan
    loss_best: float = math.nan
    """Both on the days held out."""

    @property
    def gain(self) -> float:
        """Share of the holdout loss that `best` saves; NaN without a `best`."""
        return 1.0 - self.loss_best / self.loss_current if self.loss_current > 0 else math.nan

    @property
    def worth_it(self) -> bool:
        """Whether to change the policy."""
        return self.best is not None and self.gain >= LEAST_GAIN and self.loss_current - self.loss_best >= LEAST_SAVED

    @property
    def verdict(self) -> str:
        """Proposal in words."""
        if not self.held_out:
            return f"keep what you have: {LEAST_DAYS} scored days are needed for a choice, there are {self.chosen_on}"
        if self.best is None:
            return "keep what you have: nothing lost less on the days that choose"
        change = (
            f"{percent(abs(self.gain))} {'less' if self.gain >= 0 else 'more'} loss on {self.held_out} days held out"
        )
        if not self.worth_it:
            worth = f"a change is worth {LEAST_GAIN:.0%} and {percent(LEAST_SAVED)} of what a node uses"
            return f"keep what you have: {shown(self.best)} has {change}, {worth}"
        return f"{shown(self.best)} instead of {shown(self.current)}: {change}"


def shown(days: DayWeights) -> str:
    """`halfLife 2d, sameWeekday 4`."""
    if days.weights is not None:
        by = f"weights {', '.join(f'{weight:g}' for weight in days.weights)}"
    else:
        by = f"halfLife {format_duration(days.half_life)}"
    return f"{by}, sameWeekday {days.same_weekday:g}"


def propose(pool: str, tried: Sequence[DayWeights], losses: Losses) -> Proposal:
    """Select on the first half of the days, verify on the second. `tried`: the rows of `losses`, the current weights
    first."""
    current, known = tried[0], losses.known
    days = len(known.counts)
    if days < LEAST_DAYS:
        return Proposal(pool=pool, current=current, best=None, chosen_on=days, held_out=0)
    half = (days + 1) // 2
    selection, holdout = slice(0, half), slice(half, days)
    best, least = 0, known.mean(0, selection)
    for number, choice in enumerate(tried):
        if choice.same_weekday != current.same_weekday and days < WEEK_DAYS:
            continue
        loss = known.mean(number, selection)
        if loss < least * (1.0 - SAME):
            best, least = number, loss
    return Proposal(
        pool=pool,
        current=current,
        best=tried[best] if best else None,
        chosen_on=half,
        held_out=days - half,
        loss_current=known.mean(0, holdout),
        loss_best=known.mean(best, holdout) if best else math.nan,
    )


def written(days: DayWeights) -> dict[str, object]:
    """Day weights as in a policy file."""
    if days.weights is not None:
        return {"weights": list(days.weights), "sameWeekday": days.same_weekday}
    return {"halfLife": format_duration(days.half_life), "sameWeekday": days.same_weekday}


def as_policy(proposals: Sequence[Proposal], policy: Forecast) -> dict[str, object] | None:
    """The change of the policy file; None if no proposal is worth a change.

    It contains the pools that the policy already lists, since a list replaces a list.
    """
    new = {each.pool: each.best for each in proposals if each.best is not None and each.worth_it}
    if not new:
        return None
    days: dict[str, DayWeights] = {each.pool: each for each in policy.pools}
    days.update(new)
    return {"forecast": {"pools": [{"pool": pool, **written(each)} for pool, each in days.items()]}}
