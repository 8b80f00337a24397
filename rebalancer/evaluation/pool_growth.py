"""Growth of a pool since the time of a cycle.

Load that rises in the morning rises on relieved nodes too. Without this comparison it would count against evictions.
The nodes without evictions and without replacements are compared, or with too few of them all nodes together: moves
inside a pool don't change the sum.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import Usage
from rebalancer.model.records.effect import Assessment, EffectRecords, NodeObservation

COMPARED: Final = 50
"""Untouched nodes of a pool that are compared; more say little more."""
ENOUGH: Final = 3
"""With fewer all nodes are compared."""
SUMMED: Final = 200
"""At most so many nodes: a larger pool has untouched ones."""
LEAST_SHARE: Final = 0.05
"""A node that used less is not compared: its ratio says little."""
LEAST, MOST = 0.5, 2.0
LONGEST_CYCLE_SECONDS: Final = 3600.0
"""A cycle begins at most so long before its last eviction."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """A pool now."""

    nodes: Mapping[str, float]
    """Name -> share of its CPU."""
    capacity: Mapping[str, float]
    """Name -> millicores."""
    untouched: Sequence[str]
    closed: bool
    """Whether no replacement has moved load into it or out of it."""


def pool_growth(
    records: EffectRecords,
    snapshot: ClusterSnapshot,
    usage: Usage,
    pools: Sequence[str],
    *,
    due: Sequence[Assessment],
    touched: Collection[str],
    replacing: Mapping[str, str],
) -> dict[tuple[str, str], float]:
    """(cycle, pool) of due assessments -> CPU of the pool's nodes now / in the cycle; those where it is known.

    The median over untouched nodes, or the ratio of the sums over all nodes. `pools` (nodes,) names of the nodes'
    pools; `touched`: nodes with evictions or replacements since the cycles; `replacing`: uid of each replacement since
    then -> the node that the evicted pod left.
    """
    out = {}
    for name in {each.pool for each in due}:
        of_pool = [each for each in due if each.pool == name]
        pool = _pool_now(snapshot, usage, pools, name, touched=touched, replacing=replacing)
        by_untouched = len(pool.untouched) >= ENOUGH
        if not by_untouched and not (pool.closed and 2 <= len(pool.nodes) <= SUMMED):
            continue
        compared = pool.untouched[:: max(1, len(pool.untouched) // COMPARED)] if by_untouched else sorted(pool.nodes)
        since = min(each.last_eviction_at for each in of_pool) - LONGEST_CYCLE_SECONDS
        until = max(each.last_eviction_at for each in of_pool) + 1.0
        observed = records.node_observations(compared, since, until)
        for cycle in {each.cycle for each in of_pool}:
            before = _shares_in(observed, cycle)
            growth = _median_growth(before, pool) if by_untouched else _sum_growth(before, pool)
            if growth is not None:
                out[cycle, name] = min(max(growth, LEAST), MOST)
    return out


def _pool_now(
    snapshot: ClusterSnapshot,
    usage: Usage,
    pools: Sequence[str],
    name: str,
    *,
    touched: Collection[str],
    replacing: Mapping[str, str],
) -> _Pool:
    capacity = snapshot.nodes.cpu_capacity_millicores
    rows = [row for row, its in enumerate(pools) if its == name]
    names = snapshot.nodes.names
    nodes = {names[row]: float(usage.node_cpu_millicores[row] / capacity[row]) for row in rows}
    known = [each for each, share in nodes.items() if np.isfinite(share)]
    return _Pool(
        nodes=nodes,
        capacity={names[row]: float(capacity[row]) for row in rows},
        untouched=sorted(each for each in known if each not in touched),
        closed=all((left in nodes) == (node in nodes) for left, node in _landed(snapshot, replacing)),
    )


def _landed(snapshot: ClusterSnapshot, replacing: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The node that each evicted pod left, and that of its replacement."""
    pods, names = snapshot.pods, snapshot.nodes.names
    if replacing:
        for uid, node in zip(pods.uids, pods.node.tolist(), strict=True):
            if node >= 0 and uid in replacing:
                yield replacing[uid], names[node]


def _shares_in(observed: Mapping[str, Sequence[NodeObservation]], cycle: str) -> dict[str, float]:
    """Node -> the share of its CPU that a cycle measured."""
    return {
        node: each.share
        for node, of_node in observed.items()
        for each in of_node
        if each.cycle == cycle and each.share is not None
    }


def _median_growth(before: Mapping[str, float], pool: _Pool) -> float | None:
    ratios = [pool.nodes[node] / share for node, share in before.items() if share >= LEAST_SHARE]
    return median(ratios) if len(ratios) >= ENOUGH else None


def _sum_growth(before: Mapping[str, float], pool: _Pool) -> float | None:
    """None unless each node is known, then and now: what one lacks the others have."""
    if not before or before.keys() != pool.nodes.keys() or not np.isfinite(list(pool.nodes.values())).all():
        return None
    earlier = sum(share * pool.capacity[node] for node, share in before.items())
    now = sum(share * pool.capacity[node] for node, share in pool.nodes.items())
    whole = sum(pool.capacity.values())
    return now / earlier if earlier >= LEAST_SHARE * whole else None
