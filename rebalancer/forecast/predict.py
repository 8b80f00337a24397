"""From history and snapshot to each node's next peak."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.arrivals import Arrival
from rebalancer.forecast.compose import Composition, compose
from rebalancer.forecast.events import touching, uplift
from rebalancer.forecast.membership import Ints, Members, leaving, members_of
from rebalancer.forecast.percentiles import P95, day_weights, quantile, slot_curve, weighted_mean
from rebalancer.forecast.prediction_interval import YARDSTICKS, Margin, Outcome, learn, outcome_of
from rebalancer.forecast.predictors import Past, Predictor, predictors
from rebalancer.forecast.result import ForecastParts, Forecasts, NodeForecast, PoolForecast
from rebalancer.forecast.window import Window
from rebalancer.model.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid, History
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy.schema.forecast import Forecast

Floats = NDArray[np.float64]
LEAST_DAYS_BEFORE = 3
"""An error counts for the margin when the guess knew so many days."""
MARGIN_WITHOUT_ERRORS = 0.3
"""Of the level, where no past error is known."""
CHUNK_SERVICES = 256


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Arrivals that are in the series."""

    service: Ints
    """(rows,) index of each service that any are expected of."""
    count: Grid
    """(rows, nodes) how many are expected on each node."""


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """Forecasts and what they were made of."""

    forecasts: Forecasts
    members: Members
    composition: Composition
    """Arrivals and crowds are in its series."""
    groups: "tuple[Group, ...]"
    expected: Expected


def forecast(
    history: History,
    snapshot: ClusterSnapshot,
    *,
    policy: Forecast,
    pool_of: Ints,
    pools: Sequence[str],
    now: float,
    arrivals: Sequence[Arrival] = (),
) -> Forecasts:
    """The next 24 hours of every node. `pool_of` (nodes,) indexes `pools`, -1 for a node in none."""
    members = members_of(
        snapshot, pool_of=pool_of, pools=pools, generation=policy.generation, now=now, departed=leaving(snapshot)
    )
    return look_ahead(history, members, policy=policy, now=now, arrivals=arrivals).forecasts


def look_ahead(
    history: History, members: Members, *, policy: Forecast, now: float, arrivals: Sequence[Arrival] = ()
) -> Ahead:
    """The same, with what it was made of."""
    window = Window.before(now)
    composition = compose(history.days, members, window)
    notes = [*history.notes]
    coming, expected = _expect(composition, members, arrivals, notes)
    crowd = _spread_crowds(composition, members)
    out: list[NodeForecast | None] = [None] * len(members.nodes)
    groups = []
    for pool in range(-1, len(members.pools)):
        chosen = np.flatnonzero(members.pool == pool)
        if len(chosen):
            name = members.pools[pool] if pool >= 0 else ""
            group = Group(composition, members, policy, name, chosen, now, coming, crowd)
            groups.append(group)
            for node, each in zip(chosen.tolist(), group.forecasts(), strict=True):
                out[node] = each
    unknown = sum(1 for each in out if each is not None and each.days_used == 0)
    if unknown:
        notes.append(f"{unknown} node(s) have no day with enough samples: nothing is forecast for them")
    return Ahead(
        forecasts=Forecasts(
            nodes=tuple(each for each in out if each is not None),
            pools=tuple(_crowd_forecast(composition, members, policy, pool) for pool in range(len(members.pools))),
            notes=tuple(notes),
        ),
        members=members,
        composition=composition,
        groups=tuple(groups),
        expected=expected,
    )


