"""Forecast of each node's peak from history and snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.learning.new_services import KnownUsage, known_usage
from rebalancer.forecast.learning.node_levels import PoolNodes
from rebalancer.forecast.peaks.peak_time import peak_slots
from rebalancer.forecast.peaks.result import ForecastParts, Forecasts, NodeForecast, PoolForecast
from rebalancer.forecast.predictors.base import Past
from rebalancer.forecast.series.arrivals import Arrival
from rebalancer.forecast.series.calendar import apply_calendar
from rebalancer.forecast.series.compose import Composition, compose
from rebalancer.forecast.series.events import touching, uplift
from rebalancer.forecast.series.membership import DepartedPod, Members, leaving, members_of
from rebalancer.forecast.series.percentiles import day_weights, quantile, slot_profile, weighted_mean
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.forecast.series.window import Window
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid, History
from rebalancer.model.measured.outcomes import ForecastOutcomes
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.model.notation.figures import counted
from rebalancer.policy.schema.forecast import Forecast

CHUNK_SERVICES = 256


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Arrivals that the series contain."""

    service: Ints
    """(rows,) index of each service with expected arrivals."""
    count: Grid
    """(rows, nodes) expected pods on each node."""


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """Forecasts and their inputs."""

    forecasts: Forecasts
    members: Members
    composition: Composition
    """With arrivals and short-lived pods in its series."""
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
    evicted: Sequence[DepartedPod] = (),
    outcomes: Sequence[ForecastOutcomes] = (),
    resource: ForecastResource = OF_CPU,
) -> Forecasts:
    """The next 24 hours of every node. `pool_of` (nodes,) indexes `pools`, -1 for a node in none.

    `evicted`: pods that were evicted within the last day. Without them their usage counts as their node's own.
    `outcomes`: of earlier forecasts of the cluster, from which margins and weights are learned.
    """
    policy = resource.section(policy)
    members = members_of(
        snapshot,
        pool_of=pool_of,
        pools=pools,
        generation=policy.generation,
        now=now,
        departed=(*evicted, *leaving(snapshot)),
        resource=resource,
    )
    return look_ahead(history, members, policy=policy, now=now, arrivals=arrivals, outcomes=outcomes).forecasts


def look_ahead(
    history: History,
    members: Members,
    *,
    policy: Forecast,
    now: float,
    arrivals: Sequence[Arrival] = (),
    outcomes: Sequence[ForecastOutcomes] = (),
) -> Ahead:
    """The same, with its inputs. Of `outcomes` those of the resource are used."""
    outcomes = [each for each in outcomes if each.resource == members.resource.name]
    window = Window.before(now)
    composition = compose(history.days, members, window)
    notes = [*history.notes]
    usage = known_usage(composition, members)
    expected = _expect(composition, members, arrivals, notes)
    _spread_short_lived(composition, members)
    out: list[NodeForecast | None] = [None] * len(members.nodes)
    groups = []
    for pool in range(-1, len(members.pools)):
        chosen = np.flatnonzero(members.pool == pool)
        if len(chosen):
            name = members.pools[pool] if pool >= 0 else ""
            group = Group(composition, members, policy, name, chosen, now, outcomes, usage)
            groups.append(group)
            notes += group.notes
            for node, each in zip(chosen.tolist(), group.forecasts(), strict=True):
                out[node] = each
    unknown = sum(1 for each in out if each is not None and each.days_used == 0)
    if unknown:
        notes.append(f"{counted(unknown, 'node')} without a day with enough samples, and so without a forecast")
    return Ahead(
        forecasts=Forecasts(
            nodes=tuple(each for each in out if each is not None),
            pools=tuple(_pool_forecast(composition, members, policy, pool) for pool in range(len(members.pools))),
            notes=tuple(notes),
        ),
        members=members,
        composition=composition,
        groups=tuple(groups),
        expected=expected,
    )


