"""Forecasts of the nodes of one pool: levels of their history, and what was learned from earlier forecasts.

Until outcomes of real forecasts exist, the history itself is the practice: forecasts are made from its first days and
compared with the days after.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.learning.learner import Learner, Predicted, layout_of, learn, usable
from rebalancer.forecast.learning.level_shifts import raised_nodes
from rebalancer.forecast.learning.levels import Levels, days_before, mean_usage
from rebalancer.forecast.predictors import COMBINED, own_predictor
from rebalancer.forecast.predictors.base import Past
from rebalancer.forecast.series.percentiles import quantile
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS, Grid
from rebalancer.model.measured.outcomes import PERIOD_SECONDS, ForecastOutcomes
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy.schema.forecast import PredictorName

SAMPLED_NODES = 100
"""Nodes of a pool whose outcomes are kept: enough for its margins and weights."""
LEAST_KNOWN_SHARE = 0.5
"""Usage of services with known days, as a share of a node's, from which on its outcome is learned from."""
LEAST_PRACTICE_DAYS = 3
"""Days of history behind a practice forecast."""
DAY_PERIODS = DAY_SECONDS // PERIOD_SECONDS
ENOUGH_PERIODS = 2 * DAY_PERIODS
"""Periods with real outcomes, without practice."""


@dataclass(frozen=True, kw_only=True)
class NodeLevels:
    """Forecasts of the nodes of one pool."""

    predicted: Predicted
    unjudged: ForecastOutcomes
    """Those of at most `SAMPLED_NODES` nodes, without actuals."""


@dataclass(frozen=True, kw_only=True)
class PoolNodes:
    """The nodes of one pool and the policy of their forecasts."""

    pool: str
    names: Sequence[str]
    capacity_millicores: Floats
    predictor: PredictorName
    coverage: float
    """0..1"""
    resource: str = CPU

    def predict(
        self,
        past: Past,
        *,
        made_at: float,
        outcomes: Sequence[ForecastOutcomes] = (),
        known_share: Floats | None = None,
    ) -> NodeLevels:
        """The 24 hours from `made_at` (seconds since the epoch), the end of `past`.

        `outcomes`: of all pools, of the same resource. Those whose 24 hours are not over at `made_at` are not used.
        `known_share` (nodes,) as in `new_services.KnownUsage`: of a node under `LEAST_KNOWN_SHARE` nothing is learned.
        None: 1.
        """
        known = (*self._practice(past, made_at, outcomes), *outcomes)
        levels = _levels_of(past, self.predictor)
        predicted = self._learner(known, made_at).predict(levels, made_at=made_at)
        sample = self._sample()
        uppers = predicted.uppers[sample]
        if known_share is not None:
            uppers = np.where(known_share[sample, None] >= LEAST_KNOWN_SHARE, uppers, np.nan)
        unjudged = self._unjudged(made_at, past.series[sample], levels.of_nodes(sample), uppers)
        return NodeLevels(predicted=predicted, unjudged=unjudged)

    def _practice(self, past: Past, made_at: float, outcomes: Sequence[ForecastOutcomes]) -> list[ForecastOutcomes]:
        """Outcomes of forecasts from the first days of `past`, until there are enough real ones."""
        real = sum(each.pool == self.pool and usable(each, self.predictor, made_at) for each in outcomes)
        if real >= ENOUGH_PERIODS:
            return []
        series = past.series[self._sample()]
        found: list[ForecastOutcomes] = []
        most = (series.shape[1] - LEAST_PRACTICE_DAYS) * DAY_PERIODS
        for periods in range(most, DAY_PERIODS - 1, -1):
            at = made_at - periods * PERIOD_SECONDS
            before, after = days_before(series, periods * PERIOD_SECONDS // STEP_SECONDS)
            then = replace(past, series=before, weights=past.weights[-before.shape[1] :])
            levels = _levels_of(then, self.predictor)
            actual = np.where(levels.days >= LEAST_PRACTICE_DAYS, quantile(after, past.statistic), np.nan)
            if np.isfinite(actual).any():
                predicted = self._learner(found, at).predict(levels, made_at=at)
                found.append(self._unjudged(at, before, levels, predicted.uppers).judged_by(actual))
        return found

    def _learner(self, outcomes: Sequence[ForecastOutcomes], at: float) -> Learner:
        return learn(outcomes, pool=self.pool, coverage=self.coverage, now=at, predictor=self.predictor)

    def _unjudged(self, at: float, series: Grid, levels: Levels, uppers: Floats) -> ForecastOutcomes:
        """Forecasts of the sampled nodes; all arguments are of these."""
        sample = self._sample()
        return ForecastOutcomes(
            pool=self.pool,
            made_at=at,
            layout=layout_of(self.predictor),
            nodes=tuple(self.names[node] for node in sample.tolist()),
            features=levels.encoded(),
            capacity=self.capacity_millicores[sample],
            usage=mean_usage(series),
            uppers=uppers,
            actual=np.full(len(sample), np.nan),
            resource=self.resource,
        )

    def _sample(self) -> NDArray[np.intp]:
        """Evenly spaced nodes."""
        count = len(self.names)
        return np.unique(np.linspace(0, count - 1, min(count, SAMPLED_NODES)).astype(np.intp))


def _levels_of(past: Past, predictor: str) -> Levels:
    own = own_predictor(predictor)
    levels = Levels.of(past, own)
    if predictor != COMBINED:
        return levels
    rows, raised = raised_nodes(past.series)
    return levels.patched(rows, Levels.of(replace(past, series=raised), own)) if len(rows) else levels
