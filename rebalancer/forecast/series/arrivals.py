"""Expected arrivals: desired replicas of services that are not bound yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.forecast.series.membership import SHORT_LIVED_KINDS
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Ints

NOT_EXPECTED = (*SHORT_LIVED_KINDS, "DaemonSet")
"""Short-lived pods are forecast for their pool; pods of a DaemonSet belong to their node."""


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Expected pods of one service."""

    service: str
    """`namespace/name`; each pod adds its profile for one replica."""
    nodes: Mapping[str, float]
    """Node name -> expected number of pods: a probability, or a sum of probabilities."""


def expected_arrivals(
    snapshot: ClusterSnapshot, *, pool_of: Ints, in_flight: Sequence[tuple[str, str]]
) -> list[Arrival]:
    """Missing replicas of each service: desired replicas less the bound pods that are not terminating.

    `in_flight`: evictions whose replacement has not landed, as (service `namespace/name`, likeliest node). Missing
    replicas are expected there first; the rest is spread evenly over the ready, schedulable nodes of the pools that the
    service runs in, or of all pools. `pool_of` (nodes,) is -1 for a node in none.
    """
    pods, nodes = snapshot.pods, snapshot.nodes
    bound = np.asarray(snapshot.active & ~pods.terminating)
    owned = bound & (pods.owner >= 0)
    have = np.bincount(snapshot.top_owner[pods.owner[owned]], minlength=len(snapshot.owners))
    usable = np.asarray(nodes.ready & ~nodes.unschedulable)
    names_of: dict[frozenset[int], list[str]] = {}
    landings: dict[str, list[str]] = {}
    for service, node in in_flight:
        if node in snapshot.node_index:
            landings.setdefault(service, []).append(node)
    out = []
    for owner in np.flatnonzero(snapshot.top_owner == np.arange(len(snapshot.owners))).tolist():
        record = snapshot.owners[owner]
        lacking = snapshot.replicas(owner)[0] - int(have[owner])
        if lacking <= 0 or record.kind in NOT_EXPECTED:
            continue
        service = f"{record.namespace}/{record.name}"
        known = landings.get(service, [])[:lacking]
        counts: dict[str, float] = {}
        if rest := lacking - len(known):
            members = snapshot.pods_of(owner)
            pools = frozenset(pool_of[pods.node[members[bound[members]]]].tolist())
            if pools not in names_of:
                chosen = usable & np.isin(pool_of, list(pools)) if pools else usable
                names_of[pools] = [nodes.names[index] for index in np.flatnonzero(chosen).tolist()]
            names = names_of[pools]
            counts = dict.fromkeys(names, rest / max(len(names), 1))
        for node in known:
            counts[node] = counts.get(node, 0.0) + 1.0
        if counts:
            out.append(Arrival(service=service, nodes=counts))
    return out
