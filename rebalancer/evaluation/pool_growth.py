"""Growth of a pool: what its nodes without evictions and without replacements use, compared with the time of a cycle.

Load that rises in the morning rises on relieved nodes too. Without this comparison it would count against evictions.
"""

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Final

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import Usage
from rebalancer.model.records.effect import Assessment, EffectRecords, NodeObservation

COMPARED: Final = 50
"""Untouched nodes of a pool that are compared; more say little more."""
ENOUGH: Final = 3
"""With fewer the growth is not known."""
LEAST_SHARE: Final = 0.05
"""A node that used less is not compared: its ratio says little."""
LEAST, MOST = 0.5, 2.0
LONGEST_CYCLE_SECONDS: Final = 3600.0
"""A cycle begins at most so long before its last eviction."""


def pool_growth(
    records: EffectRecords,
    snapshot: ClusterSnapshot,
    usage: Usage,
    pools: Sequence[str],
    *,
    due: Sequence[Assessment],
    touched: Collection[str],
) -> dict[tuple[str, str], float]:
    """(cycle, pool) of each due assessment -> CPU of the pool's untouched nodes now / in the cycle; 1 = not known.

    The median over nodes. `pools` (nodes,) names of the nodes' pools; `touched`: nodes with evictions or replacements
    since the cycles.
    """
    shares = usage.node_cpu_millicores / snapshot.nodes.cpu_capacity_millicores
    out = {}
    for pool in {each.pool for each in due}:
        of_pool = [each for each in due if each.pool == pool]
        nodes = [
            name
            for name, its, share in zip(snapshot.nodes.names, pools, shares.tolist(), strict=True)
            if its == pool and name not in touched and np.isfinite(share)
        ]
        compared = sorted(nodes)[:: max(1, len(nodes) // COMPARED)]
        since = min(each.last_eviction_at for each in of_pool) - LONGEST_CYCLE_SECONDS
        until = max(each.last_eviction_at for each in of_pool) + 1.0
        observed = records.node_observations(compared, since, until) if len(compared) >= ENOUGH else {}
        now = {name: float(shares[snapshot.node_index[name]]) for name in compared}
        for cycle in {each.cycle for each in of_pool}:
            out[cycle, pool] = _growth(observed, now, cycle)
    return out


def _growth(observed: Mapping[str, Sequence[NodeObservation]], now: Mapping[str, float], cycle: str) -> float:
    ratios = [
        now[node] / each.share
        for node, of_node in observed.items()
        for each in of_node
        if each.cycle == cycle and each.share is not None and each.share >= LEAST_SHARE
    ]
    return min(max(median(ratios), LEAST), MOST) if len(ratios) >= ENOUGH else 1.0
