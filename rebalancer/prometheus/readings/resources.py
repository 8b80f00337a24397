"""Usage of resources besides CPU: memory, and those that the policy names with queries of its own."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.model.notation.arrays import Floats
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import Query, ResourceQuerySet
from rebalancer.prometheus.promql.units import MOST_PLAUSIBLE_SHARE, check_capacity, check_unit
from rebalancer.prometheus.readings.nodes import NodeMap, gather
from rebalancer.prometheus.readings.pods import PodUsage, pod_usage

MOST_OF_PODS = 10.0
"""Pods may be measured with more than their nodes, such as shared pages, but not with many times that."""


def read_resources(
    *,
    wanted: Sequence[ResourceQuerySet],
    snapshot: ClusterSnapshot,
    node_map: NodeMap,
    node_vector: Callable[[Query, list[str]], decode.Vector],
    pod_vector: Callable[[Query, list[str]], decode.PodVector],
    node_samples: Callable[[Query], Floats],
    warnings: list[str],
    stabilized: Collection[str] = (),
) -> tuple[dict[str, ResourceUsage], list[str]]:
    """Name -> amounts, and a note for each optional resource that the source doesn't have. `node_samples` returns
    (samples, nodes) before now; it is called for the resources of `stabilized`. `node_vector` and `pod_vector` add
    Prometheus' warnings to a list. Those of a resource that is needed are added to `warnings`: an optional one that no
    node can be hot by is left out when its answers fail or are partial.

    Raises the errors of `node_vector` and `pod_vector`, which query Prometheus; ConfigError where a query of the policy
    has no series of this cluster, a share is no share, or the queries of a
    resource have several units.
    """
    found: dict[str, ResourceUsage] = {}
    notes: list[str] = []
    for each in wanted:
        partial: list[str] = []
        needed = not each.optional or each.name in stabilized
        try:
            now = _read(each, snapshot, node_map, node_vector, pod_vector, partial)
            if each.name in stabilized:
                before = _amounts(node_samples(each.node))
                before[before > now.capacity * MOST_PLAUSIBLE_SHARE] = np.nan
                now = replace(now, samples=np.vstack([before, now.samples]))
        except (ConfigError, ConnectError) as error:
            if not each.optional or (needed and not isinstance(error, ConfigError)):
                raise
            notes.append(f"{each.name} is not known, so that no landing is checked by it: {error}")
            continue
        if partial and not needed:
            notes.append(f"{each.name} is not known, so that no landing is checked by it: {'; '.join(partial)}")
            continue
        warnings.extend(partial)
        found[each.name] = now
    return found, notes


def read_swap(
    query: Query, node_map: NodeMap, node_vector: Callable[[Query, list[str]], decode.Vector]
) -> Floats | None:
    """(nodes,) pages per second that are read back from swap; None where that can't be read: most clusters have no
    swap."""
    try:
        vector = node_vector(query, [])
    except (ConfigError, ConnectError):
        return None
    gathered = gather(labels=vector.labels, values=vector.values, node_map=node_map, merge_target_on=node_map.label)
    return _amounts(gathered.values) if gathered.has_series.any() else None


def _read(
    wanted: ResourceQuerySet,
    snapshot: ClusterSnapshot,
    node_map: NodeMap,
    node_vector: Callable[[Query, list[str]], decode.Vector],
    pod_vector: Callable[[Query, list[str]], decode.PodVector],
    warnings: list[str],
) -> ResourceUsage:
    def of_nodes(query: Query) -> Floats:
        vector = node_vector(query, warnings)
        gathered = gather(labels=vector.labels, values=vector.values, node_map=node_map, merge_target_on=node_map.label)
        if not gathered.has_series.any() and len(snapshot.nodes):
            raise ConfigError(f"{query.field}: no series of a node of this cluster; query: {query.promql}")
        return _amounts(gathered.values)

    node = of_nodes(wanted.node)
    if wanted.capacity is None:
        capacity = np.ones(len(snapshot.nodes))
        known = int(np.count_nonzero(np.isfinite(node)))
        check_unit(node, snapshot.nodes, known=known, field=wanted.node.field, unit="share")
    else:
        capacity = of_nodes(wanted.capacity)
        capacity[capacity == 0] = np.nan
        if not wanted.optional:
            check_capacity(node / capacity, snapshot.nodes, field=wanted.capacity.field)
    pods = pod_usage(vector=pod_vector(wanted.pod, warnings), snapshot=snapshot, node_map=node_map, scale=1.0)
    if not wanted.optional:
        _check_pods(wanted.pod, pods, node, snapshot)
    plausible = node <= capacity * MOST_PLAUSIBLE_SHARE
    node = np.where(plausible, node, np.nan)
    relief = None
    if wanted.relief is not None:
        vector = pod_vector(wanted.relief, warnings)
        left = pod_usage(vector=vector, snapshot=snapshot, node_map=node_map, scale=1.0)
        relief = np.fmin(left.pods, pods.pods) if left.matched else None
    return ResourceUsage(node=node, capacity=capacity, pod=pods.pods, relief=relief, samples=node[None, :])


def _check_pods(query: Query, pods: PodUsage, node: Floats, snapshot: ClusterSnapshot) -> None:
    """ConfigError where no pod has a series although nodes are in use, or where pods use many times what nodes do."""
    used, of_pods = float(np.nansum(node)), float(np.nansum(pods.pods))
    if not pods.matched and used > 0 and snapshot.active.any():
        raise ConfigError(f"{query.field}: no series of a pod of this cluster; query: {query.promql}")
    if of_pods > MOST_OF_PODS * used > 0:
        raise ConfigError(
            f"{query.field}: its pods use {of_pods / used:.4g} times what the nodes do: expected the same unit for both"
        )


def _amounts(values: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        out: Floats = np.where(np.isfinite(values) & (values >= 0), values, np.nan)
    return out
