"""Nodes that the last cycle before a reading of the hot-node SLO evaluated and that are gone now.

They may have been hot while no cycle ran: their episodes count as all others do.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.pools import NodePools


def with_removed(nodes: Nodes, node_pools: NodePools, known: Mapping[str, str]) -> tuple[Nodes, NodePools]:
    """Both with the nodes of `known` (name -> pool) behind that are not among them.

    Only their names and pools are known; their capacity is taken for the median of the pool's.
    """
    there = frozenset(nodes.names)
    index = {pool.name: number for number, pool in enumerate(node_pools.pools)}
    gone = sorted(name for name, pool in known.items() if name not in there and pool in index)
    if not gone:
        return nodes, node_pools
    pools = np.array([index[known[name]] for name in gone], dtype=np.int32)
    capacity = np.array([_median(nodes.cpu_capacity_millicores, node_pools.members(int(pool))) for pool in pools])
    blank = replace(Nodes.blank(len(gone)), names=tuple(gone))
    more = nodes.concat(replace(blank, cpu_capacity_millicores=capacity, cpu_allocatable_millicores=capacity))
    return more, NodePools(node_pools.pools, more.names, np.append(node_pools.of_node, pools))


def _median(capacity: Floats, members: NDArray[np.intp]) -> float:
    of_pool = capacity[members]
    return float(np.median(of_pool if len(of_pool) else capacity)) if len(capacity) else np.nan