def _expect(composition: Composition, members: Members, arrivals: Sequence[Arrival], notes: list[str]) -> Expected:
    """Add the arrivals to the nodes' series."""
    index = {name: node for node, name in enumerate(members.nodes)}
    counts: dict[int, Grid] = {}
    for arrival in arrivals:
        service = members.service_named(arrival.service)
        if service < 0 or not np.isfinite(composition.profiles.layers[service]).any():
            notes.append(f"{arrival.service}: pods of it are expected, but its usage is unknown")
            continue
        nodes = np.array([index.get(name, -1) for name in arrival.nodes], dtype=np.int64)
        row = counts.setdefault(service, np.zeros(len(members.nodes), dtype=np.float32))
        row[nodes[nodes >= 0]] += np.array(list(arrival.nodes.values()), dtype=np.float32)[nodes >= 0]
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
    return expected


def _days_of_a_replica(composition: Composition, services: Ints) -> Grid:
    """(services, days, 288) millicores of one replica on the reference machine, for services with a load profile."""
    daily = composition.profiles.mean(services).reshape(len(services), composition.window.days, SLOTS)
    usual = slot_profile(daily, np.ones(composition.window.days), 0.5)[:, None]
    level = np.nanmean(daily, axis=(1, 2), keepdims=True)
    return np.asarray(np.where(np.isfinite(daily), daily, np.where(np.isfinite(usual), usual, level)), dtype=np.float32)


def _spread_short_lived(composition: Composition, members: Members) -> None:
    """Add the short-lived pods of each pool to its nodes, in proportion to capacity."""
    for pool, pods in enumerate(composition.short_lived):
        known = np.nan_to_num(pods)
        if not known.any():
            continue
        nodes = np.flatnonzero(members.pool == pool)
        room = members.capacity_millicores[nodes]
        shares = room / max(float(room.sum()), 1e-9)
        for node, share in zip(nodes.tolist(), shares.tolist(), strict=True):
            composition.series[node] += np.float32(share) * known


def _pool_forecast(composition: Composition, members: Members, policy: Forecast, pool: int) -> PoolForecast:
    daily = quantile(composition.short_lived[pool][None], members.resource.statistic)
    weights = day_weights(policy.day_weights_of(members.pools[pool]), composition.window.days)
    return PoolForecast(
        pool=members.pools[pool],
        short_lived_peak_millicores=float(np.nan_to_num(weighted_mean(daily, weights)[0])),
    )


