"""The contents of a snapshot in names instead of numbers: equal contents compare as equal."""

import math
from typing import Any

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.builders import pods_in


def contents(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Everything but when it was taken."""
    pods, nodes = snapshot.pods, snapshot.nodes
    columns = [
        pods.cpu_request_millicores,
        pods.memory_request_bytes,
        pods.cpu_scored_millicores,
        pods.memory_scored_bytes,
        pods.gated,
    ]
    images = nodes.images
    return {
        "nodes": {
            name: (
                *(float(column[i]) for column in _node_columns(snapshot)),
                nodes.labels[i],
                nodes.taints[i],
                nodes.addresses[i],
                nodes.extended[i],
                nodes.conditions[i],
                str(nodes.unready_since[i]),
                dict(nodes.annotations[i]),
            )
            for i, name in enumerate(nodes.names)
        },
        "images": {
            name: (images.size_of(name), sorted(nodes.names[i] for i in images.nodes_with(name)))
            for name in images._names
        },
        "pods": {
            str(pod): (
                pod.uid,
                pod.node_name,
                _owner(snapshot, int(pods.owner[pod.index])),
                pod.template,
                pod.phase,
                pod.ready,
                pod.terminating,
                pod.created,
                (str(pods.unready_since[pod.index]), str(pods.ends[pod.index])),
                None if math.isnan(pod.started) else pod.started,
                pod.priority,
                [float(column[pod.index]) for column in columns],
                nodes.names[int(pods.nominated[pod.index])] if pods.nominated[pod.index] >= 0 else "",
                (int(pods.restarts[pod.index]), int(pods.init_restarts[pod.index])),
                snapshot.statuses[int(pods.status[pod.index])],
            )
            for pod in pods_in(snapshot)
        },
        "owners": sorted(str(_owner(snapshot, i)) for i in range(len(snapshot.owners))),
        "namespaces": sorted(snapshot.namespaces),
        "labels": dict(snapshot.namespace_labels),
        "listed": snapshot.listed_kinds,
        "budgets": sorted(map(str, snapshot.budgets)),
        "classes": dict(snapshot.priority_classes),
        "claims": (snapshot.local_claims, dict(snapshot.volume_nodes), snapshot.exclusive_claims),
        "claims known": snapshot.claims_known,
    }


def _node_columns(snapshot: ClusterSnapshot) -> list[Any]:
    nodes = snapshot.nodes
    return [
        nodes.cpu_capacity_millicores,
        nodes.cpu_allocatable_millicores,
        nodes.memory_allocatable_bytes,
        nodes.pods_allocatable,
        nodes.ready,
        nodes.unschedulable,
        nodes.created,
    ]


def _owner(snapshot: ClusterSnapshot, index: int) -> Any:
    if index < 0:
        return None
    owner = snapshot.owners[index]
    own = (owner.kind, owner.namespace, owner.name, owner.uid, owner.desired, owner.ready, owner.rolling_out)
    return (*own, owner.spares_disruptions, str(owner.ends), _owner(snapshot, owner.parent))
