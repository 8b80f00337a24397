"""Imputation of steps without samples, and of steps of saturated nodes.

A pod follows the profile of its service, scaled by its own samples; for a service with layers, the profile of the more
similar layer. At steps without replicas the profile's other days at that time of day are used. Without a profile the
pod's mean is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.load_profiles import ServiceLoadProfiles
from rebalancer.forecast.series.membership import Members
from rebalancer.forecast.series.runs import any_of_runs, sums_of_runs
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.notation.arrays import Bools, Ints

CHUNK_PODS = 2048
ENOUGH_STEPS = 12
"""A pod with samples of less than an hour may still be starting and counts as an average replica."""
LEAST_SCALE, MOST_SCALE = 0.01, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSteps:
    """Steps of some pods to impute, as bits."""

    pods: Ints
    """(rows,) in rising order."""
    at: slice
    """Steps of the bits."""
    bits: NDArray[np.uint8]

    @classmethod
    def of(cls, pods: Ints, at: slice, missing: Bools) -> "MissingSteps":
        """From `missing` (rows, steps) of `pods`, without empty rows."""
        some = missing.any(axis=1)
        return cls(pods=pods[some].astype(np.int32), at=at, bits=np.packbits(missing[some], axis=1))


def impute(
    gaps: Sequence[MissingSteps],
    members: Members,
    profiles: ServiceLoadProfiles,
    shown: NDArray[np.float64],
    covered: Bools,
) -> tuple[Grid, Bools, Grid]:
    """(nodes, steps) imputed millicores, whether they come from a profile, and (pods, days) their sums; NaN for a
    pod with neither samples nor a profile.

    `shown` (2, pods): sum and number of the samples outside the gaps; `covered` (steps,): steps with samples.
    """
    nodes, steps = len(members.nodes), len(covered)
    filled = np.zeros((nodes, steps), dtype=np.float32)
    by_profile = np.zeros((nodes, steps), dtype=np.bool_)
    of_pods = np.zeros((len(members.pods), steps // SLOTS), dtype=np.float32)
    of_pods[shown[1] < ENOUGH_STEPS] = np.nan
    pods = np.unique(np.concatenate([gap.pods for gap in gaps])) if gaps else np.empty(0, dtype=np.int32)
    for first in range(0, len(pods), CHUNK_PODS):
        chunk = pods[first : first + CHUNK_PODS]
        missing = np.zeros((len(chunk), steps), dtype=np.bool_)
        for gap in gaps:
            begin, end = np.searchsorted(gap.pods, [chunk[0], chunk[-1] + 1])
            bits = np.unpackbits(gap.bits[begin:end], axis=1, count=gap.at.stop - gap.at.start)
            missing[np.searchsorted(chunk, gap.pods[begin:end]), gap.at] |= bits.astype(np.bool_)
        imputed = _expected(chunk, covered & ~missing, members, profiles, shown)
        known = np.isfinite(imputed)
        count = np.maximum(shown[1, chunk], 1.0)
        mean = np.where(shown[1, chunk] >= ENOUGH_STEPS, shown[0, chunk] / count, 0.0).astype(np.float32)
        imputed = np.where(missing, np.where(known, imputed, mean[:, None]), np.float32(0))
        sure = chunk[(shown[1, chunk] >= ENOUGH_STEPS) | known.any(axis=1)]
        of_pods[sure] = imputed.reshape(len(chunk), -1, SLOTS).sum(axis=2)[np.searchsorted(chunk, sure)]
        on = members.node[chunk]
        starts = np.flatnonzero(np.diff(on, prepend=-1))
        filled[on[starts]] += sums_of_runs(imputed, starts)
        by_profile[on[starts]] |= any_of_runs(missing & known, starts)
    return filled, by_profile, of_pods


def _expected(
    pods: Ints, present: Bools, members: Members, profiles: ServiceLoadProfiles, shown: NDArray[np.float64]
) -> Grid:
    """(pods, steps) millicores by the profiles of the services, on the current nodes; NaN where unknown."""
    service = members.service[pods]
    factor = members.factor[members.node[pods]]
    total, count = shown[0, pods] * factor, shown[1, pods]
    profile = profiles.layers[service, 0] if len(members.services) else np.full(present.shape, np.nan, dtype=np.float32)
    profile[service < 0] = np.nan
    scale = _scale(total, count, _sum(profile, present))
    layered = np.flatnonzero((service >= 0) & profiles.has_layers[service]) if len(members.services) else service[:0]
    if len(layered):
        heavy = profiles.layers[service[layered], 1]
        other = _scale(total[layered], count[layered], _sum(heavy, present[layered]))
        average = profiles.mean(service[layered])
        light = profile[layered]
        mine = np.where((np.abs(np.log(other)) < np.abs(np.log(scale[layered])))[:, None], heavy, light)
        unsure = count[layered] < ENOUGH_STEPS
        # steps without replicas of its layer, and pods with too few samples to choose one
        profile[layered] = np.where(unsure[:, None] | np.isnan(mine), average, mine)
        scale[layered] = np.where(np.abs(np.log(other)) < np.abs(np.log(scale[layered])), other, scale[layered])
    unknown = np.flatnonzero(np.isnan(profile).any(axis=1))
    profile[unknown] = _by_time_of_day(profile[unknown])
    profile *= (scale / factor)[:, None].astype(np.float32)
    return profile


def _sum(profile: Grid, present: Bools) -> NDArray[np.float64]:
    """(pods,) sum of the profile over its known steps at which the pod has samples."""
    usable = np.isfinite(profile)
    usable &= present
    return np.asarray(np.add.reduce(profile, axis=1, where=usable, dtype=np.float64), dtype=np.float64)


def _scale(total: NDArray[np.float64], count: NDArray[np.float64], profile: NDArray[np.float64]) -> NDArray[np.float64]:
    """(pods,) ratio of samples to profile; 1 with too few samples."""
    known = (count >= ENOUGH_STEPS) & (profile > 0)
    ratio = np.divide(total, profile, out=np.ones(len(total), dtype=np.float64), where=known)
    clipped: NDArray[np.float64] = np.clip(ratio, LEAST_SCALE, MOST_SCALE)
    return clipped


def _by_time_of_day(profile: Grid) -> Grid:
    """Fill unknown steps with the mean of the other days at that time: a service may be younger than the window."""
    days = profile.reshape(len(profile), profile.shape[1] // SLOTS, SLOTS)
    known = np.isfinite(days)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_time = np.where(known, days, np.float32(0)).sum(axis=1) / count  # 0/0 at times without any day
    return np.where(known, days, by_time[:, None, :]).reshape(profile.shape)