class Group:
    """Nodes of one pool, which share day weights, events and the margin's factor."""

    def __init__(
        self,
        composition: Composition,
        members: Members,
        policy: Forecast,
        pool: str,
        nodes: NDArray[np.intp],
        now: float,
        outcomes: Sequence[ForecastOutcomes],
        usage: KnownUsage,
    ) -> None:
        self.composition, self.members, self.policy = composition, members, policy
        self.pool, self.nodes, self.now, self.usage = pool, nodes, now, usage
        window = composition.window
        self.weights = day_weights(policy.day_weights_of(pool), window.days)
        self.past_factor = uplift(policy.events, pool, window.times()).astype(np.float32)
        """(days, 288) factor of usage from declared events."""
        series = composition.series[nodes]
        if (self.past_factor != 1).any():
            series = series / self.past_factor
        ahead = np.arange(window.end_step, window.end_step + SLOTS, dtype=np.float64) * STEP_SECONDS
        applied = apply_calendar(series, times=window.times(), ahead=ahead, calendar=policy.calendar, pool=pool)
        statistic = members.resource.statistic
        self.past = Past(applied.ordinary, weights=self.weights, statistic=statistic)
        self.expected = self.past
        """What the horizon goes by: `past`, with the days of other weekdays in place on a calendar day."""
        if applied.expected is not applied.ordinary:
            self.expected = Past(applied.expected, weights=self.weights, statistic=statistic)
        self.notes = applied.notes
        self.factor_ahead = uplift(policy.events, pool, ahead)
        self.node_levels = PoolNodes(
            pool=pool,
            names=[members.nodes[node] for node in nodes.tolist()],
            capacity_millicores=members.capacity_millicores[nodes],
            predictor=policy.predictor,
            coverage=policy.coverage / 100.0,
            resource=members.resource.name,
        ).predict(
            self.past,
            made_at=float(window.end_step * STEP_SECONDS),
            outcomes=outcomes,
            known_share=usage.share[nodes],
        )

    def forecasts(self) -> list[NodeForecast]:
        """Forecast of each node of the group."""
        past, window = self.past, self.composition.window
        predicted = self.node_levels.predicted
        level, added = predicted.level, predicted.upper - predicted.level
        days_used = np.isfinite(past.daily).sum(axis=1)
        if self.expected is not past:
            level, added = self._on_calendar_day(level + added)
        allowance = self.usage.allowance[self.nodes]
        added = added + allowance
        ahead = slot_profile(self.expected.series, self.weights)
        event_factor = _event_factor(ahead, self.factor_ahead, past.statistic)
        ahead = (ahead * self.factor_ahead).astype(np.float32)
        smooth = np.mean([np.roll(ahead, shift, axis=1) for shift in (-1, 0, 1)], axis=0)
        at, begins, ends = self._peak_times()
        peak = (level + added) * event_factor
        own_share = self.composition.own_share[self.nodes]
        known_share = np.minimum(self.usage.share[self.nodes], days_used / window.days)
        confidence = known_share * (0.5 + 0.5 * own_share)
        profiles = np.roll(ahead, window.first_slot, axis=1)
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
                peak_at=float(at[row]),
                peak_from=float(begins[row]),
                peak_until=float(ends[row]),
                profile=profiles[row],
                short_peak_millicores=float(np.fmax.reduce(smooth[row])),
                confidence=float(confidence[row]),
                days_used=int(days_used[row]),
                margin=float(added[row] * event_factor[row]),
                allowance=float(allowance[row] * event_factor[row]),
                parts=ForecastParts(
                    day_starts=day_starts,
                    daily_p95=past.daily[row],
                    weights=shares[row],
                    products=past.daily[row] * shares[row],
                    weighted_p95=float(weighted[row]),
                    level=float(level[row]),
                    event_factor=float(event_factor[row]),
                    events=happening,
                    own_share=float(own_share[row]),
                ),
            )
            for row, node in enumerate(self.nodes.tolist())
        ]

    def _on_calendar_day(self, upper: Floats) -> tuple[Floats, Floats]:
        """Level and margin of a horizon with a calendar day: the margin relative to the level is that of
        an ordinary day, for which the forecast is `upper`."""
        level, usual = weighted_mean(self.expected.daily, self.weights), self.node_levels.predicted.level
        more = np.divide(upper, usual, out=np.ones(len(level)), where=usual > 0)
        return level, level * np.maximum(more - 1.0, 0.0)

    def _peak_times(self) -> tuple[Floats, Floats, Floats]:
        """(nodes,) seconds since the epoch: the expected peak, and its interval within the horizon."""
        found, start = (
            peak_slots(self.expected.series * self.factor_ahead.astype(np.float32)),
            self.composition.window.end_step,
        )
        within = (found.slot, np.maximum(found.first, 0), np.minimum(found.last + 1, SLOTS))
        at, begins, ends = (np.where(found.slot >= 0, (start + each) * float(STEP_SECONDS), np.nan) for each in within)
        return at, begins, ends


def _event_factor(profile: Grid, factor: Floats, share: float) -> Floats:
    """(nodes,) factor by which declared events raise the quantile `share` of the profile."""
    if (factor == 1).all():
        return np.ones(len(profile))
    without, with_events = quantile(profile, share), quantile((profile * factor).astype(np.float32), share)
    factors: Floats = np.divide(with_events, without, out=np.full(len(profile), factor.max()), where=without > 0)
    return factors
