"""NodeMaintenance: chosen nodes are drained in waves, and kept drained for as long as they are chosen.

A wave begins when all nodes of earlier waves are drained. The state is read from the cluster alone, so a restart
continues. No replacement lands on a chosen node of any wave: no pod is evicted twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.steering import MAINTENANCE
from rebalancer.model.decisions.plan import Finding, Goal, LandingRule
from rebalancer.model.notation.arrays import Bools
from rebalancer.policy.schema.strategies.lifecycle import MaintenanceArgs
from rebalancer.strategies.interface.selection import cheapest_first, counted, fills, nodes_in_scope
from rebalancer.strategies.interface.view import Findings, StrategyView


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wave:
    """Nodes that are drained together."""

    title: str
    """Such as `wave 2 of 5 (zone b)`; empty where all nodes are one wave."""
    nodes: tuple[int, ...]
    """By name."""


def find(view: StrategyView) -> Findings:
    """The nodes being drained, already cordoned ones first."""
    args, snapshot = view.strategy.args, view.snapshot
    assert isinstance(args, MaintenanceArgs)
    chosen, notes = _chosen(view, args)
    filling = fills(snapshot)
    left = counted(snapshot, filling)
    going = filling & ~snapshot.pods.terminating
    waves = _waves(view, args, chosen)
    current = next((at for at, wave in enumerate(waves) if left[list(wave.nodes)].any()), len(waves))
    waiting = [node for node in waves[current].nodes if left[node]] if current < len(waves) else []
    at_work = sorted(waiting, key=lambda node: node not in view.cordons)[: args.max_concurrent_nodes]
    looked = nodes_in_scope(view)
    landing = LandingRule(only=~chosen)
    findings = []
    for node in at_work:
        pods = snapshot.pods_on(node)
        pods = pods[going[pods]]
        if looked[node] and len(pods):
            title = waves[current].title
            findings.append(
                Finding(
                    strategy=view.strategy.name,
                    node=node,
                    pool=view.node_pools.names[node],
                    reason=f"chosen for maintenance{', ' if title else ''}{title}: pods to leave it: {len(pods)}",
                    candidates=cheapest_first(snapshot, pods.astype(np.int64), by_qos=True).astype(np.int32),
                    goal=Goal.REMOVE,
                    recurs=True,
                    landing=landing,
                )
            )
    empty = int(np.count_nonzero(chosen & (left == 0)))
    reached = [node for wave in waves[: current + 1] for node in wave.nodes]
    return Findings(
        findings=tuple(findings),
        cordons=_cordons(view, chosen, at_work, empty=left == 0, reached=reached),
        maintenance_nodes=frozenset(np.flatnonzero(chosen).tolist()),
        progress={
            "drained": empty,
            "draining": len(at_work),
            "pending": int(np.count_nonzero(chosen)) - empty - len(at_work),
        },
        notes=(*notes, *_progress(waves, current, left, at_work), *_nowhere_to_go(view, chosen, at_work)),
    )


def _chosen(view: StrategyView, args: MaintenanceArgs) -> tuple[Bools, list[str]]:
    """(nodes,) chosen nodes of the strategy's pools, and notes about names that match none."""
    nodes, named = view.snapshot.nodes, set(args.nodes)
    selector = None if args.node_selector is None else args.node_selector.compiled()
    key, equals, value = (args.annotation or "").partition("=")
    mine = view.in_chosen_pools
    chosen = np.zeros(len(nodes), dtype=np.bool_)
    for node in np.flatnonzero(mine).tolist():
        annotation = nodes.annotations[node].get(key) if key else None
        chosen[node] = (
            nodes.names[node] in named
            or selector_matches(selector, nodes.labels[node])
            or (annotation is not None and (not equals or annotation == value))
        )
    index = view.snapshot.node_index
    absent = sorted(named - index.keys())
    outside = sorted(name for name in named & index.keys() if not mine[index[name]])
    notes = [f"maintenance: there is no node {name}" for name in absent]
    notes += [f"maintenance: node {name} is in none of its pools" for name in outside]
    return chosen, notes


def _waves(view: StrategyView, args: MaintenanceArgs, chosen: Bools) -> list[_Wave]:
    """By the label's value; nodes without it come last."""
    nodes = view.snapshot.nodes
    by_value: dict[str | None, list[int]] = {}
    for node in sorted(np.flatnonzero(chosen).tolist(), key=lambda node: nodes.names[node]):
        value = None if args.wave_label is None else nodes.labels[node].get(args.wave_label)
        by_value.setdefault(value, []).append(node)
    if args.wave_label is None:
        return [_Wave(title="", nodes=tuple(members)) for members in by_value.values()]
    what = args.wave_label.rpartition("/")[2]
    values = sorted(by_value, key=lambda value: (value is None, value or ""))
    return [
        _Wave(
            title=f"wave {at} of {len(values)} ({f'no {what}' if value is None else f'{what} {value}'})",
            nodes=tuple(by_value[value]),
        )
        for at, value in enumerate(values, start=1)
    ]


def _cordons(
    view: StrategyView, chosen: Bools, at_work: Sequence[int], *, empty: Bools, reached: Sequence[int]
) -> dict[int, str]:
    """Draining and drained nodes; of later waves only nodes with a cordon of ours. Foreign cordons are not touched."""
    ours = np.zeros(len(chosen), dtype=np.bool_)
    ours[list(view.cordons)] = True
    due = np.zeros(len(chosen), dtype=np.bool_)
    due[list(reached)] = True
    wanted = chosen & empty & (due | ours)
    wanted[list(at_work)] = True
    wanted &= ours | ~view.snapshot.nodes.unschedulable
    return dict.fromkeys(np.flatnonzero(wanted).tolist(), MAINTENANCE)


def _progress(waves: Sequence[_Wave], current: int, left: NDArray[np.int64], at_work: Sequence[int]) -> list[str]:
    if not waves:
        return ["maintenance: no node is chosen"]
    if current == len(waves):
        return [f"maintenance: all {sum(len(wave.nodes) for wave in waves)} nodes are drained"]
    wave = waves[current]
    empty = sum(1 for node in wave.nodes if not left[node])
    title = f"{wave.title}: " if wave.title else ""
    return [f"maintenance: {title}{empty} of {len(wave.nodes)} nodes are drained, {len(at_work)} draining"]


def _nowhere_to_go(view: StrategyView, chosen: Bools, at_work: Sequence[int]) -> list[str]:
    """Notes about pools of which every node is chosen: their pods may have no target node."""
    free = ~chosen & view.snapshot.nodes.ready & ~view.snapshot.nodes.unschedulable
    pools = sorted({int(view.node_pools.of_node[node]) for node in at_work})
    return [
        f"maintenance: pool {view.node_pools.pools[pool].name} has no node that isn't chosen and could take pods"
        for pool in pools
        if not (free & (view.node_pools.of_node == pool)).any()
    ]
