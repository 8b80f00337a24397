"""Outcomes of forecasts: kept once a period and pool, judged a day later, and read by the forecasts after that.

A forecast learns from what came without our doing: nodes that pods were evicted from, and pools with a declared event,
have no actuals. A database that fails is a note, and the next run goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.forecast.evaluation.actuals import WAIT_SECONDS, Samples
from rebalancer.forecast.series.events import touching
from rebalancer.forecast.series.percentiles import quantile
from rebalancer.forecast.series.resource import statistic_of
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, History
from rebalancer.model.measured.outcomes import KEPT_DAYS, ForecastOutcomes, OutcomeRecords
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.forecasts import ForecastRecords
from rebalancer.policy.schema.forecast import Event

KEPT_SECONDS = KEPT_DAYS * DAY_SECONDS
LATE_SECONDS = DAY_SECONDS + WAIT_SECONDS
"""Forecasts are judged at most this long after they were made, unless no process ran."""


@dataclass(slots=True, kw_only=True)
class OutcomeKeeper:
    """Keeps one cluster's outcomes in memory and in its database. Not for several threads at once."""

    records: OutcomeRecords
    _known: dict[tuple[str, str, int], ForecastOutcomes] = field(default_factory=dict)
    """By resource, pool and period."""
    _read_until: float = 0.0
    _last_kept: dict[tuple[str, str], int] = field(default_factory=dict)
    """(resource, pool) -> its last period with a forecast."""

    def known(self, now: float) -> tuple[tuple[ForecastOutcomes, ...], tuple[str, ...]]:
        """(outcomes with actuals of the last 90 days, oldest first; notes on failures).

        Reads all of them first, afterwards only what another process may have judged since.
        """
        since = now - KEPT_SECONDS
        notes: tuple[str, ...] = ()
        try:
            for each in self.records.outcomes(max(since, self._read_until - LATE_SECONDS)):
                self._known.setdefault((each.resource, each.pool, each.period), each)
            self._read_until = now
        except RebalancerError as error:
            notes = (f"outcomes of forecasts are not read: {error}",)
        self._known = {key: each for key, each in self._known.items() if each.made_at >= since}
        return tuple(sorted(self._known.values(), key=lambda each: (each.made_at, each.resource, each.pool))), notes

    def keep(self, forecasts: Sequence[ForecastOutcomes]) -> tuple[str, ...]:
        """Keep the forecasts of pools that have none of their period yet; notes on failures."""
        new = [
            each for each in forecasts if each.nodes and self._last_kept.get((each.resource, each.pool)) != each.period
        ]
        try:
            self.records.keep_outcomes(new)
        except RebalancerError as error:
            return (f"outcomes of forecasts are not kept: {error}",)
        self._last_kept.update({(each.resource, each.pool): each.period for each in new})
        return ()

    def judge(
        self, histories: Mapping[str, History], forecasts: ForecastRecords, *, events: Sequence[Event], now: float
    ) -> tuple[str, ...]:
        """Judge the forecasts whose 24 hours are over, as far as their samples are available; notes on failures.

        `histories`: of each resource; forecasts of others have to wait. `forecasts` gives the evictions. Reads no more
        days than needed, and none when nothing is due.
        """
        try:
            due = [each for each in self.records.outcomes_due(now) if each.resource in histories]
            if not due:
                return ()
            since, until = min(each.made_at for each in due), max(each.made_at for each in due) + DAY_SECONDS
            moved = forecasts.evicted_pods(since, until)
            judged = []
            for resource in dict.fromkeys(each.resource for each in due):
                of_it = [each for each in due if each.resource == resource]
                nodes = {node for each in of_it for node in each.nodes}
                samples = Samples.of(histories[resource].days, nodes=nodes, pods=(), since=since, until=until)
                for each in of_it:
                    actual = actual_statistic(each, samples, moved=moved, events=events, now=now)
                    if actual is not None:
                        judged.append(each.judged_by(actual))
            self.records.judge_outcomes(judged)
        except RebalancerError as error:
            return (f"outcomes of forecasts are not judged: {error}",)
        self._known.update({(each.resource, each.pool, each.period): each for each in judged})
        return ()


def actual_statistic(
    outcomes: ForecastOutcomes,
    samples: Samples,
    *,
    moved: Mapping[str, Sequence[Eviction]],
    events: Sequence[Event],
    now: float,
) -> Floats | None:
    """(nodes,) statistic of the 24 hours, in units of day blocks; None while samples are to come.

    NaN for nodes with samples of less than half of the steps, and nodes that pods were evicted from (`moved`, by node,
    at any time) or whose replacements landed there; for all nodes while a declared event touches the time.
    """
    made_at, until = outcomes.made_at, outcomes.made_at + DAY_SECONDS
    first = int(made_at // STEP_SECONDS)
    if not samples.complete(first, first + SLOTS) and now < until + WAIT_SECONDS:
        return None
    if outcomes.resource == CPU and touching(events, outcomes.pool, made_at, until):
        return np.full(len(outcomes.nodes), np.nan)
    series = [samples.node(node, first, first + SLOTS) for node in outcomes.nodes]
    actual = quantile(np.array(series, dtype=np.float32).reshape(-1, SLOTS), statistic_of(outcomes.resource))
    during = [each for of_node in moved.values() for each in of_node if made_at <= each.at < until]
    touched = {each.node for each in during} | {each.replaced.replacement_node or each.target_node for each in during}
    return np.where([node in touched for node in outcomes.nodes], np.nan, actual)
