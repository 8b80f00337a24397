"""State of a forecast for later snapshots: trajectories of nodes, daily shapes of services, levels of pods.

The load of a pod is its level times its service's shape. Arrays have one row more than there are nodes, services or
pods: the last (index -1) is that of an unknown one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.forecast.peaks.predict import Ahead, Group
from rebalancer.forecast.peaks.result import Forecasts, NodeForecast
from rebalancer.forecast.series.percentiles import day_weights, quantile, slot_mean, weighted_mean
from rebalancer.forecast.series.resource import ForecastResource
from rebalancer.forecast.series.runs import sums_of_runs
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.policy.schema.forecast import DayWeights

CHUNK_ROWS = 1024
WEEK_DAYS = 7
RISE = 1.25
"""Of the daily P95 from a rest day to a workday."""
LEAST_WEIGHT = 1e-6
MOST_RATIO = 2.0
"""Limit of the ratio: the margin of a nearly idle node may be many times its level."""


@dataclass(frozen=True, kw_only=True)
class NodeTrajectories:
    """Trajectories of the nodes."""

    row: Mapping[str, int]
    """By name."""
    trajectory: Grid
    """(nodes + 1, 288) expected millicores in the 288 steps from the forecast's start; NaN with too few days."""
    gain: Grid
    """(nodes + 1, 288) expected / usual millicores at that time of day."""
    ratio: Floats
    """(nodes + 1,) expected / usual millicores of a pod on that node: margin and events."""
    factor: Floats
    """(nodes + 1,) as in `Members`."""
    week: Floats
    """(nodes + 1,) highest daily P95 of the last seven days; NaN with too few days."""
    allowance: Floats
    """(nodes + 1,) millicores, for new services."""


