"""Loads that utilization strategies balance: real CPU corrected for moves, or what pods request.

Metrics lag: a rate window still shows a pod that has left, and shows little of one that just arrived. Effective CPU =
measured - pods that left + pods that arrived within the window, these at their service's usual CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import RecentMove, Usage

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RESOURCES = ("cpu", "memory", "pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLoads:
    """Effective CPU in millicores."""

    node: Floats
    """(nodes,) NaN where unknown."""
    pod: Floats
    """(pods,) a pod that arrived within the window stands at its service's usual CPU; NaN where unknown."""


def effective_cpu(snapshot: ClusterSnapshot, usage: Usage, recent: Sequence[RecentMove], now: float) -> CpuLoads:
    """Measured CPU, corrected for pods that left or arrived within the rate window."""
    pods, count = snapshot.pods, len(snapshot.nodes)
    measured = usage.pod_cpu_millicores
    shown = np.nan_to_num(measured, nan=0.0)
    # a bound pod without a start time is only just arriving
    settled = pods.started <= now - usage.window_seconds
    arrived = snapshot.active & ~pods.terminating & ~settled
    pod = measured.copy()
    for index in np.flatnonzero(arrived):
        usual = _usual_cpu(snapshot, usage, int(index), now)
        # a pod that already shows more than usual is believed
        pod[index] = max(usual, shown[index])
    correction = _sum(pods.node, np.where(arrived, np.nan_to_num(pod) - shown, 0.0), snapshot.active, count)
    correction -= _sum(pods.node, shown, snapshot.active & pods.terminating, count)
    correction -= _left(snapshot, usage, recent, now)
    return CpuLoads(node=np.maximum(usage.node_cpu_millicores + correction, 0.0), pod=pod)


def _sum(node: NDArray[np.int32], values: Floats, chosen: Bools, count: int) -> Floats:
    return np.bincount(node[chosen], weights=values[chosen], minlength=count).astype(np.float64)


def gone(snapshot: ClusterSnapshot, recent: Sequence[RecentMove], *, leaving: bool) -> list[RecentMove]:
    """The moves whose pod has left; with `leaving` also those whose pod is terminating.

    A pod that is still alive was not evicted after all, whatever the record hopes.
    """
    uids = {move.uid for move in recent if move.uid}
    if not uids:
        return list(recent)
    there = {
        uid
        for uid, terminating in zip(snapshot.pods.uids, snapshot.pods.terminating, strict=True)
        if uid in uids and not (leaving and terminating)
    }
    return [move for move in recent if move.uid not in there]


def _left(snapshot: ClusterSnapshot, usage: Usage, recent: Sequence[RecentMove], now: float) -> Floats:
    """(nodes,) CPU that the window still shows of pods that are no longer there."""
    if usage.departed_millicores is not None:
        return usage.departed_millicores
    left = np.zeros(len(snapshot.nodes))
    for move in gone(snapshot, recent, leaving=False):
        node = snapshot.node_index.get(move.node)
        age = now - move.at
        if node is not None and 0 <= age < usage.window_seconds and np.isfinite(move.cpu_millicores):
            left[node] += move.cpu_millicores * (1.0 - age / usage.window_seconds)
    return left


def _usual_cpu(snapshot: ClusterSnapshot, usage: Usage, index: int, now: float) -> float:
    """What a young pod will use, in millicores: its settled siblings' mean, else what it requests."""
    pods = snapshot.pods
    owner = int(pods.owner[index])
    if owner >= 0:
        siblings = snapshot.pods_of(owner)
        settled = siblings[(pods.started[siblings] <= now - usage.window_seconds) & ~pods.terminating[siblings]]
        known = usage.pod_cpu_millicores[settled]
        known = known[np.isfinite(known)]
        if len(known):
            return float(known.mean())
    return float(pods.cpu_request_millicores[index])


def requested(snapshot: ClusterSnapshot) -> tuple[Floats, Floats, Floats]:
    """Node loads, node room and pod loads by requests: (nodes, 3), (nodes, 3) and (pods, 3), as in RESOURCES.

    Terminating pods are left out of the nodes' load: their room is about to be free.
    """
    pods, nodes = snapshot.pods, snapshot.nodes
    pod = np.column_stack([pods.cpu_request_millicores, pods.memory_request_bytes, np.ones(len(pods))])
    staying = np.where(pods.terminating[:, None], 0.0, pod)
    node = np.column_stack([snapshot.per_node(staying[:, column]) for column in range(len(RESOURCES))])
    room = np.column_stack([nodes.cpu_allocatable_millicores, nodes.memory_allocatable_bytes, nodes.pods_allocatable])
    return node, room, pod
