"""Rolling-origin evaluation of the predictors: each day is predicted from earlier days only.

The margin of each predictor is derived from its own errors on earlier days. Errors are shares of the node's mean usage.
`backtest` uses recorded traces, `replay` a cluster's own days.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.backtest.day_weights import Losses, Proposal, WeightSearch, propose
from rebalancer.forecast.backtest.rolling_origin import LearnedForecasts, RollingOrigin
from rebalancer.forecast.backtest.scores import Comparison, NodeDays, PredictedDays, Score, compare
from rebalancer.forecast.backtest.traces import POOLS, TraceCluster, cluster_of_traces
from rebalancer.forecast.learning.new_services import KnownUsage, known_usage
from rebalancer.forecast.learning.node_levels import PoolNodes
from rebalancer.forecast.learning.prediction_interval import outcome_of
from rebalancer.forecast.peaks.peak_time import peak_slots
from rebalancer.forecast.predictors import COMBINED, own_predictor, predictors
from rebalancer.forecast.predictors.base import Past
from rebalancer.forecast.series.compose import compose
from rebalancer.forecast.series.percentiles import day_weights, quantile
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.forecast.series.window import Window
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid
from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.policy.schema.forecast import DayWeights, Forecast

HIGH_SHARE = 0.75
"""A node of traces is hot on a day when the day's P95 is over this share of its capacity."""
CLUSTERS = 2
FIRST_PREDICTION, FIRST_SCORED = 3, 10
"""Days of traces: the first that is predicted, whose errors count for margins, and the first that is scored."""
A_DAY = 4
"""Forecasts on each day of traces, at equal distances from 00:00 on."""
ORIGIN_STEPS = SLOTS // A_DAY
SLOW = ("holtWinters", "stl")
"""Predictors of about 8 ms a node and day, which are left out of traces."""
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
    resource: ForecastResource = OF_CPU
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
    origins = range(FIRST_PREDICTION * SLOTS, (days - 1) * SLOTS + 1, ORIGIN_STEPS)
    chosen = tuple(only) or tuple(name for name in compared() if name not in SLOW)
    for number in range(CLUSTERS):
        run = TraceRun(cluster_of_traces(traces, seed + number), policy, chosen)
        for done, at in enumerate(origins, start=1):
            run.predict(at)
            step(number * len(origins) + done, CLUSTERS * len(origins))
        run.blocks.clear()
        runs.append(run)
    return summary(runs, POOLS, policy)


