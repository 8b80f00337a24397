"""LowNodeUtilization: nodes over `high`, to be cooled to `target`.

Load is real CPU (corrected for recent moves), with other resources that the pool has thresholds of, or requests. By
real load a node is found only when it was hot in enough distinct fresh samples (the stabilization window), and not
within a rate window after an eviction from it. It is relieved of the resources that it is hot by. Predicted peaks are a
second load: no replacement lands where the peak would exceed the target, and a node that is due for relief ahead of its
peak is found although it is cool now.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan import AT_ITS_PEAK, Finding, Loads, ResourceExcess, is_predicted
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.figures import clock_time, millicores, percent
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.types import format_duration
from rebalancer.strategies.interface.loads import cpu_loads, requested, requested_resources
from rebalancer.strategies.interface.resources import only_what_is_hot, short_of_memory, with_resources
from rebalancer.strategies.interface.selection import settling
from rebalancer.strategies.interface.view import Findings, StrategyView

SPAN_SHARE = 0.8
"""Share of the stabilization window that samples must span: the outer ones may lie a scrape interval inside."""


def find(view: StrategyView) -> Findings:
    """Hot nodes, hottest first (by excess over target as a share of the node)."""
    short = short_of_memory(view.snapshot, view.usage) if view.strategy.by_cpu else {}
    loads = _cpu_loads(view, short) if view.strategy.by_cpu else _request_loads(view)
    skipped = _unjudged(view)
    over = loads.node > loads.high  # NaN compares false
    if view.strategy.by_cpu:
        skipped = _cooling(view, loads) | skipped
    momentary = np.zeros(over.shape, dtype=np.bool_)
    found: list[tuple[float, Finding]] = []
    for node in np.flatnonzero(over.any(axis=1)):
        if int(node) in skipped or (view.only is not None and int(node) not in view.only):
            continue
        if view.strategy.by_cpu:
            refusals = _momentary(view, loads, int(node), at_once=int(node) in short)
            if len(refusals) == np.count_nonzero(over[node]):
                skipped[int(node)] = next(iter(refusals.values()))
                continue
            momentary[node, list(refusals)] = True
        found.append(_finding(view, loads, int(node), over[node] & ~momentary[node], short.get(int(node), "")))
    found.sort(key=lambda each: (-each[0], view.snapshot.nodes.names[each[1].node]))
    if momentary.any():
        high, target = (np.where(momentary, np.nan, each) for each in (loads.high, loads.target))
        loads = replace(loads, high=high, target=target)
    return Findings(loads=loads, findings=tuple(finding for _, finding in found), skipped=skipped)


def _finding(view: StrategyView, loads: Loads, node: int, over: NDArray[np.bool_], short: str) -> tuple[float, Finding]:
    room = loads.room[node]
    share, high, target = loads.node[node] / room, loads.high[node] / room, loads.target[node] / room
    # measured load comes before predicted load
    measured = over & [not is_predicted(name) for name in loads.resources]
    worst = int(np.argmax(np.where(measured if measured.any() else over, share - high, -np.inf)))
    others = tuple(
        ResourceExcess(resource=name, share=float(share[at]), high=float(high[at]), target=float(target[at]))
        for at, name in enumerate(loads.resources)
        if measured[at] and at != worst and view.strategy.by_cpu
    )
    resource = _measured(loads.resources[worst])
    override = view.overrides.get((node, resource))
    urgent = bool(short) and MEMORY in loads.resources and bool(over[loads.resources.index(MEMORY)])
    by = f" ({override.source})" if override is not None else ""
    if is_predicted(loads.resources[worst]):
        reason = (
            f"{_peak(resource)} of {percent(share[worst])} expected at {_clock(view, node, resource)}, "
            f"over high {percent(high[worst])}, to be cooled to {percent(target[worst])}"
        )
    else:
        what = f"{'real' if view.strategy.by_cpu else 'requested'} {resource}".replace("real cpu", "real CPU")
        mark = "high" if high[worst] > target[worst] else "its target"
        reason = f"{what} {percent(share[worst])} is over {mark} {percent(high[worst])}{by}"
        reason += f", to be cooled to {percent(target[worst])}"
        if urgent:
            reason += f"; it {short}"
        if override is not None and view.strategy.by_cpu:
            reason += _changes(view, override, node, float(target[worst]))
        reason += "".join(
            f"; real {_named(each.resource)} {percent(each.share)} is over high {percent(each.high)}" for each in others
        )
        for at in np.flatnonzero(over & ~measured).tolist():
            name = _measured(loads.resources[at])
            reason += f"; a {_peak(name)} of {percent(share[at])} is expected at {_clock(view, node, name)}"
    finding = Finding(
        strategy=view.strategy.name,
        node=node,
        pool=view.node_pools.names[node],
        reason=reason,
        resource=resource,
        others=others,
        cpu_share=float(share[worst]),
        high=float(high[worst]),
        target=float(target[worst]),
        urgent=urgent,
        candidates=view.snapshot.pods_on(node),
    )
    return float(np.nanmax(share - target)), finding


def _named(resource: str) -> str:
    return "CPU" if resource == CPU else resource


def _changes(view: StrategyView, override: ThresholdOverride, node: int, target: float) -> str:
    """What an alert changed on the node; empty where it changed nothing."""
    if override.resource == CPU:
        own = view.node_pools.thresholds(view.cpu.node / view.snapshot.nodes.cpu_capacity_millicores)
    else:
        own = view.node_pools.resource_thresholds(override.resource)
    pairs = (("high", override.high, own.high[node]), ("target", target, own.target[node]))
    changes = [
        f"{name} {percent(new)} instead of {percent(old)}" for name, new, old in pairs if percent(new) != percent(old)
    ]
    if target > override.target:
        changes.append(f"its target {percent(override.target)} is limited by alerts.maxExcess")
    return f"; {override.source} set {', '.join(changes)}" if changes else ""


def _cpu_loads(view: StrategyView, short: Collection[int]) -> Loads:
    pools = [index for index, _ in view.chosen_pools]
    loads = cpu_loads(
        view.snapshot,
        view.node_pools,
        view.cpu,
        view.peaks,
        pools=pools,
        overrides=view.overrides,
        due=view.due,
    )
    if not view.node_pools.resources:
        return loads
    expected = {name: view.base.pod[:, at] for at, name in enumerate(view.base.resources)}
    loads = with_resources(
        loads,
        view.snapshot,
        view.node_pools,
        view.usage,
        expected,
        now=view.now,
        occupied=False,
        pools=pools,
        overrides=view.overrides,
        peaks=view.peaks,
        due=view.due,
    )
    if short and MEMORY in loads.resources:
        # memory over the target is too much where it is in short supply
        at, nodes = loads.resources.index(MEMORY), list(short)
        high = loads.high.copy()
        is_over = loads.node[nodes, at] > high[nodes, at]
        high[nodes, at] = np.where(is_over, high[nodes, at], loads.target[nodes, at])
        loads = replace(loads, high=high)
    return only_what_is_hot(loads, loads.resources)


def _due(view: StrategyView, node: int, over: Collection[str], resource: str) -> bool:
    """Whether it is due by this resource, and its peak is among those that are `over` high."""
    return (node, resource) in view.due and f"{resource}{AT_ITS_PEAK}" in over


def _measured(resource: str) -> str:
    """The resource that a predicted one is the peak of; a measured one itself."""
    return resource.removesuffix(AT_ITS_PEAK)


def _peak(resource: str) -> str:
    return "peak" if resource == CPU else f"{resource} peak"


def _clock(view: StrategyView, node: int, resource: str) -> str:
    assert view.peaks is not None
    peaks = view.peaks if resource == CPU else view.peaks.resources[resource]
    return clock_time(float(peaks.node_at[node]))


def _request_loads(view: StrategyView) -> Loads:
    names = requested_resources(pool for _, pool in view.chosen_pools)
    node, room, pod = requested(view.snapshot, names)
    has = room > 0
    room = np.where(has, room, 1.0)
    marks = {name: np.full(room.shape, np.nan) for name in ("high", "target", "low")}
    for index, pool in view.chosen_pools:
        members = view.node_pools.of_node == index
        if pool.request_thresholds is None:
            continue
        for name, column in marks.items():
            for resource, marked in getattr(pool.request_thresholds, name).items():
                at = names.index(resource)
                column[members, at] = np.where(has[members, at], marked / 100 * room[members, at], np.nan)
    return Loads(resources=names, node=node, room=room, pod=pod, measured=False, **marks)


def _unjudged(view: StrategyView) -> dict[int, Refusal]:
    """Nodes that are not evaluated, whatever their load."""
    out: dict[int, Refusal] = {}
    by_cpu = view.strategy.by_cpu
    for node in np.flatnonzero(~view.snapshot.nodes.ready & (view.node_pools.of_node >= 0)):
        out[int(node)] = Refusal.of(Reason.NODE_NOT_READY)
    for leaving, why in view.projection.removed.items():
        if view.node_pools.of_node[leaving] >= 0:
            out.setdefault(leaving, Refusal.of(Reason.NODE_LEAVING, why))
    if not by_cpu:
        return out
    return {**out, **view.usage.problems, **settling(view)}


def _cooling(view: StrategyView, loads: Loads) -> dict[int, Refusal]:
    """Nodes that are hot by their real CPU only until pods on them end within minutes."""
    ending, out = view.projection.ending, {}
    used = np.where(ending, np.nan_to_num(view.cpu.pod), 0.0)
    until_then = loads.node[:, 0] + view.snapshot.per_node(used) * view.cpu.pods.speed
    for node in np.flatnonzero((until_then > loads.high[:, 0]) & ~(loads.node[:, 0] > loads.high[:, 0])).tolist():
        pods = view.snapshot.pods_on(node)
        largest = int(pods[np.argmax(used[pods])])
        end = float(view.projection.ends[largest])
        until = f" by {clock_time(end)}" if np.isfinite(end) else ""
        detail = f"{view.snapshot.pod(largest)} ends{until}, with {millicores(float(used[largest]))}"
        out[node] = Refusal.of(Reason.COOLS_BY_ITSELF, detail, next_at=end if until else None)
    return out


def _momentary(view: StrategyView, loads: Loads, node: int, *, at_once: bool) -> dict[int, Refusal]:
    """Index of a resource that a node is hot by -> why it has not been for long enough. `at_once`: of
    memory it need not have been."""
    refusals: dict[int, Refusal] = {}
    hot_by = np.flatnonzero(loads.node[node] > loads.high[node]).tolist()
    over = [loads.resources[at] for at in hot_by]
    for at in hot_by:
        name = _measured(loads.resources[at])
        if _due(view, node, over, name):
            continue  # relief ahead of the peak can't wait
        if (node, name) in view.overrides:
            continue  # an alert has waited for its rule's `for`
        if name == MEMORY and at_once:
            continue
        if name == CPU:
            capacity, samples = view.snapshot.nodes.cpu_capacity_millicores, view.usage.samples
            high = loads.high[node, 0] / loads.room[node, 0]
        else:
            now = loads.resources.index(name)
            capacity, samples = loads.room[:, now], view.usage.resources[name].samples
            high = loads.high[node, now] / loads.room[node, now]
        refusal = _hot_throughout(view, samples[:, node] / capacity[node], high, node)
        if refusal is not None:
            refusals[at] = refusal
    return refusals


def _hot_throughout(view: StrategyView, shares: Floats, high: float, node: int) -> Refusal | None:
    """Why a node is not stable yet: too few distinct samples, too short a time, or cool in between. `shares`
    (samples,)."""
    wanted, over = view.source.stabilization_window.samples, view.source.stabilization_window.duration
    times = view.usage.sample_times[-len(shares) :, node]
    known = np.isfinite(times) & np.isfinite(shares)
    distinct = np.unique(times[known])
    hot = shares[known] > high
    if not hot.all():
        return Refusal.of(
            Reason.STABILIZATION_WINDOW, f"{np.count_nonzero(~hot)} of the last {len(hot)} readings were not hot"
        )
    if len(distinct) < wanted:
        return Refusal.of(Reason.STABILIZATION_WINDOW, f"{len(distinct)} of {wanted} distinct samples")
    span = float(distinct[-1] - distinct[0]) if len(distinct) > 1 else 0.0
    if wanted > 1 and span < SPAN_SHARE * over:
        return Refusal.of(Reason.STABILIZATION_WINDOW, f"hot for {format_duration(span)} of {format_duration(over)}")
    return None