def _expect(
    composition: Composition, members: Members, arrivals: Sequence[Arrival], notes: list[str]
) -> tuple[Floats, Expected]:
    """Add what is expected to come to the nodes' series; (nodes,) its mean in millicores, and what it was."""
    index = {name: node for node, name in enumerate(members.nodes)}
    counts: dict[int, Grid] = {}
    for arrival in arrivals:
        service = members.service_named(arrival.service)
        if service < 0 or not np.isfinite(composition.curves.layers[service]).any():
            notes.append(f"{arrival.service}: expected to come, but nothing is known of its CPU")
            continue
        nodes = np.array([index.get(name, -1) for name in arrival.nodes], dtype=np.int64)
        row = counts.setdefault(service, np.zeros(len(members.nodes), dtype=np.float32))
        row[nodes[nodes >= 0]] += np.array(list(arrival.nodes.values()), dtype=np.float32)[nodes >= 0]
    means = np.zeros(len(members.nodes))
    expected = Expected(
        service=np.array(list(counts), dtype=np.int32),
        count=np.array(list(counts.values()), dtype=np.float32).reshape(len(counts), len(members.nodes)),
    )
    for first in range(0, len(counts), CHUNK_SERVICES):
        some = slice(first, first + CHUNK_SERVICES)
        shares = (expected.count[some] / members.factor).T
        daily = _days_of_a_replica(composition, expected.service[some])
        rows = np.flatnonzero(shares.any(axis=1))
        added = shares[rows] @ daily.reshape(len(daily), -1)
        composition.series[rows] += added.reshape(len(rows), *daily.shape[1:])
        means += shares @ daily.mean(axis=(1, 2), dtype=np.float64)
    return means, expected


def _days_of_a_replica(composition: Composition, services: Ints) -> Grid:
    """(services, days, 288) millicores of one replica, on the reference machine; of services that have a curve."""
    daily = composition.curves.mean(services).reshape(len(services), composition.window.days, SLOTS)
    usual = slot_curve(daily, np.ones(composition.window.days), 0.5)[:, None]
    level = np.nanmean(daily, axis=(1, 2), keepdims=True)
    return np.asarray(np.where(np.isfinite(daily), daily, np.where(np.isfinite(usual), usual, level)), dtype=np.float32)


def _spread_crowds(composition: Composition, members: Members) -> Floats:
    """Add each pool's short-lived pods to its nodes, by capacity; (nodes,) their mean in millicores."""
    means = np.zeros(len(members.nodes))
    for pool, crowd in enumerate(composition.crowds):
        known = np.nan_to_num(crowd)
        if not known.any():
            continue
        nodes = np.flatnonzero(members.pool == pool)
        room = members.capacity_millicores[nodes]
        shares = room / max(float(room.sum()), 1e-9)
        for node, share in zip(nodes.tolist(), shares.tolist(), strict=True):
            composition.series[node] += np.float32(share) * known
        means[nodes] = shares * float(known.mean())
    return means


def _crowd_forecast(composition: Composition, members: Members, policy: Forecast, pool: int) -> PoolForecast:
    series = composition.crowds[pool][None]
    weights = day_weights(policy.day_weights_of(members.pools[pool]), composition.window.days)
    return PoolForecast(
        pool=members.pools[pool],
        crowd_peak_millicores=float(np.nan_to_num(weighted_mean(quantile(series, P95), weights)[0])),
        crowd_curve=np.nan_to_num(np.roll(slot_curve(series, weights)[0], composition.window.first_slot)),
    )


def margin_of(predictor: Predictor, past: Past, coverage: float) -> Margin | None:
    """What the errors teach that the predictor would have made within the days of `past`; None where there are none."""
    outcomes: list[Outcome] = []
    for day in range(LEAST_DAYS_BEFORE, past.series.shape[1]):
        before = past.before(day)
        enough = np.isfinite(before.daily).sum(axis=1) >= LEAST_DAYS_BEFORE
        if enough.any():
            actual = np.where(enough, past.daily[:, day], np.nan)
            outcomes.append(outcome_of(before, predictor.predict(before), actual))
    return learn(outcomes, coverage)


