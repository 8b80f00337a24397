"""Evicted predecessors of pods. A replacement shows little of its load at first; the ledger has what was measured."""

from collections.abc import Iterable, Mapping

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.notation.arrays import Floats


def predecessors(snapshot: ClusterSnapshot, evictions: Iterable[Eviction]) -> dict[int, Eviction]:
    """Index of each pod that replaces one of the evicted pods -> that eviction."""
    of_uid = {each.replaced.replacement_uid: each for each in evictions if each.replaced.replacement_uid}
    if not of_uid:
        return {}
    return {index: of_uid[uid] for index, uid in enumerate(snapshot.pods.uids) if uid in of_uid}


def predecessor_amounts(snapshot: ClusterSnapshot, found: Mapping[int, Eviction], resource: str) -> Floats:
    """(pods,) what each pod's evicted predecessor used of a resource besides CPU, in its unit; NaN where unknown."""
    out = np.full(len(snapshot.pods), np.nan)
    for pod, eviction in found.items():
        if resource in eviction.amounts:
            out[pod] = eviction.amounts[resource].amount
    return out
