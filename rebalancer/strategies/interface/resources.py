"""Loads of resources besides CPU.

A measurement of a pod is not what it uses after a move: it starts small, and grows to what its siblings use. Memory and
most others, unlike CPU, don't depend on what else the node does, and are free as soon as the pod has left.
"""

import math
import statistics
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rebalancer.forecast.series.predecessors import predecessor_amounts, predecessors
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Loads
from rebalancer.model.measured.history import block_units
from rebalancer.model.measured.peaks import Peaks
from rebalancer.model.measured.usage import ResourceUsage, Usage
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.placement.cluster.taints import under_memory_pressure
from rebalancer.policy.pools import NodePools
from rebalancer.strategies.interface.loads import override_thresholds, with_peaks

SAME_AGE = 0.9
"""A sibling is of a pod's age when it has this share of it."""

SWAP_IN_PAGES = 256.0
"""Pages per second, 1 MiB of 4 KiB each: a node that reads as much back from swap has too little memory."""

GROWING_SECONDS = 3600.0
"""A younger pod is expected to grow to what its older siblings use."""


Expected = Mapping[str, Floats]
"""Name of a resource -> (pods,) the amount that each pod uses on another node."""


def expected_by_resource(
    snapshot: ClusterSnapshot, node_pools: NodePools, usage: Usage, evictions: Iterable[Eviction] = ()
) -> Expected:
    """Of memory and of each resource that a pool has thresholds of. Made once for a cycle: it looks at every pod.

    `evictions`: of the last `GROWING_SECONDS` and those in flight, with their replacements.
    """
    before = predecessors(snapshot, evictions)
    return {
        name: expected_amounts(
            snapshot,
            used.pod,
            unknown=_unmeasured(snapshot, name, used),
            before=_of_predecessors(snapshot, before, name),
        )
        for name in dict.fromkeys((MEMORY, *node_pools.resources))
        if (used := usage.resources.get(name)) is not None
    }


def memory_reserve(
    snapshot: ClusterSnapshot,
    usage: Usage,
    expected: Expected,
    *,
    least: float,
    now: float,
    peaks: Peaks | None = None,
) -> Loads | None:
    """Real memory of all nodes, with a target that leaves `least` (0..1) of it available; None where it isn't known.

    The load is the higher of now and the expected peak. No node is hot by it. A node of unknown memory has no target.
    """
    memory = usage.resources.get(MEMORY)
    if memory is None or not np.isfinite(memory.node).any():
        return None
    grown = expected[MEMORY]
    node = expected_on_nodes(snapshot, memory, grown, now=now)[:, None]
    coming = peaks_in_units(peaks, MEMORY)
    if coming is not None:
        allowance = 0.0 if coming.allowance_millicores is None else np.nan_to_num(coming.allowance_millicores)
        at_peak = coming.node_millicores + allowance
        node = np.where(np.isfinite(node), np.fmax(node, at_peak[:, None]), np.nan)
        grown = np.fmax(grown, coming.pod_millicores)
    target = np.where(np.isfinite(node), (1.0 - least) * memory.capacity[:, None], np.nan)
    return Loads(
        resources=(MEMORY,),
        node=node,
        room=memory.capacity[:, None],
        high=np.full(node.shape, np.nan),
        target=target,
        low=target,
        pod=grown[:, None],
        relief=memory.relieved[:, None],
    )


def with_resources(
    loads: Loads,
    snapshot: ClusterSnapshot,
    node_pools: NodePools,
    usage: Usage,
    expected: Expected,
    *,
    now: float,
    occupied: bool,
    pools: Collection[int] | None = None,
    overrides: Mapping[tuple[int, str], ThresholdOverride] | None = None,
    peaks: Peaks | None = None,
    due: Iterable[tuple[int, str]] = (),
) -> Loads:
    """`loads` with a column for each resource that a pool has thresholds of, and one for its expected peak where
    `peaks` have it; `pools` as in `NodePools.thresholds`, `overrides` and `due` as in `cpu_loads`.

    `occupied`: as landings count, with terminating pods and with what growing pods are expected to add; otherwise as a
    node is found hot. A node of unknown amount is not hot, and takes nothing where it has a target.
    """
    for name in node_pools.resources:
        used = usage.resources.get(name) or _unknown(snapshot)
        grown = expected.get(name, used.pod)
        node = expected_on_nodes(snapshot, used, grown, now=now) if occupied else _without_leaving(snapshot, used)
        marks = node_pools.resource_thresholds(name, pools)
        room = np.where(np.isfinite(used.capacity), used.capacity, 1.0)
        peak_marks = marks.high * room, marks.target * room  # an alert's thresholds don't apply to the future
        override_thresholds(name, node / room, marks.high, marks.target, overrides or {})
        one = Loads(
            resources=(name,),
            node=node[:, None],
            room=room[:, None],
            high=(marks.high * room)[:, None],
            target=(marks.target * room)[:, None],
            low=(marks.low * room)[:, None],
            pod=grown[:, None],
            relief=np.nan_to_num(used.relieved)[:, None],
        )
        coming = peaks_in_units(peaks, name)
        if coming is not None:
            freed = np.where(np.isnan(used.freed), 1.0, used.freed)
            coming = replace(coming, relief_millicores=coming.relief_millicores * freed)
            one = with_peaks(one, coming, *peak_marks, due)
        wide: dict[str, Any] = {
            each: np.column_stack([getattr(loads, each), getattr(one, each)])
            for each in ("node", "room", "high", "target", "low", "pod", "relieved")
        }
        relief = wide.pop("relieved")
        loads = replace(loads, resources=(*loads.resources, *one.resources), relief=relief, **wide)
    return loads


