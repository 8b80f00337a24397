"""Rolling-origin forecasts of one predictor: the margin of each day comes from errors on earlier days."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.learning.new_services import KnownUsage
from rebalancer.forecast.learning.node_levels import PoolNodes
from rebalancer.forecast.learning.prediction_interval import Margin, Outcome, learn
from rebalancer.forecast.predictors.base import Past, Prediction
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.outcomes import ForecastOutcomes
from rebalancer.model.notation.arrays import Floats


class RollingOrigin:
    """Forecasts of some nodes by one predictor, each from what was known at its time."""

    def __init__(self, *, coverage: float, capacity_millicores: Floats, a_day: int = 1) -> None:
        """`coverage` (0..1): target of the margin. Past predictions are limited to (nodes,) the capacity before their
        errors are taken. `a_day`: forecasts on each day."""
        self._coverage = coverage
        self._capacity = capacity_millicores
        self._a_day = a_day
        self._outcomes: list[Outcome] = []
        self.upper: list[Floats] = []
        """(nodes,) millicores with margin, by scored forecast."""
        self.centre: list[Floats] = []
        """The same without margin."""

    def see(self, outcome: Outcome, *, scored: bool) -> None:
        """Forecast 24 hours from the outcomes that are over, then add this one. `outcome.actual` is NaN where not
        scored."""
        prediction = Prediction(centres=np.minimum(outcome.prediction.centres, self._capacity))
        if scored:
            over = self._outcomes[: max(len(self._outcomes) - self._a_day + 1, 0)]
            margin = learn(over, self._coverage, a_day=self._a_day) or Margin()
            self.upper.append(margin.upper(prediction, outcome.swing))
            self.centre.append(margin.centre(prediction))
        self._outcomes.append(replace(outcome, prediction=prediction))


class LearnedForecasts:
    """Forecasts of some nodes as the daemon makes them: one learner for each pool, fed by what came."""

    def __init__(self, pools: Sequence[tuple[NDArray[np.intp], PoolNodes]]) -> None:
        """`pools`: (rows, nodes) of each; together all rows."""
        self._pools = pools
        self._nodes = sum(len(rows) for rows, _ in pools)
        self.outcomes: list[ForecastOutcomes] = []
        self.upper: list[Floats] = []
        self.centre: list[Floats] = []

    def see(self, past: Past, actual: Floats, *, usage: KnownUsage | None, made_at: float, scored: bool) -> None:
        """Forecast the 24 hours from `made_at` (seconds since the epoch), then add their actuals (nodes,).

        `usage`: what is known of the nodes' services; None: all.
        """
        over = [each for each in self.outcomes if each.made_at + DAY_SECONDS <= made_at]
        upper, centre = np.full(self._nodes, np.nan), np.full(self._nodes, np.nan)
        for rows, nodes in self._pools:
            share = None if usage is None else usage.share[rows]
            found = nodes.predict(past.of_nodes(rows), made_at=made_at, outcomes=over, known_share=share)
            upper[rows], centre[rows] = found.predicted.upper, found.predicted.level
            if usage is not None:
                upper[rows] += usage.allowance[rows]
            index = dict(zip(nodes.names, rows.tolist(), strict=True))
            came = actual[[index[name] for name in found.unjudged.nodes]]
            self.outcomes.append(found.unjudged.judged_by(came))
        if scored:
            self.upper.append(upper)
            self.centre.append(centre)
