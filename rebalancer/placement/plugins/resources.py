"""kube-scheduler's scores by requests, over columns of nodes: integers 0..100, truncated where it truncates.

Source: Kubernetes v1.36, plugins/noderesources (`least_allocated.go`, `most_allocated.go`,
`requested_to_capacity_ratio.go`, `balanced_allocation.go`, `resource_allocation.go`). Arrays are (nodes, resources); a
resource with nothing allocatable isn't counted.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rebalancer.model.cluster.scheduler import SchedulerProfile
from rebalancer.model.notation.arrays import Bools, Floats

MAX_SCORE = 100.0
CUSTOM_SCALE = 10.0
"""Points of a RequestedToCapacityRatio shape are 0..10."""


def fit_score(profile: SchedulerProfile, requested: Floats, allocatable: Floats) -> Floats:
    """(nodes,) NodeResourcesFit with the profile's strategy; the incoming pod is counted in `requested`."""
    weights = [float(weight) for _, weight in profile.fit_resources]
    match profile.fit_strategy:
        case "LeastAllocated":
            return least_allocated(requested, allocatable, weights)
        case "MostAllocated":
            return most_allocated(requested, allocatable, weights)
        case "RequestedToCapacityRatio":
            return requested_to_capacity_ratio(requested, allocatable, weights, profile.fit_shape)


def least_allocated(requested: Floats, allocatable: Floats, weights: Sequence[float] | None = None) -> Floats:
    """Emptier nodes score more. A resource that would be exhausted scores 0."""
    there = allocatable > 0
    if there.all():
        each = allocatable - requested
        exhausted = each < 0
        each *= MAX_SCORE
        each /= allocatable
        np.floor(each, out=each)
        each[exhausted] = 0.0
        return _mean(each, None, weights)
    each = np.floor((allocatable - requested) * MAX_SCORE / np.where(there, allocatable, 1.0))
    return _mean(np.where(there & (requested <= allocatable), each, 0.0), there, weights)


def most_allocated(requested: Floats, allocatable: Floats, weights: Sequence[float] | None = None) -> Floats:
    """Fuller nodes score more."""
    there = allocatable > 0
    each = np.floor(np.minimum(requested, allocatable) * MAX_SCORE / np.where(there, allocatable, 1.0))
    return _mean(np.where(there, each, 0.0), there, weights)


def requested_to_capacity_ratio(
    requested: Floats, allocatable: Floats, weights: Sequence[float], shape: Sequence[tuple[int, int]]
) -> Floats:
    """A broken line from utilization to points; a resource that scores 0 isn't counted, and the mean is rounded."""
    there = allocatable > 0
    used = np.floor(requested * 100.0 / np.where(there, allocatable, 1.0))
    each = _on_line(np.where(requested > allocatable, 100.0, used), shape)
    counted = there & (each > 0)
    weight = np.asarray(weights, dtype=np.float64)
    total = np.where(counted, weight, 0.0).sum(axis=-1)
    mean = np.where(counted, each * weight, 0.0).sum(axis=-1) / np.maximum(total, 1.0)
    score: Floats = np.floor(mean + 0.5)
    return score


def _on_line(used: Floats, shape: Sequence[tuple[int, int]]) -> Floats:
    """Points 0..100; between two points cut towards zero, as integer division does."""
    points = [(float(at), score * CUSTOM_SCALE) for at, score in shape]
    value: Floats = np.full(used.shape, points[-1][1])
    for (left, low), (right, high) in reversed(list(pairwise(points))):
        value = np.where(used <= right, low + np.trunc((high - low) * (used - left) / (right - left)), value)
    return np.where(used <= points[0][0], points[0][1], value)


def _mean(each: Floats, counted: Bools | None, weights: Sequence[float] | None) -> Floats:
    """`counted` None = all of them."""
    weight = np.ones(each.shape[-1]) if weights is None else np.asarray(weights, dtype=np.float64)
    points = each[..., 0] * weight[0]
    for index in range(1, len(weight)):
        points += each[..., index] * weight[index]
    total = weight.sum() if counted is None else np.where(counted, weight, 0.0).sum(axis=-1)
    score: Floats = np.floor(points / np.maximum(total, 1.0))
    return score


def balanced_allocation(
    before: Floats, pod: Floats, allocatable: Floats, *, balance_before: Floats | None = None
) -> Floats:
    """NodeResourcesBalancedAllocation: how much the pod betters the balance of the resources, 50..100.

    `before` (nodes, resources) real requests without the pod, `pod` (resources,). A pod that requests none of them is
    not scored. Resources' weights don't count. `balance_before` is `balance(before, allocatable)` where that is known.
    """
    if not pod.any():
        return np.zeros(len(before))
    score = balance(before + pod, allocatable)
    score -= balance(before, allocatable) if balance_before is None else balance_before
    score += MAX_SCORE / 2
    score /= 2
    np.floor(score, out=score)
    score += MAX_SCORE / 2
    return score


def balance(requested: Floats, allocatable: Floats) -> Floats:
    """(nodes,) 100 less the standard deviation of the shares; of two shares that is half their distance."""
    there = allocatable > 0
    if all_there := bool(there.all()):
        share = requested / allocatable
        np.minimum(share, 1.0, out=share)
    else:
        share = np.where(there, np.minimum(requested / np.where(there, allocatable, 1.0), 1.0), 0.0)
    if share.shape[-1] == 2:
        deviation = share[..., 0] - share[..., 1]
        deviation /= 2.0
        np.abs(deviation, out=deviation)
        if not all_there:
            deviation = np.where(there[..., 0] & there[..., 1], deviation, 0.0)
    else:
        deviation = _deviation(share, there)
    score: Floats = np.floor((1.0 - deviation) * MAX_SCORE)
    return score


def _deviation(share: Floats, there: Bools) -> Floats:
    counted = there.sum(axis=-1)
    mean = share.sum(axis=-1) / np.maximum(counted, 1)
    off = np.where(there, share - mean[..., None], 0.0)
    deviation: Floats = np.sqrt((off * off).sum(axis=-1) / np.maximum(counted, 1))
    return np.where(counted == 2, np.abs(off).sum(axis=-1) / 2.0, deviation)
