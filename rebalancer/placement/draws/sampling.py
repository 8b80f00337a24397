"""kube-scheduler's sample: above 100 nodes it scores only a part of the feasible nodes.

Source: Kubernetes v1.36, `schedule_one.go` (`numFeasibleNodesToFind`, `selectHost`). The position of its round robin
over the nodes isn't known, so the sample is modelled as drawn at random.
"""

from functools import lru_cache

import numpy as np

from rebalancer.model.notation.arrays import Floats, Rows

MIN_NODES = 100
MIN_PERCENTAGE = 5

FIRST_REACH = 16.0
"""Points below the best score within which winners are searched first."""


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes the scheduler searches; `percentage` 0 = adaptive."""
    if nodes < MIN_NODES:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, MIN_PERCENTAGE)
    return max(nodes * percentage // 100, MIN_NODES)


def winners(scores: Floats, sample: int, *, enough: float) -> tuple[Rows, Floats]:
    """Nodes that may win, best score first, and the probability of each.

    `scores` (nodes,) are -inf where not feasible. Nodes of equal score are equally likely and listed together; the list
    ends with the score at which the probabilities reach `enough`.
    """
    total = int(np.count_nonzero(scores > -np.inf))
    if not total:
        return np.empty(0, dtype=np.int64), np.empty(0)
    best = scores.max()
    if total <= sample:
        rows = np.flatnonzero(scores == best)
        return rows, np.full(len(rows), 1.0 / len(rows))
    missed = missed_best(total, sample)
    reach = FIRST_REACH
    while True:
        rows = np.flatnonzero(scores >= best - reach)
        # scores are whole numbers, a few hundred of them
        behind = (best - scores[rows]).astype(np.int64)
        sizes = np.bincount(behind)
        ends = np.cumsum(sizes)
        chance = missed[ends - sizes] - missed[ends]
        last = int(np.searchsorted(np.cumsum(chance), enough - 1e-12))
        if last < len(sizes) or len(rows) == total:
            break
        reach *= 4
    listed = np.flatnonzero(behind <= last)
    listed = listed[np.argsort(behind[listed], kind="stable")]
    return rows[listed], (chance / np.maximum(sizes, 1))[behind[listed]]


@lru_cache(maxsize=64)
def missed_best(total: int, sample: int) -> Floats:
    """(total + 1,) probabilities that a sample contains none of the best 0, 1, 2 ... nodes."""
    ahead = np.arange(total - sample)
    return np.concatenate([[1.0], np.cumprod((total - sample - ahead) / (total - ahead)), np.zeros(sample)])