class Group:
    """The nodes of one pool: they share day weights, events and the margin's factor."""

    def __init__(
        self,
        composition: Composition,
        members: Members,
        policy: Forecast,
        pool: str,
        nodes: NDArray[np.intp],
        now: float,
        coming: Floats,
        crowd: Floats,
    ) -> None:
        self.composition, self.members, self.policy = composition, members, policy
        self.pool, self.nodes, self.now = pool, nodes, now
        self.coming, self.crowd = coming, crowd
        window = composition.window
        self.weights = day_weights(policy.day_weights_of(pool), window.days)
        self.past_factor = uplift(policy.events, pool, window.times()).astype(np.float32)
        """(days, 288) what events made of the usage."""
        series = composition.series[nodes]
        if (self.past_factor != 1).any():
            series = series / self.past_factor
        self.past = Past(series, weights=self.weights)
        ahead = np.arange(window.end_step, window.end_step + SLOTS, dtype=np.float64) * STEP_SECONDS
        self.factor_ahead = uplift(policy.events, pool, ahead)

    def forecasts(self) -> list[NodeForecast]:
        """One for each node of the group."""
        past, window = self.past, self.composition.window
        predictor = predictors()[self.policy.predictor]
        guess = predictor.predict(past)
        learned = margin_of(predictor, past, self.policy.coverage / 100.0)
        margin = learned or Margin(factor=MARGIN_WITHOUT_ERRORS)
        level = margin.centre(guess)
        days_used = np.isfinite(past.daily).sum(axis=1)
        young = np.sqrt(window.days / np.maximum(days_used, 1))
        added = np.maximum(margin.millicores(guess, past.swing) * young, -level)
        ahead = slot_curve(past.series, self.weights)
        event_factor = _event_factor(ahead, self.factor_ahead)
        ahead = (ahead * self.factor_ahead).astype(np.float32)
        smooth = np.mean([np.roll(ahead, shift, axis=1) for shift in (-1, 0, 1)], axis=0)
        at = np.argmax(np.nan_to_num(smooth, nan=-1.0), axis=1)
        peak = (level + added) * event_factor
        own_share = self.composition.own_share[self.nodes]
        confidence = days_used / window.days * (0.5 + 0.5 * own_share)
        curves = np.roll(ahead, window.first_slot, axis=1)
        capacity = self.members.capacity_millicores[self.nodes]
        known = np.where(np.isfinite(past.daily), self.weights, 0.0)
        shares = known / np.maximum(known.sum(axis=1, keepdims=True), 1e-12)
        weighted = weighted_mean(past.daily, self.weights)
        day_starts = window.day_starts
        happening = touching(self.policy.events, self.pool, self.now, self.now + DAY_SECONDS)
        return [
            NodeForecast(
                node=self.members.nodes[node],
                peak_millicores=float(peak[row]),
                peak_share=float(peak[row] / capacity[row]) if capacity[row] > 0 else float("nan"),
                peak_at=float((window.end_step + int(at[row])) * STEP_SECONDS) if days_used[row] else float("nan"),
                curve=curves[row],
                short_peak_millicores=float(smooth[row, at[row]]),
                confidence=float(confidence[row]),
                days_used=int(days_used[row]),
                margin=float(added[row] * event_factor[row]),
                parts=ForecastParts(
                    day_starts=day_starts,
                    daily_p95=past.daily[row],
                    weights=shares[row],
                    products=past.daily[row] * shares[row],
                    weighted_p95=float(weighted[row]),
                    level=float(level[row]),
                    version=guess.versions[margin.version],
                    yardstick=YARDSTICKS[margin.yardstick] if learned else "share of the level, no errors known yet",
                    event_factor=float(event_factor[row]),
                    events=happening,
                    arrivals_millicores=float(self.coming[node]),
                    crowd_millicores=float(self.crowd[node]),
                    own_share=float(own_share[row]),
                    saturated_steps=int(self.composition.saturated_steps[node]),
                ),
            )
            for row, node in enumerate(self.nodes.tolist())
        ]


def _event_factor(curve: Grid, factor: Floats) -> Floats:
    """(nodes,) by what declared events raise the P95 of the curve."""
    if (factor == 1).all():
        return np.ones(len(curve))
    without, with_events = quantile(curve, P95), quantile((curve * factor).astype(np.float32), P95)
    factors: Floats = np.divide(with_events, without, out=np.full(len(curve), factor.max()), where=without > 0)
    return factors
