"""Interference: tasks wait for CPU although mean usage is not high. The noisy neighbour is evicted, not its victim.

Pressure (PSI) is the share of time in which some task waited for a CPU. On Linux it includes tasks throttled by their
own CPU limit, which no move would change. Net pressure leaves throttling out, as if both were independent: of a pod by
its throttled periods, of a node by those of all its pods.

A node is affected if its net pressure is high, unless its pods' pressures show that only noisy pods wait; or if a pod
that uses no more than it requests waits (a victim). A noisy pod uses far more than it requests. Its target nodes are
not affected, have CPU left, and are less busy with it than its own node is now, so no sequence of moves returns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Finding, LandingRule
from rebalancer.model.measured.usage import Contention
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.model.notation.figures import millicores, percent
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.strategies.utilization import InterferenceArgs
from rebalancer.strategies.interface.selection import by_name, chosen_pods, nodes_in_scope, settling, some_pods
from rebalancer.strategies.interface.view import Findings, StrategyView

BUSIEST_LANDING = 0.8
"""Greatest share of CPU in use on a target node, with the pod: on a fuller node tasks wait."""
ALL_BUT_NOTHING = 1.0 - 1e-9
WORTH = 0.05
"""A target node is less busy with the pod than its own node is now, by at least this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Pressure, and the pods and nodes it affects."""

    pressure: Floats
    """(nodes,) net pressure; NaN where unknown."""
    pods: Floats
    """(pods,) net pressure; NaN where unknown."""
    noisy: Bools
    """(pods,)"""
    victims: Bools
    """(pods,)"""
    suffering: Bools
    """(nodes,)"""
    calm: Bools
    """(nodes,) certainly not affected, throttling included."""
    known: Bools
    """(nodes,) whether any pressure of the node or of its pods is known."""


def find(view: StrategyView) -> Findings:
    """One finding for each affected node with a noisy pod, the longest waits first; one pod of it goes."""
    args = view.strategy.args
    assert isinstance(args, InterferenceArgs)
    observed_nodes = nodes_in_scope(view)
    if view.usage.contention is None:
        return Findings(
            findings=(),
            skipped={int(node): Refusal.of(Reason.NO_CONTENTION) for node in np.flatnonzero(observed_nodes)},
            notes=(f"{view.strategy.name} found nothing: {view.usage.source} has no CPU contention",),
        )
    snapshot = view.snapshot
    waiting = _waiting(view, view.usage.contention, args)
    skipped = {int(node): Refusal.of(Reason.NO_CONTENTION) for node in np.flatnonzero(observed_nodes & ~waiting.known)}
    skipped |= {node: why for node, why in view.usage.problems.items() if observed_nodes[node]}
    not_ready = np.flatnonzero(observed_nodes & ~snapshot.nodes.ready)
    skipped |= {int(node): Refusal.of(Reason.NODE_NOT_READY) for node in not_ready}
    skipped |= {
        node: Refusal.of(Reason.NODE_LEAVING, why)
        for node, why in view.projection.removed.items()
        if observed_nodes[node]
    }
    waits = settling(view)
    chosen = waiting.noisy & chosen_pods(snapshot, args)
    busy = view.cpu.node / snapshot.nodes.cpu_capacity_millicores
    found: list[tuple[float, Finding]] = []
    for node in np.flatnonzero(waiting.suffering & observed_nodes).tolist():
        if node in skipped:
            continue
        here = snapshot.pods_on(node)
        ranked = _noisiest_first(view, here[chosen[here]].astype(np.int64))
        if not len(ranked):
            skipped[node] = Refusal.of(Reason.NO_NOISY_NEIGHBOUR)
        elif node in waits:
            skipped[node] = waits[node]
        else:
            found.append((_longest_wait(waiting, node, here), _finding(view, waiting, busy, node, ranked)))
    found.sort(key=lambda each: (-each[0], snapshot.nodes.names[each[1].node]))
    return Findings(findings=tuple(finding for _, finding in found), skipped=skipped)


def _waiting(view: StrategyView, contention: Contention, args: InterferenceArgs) -> _Waiting:
    snapshot, pods = view.snapshot, view.snapshot.pods
    count = len(snapshot.nodes)
    # a pod younger than the rate window has no reliable rate
    runs = snapshot.active & ~pods.terminating & (pods.started <= view.now - view.usage.window_seconds)
    at = pods.node[runs]

    def summed(values: Floats) -> Floats:
        return np.bincount(at, weights=values[runs], minlength=count).astype(np.float64)

    throttled = np.clip(np.nan_to_num(contention.pod_throttled), 0.0, ALL_BUT_NOTHING)
    net = _without(contention.pod_pressure, throttled)
    # a pod adds at most its own pressure to its node's
    spared = np.exp(summed(np.log1p(-np.fmin(contention.pod_pressure, throttled))))
    pressure = _without(contention.node_pressure, np.minimum(1.0 - spared, ALL_BUT_NOTHING))

    used = view.usage.pod_cpu_millicores
    over = used - pods.cpu_request_millicores
    capacity = np.append(snapshot.nodes.cpu_capacity_millicores, np.nan)[pods.node]
    with np.errstate(invalid="ignore"):
        noisy = runs & (over >= args.excess / 100 * capacity)
        modest = runs & (over <= 0) & (pods.cpu_request_millicores > 0)
        victims = modest & (net >= args.pod_pressure / 100)
        high = pressure >= args.node_pressure / 100
    known_pods = summed(np.isfinite(net).astype(np.float64))
    unknown_pods = summed((~noisy & ~np.isfinite(net)).astype(np.float64))
    others = summed(np.where(noisy, 0.0, np.nan_to_num(net)))  # tasks of several pods may wait at once: at most the sum
    only_itself = (known_pods > 0) & (unknown_pods == 0) & (others < args.node_pressure / 100)
    suffering = (high & ~only_itself) | (summed(victims.astype(np.float64)) > 0)
    known = np.isfinite(contention.node_pressure) | (known_pods > 0)
    with np.errstate(invalid="ignore"):
        calm = known & ~suffering & ~(contention.node_pressure >= args.node_pressure / 100)
    return _Waiting(
        pressure=pressure, pods=net, noisy=noisy, victims=victims, suffering=suffering, calm=calm, known=known
    )


def _without(waits: Floats, throttled: Floats) -> Floats:
    """Pressure without throttling; 0 where there is only throttling."""
    out: Floats = np.maximum((waits - throttled) / (1.0 - throttled), 0.0)
    out[(throttled >= ALL_BUT_NOTHING) & np.isfinite(waits)] = 0.0
    return out


def _noisiest_first(view: StrategyView, pods: Rows) -> Rows:
    """Pods by how much more they use than they request, then by name."""
    ranked = by_name(view.snapshot, pods)
    over = view.usage.pod_cpu_millicores[ranked] - view.snapshot.pods.cpu_request_millicores[ranked]
    order: Rows = ranked[np.argsort(-over, kind="stable")]
    return order


def _longest_wait(waiting: _Waiting, node: int, here: NDArray[np.int32]) -> float:
    victims = waiting.pods[here[waiting.victims[here]]]
    return float(np.fmax(waiting.pressure[node], victims.max(initial=0.0)))


def _finding(view: StrategyView, waiting: _Waiting, busy: Floats, node: int, ranked: Rows) -> Finding:
    landings = {pod: _landings(view, waiting, busy, node, pod) for pod in ranked.tolist()}
    # a pod without target nodes gives way to the next
    able = [pod for pod in landings if landings[pod].any()] or ranked[:1].tolist()
    largest = max(able, key=lambda pod: float(view.usage.pod_cpu_millicores[pod]))
    return some_pods(
        view,
        np.array(able),
        _reason(view, waiting, busy, node, able[0]),
        wanted=1,
        landing=LandingRule(only=landings[largest]),
    )


def _landings(view: StrategyView, waiting: _Waiting, busy: Floats, node: int, pod: int) -> Bools:
    """(nodes,) target nodes: not affected, and with CPU for the pod's usage."""
    capacity = view.snapshot.nodes.cpu_capacity_millicores
    then = busy + view.usage.pod_cpu_millicores[pod] / capacity
    with np.errstate(invalid="ignore"):  # a node of unknown usage is no target node
        holds: Bools = then <= min(BUSIEST_LANDING, float(busy[node]) - WORTH)
    return holds & waiting.calm


def _reason(view: StrategyView, waiting: _Waiting, busy: Floats, node: int, pod: int) -> str:
    snapshot, used = view.snapshot, view.usage.pod_cpu_millicores[pod]
    here = snapshot.pods_on(node)
    victims = by_name(snapshot, here[waiting.victims[here]].astype(np.int64))
    if len(victims):
        worst = int(victims[np.argmax(waiting.pods[victims])])
        who = f"{len(victims)} pods" if len(victims) > 1 else "1 pod"
        what = (
            f"{who} within their requests wait for CPU, {_name(snapshot, worst)} {waiting.pods[worst]:.0%} of the time"
        )
    else:
        what = f"tasks wait for CPU {waiting.pressure[node]:.0%} of the time"
    requested = snapshot.pods.cpu_request_millicores[pod]
    return (
        f"{what} while {percent(busy[node])} of the node's CPU is in use; {_name(snapshot, pod)} uses "
        f"{millicores(used)} and requests {millicores(requested)}"
    )


def _name(snapshot: ClusterSnapshot, pod: int) -> str:
    return f"{snapshot.namespaces[int(snapshot.pods.namespace[pod])]}/{snapshot.pods.names[pod]}"
