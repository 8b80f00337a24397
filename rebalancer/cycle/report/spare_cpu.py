"""CPU that a pool has to spare, or lacks, wherever its pods run.

Pods are placed and moved at will within their pool, in parts too, as in a replay's capacity
(`replay.comparison.capacity`): where CPU is lacking even so, some node stays over `high` whatever is evicted.
"""

from collections.abc import Mapping

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.figures import cores
from rebalancer.policy.pools import NodePools
from rebalancer.projection.projection import Projection
from rebalancer.strategies.interface.loads import CpuLoads, cpu_loads
from rebalancer.strategies.interface.selection import fills


def spare_cpu(
    snapshot: ClusterSnapshot, node_pools: NodePools, cpu: CpuLoads, projection: Projection
) -> dict[str, float]:
    """Pool -> millicores that its nodes have left under `high` with all its pods, negative where they lack as much; of
    the reference machine. Pools without a node of known CPU and `high` are left out.

    Pods that their owner binds to a node stay there. Nodes that are cordoned or not Ready take no further pods, those
    that are being removed keep none. Nodes of unknown CPU are left out with their pods, and so are pods that end within
    minutes.
    """
    loads = cpu_loads(snapshot, node_pools, cpu, None)
    load, high = loads.node[:, 0], loads.high[:, 0]
    movable = snapshot.per_node(
        np.where(fills(snapshot) & ~projection.ending, np.nan_to_num(loads.relieved[:, 0]), 0.0)
    )
    movable = np.minimum(movable, load)
    room = np.maximum(high - (load - movable), 0.0)
    closed = snapshot.nodes.unschedulable | ~snapshot.nodes.ready
    room = np.where(closed, np.minimum(room, movable), room)
    room[list(projection.removed)] = 0.0
    left = room - movable
    found = {}
    for index, pool in enumerate(node_pools.pools):
        of_pool = left[node_pools.members(index)]
        if np.isfinite(of_pool).any():
            found[pool.name] = float(np.nansum(of_pool))
    return found


def spare_notes(spare: Mapping[str, float]) -> list[str]:
    """A note for each pool that lacks CPU, for the report of a cycle."""
    return [
        f"pool {pool} lacks {cores(-left)} cores of CPU: its pods together use more than its nodes have under high, so "
        "some stay hot whatever is evicted"
        for pool, left in spare.items()
        if left < 0
    ]
