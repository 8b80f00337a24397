"""CPU contention of a snapshot's nodes and pods: PSI and CFS throttling as shares of time."""

from collections.abc import Callable

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import Contention
from rebalancer.model.notation.arrays import Floats
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import ContentionQueries, Query
from rebalancer.prometheus.readings.nodes import NodeMap, gather
from rebalancer.prometheus.readings.pods import pod_usage


def read_contention(
    *,
    queries: ContentionQueries,
    snapshot: ClusterSnapshot,
    node_map: NodeMap,
    node_vector: Callable[[Query], decode.Vector],
    pod_vector: Callable[[Query], decode.PodVector],
) -> Contention:
    """Query and map to nodes and pods. Without a series it is NaN: old kernels and kubelets have no PSI, pods without a
    CPU limit no CFS periods. `node_vector` and `pod_vector` query Prometheus, and raise its errors."""
    nodes = node_vector(queries.node)
    found = gather(labels=nodes.labels, values=nodes.values, node_map=node_map, merge_target_on=node_map.label)

    def of_pods(query: Query) -> Floats:
        return _share(pod_usage(vector=pod_vector(query), snapshot=snapshot, node_map=node_map, scale=1.0).pods)

    return Contention(
        node_pressure=_share(found.values),
        pod_pressure=of_pods(queries.pod),
        pod_throttled=of_pods(queries.throttled),
    )


def _share(values: Floats) -> Floats:
    """A rate slightly exceeds 1 where a counter's scrapes don't lie on the window's edges."""
    with np.errstate(invalid="ignore"):
        out: Floats = np.where(np.isfinite(values) & (values >= 0), np.minimum(values, 1.0), np.nan)
    return out
