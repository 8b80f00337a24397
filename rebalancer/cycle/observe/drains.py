"""Records what becomes of drained nodes: removed, or emptied in vain and left alone for a growing time.

A strategy says which nodes are empty behind our cordon, and whose time for removal is over (`Findings.emptied`).
"""

from collections.abc import Sequence
from dataclasses import replace

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.observe.observation import Observation
from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.strategies import Findings


def record_drains(context: CycleContext, seen: Observation, found: Sequence[Findings]) -> None:
    """Write what has changed since the last cycle. Not in a dry run, nor in a cycle that was stopped."""
    changed = _changed(seen, found)
    if changed:
        context.records.put_drains(changed)


def _changed(seen: Observation, found: Sequence[Findings]) -> list[DrainedNode]:
    names, index, now = seen.snapshot.nodes.names, seen.snapshot.node_index, seen.now
    emptied = {names[node]: is_over for each in found for node, is_over in each.emptied.items()}
    known = {each.node: each for each in seen.drains if each.is_open}
    out = []
    for node, drain in known.items():
        if node not in index:
            out.append(replace(drain, removed_at=now))
        elif node not in emptied:
            out.append(replace(drain, given_back_at=now))
    pools, sizes = seen.node_pools.names, seen.node_pools.of_node.tolist()
    for node, is_over in emptied.items():
        at = index[node]
        drain = known.get(node) or DrainedNode(
            node=node,
            pool=pools[at],
            capacity_millicores=float(seen.snapshot.nodes.cpu_capacity_millicores[at]),
            pool_nodes=sizes.count(sizes[at]),
            emptied_at=now,
        )
        if is_over:
            out.append(replace(drain, in_vain_at=now))
        elif node not in known:
            out.append(drain)
    return out
