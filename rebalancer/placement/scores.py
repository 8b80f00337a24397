"""kube-scheduler's scores by requests, over columns of nodes.

Source: Kubernetes v1.36, pkg/scheduler/framework/plugins/noderesources (`least_allocated.go`,
`balanced_allocation.go`, `resource_allocation.go`), default weights of `apis/config/v1/default_plugins.go` (both 1),
resources cpu and memory with weight 1 each. Scores are integers 0..100, truncated where the scheduler truncates.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_SCORE = 100.0


def least_allocated(scored: Floats, allocatable: Floats) -> Floats:
    """NodeResourcesFit with LeastAllocated.

    `scored` (nodes, resources) are requests with the incoming pod counted in, a container that requests nothing
    counting as 100m and 200 MiB. A resource that would be exhausted scores 0; one with nothing allocatable isn't
    counted.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.floor((allocatable - scored) * MAX_SCORE / allocatable)
    each = np.where((allocatable > 0) & (scored <= allocatable), each, 0.0)
    counted = np.count_nonzero(allocatable > 0, axis=-1)
    score: Floats = np.floor(each.sum(axis=-1) / np.maximum(counted, 1))
    return score


def balanced_allocation(before: Floats, pod: Floats, allocatable: Floats) -> Floats:
    """NodeResourcesBalancedAllocation: how much the pod betters the balance of cpu and memory, 50..100.

    `before` (nodes, 2) real requests without the pod, `pod` (2,). A pod that requests neither is not scored.
    """
    if not pod.any():
        return np.zeros(len(before))
    change = _balance(before + pod, allocatable) - _balance(before, allocatable)
    score: Floats = MAX_SCORE / 2 + np.floor((MAX_SCORE / 2 + change) / 2)
    return score


def _balance(requested: Floats, allocatable: Floats) -> Floats:
    """(nodes,) 100 less the standard deviation of the two shares, which is half their distance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(allocatable > 0, np.minimum(requested / allocatable, 1.0), 0.0)
    both = (allocatable > 0).all(axis=-1)
    deviation = np.where(both, np.abs(share[..., 0] - share[..., 1]) / 2.0, 0.0)
    score: Floats = np.floor((1.0 - deviation) * MAX_SCORE)
    return score


def by_requests(
    *, scored: Floats, requested: Floats, pod_scored: Floats, pod_requested: Floats, allocatable: Floats
) -> Floats:
    """(nodes,) both scores at their default weights: what tells nodes apart by requests alone.

    `scored` and `requested` (nodes, 2) are the nodes' cpu and memory without the pod, the first with the scheduler's
    defaults for containers that request nothing; `pod_scored` and `pod_requested` (2,) are the pod's.
    """
    return least_allocated(scored + pod_scored, allocatable) + balanced_allocation(
        requested, pod_requested, allocatable
    )
