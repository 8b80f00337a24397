"""What a forecast keeps for newer snapshots: the courses of nodes, the shapes of services, the levels of pods.

A pod is a level and its service's shape over the day: nothing is kept for every pod and step. Columns have one row more
than there are nodes, services or pods: the last (index -1) stands for one that isn't known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.membership import Ints
from rebalancer.forecast.percentiles import P95, day_weights, quantile, slot_mean, weighted_mean
from rebalancer.forecast.predict import Ahead
from rebalancer.forecast.result import Forecasts
from rebalancer.model.history import SLOTS, Grid
from rebalancer.policy.schema.forecast import DayWeights

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
CHUNK_ROWS = 1024
LEAST_WEIGHT = 1e-6
MOST_RATIO = 2.0
"""A node that is nearly idle may have a margin of many times its level: that says nothing of what comes to it."""


@dataclass(frozen=True, kw_only=True)
class NodeTrajectories:
    """What is expected of the nodes."""

    row: Mapping[str, int]
    """By name."""
    course: Grid
    """(nodes + 1, 288) expected millicores in the 288 steps from the forecast's start; NaN where it decides nothing."""
    gain: Grid
    """(nodes + 1, 288) expected millicores for each that is usual at that time of day."""
    ratio: Floats
    """(nodes + 1,) what is to be expected of a pod there for each millicore that is usual: margin and events."""
    factor: Floats
    """(nodes + 1,) as in `Members`."""