def peaks_in_units(peaks: Peaks | None, name: str) -> Peaks | None:
    """Expected peaks of a resource besides CPU in the units of its usage; None where it isn't forecast."""
    found = None if peaks is None else peaks.resources.get(name)
    if found is None:
        return None
    unit = 1.0 / block_units(name)
    allowance = found.allowance_millicores
    return replace(
        found,
        expected=np.asarray(found.expected * np.float32(unit), dtype=np.float32),
        node_millicores=found.node_millicores * unit,
        relief_millicores=found.relief_millicores * unit,
        pod_millicores=found.pod_millicores * unit,
        allowance_millicores=None if allowance is None else allowance * unit,
        week=None,
    )


def short_of_memory(snapshot: ClusterSnapshot, usage: Usage) -> dict[int, str]:
    """Node -> why it is urgent: it is under memory pressure, or it reads back from swap what is in use."""
    names = snapshot.nodes.names
    swap = np.full(len(names), np.nan) if usage.swap_in_pages is None else usage.swap_in_pages
    pressed = np.flatnonzero(under_memory_pressure(snapshot.nodes)).tolist()
    swaps = np.flatnonzero(swap >= SWAP_IN_PAGES).tolist()
    out = {node: f"reads {swap[node]:.0f} pages/s back from swap" for node in swaps}
    return out | dict.fromkeys(pressed, "is under memory pressure")


def only_what_is_hot(loads: Loads, names: Collection[str]) -> Loads:
    """`loads` in which a hot node has no target in those of these resources that it is not hot by: it is relieved of
    what it has too much of, and of nothing else."""
    over: Bools = np.asarray(loads.node > loads.high, dtype=np.bool_)
    hot = np.asarray(over.any(axis=1), dtype=np.bool_)
    spared = hot[:, None] & ~over & np.array([name in names for name in loads.resources])
    return replace(loads, target=np.where(spared, np.nan, loads.target)) if spared.any() else loads


def _unmeasured(snapshot: ClusterSnapshot, name: str, used: ResourceUsage) -> Floats:
    """(pods,) the amount of a pod without a measurement and without siblings that have one: its request of memory; of
    another resource what its node uses besides its measured pods, which it can't exceed. NaN where that isn't known."""
    if name == MEMORY:
        return snapshot.pods.memory_request_bytes
    active, on = snapshot.active, snapshot.pods.node
    measured = np.bincount(on[active], weights=np.nan_to_num(used.pod[active]), minlength=len(used.node))
    return np.append(np.maximum(used.node - measured, 0.0), 0.0)[on]  # pods on no node come last


def _unknown(snapshot: ClusterSnapshot) -> ResourceUsage:
    nodes = np.full(len(snapshot.nodes), np.nan)
    return ResourceUsage(node=nodes, capacity=nodes, pod=np.full(len(snapshot.pods), np.nan), samples=nodes[None, :])


def _without_leaving(snapshot: ClusterSnapshot, used: ResourceUsage) -> Floats:
    """(nodes,) the measured amount without that of terminating pods."""
    pods = snapshot.pods
    leaving = snapshot.active & pods.terminating
    gone = np.bincount(pods.node[leaving], weights=np.nan_to_num(used.relieved[leaving]), minlength=len(snapshot.nodes))
    out: Floats = np.maximum(used.node - gone, 0.0)
    return out


