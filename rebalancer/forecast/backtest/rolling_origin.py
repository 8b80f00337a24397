"""One way to forecast, day after day: each day with the margin that its own errors on earlier days teach."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.prediction_interval import Margin, Outcome, learn
from rebalancer.forecast.predictors.base import Prediction

Floats = NDArray[np.float64]


class RollingOrigin:
    """Forecasts of some nodes. Nothing that comes later reaches one."""

    def __init__(self, *, coverage: float, capacity_millicores: Floats) -> None:
        """`coverage` (0..1) is what the margin is made for; nothing is ever seen above (nodes,) the capacity."""
        self._coverage = coverage
        self._capacity = capacity_millicores
        self._outcomes: list[Outcome] = []
        self.upper: list[Floats] = []
        """Of each scored day, (nodes,) millicores with margin."""
        self.centre: list[Floats] = []
        """The same without."""

    def see(self, outcome: Outcome, *, scored: bool) -> None:
        """Forecast a day from those before it; then let it be one of them. `outcome.actual` is NaN where it does not
        count."""
        prediction = Prediction(centres=np.minimum(outcome.prediction.centres, self._capacity))
        if scored:
            margin = learn(self._outcomes, self._coverage) or Margin()
            self.upper.append(np.minimum(margin.upper(prediction, outcome.swing), self._capacity))
            self.centre.append(margin.centre(prediction))
        self._outcomes.append(replace(outcome, prediction=prediction))
