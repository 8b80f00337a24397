"""Rolling-origin forecasts of one predictor: the margin of each day comes from errors on earlier days."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.prediction_interval import Margin, Outcome, learn
from rebalancer.forecast.predictors.base import Prediction

Floats = NDArray[np.float64]


class RollingOrigin:
    """Forecasts of some nodes, each from earlier days only."""

    def __init__(self, *, coverage: float, capacity_millicores: Floats) -> None:
        """`coverage` (0..1): target of the margin. Forecasts are limited to (nodes,) the capacity."""
        self._coverage = coverage
        self._capacity = capacity_millicores
        self._outcomes: list[Outcome] = []
        self.upper: list[Floats] = []
        """(nodes,) millicores with margin, by scored day."""
        self.centre: list[Floats] = []
        """The same without margin."""

    def see(self, outcome: Outcome, *, scored: bool) -> None:
        """Forecast a day from the outcomes before it, then add its own. `outcome.actual` is NaN where not scored."""
        prediction = Prediction(centres=np.minimum(outcome.prediction.centres, self._capacity))
        if scored:
            margin = learn(self._outcomes, self._coverage) or Margin()
            self.upper.append(np.minimum(margin.upper(prediction, outcome.swing), self._capacity))
            self.centre.append(margin.centre(prediction))
        self._outcomes.append(replace(outcome, prediction=prediction))
