"""Rolling-origin evaluation of the predictors: each day is predicted from earlier days only.

The margin of each predictor is derived from its own errors on earlier days. Errors are shares of the node's mean usage.
`backtest` uses recorded traces, `replay` a cluster's own days.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.backtest.day_weights import Losses, Proposal, WeightSearch, propose
from rebalancer.forecast.backtest.rolling_origin import RollingOrigin
from rebalancer.forecast.backtest.scores import Comparison, NodeDays, PredictedDays, Score, compare
from rebalancer.forecast.backtest.traces import POOLS, TraceCluster, cluster_of_traces
from rebalancer.forecast.compose import compose
from rebalancer.forecast.membership import Ints
from rebalancer.forecast.percentiles import P95, day_weights, quantile, slot_profile
from rebalancer.forecast.prediction_interval import outcome_of
from rebalancer.forecast.predictors import predictors
from rebalancer.forecast.predictors.base import Past
from rebalancer.forecast.window import Window
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid
from rebalancer.policy.schema.forecast import DayWeights, Forecast

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
HIGH_SHARE = 0.75
"""A node of traces is hot on a day when the day's P95 is over this share of its capacity."""
CLUSTERS = 5
FIRST_PREDICTION, FIRST_SCORED = 3, 10
"""Days of traces: the first that is predicted, whose errors count for margins, and the first that is scored."""
LEAST_DAYS = FIRST_PREDICTION + 3
SCATTER = 600
"""Most points of a plot."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One node, for a plot."""

    node: str
    days: tuple[str, ...]
    high: float
    """Share of capacity; infinite without a threshold."""
    actual: Floats
    """(days,) P95 as a share of capacity, NaN for a day that is not scored."""
    forecasts: Mapping[str, Floats]
    """Predictor -> (days,) forecasts with margin, as shares of capacity."""


@dataclass(frozen=True, kw_only=True)
class Backtest:
    """Result of a backtest."""

    default: str
    """The configured predictor."""
    coverage: float
    """Target coverage of the margins."""
    total: Comparison
    pools: Mapping[str, Comparison]
    proposals: tuple[Proposal, ...]
    """Proposed day weights of each pool."""
    example: Example
    scatter: Floats
    """(2, points) actuals and forecasts of the default, as shares of capacity."""
    left_out: int = 0
    """Node days without enough samples."""
    notes: tuple[str, ...] = ()

    def score(self, predictor: str) -> Score:
        """Score of one predictor."""
        return next(each for each in self.total.scores if each.predictor == predictor)

    @property
    def best_simple(self) -> Score:
        """Baseline predictor with the least loss, with or without its margin."""
        return min((each for each in self.total.scores if each.simple), key=bar)


def bar(score: Score) -> float:
    """Loss to beat: the lesser of that with and without margin."""
    return min(score.errors.pinball, score.bare.pinball)


