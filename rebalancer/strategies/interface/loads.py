"""Loads of nodes and pods: real CPU corrected for recent moves, or requests.

Metrics lag: a rate window still shows a pod that has left, and little of one that has just arrived. Effective CPU =
measured - pods that left + pods that arrived within the window. What a pod adds to another node:
`forecast.series.pod_cpu`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.pod_cpu import MissingReplica, PodCpu, missing_replicas, pod_cpu
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import AT_ITS_PEAK, WEEK, Loads
from rebalancer.model.measured.peaks import Peaks
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.forecast import Generation
from rebalancer.policy.schema.policy import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLoads:
    """Effective CPU in millicores of the machine in question."""

    node: Floats
    """(nodes,) without pods that end within minutes and without surpluses: what a node is found hot by. NaN where
    unknown."""
    occupied: Floats
    """(nodes,) with both: what a landing adds to. A terminating pod may run until the end of its grace period."""
    pods: PodCpu

    @property
    def pod(self) -> Floats:
        """(pods,) a pod that arrived within the window has its service's usual CPU; NaN where unknown."""
        return self.pods.here


def effective_cpu(
    snapshot: ClusterSnapshot,
    usage: Usage,
    recent: Sequence[Eviction],
    now: float,
    *,
    in_flight: Iterable[Eviction] = (),
    in_background: Collection[str] = (),
    ending: Bools | None = None,
    generation: Generation | None = None,
) -> CpuLoads:
    """Measured CPU, corrected for pods that left or arrived within the rate window. `in_flight` as in
    `missing_replicas`; `ending` (pods,) as in `Projection`, None = the terminating ones.

    Pods with an eviction in the background (uids) count as if they were ending: their node needs no second relief.
    """
    pods, count = snapshot.pods, len(snapshot.nodes)
    # a pod that still runs carries its share itself
    missing = missing_replicas(
        gone(snapshot, list(in_flight), leaving=True), recent, now=now, window_seconds=usage.window_seconds
    )
    missing = tuple(replace(each, until=_carried_until(each)) for each in missing)
    cpu = pod_cpu(snapshot, usage, now=now, missing=missing, generation=generation)
    shown = np.nan_to_num(usage.pod_cpu_millicores, nan=0.0)
    correction = _sum(pods.node, np.where(cpu.arrived, np.nan_to_num(cpu.here) - shown, 0.0), snapshot.active, count)
    going = (pods.terminating if ending is None else ending).copy()
    if in_background:
        going |= np.fromiter((uid in in_background for uid in pods.uids), np.bool_, len(pods))
    correction -= _left(snapshot, usage, recent, now)
    occupied = np.maximum(usage.node_cpu_millicores + correction, 0.0)
    correction -= _sum(pods.node, shown, snapshot.active & going, count)
    correction -= _sum(pods.node, cpu.surplus, snapshot.active, count)
    return CpuLoads(node=np.maximum(usage.node_cpu_millicores + correction, 0.0), occupied=occupied, pods=cpu)


def _carried_until(missing: MissingReplica) -> float:
    """Until when its siblings' surplus passes. A late replacement may never be Ready: from its deadline on, what they
    carry is their own load."""
    return (
        min(missing.until, missing.eviction.reserved.deadline_at) if missing.eviction.replaced.late else missing.until
    )


def _sum(node: NDArray[np.int32], values: Floats, chosen: Bools, count: int) -> Floats:
    return np.bincount(node[chosen], weights=values[chosen], minlength=count).astype(np.float64)