def compared() -> tuple[str, ...]:
    """Names of all that is compared: the predictors, the default last."""
    return (*predictors(), COMBINED)


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

    def __init__(
        self,
        group: Group,
        policy: Forecast,
        chosen: Sequence[str],
        *,
        a_day: int = 1,
        resource: ForecastResource = OF_CPU,
    ) -> None:
        self.group, self.resource = group, resource
        available = predictors()
        coverage, capacity = policy.coverage / 100.0, group.capacity_millicores
        self.predictors = {name: available[name] for name in chosen if name != COMBINED}
        self.margins = {
            name: RollingOrigin(coverage=coverage, capacity_millicores=capacity, a_day=a_day)
            for name in self.predictors
        }
        self.learned = LearnedForecasts(tuple(_pool_nodes(group, policy))) if COMBINED in chosen else None
        self.search = WeightSearch(
            predictor=own_predictor(policy.predictor),
            current=group.days,
            coverage=coverage,
            capacity_millicores=capacity,
            loss_at=resource.loss_at,
        )
        self.days: list[str] = []
        self.actual: list[Floats] = []
        self.times: list[tuple[int, int]] = []
        """(weekday, hour) of each scored forecast."""
        self.hours_off: list[Floats] = []
        self.hours_off_yesterday: list[Floats] = []
        self._used = np.zeros((2, len(group.nodes)))
        """Sum and number of the measured samples."""

    @property
    def series(self) -> Mapping[str, RollingOrigin | LearnedForecasts]:
        """Forecasts by name."""
        return self.margins if self.learned is None else {**self.margins, COMBINED: self.learned}

    @property
    def mean_millicores(self) -> Floats:
        """(nodes,) mean usage, at least 1."""
        mean: Floats = np.maximum(self._used[0] / np.maximum(self._used[1], 1.0), 1.0)
        return mean

    def see(
        self,
        day: str,
        before: Grid,
        came: Grid,
        *,
        made_at: float,
        scored: bool,
        usage: KnownUsage | None = None,
    ) -> None:
        """Predict 24 hours from (nodes, days, 288) the history `before` them, then record (nodes, 288) their actuals
        `came`, NaN in the rows of nodes that are not scored.

        `made_at`: their start, seconds since the epoch. `usage`: what is known of the nodes' services.
        """
        statistic = self.resource.statistic
        past = Past(before, weights=day_weights(self.group.days, before.shape[1]), statistic=statistic)
        actual = quantile(came, statistic)
        self._used += np.nansum(came, axis=1, dtype=np.float64), np.isfinite(came).sum(axis=1)
        for name, predictor in self.predictors.items():
            self.margins[name].see(outcome_of(past, predictor.predict(past), actual), scored=scored)
        if self.learned is not None:
            self.learned.see(past, actual, usage=usage, made_at=made_at, scored=scored)
        if made_at % DAY_SECONDS == 0:
            self.search.see(past, actual, scored=scored)
        if scored:
            self.days.append(day)
            self.actual.append(actual)
            middle = int(made_at + DAY_SECONDS // 2)
            self.times.append((middle // DAY_SECONDS % 7, int(made_at) % DAY_SECONDS // 3600))
            smooth = _smooth(came)
            counts = np.isfinite(actual)
            self.hours_off.append(np.where(counts, _hours(peak_slots(past.series).slot, _top(smooth)), np.nan))
            yesterday = _top(_smooth(past.series[:, -1]))
            self.hours_off_yesterday.append(np.where(counts, _hours(yesterday, _top(smooth)), np.nan))

    def node_days(self, nodes: Bools) -> NodeDays:
        """Scored node days of some nodes."""
        group = self.group

        def flat(days: Sequence[Floats]) -> Floats:
            return np.array(days).reshape(-1, len(nodes))[:, nodes].ravel()

        times = np.repeat(np.array(self.times, dtype=np.int64).reshape(-1, 2), int(nodes.sum()), axis=0)
        return NodeDays(
            actual=flat(self.actual),
            hours_off=flat(self.hours_off),
            hours_off_yesterday=flat(self.hours_off_yesterday),
            weekday=times[:, 0],
            hour=times[:, 1],
            mean=np.tile(self.mean_millicores[nodes], len(self.days)),
            high=np.tile(group.high_millicores[nodes], len(self.days)),
            capacity=np.tile(group.capacity_millicores[nodes], len(self.days)),
            predicted={
                name: PredictedDays(upper=flat(each.upper), centre=flat(each.centre))
                for name, each in self.series.items()
            },
        )


def _pool_nodes(group: Group, policy: Forecast) -> Iterator[tuple[NDArray[np.intp], PoolNodes]]:
    for number, pool in enumerate(group.pools):
        rows = np.flatnonzero(group.pool == number)
        yield (
            rows,
            PoolNodes(
                pool=pool,
                names=[group.nodes[row] for row in rows.tolist()],
                capacity_millicores=group.capacity_millicores[rows],
                predictor=COMBINED,
                coverage=policy.coverage / 100.0,
            ),
        )


def _smooth(day: Grid) -> Grid:
    """Mean of each step and its neighbours; the day is cyclic."""
    return np.asarray(np.mean([np.roll(day, shift, axis=1) for shift in (-1, 0, 1)], axis=0))


def _top(smooth: Floats | Grid) -> NDArray[np.intp]:
    return np.asarray(np.argmax(np.nan_to_num(smooth, nan=-np.inf), axis=1), dtype=np.intp)


def _hours(predicted: NDArray[np.intp], actual: NDArray[np.intp]) -> Floats:
    """Hours between two times of day."""
    apart = np.abs(predicted - actual)
    return np.asarray(np.minimum(apart, SLOTS - apart) * (STEP_SECONDS / 3600.0), dtype=np.float64)


class TraceRun(Run):
    """Evaluation on a cluster of traces. Call `predict` for each time, in order."""

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
            a_day=A_DAY,
        )
        self.cluster = cluster
        self.blocks = [cluster.block(day) for day in range(cluster.days)]
        self.first_scored = min(FIRST_SCORED, cluster.days - 2)

    def predict(self, at: int) -> None:
        """Predict the 24 hours from step `at` of the traces, and record their actuals."""
        window = Window.before(float(at * STEP_SECONDS))
        known = self.blocks[max(0, window.start_step // SLOTS) : (at - 1) // SLOTS + 1]
        members = self.cluster.members(at)
        composition = compose(known, members, window)
        nodes = len(self.cluster.nodes)
        came = self.cluster.actual.reshape(nodes, -1)[:, at : at + SLOTS]
        self.see(
            f"{at / SLOTS:g}",
            composition.series,
            came,
            made_at=float(at * STEP_SECONDS),
            scored=at >= self.first_scored * SLOTS,
            usage=known_usage(composition, members),
        )


def summary(runs: Sequence[Run], pools: Sequence[str], policy: Forecast, *, notes: Sequence[str] = ()) -> Backtest:
    """Result of all runs, in total and by pool. Raises UnsafeDataError without a scored node day."""
    resource = runs[0].resource
    node_days = NodeDays.joined([run.node_days(np.ones(len(run.group.nodes), dtype=np.bool_)) for run in runs])
    total = compare(node_days, loss_at=resource.loss_at)
    left_out = int(np.isnan(node_days.actual).sum())
    if not total.forecasts:
        raise UnsafeDataError(f"none of {left_out} node days has enough samples for a comparison")
    default = policy.predictor
    return Backtest(
        default=default,
        coverage=policy.coverage / 100.0,
        total=total,
        pools={
            pool: compare(
                NodeDays.joined([run.node_days(run.group.of_pool(pool)) for run in runs]), loss_at=resource.loss_at
            )
            for pool in pools
        },
        proposals=tuple(_proposal(runs, pool) for pool in pools),
        example=_example(runs),
        scatter=_scatter(node_days, default),
        resource=resource,
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