def backtest(
    traces: Mapping[str, Grid],
    *,
    seed: int,
    only: Sequence[str] = (),
    step: Callable[[int, int], None] = lambda done, total: None,
) -> Backtest:
    """Compare the predictors (all, or `only`) over clusters made of `traces` (name -> (days, 288) percent).

    `step` receives (finished days, all days).
    """
    policy = Forecast()
    runs = []
    days = max(len(trace) for trace in traces.values())
    total = CLUSTERS * (days - FIRST_PREDICTION)
    for number in range(CLUSTERS):
        run = TraceRun(cluster_of_traces(traces, seed + number), policy, tuple(only) or tuple(predictors()))
        for day in range(FIRST_PREDICTION, days):
            run.predict(day)
            step(number * (days - FIRST_PREDICTION) + day - FIRST_PREDICTION + 1, total)
        run.blocks.clear()
        runs.append(run)
    return summary(runs, POOLS, policy)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Nodes that share one margin."""

    nodes: tuple[str, ...]
    capacity_millicores: Floats
    high_millicores: Floats
    """(nodes,) threshold of hot nodes; infinite without one."""
    pools: tuple[str, ...]
    pool: Ints
    """(nodes,) index into `pools`."""
    days: DayWeights
    """Configured day weights."""

    def of_pool(self, pool: str) -> Bools:
        """(nodes,) whether each is in the pool."""
        number = self.pools.index(pool) if pool in self.pools else -1
        return np.asarray(self.pool == number, dtype=np.bool_)


class Run:
    """Evaluation of one group over its days."""

    def __init__(self, group: Group, policy: Forecast, chosen: Sequence[str]) -> None:
        self.group = group
        available = predictors()
        self.predictors = {name: available[name] for name in chosen}
        coverage, capacity = policy.coverage / 100.0, group.capacity_millicores
        self.series = {name: RollingOrigin(coverage=coverage, capacity_millicores=capacity) for name in chosen}
        self.tops = {name: RollingOrigin(coverage=coverage, capacity_millicores=capacity) for name in chosen}
        """For the highest quarter of an hour."""
        self.search = WeightSearch(
            predictor=available[policy.predictor],
            current=group.days,
            coverage=coverage,
            capacity_millicores=capacity,
        )
        self.days: list[str] = []
        self.actual: list[Floats] = []
        self.highest: list[Floats] = []
        self.hours_off: list[Floats] = []
        self._used = np.zeros((2, len(group.nodes)))
        """Sum and number of the measured samples."""

    @property
    def mean_millicores(self) -> Floats:
        """(nodes,) mean usage, at least 1."""
        mean: Floats = np.maximum(self._used[0] / np.maximum(self._used[1], 1.0), 1.0)
        return mean

    def see(self, day: str, before: Grid, came: Grid, *, scored: bool) -> None:
        """Predict a day from (nodes, days, 288) the history `before` it, then record (nodes, 288) its actuals `came`,
        NaN in the rows of nodes that are not scored."""
        past = Past(before, weights=day_weights(self.group.days, before.shape[1]))
        actual = quantile(came, P95)
        smooth = np.mean([np.roll(came, shift, axis=1) for shift in (-1, 0, 1)], axis=0)
        counts = np.isfinite(actual)
        self._used += np.nansum(came, axis=1, dtype=np.float64), np.isfinite(came).sum(axis=1)
        highest = np.where(counts, np.nan_to_num(smooth, nan=-np.inf).max(axis=1), np.nan)
        for name, predictor in self.predictors.items():
            prediction = predictor.predict(past)
            self.series[name].see(outcome_of(past, prediction, actual), scored=scored)
            self.tops[name].see(outcome_of(past, prediction, highest), scored=scored)
        self.search.see(past, actual, scored=scored)
        if scored:
            self.days.append(day)
            self.actual.append(actual)
            self.highest.append(highest)
            profile = slot_profile(past.series, past.weights)
            predicted = np.mean([np.roll(profile, shift, axis=1) for shift in (-1, 0, 1)], axis=0)
            apart = np.abs(_top(predicted) - _top(smooth))
            hours = np.minimum(apart, SLOTS - apart) * (STEP_SECONDS / 3600.0)
            self.hours_off.append(np.where(counts, hours, np.nan))

    def node_days(self, nodes: Bools) -> NodeDays:
        """Scored node days of some nodes."""
        group = self.group

        def flat(days: Sequence[Floats]) -> Floats:
            return np.array(days).reshape(-1, len(nodes))[:, nodes].ravel()

        return NodeDays(
            actual=flat(self.actual),
            highest=flat(self.highest),
            hours_off=flat(self.hours_off),
            mean=np.tile(self.mean_millicores[nodes], len(self.days)),
            high=np.tile(group.high_millicores[nodes], len(self.days)),
            capacity=np.tile(group.capacity_millicores[nodes], len(self.days)),
            predicted={
                name: PredictedDays(upper=flat(each.upper), centre=flat(each.centre), top=flat(self.tops[name].upper))
                for name, each in self.series.items()
            },
        )


def _top(smooth: Floats) -> NDArray[np.intp]:
    return np.asarray(np.argmax(np.nan_to_num(smooth, nan=-np.inf), axis=1), dtype=np.intp)


class TraceRun(Run):
    """Evaluation on a cluster of traces. Call `predict` for each day, in order."""

    def __init__(self, cluster: TraceCluster, policy: Forecast, chosen: Sequence[str]) -> None:
        super().__init__(
            Group(
                nodes=cluster.nodes,
                capacity_millicores=cluster.capacity_millicores,
                high_millicores=cluster.capacity_millicores * HIGH_SHARE,
                pools=POOLS,
                pool=cluster.pool,
                days=policy.day_weights,
            ),
            policy,
            chosen,
        )
        self.cluster = cluster
        self.blocks = [cluster.block(day) for day in range(cluster.days)]
        self.first_scored = min(FIRST_SCORED, cluster.days - 2)

    def predict(self, day: int) -> None:
        """Predict `day` at its start and record its actuals."""
        window = Window.before(float(day * DAY_SECONDS))
        known = self.blocks[max(0, day - window.days) : day]
        series = compose(known, self.cluster.members(day), window).series
        self.see(str(day), series, self.cluster.actual[:, day], scored=day >= self.first_scored)


def summary(runs: Sequence[Run], pools: Sequence[str], policy: Forecast, *, notes: Sequence[str] = ()) -> Backtest:
    """Result of all runs, in total and by pool. Raises UnsafeDataError without a scored node day."""
    available = predictors()
    node_days = NodeDays.joined([run.node_days(np.ones(len(run.group.nodes), dtype=np.bool_)) for run in runs])
    total = compare(node_days, available)
    left_out = int(np.isnan(node_days.actual).sum())
    if not total.forecasts:
        raise UnsafeDataError(f"none of {left_out} node days has enough samples for a comparison")
    default = policy.predictor
    return Backtest(
        default=default,
        coverage=policy.coverage / 100.0,
        total=total,
        pools={
            pool: compare(NodeDays.joined([run.node_days(run.group.of_pool(pool)) for run in runs]), available)
            for pool in pools
        },
        proposals=tuple(_proposal(runs, pool) for pool in pools),
        example=_example(runs),
        scatter=_scatter(node_days, default),
        left_out=left_out,
        notes=tuple(notes),
    )


def _proposal(runs: Sequence[Run], pool: str) -> Proposal:
    with_it = [run for run in runs if pool in run.group.pools]
    losses = [run.search.losses(run.group.of_pool(pool), run.mean_millicores) for run in with_it]
    return propose(pool, with_it[0].search.choices, Losses.joined(losses))


def _example(runs: Sequence[Run]) -> Example:
    """The node with the widest range of daily P95, of the first run with actuals."""
    run = max(runs, key=lambda each: bool(np.isfinite(each.actual).any()))
    capacity = run.group.capacity_millicores
    actual = np.array(run.actual) / capacity
    known = np.isfinite(actual)
    swing = np.where(known, actual, -np.inf).max(axis=0) - np.where(known, actual, np.inf).min(axis=0)
    node = int(np.argmax(swing))
    return Example(
        node=run.group.nodes[node],
        days=tuple(run.days),
        high=float(run.group.high_millicores[node] / capacity[node]),
        actual=actual[:, node],
        forecasts={name: np.array(each.upper)[:, node] / capacity[node] for name, each in run.series.items()},
    )


def _scatter(days: NodeDays, predictor: str) -> Floats:
    """Evenly spaced node days, at most `SCATTER`."""
    points = np.stack([days.actual, days.predicted[predictor].upper]) / days.capacity
    points = points[:, np.isfinite(points).all(axis=0)]
    return points[:, :: max(-(-points.shape[1] // SCATTER), 1)]
