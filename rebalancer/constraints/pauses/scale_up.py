"""Pools that an autoscaler is scaling up: new nodes receive pods anyway, so hot nodes are not relieved for a while.

A node that joined is no scale-up by itself: of 500 nodes that live for a day, one has always just joined. A pool is
being scaled up when a share of its nodes joined within the cooldown, or when one did just now and pods that it could
take are still unschedulable. Pods that are unschedulable for longer than the cooldown don't count: no scale-up has
helped them. A node that has been there for a while doesn't either: what it could take would be on it.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.match import labels_match, node_selector_matches, untolerated_taint
from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.types import format_duration

FILLING_SECONDS = 120.0
"""Time in which a node that joined becomes Ready and gets the pods that waited for it."""

MAX_NEWEST = 16
"""Newest nodes of a pool that stand for all that joined: nodes of a pool are alike but for their zones."""

OF_THE_CONTROL_PLANE = "node.kubernetes.io/"
"""Prefix of the taints that a node has until it is ready."""


class ScaleUp(NamedTuple):
    """Of one pool."""

    until: float
    """Seconds since the epoch: by then it is over, unless more nodes join."""
    detail: str
    """What shows it."""


def scale_ups(
    policy: RebalancerPolicy, snapshot: ClusterSnapshot, pool_of: NDArray[np.int32], now: float
) -> dict[str, ScaleUp]:
    """Pool -> its scale-up, of those that are being scaled up. `pool_of` (nodes,): index of the pool, -1 for none."""
    cooldown, share = policy.safety.cooldowns.pool_after_scale_up, policy.safety.cooldowns.scale_up_share
    created = snapshot.nodes.created
    joined = now - created < cooldown
    out: dict[str, ScaleUp] = {}
    if not joined.any():
        return out
    waiting = _unschedulable(snapshot, since=now - cooldown)
    for index, pool in enumerate(policy.pools):
        members = pool_of == index
        new, size = np.flatnonzero(joined & members), int(np.count_nonzero(members))
        if not len(new):
            continue
        new = new[np.argsort(-created[new], kind="stable")]
        enough = max(math.ceil(share * size / 100 - 1e-9), 1)
        text = f"{len(new)} of {size} nodes joined within {format_duration(cooldown)}"
        if len(new) >= enough:
            out[pool.name] = ScaleUp(float(created[new[enough - 1]]) + cooldown, text)
            continue
        filling = min(cooldown, FILLING_SECONDS)
        new = new[now - created[new] < filling]
        newest = new[:MAX_NEWEST].tolist()
        pod = next((pod for pod in waiting if any(_takes(snapshot, node, pod) for node in newest)), None)
        if pod is not None:
            text = f"{len(new)} of {size} nodes joined within {format_duration(filling)}"
            text += f" and {snapshot.pod(pod)} is unschedulable"
            out[pool.name] = ScaleUp(float(created[new[0]]) + filling, text)
    return out


def _unschedulable(snapshot: ClusterSnapshot, *, since: float) -> list[int]:
    """The pods that no node was found for, of those created later than `since`, by name: one of each that `_takes`
    tells apart. Every Job has a template of its own."""
    pods = snapshot.pods
    found = np.flatnonzero(pods.unschedulable & ~pods.gated & ~pods.terminating & (pods.created > since))
    alike: dict[object, int] = {}
    for pod in sorted(found.tolist(), key=lambda at: (pods.namespace[at], pods.names[at])):
        template = snapshot.pod_templates[int(pods.template[pod])]
        requests = float(pods.cpu_request_millicores[pod]), float(pods.memory_request_bytes[pod])
        affinity = template.affinity.node_affinity if template.affinity is not None else None
        # structs with dicts aren't hashable; their text is
        rules = tuple(sorted(template.node_selector.items())), template.tolerations, repr(affinity)
        alike.setdefault((requests, rules), pod)
    return list(alike.values())


def _takes(snapshot: ClusterSnapshot, node: int, pod: int) -> bool:
    """Whether the node would take the pod if it were empty and ready."""
    nodes, template = snapshot.nodes, snapshot.pod_templates[int(snapshot.pods.template[pod])]
    taints = [each for each in nodes.taints[node] if not each.key.startswith(OF_THE_CONTROL_PLANE)]
    return (
        snapshot.pods.cpu_request_millicores[pod] <= nodes.cpu_allocatable_millicores[node]
        and snapshot.pods.memory_request_bytes[pod] <= nodes.memory_allocatable_bytes[node]
        and untolerated_taint(template.tolerations, taints) is None
        and _selects(template, nodes.labels[node], nodes.names[node])
    )


def _selects(template: PodTemplate, labels: Mapping[str, str], name: str) -> bool:
    affinity = template.affinity.node_affinity if template.affinity is not None else None
    required = None if affinity is None else affinity.required
    return labels_match(template.node_selector, labels) and (
        required is None or node_selector_matches(required, labels, name)
    )
