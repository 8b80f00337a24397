"""What isn't known of memory and of resources with thresholds, and what follows from it."""

from collections.abc import Sequence

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import ResourceUsage, Usage
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.pools import NodePools

SHOWN = 3
"""Names in a note."""


def resource_notes(snapshot: ClusterSnapshot, usage: Usage, node_pools: NodePools) -> list[str]:
    """Notes for the report of a cycle. Nodes without CPU usage have a reason of their own."""
    notes = []
    for name in dict.fromkeys((MEMORY, *node_pools.resources)):
        marked = np.isfinite(node_pools.resource_thresholds(name).target)
        used = usage.resources.get(name)
        if used is not None:
            notes += [*_of_nodes(name, used, snapshot, usage, marked), *_of_pods(name, used, snapshot, usage, marked)]
        elif marked.any():
            pools = sorted({pool for pool, has in zip(node_pools.names, marked.tolist(), strict=True) if has})
            notes.append(
                f"{name} has thresholds in {', '.join(pools)} and isn't measured: no node there is hot by it, and "
                "nothing lands there"
            )
    return notes


def _of_nodes(name: str, used: ResourceUsage, snapshot: ClusterSnapshot, usage: Usage, marked: Bools) -> list[str]:
    asked = snapshot.nodes.ready & np.isfinite(usage.node_cpu_millicores)
    unknown = asked & ~np.isfinite(used.node / used.capacity)
    notes = []
    for mask, then in ((marked, "nothing lands there"), (~marked, "no landing there is checked by it")):
        if name != MEMORY and mask is not marked:
            continue
        if (lacking := np.flatnonzero(unknown & mask)).size:
            names = _shown([snapshot.nodes.names[node] for node in lacking[: SHOWN + 1]])
            notes.append(f"{name} of {len(lacking)} of {np.count_nonzero(asked)} nodes isn't known ({names}): {then}")
    return notes


def _of_pods(name: str, used: ResourceUsage, snapshot: ClusterSnapshot, usage: Usage, marked: Bools) -> list[str]:
    pods = snapshot.pods
    # a younger pod may not have been measured yet
    asked = snapshot.active & (pods.started <= usage.at - usage.window_seconds)
    asked[asked] = (marked | (name == MEMORY))[pods.node[asked]]
    lacking = np.flatnonzero(asked & np.isnan(used.pod))
    if not len(lacking):
        return []
    names = _shown([str(snapshot.pod(pod)) for pod in lacking[: SHOWN + 1].tolist()])
    otherwise = "its request" if name == MEMORY else "what its node uses besides its measured pods"
    return [
        f"{name} of {len(lacking)} of {np.count_nonzero(asked)} pods isn't known ({names}): each counts with the "
        f"median of its siblings, or with {otherwise}"
    ]


def _shown(names: Sequence[str]) -> str:
    return ", ".join([*names[:SHOWN], "…"] if len(names) > SHOWN else names)
