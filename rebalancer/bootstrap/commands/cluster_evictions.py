"""Evictions by all components of the connected cluster."""

from collections.abc import Sequence
from contextlib import ExitStack

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.kube.cluster_evictions import read_cluster_evictions
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.records.cluster_evictions import ClusterEviction


def cluster_evictions(settings: Settings, *, since: float, progress: Progress) -> Sequence[ClusterEviction]:
    """Those since that time, oldest first. Raises ConfigError, ConnectError, UnsafeDataError."""
    with ExitStack() as stack:
        client = client_of(settings, stack)
        snapshot = KubeCluster(client=client, clock=SystemClock(), progress=progress).snapshot()
        return read_cluster_evictions(client, snapshot, since=since)
