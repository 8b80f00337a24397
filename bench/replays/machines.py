"""The nodes of the recording that never was, and the cluster at its end."""

from dataclasses import replace

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import Pods
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.arrays import Ints

START = 1_789_948_800.0
"""A Monday, 00:00 UTC."""


GIB = 2.0**30


HOSTNAME, ZONE, POOL = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "pool"


POOLS = ("general", "compute")


CORES = 32


ALLOCATABLE_MILLICORES, ALLOCATABLE_BYTES = CORES * 1000.0 - 500.0, 124 * GIB


def machines_of(count: int, pool: Ints) -> Nodes:
    names = tuple(f"node-{index:05d}" for index in range(count))
    return replace(
        Nodes.blank(count),
        names=names,
        cpu_capacity_millicores=np.full(count, CORES * 1000.0),
        cpu_allocatable_millicores=np.full(count, ALLOCATABLE_MILLICORES),
        memory_capacity_bytes=np.full(count, 128 * GIB),
        memory_allocatable_bytes=np.full(count, ALLOCATABLE_BYTES),
        pods_allocatable=np.full(count, 250.0),
        ready=np.ones(count, dtype=np.bool_),
        created=np.full(count, START - 60 * DAY_SECONDS),
        labels=tuple(
            {HOSTNAME: name, POOL: POOLS[pool[index]], ZONE: f"z{index % 3}"} for index, name in enumerate(names)
        ),
    )


def today_of(nodes: Nodes, templates: PodTemplateTable, namespaces: tuple[str, ...], *, at: float) -> ClusterSnapshot:
    """Without pods, owners and budgets: those are the recording's."""
    return ClusterSnapshot(
        taken=at,
        nodes=nodes,
        pods=Pods.blank(0),
        pod_templates=templates,
        namespaces=namespaces,
        namespace_labels={name: {"kubernetes.io/metadata.name": name} for name in namespaces},
        owners=(),
        budgets=(),
        listed_kinds=frozenset({"Deployment", "ReplicaSet", "DaemonSet", "Job", "CronJob"}),
    )