@dataclass(frozen=True, kw_only=True)
class SeasonalProfiles:
    """How the services use what they use."""

    row: Mapping[str, int]
    """By `namespace/name`."""
    shapes: Grid
    """(services + 1, 288) in parts of the service's mean, in the steps from the forecast's start; 1 where unknown."""
    usual: Floats
    """(services + 1,) millicores of one replica on the reference machine; NaN where unknown."""
    days: Ints
    """(services + 1,) of how many days at least half is known."""

    def courses(self, services: Ints, part: slice) -> Grid:
        """(services, steps of `part`) usual millicores of one replica of each."""
        return np.asarray(self.usual[services, None] * self.shapes[services, part], dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class PodLoads:
    """How much the pods use that the forecast was made of."""

    row: Mapping[str, int]
    """By uid."""
    names: Sequence[str]
    """(pods,) `namespace/name`"""
    node: Ints
    service: Ints
    level: Floats
    """Mean millicores, newer days counting more; NaN where nothing is known of it."""
    short_lived: Bools

    @property
    def counted(self) -> Bools:
        """Whether it is in its node's course. Short-lived pods are in their pool's crowd."""
        return np.isfinite(self.level) & ~self.short_lived


def seasonal_profiles(ahead: Ahead, days: DayWeights) -> SeasonalProfiles:
    """Shapes over the day and usual levels, from the mean of the days."""
    members, window = ahead.members, ahead.composition.window
    weights = day_weights(days, window.days)
    # of a service that ran only on days that don't count these are still better than nothing
    weights = np.maximum(weights / weights.max(), LEAST_WEIGHT)
    count = len(members.services)
    shapes, usual = np.ones((count + 1, SLOTS), dtype=np.float32), np.full(count + 1, np.nan)
    days_known = np.zeros(count + 1, dtype=np.int32)
    for first in range(0, count, CHUNK_ROWS):
        some = np.arange(first, min(first + CHUNK_ROWS, count))
        daily = ahead.composition.curves.mean(some).reshape(len(some), window.days, SLOTS)
        days_known[some] = (2 * np.isfinite(daily).sum(axis=2) >= SLOTS).sum(axis=1)
        mean = slot_mean(daily, weights)
        known = np.isfinite(mean)
        level = np.where(known, mean, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        usual[some] = np.where(known.any(axis=1), level, np.nan)
        shape = np.divide(_smooth(mean), level[:, None], out=np.ones(mean.shape), where=level[:, None] > 0)
        shapes[some] = np.nan_to_num(shape, nan=1.0)
    # of two services of one name the first counts, as in `Members`
    row = {name: index for index, name in reversed(tuple(enumerate(members.services)))}
    return SeasonalProfiles(row=row, shapes=shapes, usual=usual, days=days_known)


def pod_loads(ahead: Ahead) -> PodLoads:
    """Levels with the day weights of each node's pool; declared events of the past are taken out."""
    members, composition = ahead.members, ahead.composition
    level = np.full(len(members.pods) + 1, np.nan)
    for group in ahead.groups:
        mine = np.append(np.isin(members.node, group.nodes), False)
        daily = composition.pod_daily[mine[:-1]] / group.past_factor.mean(axis=1)
        level[mine] = weighted_mean(daily, group.weights * composition.day_shares)
    return PodLoads(
        row={uid: index for index, uid in enumerate(members.uids)},
        names=members.pods,
        node=np.append(members.node, np.int32(-1)),
        service=np.append(members.service, np.int32(-1)),
        level=level,
        short_lived=np.append(members.short_lived, False),
    )


def node_trajectories(ahead: Ahead, services: SeasonalProfiles, pods: PodLoads, min_days: int) -> NodeTrajectories:
    """Courses, and what a millicore of a pod is in them."""
    members, found = ahead.members, ahead.forecasts.nodes
    course, usual = _courses(ahead, min_days)
    factor = np.append(members.factor, 1.0).astype(np.float64)
    sums = np.zeros(course.shape, dtype=np.float32)
    counted = pods.counted
    lay(sums, services.shapes, pods.node[counted], pods.service[counted], pods.level[counted])
    # what the pods don't explain is the node's own, the crowd's, and what arrivals will bring
    usual = np.fmax(usual, sums)
    return NodeTrajectories(
        row={each.node: index for index, each in enumerate(found)},
        course=course,
        gain=np.divide(course, usual, out=np.where(np.isnan(course), course, np.float32(0)), where=usual > 0),
        ratio=_ratios(ahead.forecasts),
        factor=factor,
    )


def _courses(ahead: Ahead, min_days: int) -> tuple[Grid, Grid]:
    """(nodes + 1, 288) each, in the steps from the forecast's start: what is expected, and the mean of the days."""
    nodes = ahead.forecasts.nodes
    course, usual = (np.full((len(nodes) + 1, SLOTS), np.nan, dtype=np.float32) for _ in range(2))
    for group in ahead.groups:
        found = [nodes[node] for node in group.nodes.tolist()]
        peak = np.array([each.peak_millicores if each.days_used >= min_days else np.nan for each in found])[:, None]
        weighted = np.array([each.parts.weighted_p95 for each in found])[:, None]
        curve = np.roll([each.curve for each in found], -ahead.composition.window.first_slot, axis=1)
        smooth = _smooth(curve)
        mean = usual[group.nodes] = _smooth(slot_mean(group.past.series, group.weights))
        # smoothing makes short peaks longer: the P95 must not take them for the level
        level = np.minimum(quantile(curve, P95), quantile(smooth, P95))[:, None]
        scaled = smooth * np.divide(peak, level, out=np.ones(peak.shape), where=level > 0)
        # a curve that is 0 but for short peaks has nothing to be scaled by
        scaled = np.where(level > 0, scaled, smooth + peak)
        # peaks that come at another hour every day make the curve higher than any day was; scaling it down must not
        # leave less than the mean of the days
        least = mean * np.divide(np.minimum(peak, weighted), weighted, out=np.ones(peak.shape), where=weighted > 0)
        course[group.nodes] = np.maximum(scaled, np.where(np.isnan(least), 0.0, least * group.factor_ahead))
    return course, usual


def _ratios(forecasts: Forecasts) -> Floats:
    """(nodes + 1,) peak with its margin to peak without, and what events add; where unknown, as in the middle."""
    peak = np.array([each.peak_millicores for each in forecasts.nodes])
    margin = np.array([each.margin for each in forecasts.nodes])
    events = np.array([each.parts.event_factor for each in forecasts.nodes])
    bare = peak - margin
    ratio = np.divide(peak, bare, out=np.full(len(peak), np.nan), where=bare > 0)
    ratio = np.clip(ratio, 1.0, MOST_RATIO) * events
    known = ratio[np.isfinite(ratio)]
    middle = float(np.median(known)) if len(known) else 1.0
    return np.append(np.where(np.isfinite(ratio), ratio, middle), middle)


def lay(grid: Grid, shapes: Grid, node: Ints, service: Ints, amount: Floats) -> None:
    """Add amounts (rows,), each over its service's shape, to the rows of `grid` of their nodes."""
    order = np.argsort(node, kind="stable")
    for first in range(0, len(order), CHUNK_ROWS):
        rows = order[first : first + CHUNK_ROWS]
        values = shapes[service[rows]] * amount[rows, None].astype(np.float32)
        starts = np.flatnonzero(np.diff(node[rows], prepend=-1))
        grid[node[rows[starts]]] += np.add.reduceat(values, starts, axis=0)


def _smooth(curves: Grid) -> Grid:
    """Mean of each slot and its neighbours, as far as they are known; the day is a circle."""
    around = [np.roll(curves, shift, axis=1) for shift in (-1, 0, 1)]
    known = np.sum([np.isfinite(each) for each in around], axis=0)
    with np.errstate(invalid="ignore"):  # 0/0 where nothing is known
        return np.asarray(np.sum([np.nan_to_num(each) for each in around], axis=0) / known, dtype=np.float32)