def expected_amounts(
    snapshot: ClusterSnapshot, measured: Floats, *, unknown: Floats, before: Floats | None = None
) -> Floats:
    """(pods,) the amount that each pod uses on another node: the most of its own, the median of its siblings of that
    age or older, and what its evicted predecessor used (`before`, NaN = no predecessor, or unknown). `unknown` (pods,)
    is that of a pod without any of them."""
    out: Floats = np.fmax(measured, _of_siblings(snapshot, measured, unknown))
    if before is not None:
        out = np.fmax(out, before)
    return np.where(np.isfinite(out), out, unknown)


def _of_predecessors(snapshot: ClusterSnapshot, found: Mapping[int, Eviction], name: str) -> Floats:
    """(pods,) what the evicted predecessors of pods that are still growing used; NaN where unknown."""
    return np.where(_growing(snapshot, snapshot.taken), predecessor_amounts(snapshot, found, name), np.nan)


def _growing(snapshot: ClusterSnapshot, now: float) -> Bools:
    """(pods,) whether a pod is not warm yet."""
    pods = snapshot.pods
    growing: Bools = ~pods.ready | ~(pods.started <= now - GROWING_SECONDS)
    return growing


def expected_on_nodes(snapshot: ClusterSnapshot, used: ResourceUsage, expected: Floats, *, now: float) -> Floats:
    """(nodes,) the measured amount, with what pods on it that are still growing are expected to add."""
    pods = snapshot.pods
    growing = snapshot.active & ~pods.terminating & _growing(snapshot, now)
    more = np.where(growing, np.maximum(expected - np.nan_to_num(used.pod), 0.0), 0.0)
    out: Floats = used.node + np.bincount(pods.node[growing], weights=more[growing], minlength=len(snapshot.nodes))
    return out


def _of_siblings(snapshot: ClusterSnapshot, measured: Floats, unknown: Floats) -> Floats:
    """(pods,) the median of the other pods of its service that are of its age or older. Where only younger ones and
    not the pod itself are measured, it is that of all of them, or `unknown`, if that is more; NaN without any."""
    pods = snapshot.pods
    out = np.full(len(pods), np.nan)
    owned = np.flatnonzero(snapshot.active & (pods.owner >= 0))
    if not len(owned):
        return out
    top = snapshot.top_owner[pods.owner[owned]]
    # a pod that has not started is the youngest
    ages = snapshot.taken - np.where(np.isfinite(pods.started[owned]), pods.started[owned], snapshot.taken)
    ages = np.maximum(ages, 0.0)  # clocks differ, and a list is read after its time
    order = np.lexsort((-ages, top))
    owned, top, ages = owned[order], top[order], ages[order]
    starts = np.flatnonzero(np.diff(top, prepend=-1)).tolist()
    age_of, amount_of = ages.tolist(), measured[owned].tolist()
    medians: list[float] = []
    for first, end in zip(starts, [*starts[1:], len(top)], strict=True):
        amounts = amount_of[first:end]
        found = _running_medians(age_of[first:end], amounts)
        if math.isnan(found[0]) and math.isnan(amounts[0]):  # the oldest lacks both where any pod does
            found = _or_of_younger(found, amounts, unknown[owned[first:end]].tolist())
        medians += found
    out[owned] = medians
    return out


def _or_of_younger(found: list[float], amounts: list[float], unknown: list[float]) -> list[float]:
    """`found`; of pods without it and without an amount of their own the median of all, or `unknown`, if that is
    more."""
    known = [amount for amount in amounts if not math.isnan(amount)]
    if not known:
        return found
    usual = statistics.median(known)
    return [
        max(usual, otherwise) if math.isnan(median) and math.isnan(own) else median
        for median, own, otherwise in zip(found, amounts, unknown, strict=True)
    ]


def _running_medians(ages: list[float], amounts: list[float]) -> list[float]:
    """Of each pod the median of the other amounts of its age or older; `ages` descend. NaN is left out."""
    known: list[float] = []
    out, taken, count = [], 0, len(ages)
    for age, own in zip(ages, amounts, strict=True):
        while taken < count and ages[taken] >= SAME_AGE * age:
            if not math.isnan(amounts[taken]):
                insort(known, amounts[taken])
            taken += 1
        unmeasured = math.isnan(own)
        own_at = len(known) if unmeasured else bisect_left(known, own)
        others = len(known) if unmeasured else len(known) - 1
        if others <= 0:
            out.append(math.nan)
            continue
        low, high = (others - 1) // 2, others // 2
        out.append((known[low + (low >= own_at)] + known[high + (high >= own_at)]) / 2)
    return out
