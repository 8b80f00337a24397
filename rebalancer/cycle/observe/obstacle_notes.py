"""Objects that can't be read, as notes of a cycle."""

from collections.abc import Sequence

from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.policy.pools import NodePools

SHOWN = 5
"""Objects in a note."""


def obstacles_of(snapshot: ClusterSnapshot, node_pools: NodePools) -> list[Obstacle]:
    """The objects that can't be read, then the nodes that two pools match."""
    return [*snapshot.obstacles, *node_pools.obstacles()]


def obstacle_notes(snapshot: ClusterSnapshot, node_pools: NodePools) -> list[str]:
    """A note of the objects that can't be read, and one of the nodes that two pools match."""
    notes = []
    for found, what in (
        (snapshot.obstacles, "objects that can't be read, and what they concern is left alone"),
        (node_pools.obstacles(), "ambiguous nodes, which are in no pool"),
    ):
        if found:
            notes.append(f"{len(found)} {what}: {_shown(found)}")
    return notes


def _shown(obstacles: Sequence[Obstacle]) -> str:
    more = f"; {len(obstacles) - SHOWN} more" if len(obstacles) > SHOWN else ""
    return "; ".join(map(str, obstacles[:SHOWN])) + more
