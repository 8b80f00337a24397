"""How much to add to a guess, from how far earlier guesses were off: a conformal quantile, recent errors counting more.

Errors are counted in parts of a yardstick: a share of the guess, or of the node's own swing. Which yardstick, and which
version of the guess, is taken from the same past errors by their pinball loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.predictors.base import Past, Prediction

Floats = NDArray[np.float64]
YARDSTICKS = ("share of the level", "swing of the node")
HALF_LIFE_DAYS = 30.0
"""An error that is older by this counts half."""
FEW_DAYS = 0.25
"""The errors of one day come together, so few days know little of bad ones: with n days the share is raised by this / n
of itself. Conformal theory says 1 for n independent errors; 0.25 came closest on clusters of other seeds than the
backtest's."""
MOST_SHARE = 0.99


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One day's guesses and what came of them."""

    guess: Prediction
    swing: Floats
    """(nodes,)"""
    level: Floats
    """(nodes,) what the node usually uses: large and small nodes count alike."""
    actual: Floats
    """(nodes,) P95 of the day, NaN where unknown."""


@dataclass(frozen=True, kw_only=True)
class Margin:
    """What the past errors teach."""

    version: int = 0
    yardstick: int = 0
    factor: float = 0.0
    """Margin in parts of the yardstick; below 0 for a predictor that is too high as a rule."""
    days: int = 0
    """Days that it was learned from."""

    def millicores(self, guess: Prediction, swing: Floats) -> Floats:
        """(nodes,) what to add."""
        return self.factor * _yardstick(guess.centres[self.version], swing, self.yardstick)

    def centre(self, guess: Prediction) -> Floats:
        """(nodes,) the version that holds."""
        centre: Floats = guess.centres[self.version]
        return centre

    def upper(self, guess: Prediction, swing: Floats) -> Floats:
        """(nodes,) guess and margin."""
        return np.maximum(self.centre(guess) + self.millicores(guess, swing), 0.0)


def outcome_of(past: Past, guess: Prediction, actual: Floats) -> Outcome:
    """What came of a guess that was made from `past`."""
    return Outcome(guess=guess, swing=past.swing, level=past.level, actual=actual)


def learn(outcomes: Sequence[Outcome], share: float) -> Margin | None:
    """The margin that would have kept `share` of the actual values at or under the forecast; None without outcomes.

    `outcomes` are in order of their days, the newest last.
    """
    if not outcomes:
        return None
    ages = np.arange(len(outcomes) - 1, -1, -1)
    sizes = [len(each.actual) for each in outcomes]
    weights = np.repeat(0.5 ** (ages / HALF_LIFE_DAYS), sizes)
    actual = np.concatenate([each.actual for each in outcomes])
    swing = np.concatenate([each.swing for each in outcomes])
    level = np.concatenate([each.level for each in outcomes])
    centres = np.concatenate([each.guess.centres for each in outcomes], axis=1)
    usable = np.isfinite(actual) & np.isfinite(centres).all(axis=0)
    if not usable.any():
        return None
    actual, swing, level = actual[usable], swing[usable], level[usable]
    weights, centres = weights[usable], centres[:, usable]
    reached = min(share * (1.0 + FEW_DAYS / len(outcomes)), max(share, MOST_SHARE))
    best: tuple[float, Margin] | None = None
    for version, centre in enumerate(centres):
        for yardstick in range(len(YARDSTICKS)):
            unit = _yardstick(centre, swing, yardstick)
            factor = weighted_quantile((actual - centre) / unit, weights, reached)
            loss = float((weights * pinball(actual - centre - factor * unit, share) / level).sum())
            if best is None or loss < best[0] - 1e-12:
                days = len(outcomes)
                best = (loss, Margin(version=version, yardstick=yardstick, factor=factor, days=days))
    return None if best is None else best[1]


def pinball(error: Floats, share: float) -> Floats:
    """`error` is actual - forecast: too low costs `share`, too high the rest of 1."""
    return np.where(error > 0, share * error, (share - 1.0) * error)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The smallest value at or under which lie `share` of the weights."""
    order = np.argsort(values)
    mass = np.cumsum(weights[order])
    at = int(np.searchsorted(mass, share * mass[-1] - 1e-9))
    return float(values[order][min(at, len(values) - 1)])


def _yardstick(centre: Floats, swing: Floats, which: int) -> Floats:
    return np.maximum(centre, 1.0) if which == 0 else swing
