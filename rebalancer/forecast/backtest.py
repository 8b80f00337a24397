"""Predictors against what really came: each day is forecast from the days before it, and from nothing else.

Every predictor gets its margin in the same way, from its own errors on earlier days. Errors are shares of what the node
uses on average.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.compose import compose
from rebalancer.forecast.margin import Outcome, learn, outcome_of, pinball
from rebalancer.forecast.percentiles import P95, day_weights, quantile, slot_curve
from rebalancer.forecast.predictors import DEFAULT, Guess, Past, predictors
from rebalancer.forecast.predictors.weighted import WeightedP95
from rebalancer.forecast.traces import POOLS, TraceCluster, cluster_of_traces
from rebalancer.forecast.window import Window
from rebalancer.model.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid
from rebalancer.policy.forecast import DayWeights

Floats = NDArray[np.float64]
COVERAGE = 0.9
HIGH_SHARE = 0.75
"""A node is hot on a day when the day's P95 is over this share of its capacity."""
CLUSTERS = 5
FIRST_GUESS, FIRST_SCORED = 3, 10
"""Days: the first that is guessed (errors from there on make margins), and the first that counts."""
LEAST_DAYS = FIRST_GUESS + 3
TOLERANCE = 1e-6
"""History is kept in single precision."""
HALF_LIVES_HOURS = (6, 12, 24, 48, 96, 192)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far off, as shares of what the nodes use on average."""

    mae: float
    under: float
    """Mean of what was missing; 0 on days that stayed under the forecast."""
    over: float
    pinball: float
    """0.9 of under and 0.1 of over: too low costs nine times as much."""
    coverage: float
    """Share of days that stayed at or under the forecast."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One predictor."""

    predictor: str
    simple: bool
    errors: Errors
    """With its margin."""
    bare: Errors
    """Without."""
    highest: Errors
    """With a margin made for the day's highest quarter of an hour instead of its P95."""
    hot_recall: float
    """Of the hot days, the share that was forecast as such; NaN when no day was hot."""
    hot_precision: float
    """Of the days that were forecast as hot, the share that was."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The half-life of the days' weights that served a pool best."""

    pool: str
    half_life_hours: int
    pinball: float


@dataclass(frozen=True, kw_only=True)
class Example:
    """One node, for a picture."""

    node: str
    days: tuple[int, ...]
    actual: Floats
    """(days,) P95 as a share of capacity."""
    forecasts: Mapping[str, Floats]
    """predictor -> (days,) the same, with margin."""


@dataclass(frozen=True, kw_only=True)
class Backtest:
    """Everything that came of it."""

    default: str
    scores: tuple[Score, ...]
    proposals: tuple[Proposal, ...]
    forecasts: int
    """Node days that were scored, for each predictor."""
    hot_days: int
    peak_hour_error: float
    """Median hours between the predicted and the real busiest quarter of an hour."""
    example: Example

    def score(self, predictor: str) -> Score:
        """Of one predictor."""
        return next(each for each in self.scores if each.predictor == predictor)

    @property
    def best_simple(self) -> Score:
        """The simple one with the least loss, with or without its margin."""
        return min((each for each in self.scores if each.simple), key=bar)


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

    `step` is told how many node days of how many are done.
    """
    chosen = tuple(only) or tuple(predictors())
    runs = []
    days = max(len(trace) for trace in traces.values())
    total = CLUSTERS * (days - FIRST_GUESS)
    for number in range(CLUSTERS):
        run = Run(cluster_of_traces(traces, seed + number), chosen)
        for day in range(FIRST_GUESS, days):
            run.guess(day)
            step(number * (days - FIRST_GUESS) + day - FIRST_GUESS + 1, total)
        run.finish()
        runs.append(run)
    return _summary(runs, chosen)


class _Series:
    """One predictor's guesses and forecasts in one cluster."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.highest: list[Outcome] = []
        self.upper: list[Floats] = []
        self.centre: list[Floats] = []
        self.highest_upper: list[Floats] = []

    def forecast(self, outcome: Outcome, highest: Floats, capacity: Floats, *, scored: bool) -> None:
        """Forecast a day with the margin of the days before it; then let it be one of them."""
        if scored:
            margin = learn(self.outcomes, COVERAGE)
            peaks = learn(self.highest, COVERAGE)
            assert margin is not None
            assert peaks is not None
            self.upper.append(np.minimum(margin.upper(outcome.guess, outcome.swing), capacity))
            self.centre.append(margin.centre(outcome.guess))
            self.highest_upper.append(np.minimum(peaks.upper(outcome.guess, outcome.swing), capacity))
        self.outcomes.append(outcome)
        self.highest.append(
            Outcome(guess=outcome.guess, swing=outcome.swing, level=outcome.level, actual=highest),
        )


def _within(guess: Guess, capacity: Floats) -> Guess:
    """Nothing is ever seen above the capacity, whatever the demand."""
    return Guess(centres=np.minimum(guess.centres, capacity), versions=guess.versions)


