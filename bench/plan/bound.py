"""The fewest evictions that could cool hot nodes, from the cluster's state alone.

Movable is a pod that no guard keeps (a Deployment's, of at least two replicas, with a budget that allows a disruption)
and that fits on a node that is not hot: by requests, and by CPU up to that node's target. The lower bound of a hot node
is the number of its largest movable pods that together cover its excess over the target; no plan needs fewer, since
any other set of as many pods relieves it of less.

A hot node can be cooled where its movable pods cover the excess and the pool has room for them: from the smallest
excess on, the largest movable pods of each hot node are put one after the other on that node of the pool, not a hot
one, that has most room up to its target. Where one does not fit the node is left out, and takes no room from others.
"""

from dataclasses import dataclass

import numpy as np

from bench.plan.cluster import Cluster
from rebalancer.model.notation.arrays import Bools, Floats, Ints

MIN_REPLICAS = 2


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Arrays are (nodes,)."""

    hot: Bools
    fewest: Ints
    """Movable pods that cover the excess; 0 for a node that is not hot, and where all of them don't."""
    coolable: Bools
    """Hot nodes that can be cooled."""


def lower_bound(cluster: Cluster) -> Bound:
    """See the module; of the cluster as it is now."""
    capacity, load = cluster.machines.cpu_capacity, cluster.load
    target, hot = cluster.thresholds.target * capacity, cluster.hot
    movable = movable_pods(cluster)
    fewest = np.zeros(len(load), dtype=np.int32)
    largest: dict[int, Floats] = {}
    for node in np.flatnonzero(hot).tolist():
        pods = np.sort(cluster.cpu[movable & (cluster.node == node)])[::-1]
        enough = np.cumsum(pods) >= load[node] - target[node]
        if enough.any():
            fewest[node] = int(np.argmax(enough)) + 1
            largest[node] = pods[: fewest[node]]
    coolable = np.zeros(len(load), dtype=np.bool_)
    pool = cluster.machines.pool
    room = np.where(hot, 0.0, np.maximum(target - load, 0.0))
    for node in sorted(largest, key=lambda each: float((load - target)[each])):
        left = np.where(pool == pool[node], room, 0.0)
        if fits(largest[node], left):
            coolable[node] = True
            room = np.where(pool == pool[node], left, room)
    return Bound(hot=hot, fewest=fewest, coolable=coolable)


def fits(pods: Floats, room: Floats) -> bool:
    """Put pods (pods,) one after the other where `room` (nodes,) is greatest, and take it off; whether all fit."""
    for cpu in pods.tolist():
        most = int(np.argmax(room))
        if cpu > room[most]:
            return False
        room[most] -= cpu
    return True


def movable_pods(cluster: Cluster) -> Bools:
    """(pods,) on hot nodes; see the module."""
    services, machines = cluster.services, cluster.machines
    deployed = np.array([kind == "Deployment" for kind in services.kind], dtype=np.bool_)
    may_go = deployed & (cluster.desired >= MIN_REPLICAS) & (cluster.disruptions_allowed() != 0)
    load, target = cluster.load, cluster.thresholds.target * machines.cpu_capacity
    open_nodes = np.flatnonzero(~cluster.hot)
    free_cpu, free_memory = cluster.scheduler.free
    movable = cluster.alive & ~cluster.terminating & (cluster.node >= 0) & may_go[cluster.service]
    movable &= cluster.hot[np.maximum(cluster.node, 0)]
    for pod in np.flatnonzero(movable).tolist():
        service = int(cluster.service[pod])
        only = int(services.only_pool[service])
        fits = (
            (cluster.cpu[pod] <= (target - load)[open_nodes])
            & (services.cpu_request[service] <= free_cpu[open_nodes])
            & (services.memory_request[service] <= free_memory[open_nodes])
        )
        movable[pod] = bool((fits & ((machines.pool[open_nodes] == only) | (only < 0))).any())
    return movable
