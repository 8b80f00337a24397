"""Predictors against what really came: each day is forecast from the days before it, and from nothing else.

Every predictor gets its margin in the same way, from its own errors on earlier days. Errors are shares of what the node
uses on average. `backtest` makes its nodes of recorded traces; `replay` takes a cluster's own days.
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
"""Days of traces: the first that is predicted (errors from there on make margins), and the first that counts."""
LEAST_DAYS = FIRST_PREDICTION + 3
SCATTER = 600
"""Points of a picture, at most."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One node, for a picture."""

    node: str
    days: tuple[str, ...]
    high: float
    """As a share of capacity; infinite where nothing is called hot."""
    actual: Floats
    """(days,) P95 as a share of capacity, NaN for a day that does not count."""
    forecasts: Mapping[str, Floats]
    """predictor -> (days,) the same, with margin."""


@dataclass(frozen=True, kw_only=True)
class Backtest:
    """Everything that came of it."""

    default: str
    """The predictor that is used."""
    coverage: float
    """What the margins are made for."""
    total: Comparison
    pools: Mapping[str, Comparison]
    proposals: tuple[Proposal, ...]
    """Weights of the days, for each pool."""
    example: Example
    scatter: Floats
    """(2, points) what came and what the default had forecast, as shares of capacity."""
    left_out: int = 0
    """Node days of which too little is known."""
    notes: tuple[str, ...] = ()

    def score(self, predictor: str) -> Score:
        """Of one predictor."""
        return next(each for each in self.total.scores if each.predictor == predictor)

    @property
    def best_simple(self) -> Score:
        """The simple one with the least loss, with or without its margin."""
        return min((each for each in self.total.scores if each.simple), key=bar)


def bar(score: Score) -> float:
    """The loss that a better predictor must stay under: a margin may also have made a simple one worse."""
    return min(score.errors.pinball, score.bare.pinball)


def backtest(
    traces: Mapping[str, Grid],
    *,
    seed: int,
    only: Sequence[str] = (),
    step: Callable[[int, int], None] = lambda done, total: None,
) -> Backtest:
    """Compare the predictors (all, or `only`) over clusters made of `traces` (name -> (days, 288) percent).

    `step` is told how many days of how many are done.
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
    """Nodes whose errors make one margin."""

    nodes: tuple[str, ...]
    capacity_millicores: Floats
    high_millicores: Floats
    """(nodes,) hot above it; infinite where nothing is called hot."""
    pools: tuple[str, ...]
    pool: Ints
    """(nodes,) index into `pools`."""
    days: DayWeights
    """What is in use for them."""

    def of_pool(self, pool: str) -> Bools:
        """(nodes,) which are of it."""
        number = self.pools.index(pool) if pool in self.pools else -1
        return np.asarray(self.pool == number, dtype=np.bool_)


class Run:
    """One group from its first day to its last."""

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
        """Sum and number of what came."""

    @property
    def mean_millicores(self) -> Floats:
        """(nodes,) what each used on average, at least one."""
        mean: Floats = np.maximum(self._used[0] / np.maximum(self._used[1], 1.0), 1.0)
        return mean

    def see(self, day: str, before: Grid, came: Grid, *, scored: bool) -> None:
        """Forecast a day from (nodes, days, 288) what was known `before` it, and see (nodes, 288) what `came`: NaN in
        the rows of nodes that do not count."""
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
        """What was scored of some nodes."""
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
            said={
                name: PredictedDays(upper=flat(each.upper), centre=flat(each.centre), top=flat(self.tops[name].upper))
                for name, each in self.series.items()
            },
        )


def _top(smooth: Floats) -> NDArray[np.intp]:
    return np.asarray(np.argmax(np.nan_to_num(smooth, nan=-np.inf), axis=1), dtype=np.intp)


class TraceRun(Run):
    """A cluster of traces: `predict` is called for each day, in order."""

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
        """Forecast `day` at its beginning, and see what came."""
        window = Window.before(float(day * DAY_SECONDS))
        known = self.blocks[max(0, day - window.days) : day]
        series = compose(known, self.cluster.members(day), window).series
        self.see(str(day), series, self.cluster.actual[:, day], scored=day >= self.first_scored)


def summary(runs: Sequence[Run], pools: Sequence[str], policy: Forecast, *, notes: Sequence[str] = ()) -> Backtest:
    """What all runs show together, and what they show of each pool. Raises UnsafeDataError when nothing counts."""
    available = predictors()
    node_days = NodeDays.joined([run.node_days(np.ones(len(run.group.nodes), dtype=np.bool_)) for run in runs])
    total = compare(node_days, available)
    left_out = int(np.isnan(node_days.actual).sum())
    if not total.forecasts:
        raise UnsafeDataError(f"of none of {left_out} node days enough is known: there is nothing to compare")
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
    """The node of the first run whose days differ most."""
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
    """Every so many of the node days, so that a picture can hold them."""
    points = np.stack([days.actual, days.said[predictor].upper]) / days.capacity
    points = points[:, np.isfinite(points).all(axis=0)]
    return points[:, :: max(-(-points.shape[1] // SCATTER), 1)]