class Run:
    """One cluster from its first day to its last: `guess` is called for each, in order."""

    def __init__(self, cluster: TraceCluster, chosen: Sequence[str]) -> None:
        self.cluster = cluster
        everyone = predictors()
        self.predictors = {name: everyone[name] for name in chosen}
        self.series = {name: _Series() for name in chosen}
        self.half_lives = {hours: [_Series() for _ in POOLS] for hours in HALF_LIVES_HOURS}
        self.blocks = [cluster.block(day) for day in range(cluster.days)]
        self.first_scored = min(FIRST_SCORED, cluster.days - 2)
        self.days: list[int] = []
        self.actual: list[Floats] = []
        self.highest: list[Floats] = []
        self.hours_off: list[Floats] = []
        self.mean = np.maximum(cluster.actual.mean(axis=(1, 2), dtype=np.float64), 1.0)

    def guess(self, day: int) -> None:
        """Forecast `day` at its beginning, and see what came."""
        window = Window.before(float(day * DAY_SECONDS))
        known = self.blocks[max(0, day - window.days) : day]
        composition = compose(known, self.cluster.members(day), window)
        past = Past(composition.series, weights=day_weights(DayWeights(), window.days))
        came = self.cluster.actual[:, day]
        actual = quantile(came, P95)
        smooth = np.mean([np.roll(came, shift, axis=1) for shift in (-1, 0, 1)], axis=0)
        highest = smooth.max(axis=1).astype(np.float64)
        scored = day >= self.first_scored
        capacity = self.cluster.capacity_millicores
        for name, predictor in self.predictors.items():
            guess = _within(predictor.guess(past), capacity)
            self.series[name].forecast(outcome_of(past, guess, actual), highest, capacity, scored=scored)
        for hours, pools in self.half_lives.items():
            weights = day_weights(DayWeights.model_validate({"halfLife": f"{hours}h"}), window.days)
            for pool, series in enumerate(pools):
                mine = self.cluster.pool == pool
                part = Past(past.series[mine], weights=weights)
                guess = _within(WeightedP95().guess(part), capacity[mine])
                series.forecast(outcome_of(part, guess, actual[mine]), highest[mine], capacity[mine], scored=scored)
        if scored:
            self.days.append(day)
            self.actual.append(actual)
            self.highest.append(highest)
            curve = slot_curve(past.series, past.weights)
            predicted = np.mean([np.roll(curve, shift, axis=1) for shift in (-1, 0, 1)], axis=0)
            apart = np.abs(np.argmax(predicted, axis=1) - np.argmax(smooth, axis=1))
            self.hours_off.append(np.minimum(apart, SLOTS - apart) * (STEP_SECONDS / 3600.0))

    def finish(self) -> None:
        """Drop what was only needed on the way."""
        self.blocks.clear()


def _summary(runs: Sequence[Run], chosen: Sequence[str]) -> Backtest:
    scale = np.concatenate([np.tile(run.mean, len(run.days)) for run in runs])
    high = np.concatenate([np.tile(run.cluster.capacity_millicores * HIGH_SHARE, len(run.days)) for run in runs])
    actual = np.concatenate([day for run in runs for day in run.actual])
    highest = np.concatenate([day for run in runs for day in run.highest])
    hot = actual > high
    scores = []
    for name in chosen:
        upper, centre, top = (
            np.concatenate([day for run in runs for day in getattr(run.series[name], which)])
            for which in ("upper", "centre", "highest_upper")
        )
        called = upper > high
        both = np.count_nonzero(hot & called)
        scores.append(
            Score(
                predictor=name,
                simple=runs[0].predictors[name].simple,
                errors=_errors(actual, upper, scale),
                bare=_errors(actual, centre, scale),
                highest=_errors(highest, top, scale),
                hot_recall=float(both / np.count_nonzero(hot)) if hot.any() else float("nan"),
                hot_precision=float(both / np.count_nonzero(called)) if called.any() else float("nan"),
            )
        )
    return Backtest(
        default=DEFAULT,
        scores=tuple(scores),
        proposals=tuple(_proposal(runs, pool) for pool in range(len(POOLS))),
        forecasts=len(actual),
        hot_days=int(np.count_nonzero(hot)),
        peak_hour_error=float(np.median(np.concatenate([day for run in runs for day in run.hours_off]))),
        example=_example(runs[0], chosen),
    )


def _errors(actual: Floats, forecast: Floats, scale: Floats) -> Errors:
    """Nodes that nothing was known of count as forecast to use nothing."""
    error = (actual - np.nan_to_num(forecast)) / scale
    return Errors(
        mae=float(np.abs(error).mean()),
        under=float(np.maximum(error, 0.0).mean()),
        over=float(np.maximum(-error, 0.0).mean()),
        pinball=float(pinball(error, COVERAGE).mean()),
        coverage=float((error <= TOLERANCE).mean()),
    )


def _proposal(runs: Sequence[Run], pool: int) -> Proposal:
    best: Proposal | None = None
    for hours in HALF_LIVES_HOURS:
        parts = []
        for run in runs:
            mine = run.cluster.pool == pool
            upper = np.array(run.half_lives[hours][pool].upper)
            parts.append(((np.array(run.actual)[:, mine] - upper) / run.mean[mine]).ravel())
        loss = float(pinball(np.nan_to_num(np.concatenate(parts)), COVERAGE).mean())
        if best is None or loss < best.pinball:
            best = Proposal(pool=POOLS[pool], half_life_hours=hours, pinball=loss)
    assert best is not None
    return best


def _example(run: Run, chosen: Sequence[str]) -> Example:
    """The node of the first cluster whose days differ most."""
    actual = np.array(run.actual) / run.cluster.capacity_millicores
    node = int(np.argmax(actual.max(axis=0) - actual.min(axis=0)))
    capacity = run.cluster.capacity_millicores[node]
    return Example(
        node=run.cluster.nodes[node],
        days=tuple(run.days),
        actual=actual[:, node],
        forecasts={name: np.array(run.series[name].upper)[:, node] / capacity for name in chosen},
    )