def gone(snapshot: ClusterSnapshot, recent: Sequence[Eviction], *, leaving: bool) -> list[Eviction]:
    """The moves whose pod has left; with `leaving` also those whose pod is terminating.

    A pod that is still running was not evicted, whatever its record.
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


def _left(snapshot: ClusterSnapshot, usage: Usage, recent: Sequence[Eviction], now: float) -> Floats:
    """(nodes,) CPU of departed pods that the rate window still shows."""
    if usage.departed_millicores is not None:
        return usage.departed_millicores
    left = np.zeros(len(snapshot.nodes))
    for move in gone(snapshot, recent, leaving=False):
        node = snapshot.node_index.get(move.node)
        age = now - move.at
        if node is not None and 0 <= age < usage.window_seconds and np.isfinite(move.cpu_millicores):
            left[node] += move.cpu_millicores * (1.0 - age / usage.window_seconds)
    return left


def base_loads(snapshot: ClusterSnapshot, node_pools: NodePools, cpu: CpuLoads, peaks: Peaks | None) -> Loads:
    """Real CPU in all pools with thresholds: what every target node is checked against, with any strategy.

    A pod of unknown CPU adds what it requests, and relieves its node of nothing.
    """
    loads = cpu_loads(snapshot, node_pools, replace(cpu, node=cpu.occupied), peaks)
    requested = cpu.pods.on_reference(snapshot.pods.cpu_request_millicores, snapshot)[:, None]
    # without a known mean no node's CPU is known: nothing may land there
    has_thresholds = [pool.thresholds is not None for pool in node_pools.pools]
    unmarked = np.array([*has_thresholds, False], dtype=np.bool_)[node_pools.of_node] & np.isnan(loads.target[:, 0])
    target = loads.target.copy()
    target[unmarked, 0] = 0.0
    return replace(
        loads, target=target, pod=np.where(np.isfinite(loads.pod), loads.pod, requested), relief=loads.relieved
    )


def cpu_loads(
    snapshot: ClusterSnapshot,
    node_pools: NodePools,
    cpu: CpuLoads,
    peaks: Peaks | None,
    *,
    pools: Collection[int] | None = None,
    overrides: Mapping[tuple[int, str], ThresholdOverride] | None = None,
    due: Iterable[tuple[int, str]] = (),
) -> Loads:
    """Effective CPU with the thresholds of the pools (indices; None = all), in millicores of the reference machine;
    with `peaks` also the expected peak, as a second resource.

    `overrides`: (node, resource) -> thresholds of an alert; `due`: (node, resource) to be relieved ahead of its
    peak.
    """
    capacity, speed = snapshot.nodes.cpu_capacity_millicores, cpu.pods.speed
    high, target, low = node_pools.thresholds(cpu.node / capacity, pools)
    known = np.isfinite(high)
    override_thresholds(CPU, cpu.node / capacity, high, target, overrides or {})
    room = capacity * speed
    loads = Loads(
        resources=(CPU,),
        node=(cpu.node * speed)[:, None],
        room=room[:, None],
        high=(high * room)[:, None],
        target=(target * room)[:, None],
        low=(low * room)[:, None],
        pod=cpu.pods.elsewhere[:, None],
        relief=cpu.pods.on_reference(cpu.pods.here - cpu.pods.surplus, snapshot)[:, None],
    )
    if peaks is None:
        return loads
    # in deviation mode thresholds of the peaks lie around the mean of the peaks
    of_peaks = node_pools.thresholds(peaks.node_millicores / capacity, pools)
    peak_high, peak_target = (np.where(known, column * room, np.nan) for column in (of_peaks.high, of_peaks.target))
    on_reference = replace(
        peaks,
        node_millicores=peaks.node_millicores * speed,
        allowance_millicores=None if peaks.allowance_millicores is None else peaks.allowance_millicores * speed,
        pod_millicores=cpu.pods.on_reference(peaks.pod_millicores, snapshot),
        relief_millicores=cpu.pods.on_reference(peaks.relief_millicores, snapshot),
    )
    return with_peaks(loads, on_reference, peak_high, peak_target, due)


def override_thresholds(
    resource: str,
    shares: Floats,
    high: Floats,
    target: Floats,
    overrides: Mapping[tuple[int, str], ThresholdOverride],
) -> None:
    """Replace `high` and `target` (nodes,) of a resource by those of alerts, for nodes of a pool with thresholds of it.
    All are shares of capacity."""
    for (node, name), override in overrides.items():
        if name == resource and np.isfinite(high[node]):
            high[node], target[node] = override.high, override.bounded_target(float(shares[node]), float(target[node]))


def with_peaks(now: Loads, peaks: Peaks, high: Floats, target: Floats, to_relieve: Iterable[tuple[int, str]]) -> Loads:
    """Loads of one resource with its expected peak as a second one. `peaks` and the pools' own `high` and `target`
    (nodes,) are in its unit, CPU in millicores of the reference machine: an alert's thresholds don't apply to the
    future.

    The peak counts on every node that a replacement may land on. A node is relieved of it only when it is due by this
    resource, as the peak may not come: a hot one of both, a cool one of the peak alone.
    """
    peak, room = peaks.node_millicores, now.room[:, 0]
    due = np.zeros(len(peak), dtype=np.bool_)
    due[[node for node, resource in to_relieve if resource == now.resources[0]]] = True
    unknown, ahead = ~np.isfinite(peak), due & (peak > high)
    target[unknown | (now.hot & ~ahead)] = np.nan
    high[~ahead] = np.nan
    measured_target = now.target[:, 0].copy()
    measured_target[ahead & ~now.hot] = np.nan
    if peaks.allowance_millicores is not None:
        # little is known of new services: no pod lands on that, and none is evicted for it
        peak = np.where(np.isfinite(high), peak, peak + np.nan_to_num(peaks.allowance_millicores))
    # a pod of unknown peak adds what it uses now
    coming = np.where(np.isfinite(peaks.pod_millicores), peaks.pod_millicores, now.pod[:, 0])
    return Loads(
        resources=(*now.resources, f"{now.resources[0]}{AT_ITS_PEAK}"),
        node=np.column_stack([now.node[:, 0], np.where(unknown, np.nan, peak)]),
        room=np.column_stack([room, room]),
        high=np.column_stack([now.high[:, 0], high]),
        target=np.column_stack([measured_target, target]),
        low=np.column_stack([now.low[:, 0], target]),
        pod=np.column_stack([now.pod[:, 0], coming]),
        relief=np.column_stack([now.relieved[:, 0], peaks.relief_millicores]),
    )


def with_week(loads: Loads, snapshot: ClusterSnapshot, node_pools: NodePools, cpu: CpuLoads, peaks: Peaks) -> Loads:
    """`loads` by real CPU with the peak of the coming week as a further resource, which no target node's target may be
    exceeded by."""
    if peaks.week is None:
        return loads
    capacity, speed = snapshot.nodes.cpu_capacity_millicores, cpu.pods.speed
    room, node = capacity * speed, peaks.week.node_millicores * speed
    target = node_pools.thresholds(peaks.week.node_millicores / capacity).target * room
    target[np.isnan(node)] = np.nan
    pod = cpu.pods.on_reference(peaks.week.pod_millicores, snapshot)
    columns = {
        "node": node,
        "room": room,
        "high": np.full(len(node), np.nan),
        "target": target,
        "low": target,
        # a pod of unknown peak adds what it uses now
        "pod": np.where(np.isfinite(pod), pod, loads.pod[:, 0]),
    }
    wide: dict[str, Any] = {name: np.column_stack([getattr(loads, name), column]) for name, column in columns.items()}
    relief = np.column_stack([loads.relieved, wide["pod"][:, -1]])
    return replace(loads, resources=(*loads.resources, WEEK), relief=relief, of_all=None, **wide)


def requested(snapshot: ClusterSnapshot, names: Sequence[str]) -> tuple[Floats, Floats, Floats]:
    """Node loads, node capacity and pod loads by requests of the resources `names`: (nodes, names), (nodes, names) and
    (pods, names). The capacity of a node without a resource is 0.

    Terminating pods are left out of the nodes' load: their capacity is about to be free.
    """
    pods, nodes = snapshot.pods, snapshot.nodes
    pod, node = np.zeros((len(pods), len(names))), np.zeros((len(nodes), len(names)))
    room = np.zeros(node.shape)
    for at, name in enumerate(names):
        pod[:, at], room[:, at] = _pod_requests(snapshot, name), _allocatable(nodes, name)
        node[:, at] = snapshot.per_node(np.where(pods.terminating, 0.0, pod[:, at]))
    return node, room, pod


def requested_resources(pools: Iterable[Pool]) -> tuple[str, ...]:
    """Names of the resources that these pools have request thresholds of, in order."""
    marks = [pool.request_thresholds for pool in pools if pool.request_thresholds is not None]
    return tuple(sorted({name for each in marks for name in each.high}))


def _allocatable(nodes: Nodes, name: str) -> Floats:
    """(nodes,) 0 where a node doesn't have the resource."""
    plain = {
        CPU: nodes.cpu_allocatable_millicores,
        "memory": nodes.memory_allocatable_bytes,
        "pods": nodes.pods_allocatable,
    }
    if name in plain:
        return plain[name]
    return np.array([each.get(name, 0.0) for each in nodes.extended], dtype=np.float64)


def _pod_requests(snapshot: ClusterSnapshot, name: str) -> Floats:
    """(pods,)"""
    pods = snapshot.pods
    if name in (CPU, MEMORY):
        return pods.cpu_request_millicores if name == CPU else pods.memory_request_bytes
    if name == "pods":
        return np.ones(len(pods))
    templates, of_pod = np.unique(pods.template, return_inverse=True)
    of_template = [snapshot.pod_templates[at].extended_requests.get(name, 0.0) for at in templates.tolist()]
    out: Floats = np.array(of_template, dtype=np.float64)[of_pod]
    return out
