"""The past that strategies read: what pods requested on nodes, as earlier cycles saw it, and evictions of the last day.

It is in the database, so a restart and a new leader know as much as the process before them.
"""

import numpy as np

from rebalancer.cycle.context import CycleContext
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.past import Past, RequestedSample
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.arrays import Bools
from rebalancer.placement.cluster.kinds import POD_COUNT
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.projection.projection import Projection
from rebalancer.strategies.interface.requests import Requests

MOST_SAMPLES = 40
"""About so many are read, however often cycles run."""


def read_past(
    context: CycleContext, policy: RebalancerPolicy, projection: Projection, pools: NodePools, *, now: float
) -> Past | None:
    """The past, after what is requested on the nodes now was recorded, unless that was just done; None where no
    strategy of the policy reads it. Raises ConfigError, ConnectError."""
    seconds = past_seconds(policy)
    if not seconds:
        return None
    samples = [each for each in context.records.requested(now - seconds) if each.at <= now]
    if not samples or now - samples[-1].at >= seconds / MOST_SAMPLES:
        wanted = {name for each in policy.strategies for name in each.ordered_pools[:-1]}
        chosen = ~projection.is_closed & np.isin(pools.names, sorted(wanted))
        context.records.put_requested(requested_now(projection.snapshot, chosen, now))
    return Past(requested=samples, moves=context.records.recent_moves(now - DAY_SECONDS))


def requested_now(snapshot: ClusterSnapshot, chosen: Bools, now: float) -> RequestedSample:
    """What is requested on the chosen nodes that take pods: on one that is not in it nothing had room."""
    nodes, requests = snapshot.nodes, Requests(snapshot)
    rows = np.flatnonzero(chosen & nodes.ready & ~nodes.unschedulable).tolist()
    # extended resources have a domain; ephemeral-storage and huge pages are left out
    devices = sorted({name for node in rows for name in nodes.extended[node] if "/" in name})
    amounts = {name: requests.on_nodes(name).tolist() for name in ("cpu", "memory", POD_COUNT, *devices)}
    return RequestedSample(
        at=now,
        nodes={nodes.names[node]: {name: of_node[node] for name, of_node in amounts.items()} for node in rows},
    )


def past_seconds(policy: RebalancerPolicy) -> float:
    """How far back its strategies read; 0 where none does."""
    return max((each.past_seconds for each in policy.strategies), default=0.0)
