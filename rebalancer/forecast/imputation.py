"""What pods would have used at the steps for which they have no samples, or samples of a node that had no more to give.

A pod takes its service's curve for one replica, scaled by what it has shown so far; of a service with layers, the
curve of the layer that it resembles most. Where no replica ran, the curve's other days at that time of day count.
Without a curve a pod is taken to have used what it has used on average.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.load_profiles import ServiceLoadProfiles
from rebalancer.forecast.membership import Ints, Members
from rebalancer.model.history import SLOTS, Grid

CHUNK_PODS = 2048
ENOUGH_STEPS = 12
"""A pod that has shown less than an hour may still be starting: it counts as an average replica."""
LEAST_SCALE, MOST_SCALE = 0.01, 10.0

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSteps:
    """Steps of some pods that are to be filled: bits, since there may be many."""

    pods: Ints
    """(rows,) in rising order."""
    at: slice
    """The steps that the bits are of."""
    bits: NDArray[np.uint8]

    @classmethod
    def of(cls, pods: Ints, at: slice, missing: Bools) -> "MissingSteps":
        """`missing` (rows, steps) of `pods`; rows without any are left out."""
        some = missing.any(axis=1)
        return cls(pods=pods[some].astype(np.int32), at=at, bits=np.packbits(missing[some], axis=1))


def impute(
    gaps: Sequence[MissingSteps],
    members: Members,
    curves: ServiceLoadProfiles,
    shown: NDArray[np.float64],
    covered: Bools,
) -> tuple[Grid, Bools, Grid]:
    """(nodes, steps) millicores to add for the gaps, where a curve stood behind them, and (pods, days) their sums; NaN
    for a pod of which neither samples nor a curve are known.

    `shown` (2, pods): sum and number of the samples outside the gaps; `covered` (steps,): where days were read.
    """
    nodes, steps = len(members.nodes), len(covered)
    filled = np.zeros((nodes, steps), dtype=np.float32)
    by_curve = np.zeros((nodes, steps), dtype=np.bool_)
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
        guessed = _expected(chunk, covered & ~missing, members, curves, shown)
        known = np.isfinite(guessed)
        count = np.maximum(shown[1, chunk], 1.0)
        mean = np.where(shown[1, chunk] >= ENOUGH_STEPS, shown[0, chunk] / count, 0.0).astype(np.float32)
        guessed = np.where(missing, np.where(known, guessed, mean[:, None]), np.float32(0))
        sure = chunk[(shown[1, chunk] >= ENOUGH_STEPS) | known.any(axis=1)]
        of_pods[sure] = guessed.reshape(len(chunk), -1, SLOTS).sum(axis=2)[np.searchsorted(chunk, sure)]
        on = members.node[chunk]
        starts = np.flatnonzero(np.diff(on, prepend=-1))
        filled[on[starts]] += np.add.reduceat(guessed, starts, axis=0)
        by_curve[on[starts]] |= np.logical_or.reduceat(missing & known, starts, axis=0)
    return filled, by_curve, of_pods


def _expected(
    pods: Ints, present: Bools, members: Members, curves: ServiceLoadProfiles, shown: NDArray[np.float64]
) -> Grid:
    """(pods, steps) millicores by the services' curves, on the machines that the pods are on; NaN where unknown."""
    service = members.service[pods]
    factor = members.factor[members.node[pods]]
    total, count = shown[0, pods] * factor, shown[1, pods]
    curve = curves.layers[service, 0] if len(members.services) else np.full(present.shape, np.nan, dtype=np.float32)
    curve[service < 0] = np.nan
    scale = _scale(total, count, _sum(curve, present))
    layered = np.flatnonzero((service >= 0) & curves.has_layers[service]) if len(members.services) else service[:0]
    if len(layered):
        heavy = curves.layers[service[layered], 1]
        other = _scale(total[layered], count[layered], _sum(heavy, present[layered]))
        average = curves.mean(service[layered])
        light = curve[layered]
        mine = np.where((np.abs(np.log(other)) < np.abs(np.log(scale[layered])))[:, None], heavy, light)
        unsure = count[layered] < ENOUGH_STEPS
        # at steps at which its layer did not run, and for a pod that has not shown yet which it is of
        curve[layered] = np.where(unsure[:, None] | np.isnan(mine), average, mine)
        scale[layered] = np.where(np.abs(np.log(other)) < np.abs(np.log(scale[layered])), other, scale[layered])
    unknown = np.flatnonzero(np.isnan(curve).any(axis=1))
    curve[unknown] = _by_time_of_day(curve[unknown])
    curve *= (scale / factor)[:, None].astype(np.float32)
    return curve


def _sum(curve: Grid, present: Bools) -> NDArray[np.float64]:
    """(pods,) of the known steps of the curve at which the pod has samples."""
    usable = np.isfinite(curve)
    usable &= present
    return np.asarray(np.add.reduce(curve, axis=1, where=usable, dtype=np.float64), dtype=np.float64)


def _scale(total: NDArray[np.float64], count: NDArray[np.float64], curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """(pods,) what each has shown against its curve; 1 where it has shown too little."""
    known = (count >= ENOUGH_STEPS) & (curve > 0)
    ratio = np.divide(total, curve, out=np.ones(len(total), dtype=np.float64), where=known)
    clipped: NDArray[np.float64] = np.clip(ratio, LEAST_SCALE, MOST_SCALE)
    return clipped


def _by_time_of_day(curve: Grid) -> Grid:
    """Unknown steps take the mean of the curve's other days at that time: a service can be younger than the days."""
    days = curve.reshape(len(curve), curve.shape[1] // SLOTS, SLOTS)
    known = np.isfinite(days)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        profile = np.where(known, days, np.float32(0)).sum(axis=1) / count  # 0/0 at times that no day knows
    return np.where(known, days, profile[:, None, :]).reshape(curve.shape)
