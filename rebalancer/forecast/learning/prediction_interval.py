"""Margin of a prediction: a weighted conformal quantile of past errors, recent errors counting more.

Errors are normalised by a scale: the prediction, or the node's swing. The scale and the version of the prediction are
those with the least pinball loss on the same past errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.forecast.predictors.base import Past, Prediction
from rebalancer.model.notation.arrays import Floats

SCALES = 2
"""The prediction, or the swing of the node."""
HALF_LIFE_DAYS = 30.0
"""Half-life of an error's weight."""
FEW_DAYS = 0.25
"""Errors of one day are correlated, so few days underestimate the tail: with n days the share is multiplied by
1 + this / n. Conformal theory has 1 for n independent errors; 0.25 fitted best on clusters with other seeds than the
backtest's."""
MOST_SHARE = 0.99
MARGIN_WITHOUT_ERRORS = 0.3
"""Share of the level, without past errors."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Predictions and actuals of one day."""

    prediction: Prediction
    swing: Floats
    """(nodes,)"""
    level: Floats
    """(nodes,) usual usage, so that large and small nodes count alike."""
    actual: Floats
    """(nodes,) P95 of the day, NaN where unknown."""


@dataclass(frozen=True, kw_only=True)
class Margin:
    """Parameters of the margin."""

    version: int = 0
    unit: int = 0
    factor: float = 0.0
    """Margin / scale; negative for a predictor that is usually too high."""
    days: int = 0
    """Days with errors."""

    def millicores(self, prediction: Prediction, swing: Floats) -> Floats:
        """(nodes,) margin."""
        return self.factor * _unit(prediction.centres[self.version], swing, self.unit)

    def centre(self, prediction: Prediction) -> Floats:
        """(nodes,) the chosen version."""
        centre: Floats = prediction.centres[self.version]
        return centre

    def upper(self, prediction: Prediction, swing: Floats) -> Floats:
        """(nodes,) prediction plus margin."""
        return np.maximum(self.centre(prediction) + self.millicores(prediction, swing), 0.0)


def outcome_of(past: Past, prediction: Prediction, actual: Floats) -> Outcome:
    """Outcome of a prediction from `past`."""
    return Outcome(prediction=prediction, swing=past.swing, level=past.level, actual=actual)


def learn(outcomes: Sequence[Outcome], share: float, *, a_day: int = 1) -> Margin | None:
    """Margin with which the share `share` of past actuals was covered; None without outcomes.

    `outcomes`: the newest last, `a_day` of them on each day.
    """
    if not outcomes:
        return None
    ages = np.arange(len(outcomes) - 1, -1, -1) / a_day
    sizes = [len(each.actual) for each in outcomes]
    weights = np.repeat(0.5 ** (ages / HALF_LIFE_DAYS), sizes)
    actual = np.concatenate([each.actual for each in outcomes])
    swing = np.concatenate([each.swing for each in outcomes])
    level = np.concatenate([each.level for each in outcomes])
    centres = np.concatenate([each.prediction.centres for each in outcomes], axis=1)
    usable = np.isfinite(actual) & np.isfinite(centres).all(axis=0)
    if not usable.any():
        return None
    actual, swing, level = actual[usable], swing[usable], level[usable]
    weights, centres = weights[usable], centres[:, usable]
    reached = conformal_share(share, max(len(outcomes) / a_day, 1.0))
    best: tuple[float, Margin] | None = None
    for version, centre in enumerate(centres):
        for unit in range(SCALES):
            scale = _unit(centre, swing, unit)
            factor = weighted_quantile((actual - centre) / scale, weights, reached)
            loss = float((weights * pinball(actual - centre - factor * scale, share) / level).sum())
            if best is None or loss < best[0] - 1e-12:
                days = len(outcomes)
                best = (loss, Margin(version=version, unit=unit, factor=factor, days=days))
    return None if best is None else best[1]


def conformal_share(share: float, days: float) -> float:
    """The share of past errors that a margin covers, so that the share `share` of new ones is covered."""
    return min(share * (1.0 + FEW_DAYS / days), max(share, MOST_SHARE))


def pinball(error: Floats, share: float) -> Floats:
    """Pinball loss of `error`, actual - forecast, for the quantile `share`."""
    return np.where(error > 0, share * error, (share - 1.0) * error)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The smallest value with at least `share` of the weights at or under it."""
    order = np.argsort(values)
    mass = np.cumsum(weights[order])
    at = int(np.searchsorted(mass, share * mass[-1] - 1e-9))
    return float(values[order][min(at, len(values) - 1)])


def _unit(centre: Floats, swing: Floats, which: int) -> Floats:
    return np.maximum(centre, 1.0) if which == 0 else swing