@dataclass(frozen=True, kw_only=True)
class SeasonalProfiles:
    """Daily shapes and usual levels of services."""

    row: Mapping[str, int]
    """By `namespace/name`."""
    shapes: Grid
    """(services + 1, 288) load / mean load, in the steps from the forecast's start; 1 where unknown."""
    usual: Floats
    """(services + 1,) millicores of one replica on the reference machine; NaN where unknown."""
    days: Ints
    """(services + 1,) days of which at least half is known."""
    crest: Floats
    """(services + 1, days) P95 / mean of each day, at least 1; 1 where unknown."""
    week: Floats
    """(services + 1,) highest daily P95 of the last seven days, of one replica as in `usual`."""

    def profiles(self, services: Ints, part: slice) -> Grid:
        """(services, steps of `part`) usual millicores of one replica of each."""
        return np.asarray(self.usual[services, None] * self.shapes[services, part], dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class PodLoads:
    """Levels of the forecast's pods."""

    row: Mapping[str, int]
    """By uid."""
    names: Sequence[str]
    """(pods,) `namespace/name`"""
    node: Ints
    service: Ints
    level: Floats
    """Weighted mean millicores; NaN where unknown."""
    week: Floats
    """Highest daily P95 of the last seven days; NaN where unknown."""
    short_lived: Bools

    @property
    def counted(self) -> Bools:
        """Whether the pod is in its node's trajectory. Short-lived pods are forecast for their pool."""
        return np.isfinite(self.level) & ~self.short_lived


def seasonal_profiles(ahead: Ahead, days: DayWeights) -> SeasonalProfiles:
    """Daily shapes and usual levels, from the weighted mean of the days."""
    members, window = ahead.members, ahead.composition.window
    weights = day_weights(days, window.days)
    # days of weight 0 count for a service that ran on no other days
    weights = np.maximum(weights / weights.max(), LEAST_WEIGHT)
    count = len(members.services)
    shapes, usual = np.ones((count + 1, SLOTS), dtype=np.float32), np.full(count + 1, np.nan)
    days_known = np.zeros(count + 1, dtype=np.int32)
    crest, week = np.ones((count + 1, window.days)), np.full(count + 1, np.nan)
    for first in range(0, count, CHUNK_ROWS):
        some = np.arange(first, min(first + CHUNK_ROWS, count))
        daily = ahead.composition.profiles.mean(some).reshape(len(some), window.days, SLOTS)
        days_known[some] = (2 * np.isfinite(daily).sum(axis=2) >= SLOTS).sum(axis=1)
        highest = quantile(daily, members.resource.statistic)
        crest[some] = np.fmax(_over_mean(highest, daily), 1.0)
        week[some] = _highest_of_week(highest)
        mean = slot_mean(daily, weights)
        known = np.isfinite(mean)
        level = np.where(known, mean, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        usual[some] = np.where(known.any(axis=1), level, np.nan)
        shape = np.divide(_smooth(mean), level[:, None], out=np.ones(mean.shape), where=level[:, None] > 0)
        shapes[some] = np.nan_to_num(shape, nan=1.0)
    # the first of two services of one name counts, as in `Members`
    row = {name: index for index, name in reversed(tuple(enumerate(members.services)))}
    return SeasonalProfiles(row=row, shapes=shapes, usual=usual, days=days_known, crest=crest, week=week)


def pod_loads(ahead: Ahead, services: SeasonalProfiles) -> PodLoads:
    """Levels with the day weights of each node's pool, without the uplift of past declared events."""
    members, composition = ahead.members, ahead.composition
    level, week = np.full((2, len(members.pods) + 1), np.nan)
    crest = services.crest[members.service]
    for group in ahead.groups:
        mine = np.append(np.isin(members.node, group.nodes), False)
        daily = composition.pod_daily[mine[:-1]] / group.past_factor.mean(axis=1)
        level[mine] = weighted_mean(daily, group.weights * composition.day_shares)
        whole = np.where(2 * composition.day_shares >= 1, daily * crest[mine[:-1]], np.nan)
        week[mine] = _highest_of_week(whole)
    return PodLoads(
        row={uid: index for index, uid in enumerate(members.uids)},
        names=members.pods,
        node=np.append(members.node, np.int32(-1)),
        service=np.append(members.service, np.int32(-1)),
        level=level,
        week=week,
        short_lived=np.append(members.short_lived, False),
    )


def node_trajectories(ahead: Ahead, services: SeasonalProfiles, pods: PodLoads, min_days: int) -> NodeTrajectories:
    """Trajectories of the nodes, and the factors for the load of pods."""
    members, found = ahead.members, ahead.forecasts.nodes
    trajectory, usual = _trajectories(ahead, min_days)
    factor = np.append(members.factor, 1.0).astype(np.float64)
    sums = np.zeros(trajectory.shape, dtype=np.float32)
    counted = pods.counted
    lay(sums, services.shapes, pods.node[counted], pods.service[counted], pods.level[counted])
    # the rest is own usage, short-lived pods and arrivals
    usual = np.fmax(usual, sums)
    zero = np.where(np.isnan(trajectory), trajectory, np.float32(0))
    return NodeTrajectories(
        row={each.node: index for index, each in enumerate(found)},
        trajectory=trajectory,
        gain=np.divide(trajectory, usual, out=zero, where=usual > 0),
        ratio=_ratios(ahead.forecasts, members.resource),
        factor=factor,
        week=_weeks(ahead, min_days),
        allowance=np.array([*(each.allowance for each in found), 0.0]),
    )


def _trajectories(ahead: Ahead, min_days: int) -> tuple[Grid, Grid]:
    """(nodes + 1, 288) each, in the steps from the forecast's start: trajectory, and weighted mean of the days."""
    nodes = ahead.forecasts.nodes
    trajectory, usual = (np.full((len(nodes) + 1, SLOTS), np.nan, dtype=np.float32) for _ in range(2))
    for group in ahead.groups:
        found = [nodes[node] for node in group.nodes.tolist()]
        peak = np.array(
            [planned_peak(each, ahead.members.resource) if each.days_used >= min_days else np.nan for each in found]
        )[:, None]
        weighted = weighted_mean(group.expected.daily, group.weights)[:, None]
        profile = np.roll([each.profile for each in found], -ahead.composition.window.first_slot, axis=1)
        smooth = _smooth(profile)
        mean = usual[group.nodes] = _smooth(slot_mean(group.expected.series, group.weights))
        # smoothing widens short peaks, which must not raise the P95
        share = group.past.statistic
        level = np.minimum(quantile(profile, share), quantile(smooth, share))[:, None]
        scaled = smooth * np.divide(peak, level, out=np.ones(peak.shape), where=level > 0)
        # a profile that is 0 except for short peaks cannot be scaled
        scaled = np.where(level > 0, scaled, smooth + peak)
        # peaks at a different hour each day raise the profile above every single day; the scaled profile is at least
        # the mean of the days
        least = mean * np.divide(np.minimum(peak, weighted), weighted, out=np.ones(peak.shape), where=weighted > 0)
        least = np.fmax(least, _after_rest(group))
        trajectory[group.nodes] = np.maximum(scaled, np.where(np.isnan(least), 0.0, least * group.factor_ahead))
    return trajectory, usual


def _weeks(ahead: Ahead, min_days: int) -> Floats:
    """(nodes + 1,) highest daily P95 of the last seven days."""
    week = np.full(len(ahead.forecasts.nodes) + 1, np.nan)
    for group in ahead.groups:
        daily = group.past.daily
        enough = np.isfinite(daily).sum(axis=1) >= min_days
        week[group.nodes] = np.where(enough, _highest_of_week(daily), np.nan)
    return week


def _highest_of_week(daily: Floats) -> Floats:
    """(rows,) the highest of the last seven days of `daily` (rows, days); NaN without any."""
    out: Floats = np.fmax.reduce(daily[:, -WEEK_DAYS:], axis=1)
    return out


def _over_mean(highest: Floats, daily: Grid) -> Floats:
    """(rows, days) `highest` / mean of each day; NaN where unknown or 0."""
    known = np.isfinite(daily)
    mean = np.where(known, daily, np.float32(0)).sum(axis=2) / np.maximum(known.sum(axis=2), 1)
    out: Floats = np.divide(highest, mean, out=np.full(highest.shape, np.nan), where=mean > 0)
    return out


def _after_rest(group: Group) -> Grid:
    """(nodes, 288) course of the same weekday last week where the horizon is expected to be a workday after rest; NaN
    elsewhere.

    It is one where that day was higher by RISE than the day before it, and the last day is nearer to the latter: of the
    node, and of all nodes of its pool together.
    """
    past = group.past
    none = np.full((len(group.nodes), SLOTS), np.nan, dtype=np.float32)
    if past.daily.shape[1] <= WEEK_DAYS or group.expected is not past:
        return none
    three = past.daily[:, [-WEEK_DAYS - 1, -WEEK_DAYS, -1]]
    known: Bools = np.asarray(np.isfinite(three).all(axis=1))
    total = np.where(known[:, None], three, 0.0).sum(axis=0)
    rests = known & _rises(three) & _rises(total[None])
    return np.where(rests[:, None], _smooth(past.series[:, -WEEK_DAYS]), none)


def _rises(three: Floats) -> Bools:
    """(rows,) for (rows, 3): the day before the same weekday last week, that weekday, and the last day."""
    before, then, last = three.T
    out: Bools = (then > RISE * before) & (last < (before + then) / 2)
    return out


def planned_peak(forecast: NodeForecast, resource: ForecastResource) -> float:
    """The peak that plans go by, without the allowance for new services."""
    return forecast.peak_millicores - (forecast.allowance if resource.keeps_margin else forecast.margin)


def _ratios(forecasts: Forecasts, resource: ForecastResource) -> Floats:
    """(nodes + 1,) (`planned_peak` / peak without margin) x event factor; the median where unknown."""
    peak = np.array([planned_peak(each, resource) for each in forecasts.nodes])
    bare = np.array([each.peak_millicores - each.margin for each in forecasts.nodes])
    events = np.array([each.parts.event_factor for each in forecasts.nodes])
    ratio = np.divide(peak, bare, out=np.full(len(peak), np.nan), where=bare > 0)
    ratio = np.clip(ratio, 1.0, MOST_RATIO) * events
    known = ratio[np.isfinite(ratio)]
    middle = float(np.median(known)) if len(known) else 1.0
    return np.append(np.where(np.isfinite(ratio), ratio, middle), middle)


def lay(grid: Grid, shapes: Grid, node: Ints, service: Ints, amount: Floats) -> None:
    """Add amounts (rows,), each times its service's shape, to the rows of `grid` of their nodes."""
    order = np.argsort(node, kind="stable")
    for first in range(0, len(order), CHUNK_ROWS):
        rows = order[first : first + CHUNK_ROWS]
        values = shapes[service[rows]] * amount[rows, None].astype(np.float32)
        starts = np.flatnonzero(np.diff(node[rows], prepend=-1))
        grid[node[rows[starts]]] += sums_of_runs(values, starts)


def _smooth(profiles: Grid) -> Grid:
    """Mean of each slot and its known neighbours; the day is cyclic."""
    around = [np.roll(profiles, shift, axis=1) for shift in (-1, 0, 1)]
    known = np.sum([np.isfinite(each) for each in around], axis=0)
    with np.errstate(invalid="ignore"):  # 0/0 where unknown
        return np.asarray(np.sum([np.nan_to_num(each) for each in around], axis=0) / known, dtype=np.float32)
