"""HighNodeUtilization: fewer nodes, or better used ones.

Drain drains low nodes, the emptiest first, so that an autoscaler can remove them. Target nodes are nodes that are not
to be drained; where all nodes of a pool are low, those that are fuller than the pod's own, so that no pod returns and
each step leaves fewer nodes. They keep headroom under their target, now, at their predicted peak and on the highest day
of the coming week.

Release evicts pods from nodes that are full by requests and idle by usage, so that other pods fit there. A target node
stays under the requested share that a full node is relieved to, so no pod returns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from rebalancer.model.cluster.annotations import parse_flag
from rebalancer.model.cluster.pods import RUNNING
from rebalancer.model.cluster.steering import DRAINING
from rebalancer.model.decisions.drains import InVain
from rebalancer.model.decisions.plan import Finding, Goal, LandingRule, Loads
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.model.notation.figures import clock_time, percent
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.strategies.utilization import HighNodeUtilizationArgs
from rebalancer.policy.schema.types import format_duration
from rebalancer.strategies.interface.loads import requested, requested_resources, with_week
from rebalancer.strategies.interface.resources import peaks_in_units
from rebalancer.strategies.interface.selection import by_name, cheapest_first, counted, fills, nodes_in_scope
from rebalancer.strategies.interface.view import Findings, StrategyView

KEEPING_ANNOTATIONS = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
"""Node annotations that prevent draining, with any value but false. Sources: cluster-autoscaler's FAQ, karpenter v1."""


def find(view: StrategyView) -> Findings:
    """Low nodes, emptiest first; or full and idle ones, those with the largest gap first."""
    args = view.strategy.args
    assert isinstance(args, HighNodeUtilizationArgs)
    return _drain(view, args) if args.mode == "Drain" else _release(view, args)


# ---- drain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """The shares and thresholds that make a node low."""

    words: tuple[str, ...]
    """Name of each resource."""
    share: Floats
    """(nodes, resources) NaN where unknown."""
    low: Floats
    """(nodes, resources) threshold; NaN where there is none."""

    @property
    def under(self) -> Bools:
        """(nodes,) under low in every resource with a threshold."""
        judged = np.isfinite(self.low)
        out: Bools = np.asarray(judged.any(axis=1) & ((self.share < self.low) | ~judged).all(axis=1))
        return out

    @property
    def fullness(self) -> Floats:
        """(nodes,) the largest share of the resources with a threshold; NaN where one isn't known."""
        out: Floats = np.where(np.isfinite(self.low), self.share, 0.0).max(axis=1, initial=0.0)
        return out

    def said(self, node: int) -> str:
        """The shares of one node and its thresholds."""
        shown = zip(self.words, self.share[node].tolist(), self.low[node].tolist(), strict=True)
        return " and ".join(
            f"{word} {percent(share)} is under low {percent(low)}" for word, share, low in shown if isfinite(low)
        )


def _drain(view: StrategyView, args: HighNodeUtilizationArgs) -> Findings:
    snapshot, nodes, whole = view.snapshot, view.snapshot.nodes, args.whole_nodes
    base = view.base
    shares = _by_cpu(view, base) if args.source == "CPU" else _by_requests(view)
    filling = fills(snapshot)
    going = filling & ~snapshot.pods.terminating
    left, movable, looked = counted(snapshot, filling), counted(snapshot, going), nodes_in_scope(view)
    # draining continues, low or not: the planner decides whether it is still possible
    begun = _begun(view) if whole else {}
    patience = view.strategy.memory_seconds
    stuck = {node for node, since in begun.items() if left[node] and view.now - since >= patience}
    begun = {node: since for node, since in begun.items() if node not in stuck}
    emptied, kept = _to_empty(view, shares, begun, args)
    emptied[list(stuck)] = False
    # still a low node for the landings of others
    waiting = {node: each for node, each in view.in_vain.items() if emptied[node] and node not in begun}
    waiting = {node: each for node, each in waiting.items() if view.now < each.until} if whole else {}
    kept |= dict.fromkeys(stuck, f"no pod could leave it for {format_duration(patience)}, so it is uncordoned")
    rank = _ranks(nodes.names, shares.fullness)
    found = np.flatnonzero(emptied & looked & nodes.ready & (movable > 0) & ~view.projection.is_closed).tolist()
    found = [node for node in found if node not in waiting]
    found.sort(key=lambda node: (node not in begun, rank[node]))
    candidates = [pods[going[pods]] for pods in map(snapshot.pods_on, found)]
    rules = _landing_rules(view, found, emptied, onto_low=left > 0, rank=rank, shares=shares)
    findings = tuple(
        Finding(
            strategy=view.strategy.name,
            node=node,
            pool=view.node_pools.names[node],
            reason=f"{'draining' if node in begun else shares.said(node)}, pods to go elsewhere: {len(pods)}",
            candidates=pods if whole else cheapest_first(snapshot, pods.astype(np.int64), by_qos=True).astype(np.int32),
            goal=Goal.EMPTY if whole else Goal.REMOVE,
            landing=rule,
        )
        for node, pods, rule in zip(found, candidates, rules, strict=True)
    )
    skipped = {node: Refusal.of(Reason.NODE_KEPT, why) for node, why in kept.items() if looked[node] and movable[node]}
    skipped |= {node: _in_vain(each) for node, each in waiting.items() if looked[node] and movable[node]}
    # a draining node without a finding counts too: it is outside of the request, or its last pods are terminating
    others = int(np.count_nonzero(left[list(begun.keys() - set(found))]))
    return Findings(
        findings=findings,
        loads=_target_loads(view, args),
        skipped={**skipped, **_unjudged(view, looked, shares)},
        cordons={
            node: DRAINING for node, since in begun.items() if left[node] or view.now - since < args.cordon_after_drain
        },
        emptied={node: view.now - since >= args.cordon_after_drain for node, since in begun.items() if not left[node]},
        empty_at_most=max(args.max_concurrent_nodes - others, 0) if whole else None,
    )


def _in_vain(drained: InVain) -> Refusal:
    times = f"{drained.count} times in a row" if drained.count > 1 else "once"
    detail = f"{times}, next at {clock_time(drained.until)}"
    return Refusal.of(Reason.EMPTIED_IN_VAIN, detail, next_at=drained.until)


def _to_empty(
    view: StrategyView, shares: _Shares, begun: Mapping[int, float], args: HighNodeUtilizationArgs
) -> tuple[Bools, dict[int, str]]:
    """(nodes,) nodes to drain, empty ones included; and why other low nodes are kept."""
    ready, mine = view.snapshot.nodes.ready, view.in_chosen_pools
    emptied = shares.under & mine & ready
    emptied[list(begun)] = False
    low, whole = np.flatnonzero(emptied).tolist(), args.whole_nodes
    kept = {node: why for node in low if (why := _kept(view, node, whole=whole))}
    for index, _ in () if args.drain_when_all_low else view.chosen_pools:
        members = ready & (view.node_pools.of_node == index)
        # pods of a drained node can't go to a cordoned one, however full it is
        if shares.under[members & ~view.snapshot.nodes.unschedulable].all():
            kept |= dict.fromkeys(np.flatnonzero(emptied & members).tolist(), "all nodes of its pool are low")
    emptied[list(kept)] = False
    emptied[list(begun)] = True
    return emptied, kept


def _landing_rules(
    view: StrategyView, found: Sequence[int], emptied: Bools, *, onto_low: Bools, rank: Rows, shares: _Shares
) -> Iterator[LandingRule]:
    """One for each node. `onto_low` (nodes,): low nodes that may take pods where their pool has no others."""
    nodes, pool_of = view.snapshot.nodes, view.node_pools.of_node
    only = ~emptied & ~nodes.unschedulable
    onto_low = onto_low & emptied & ~nodes.unschedulable
    fuller = only & nodes.ready & ~shares.under & np.isfinite(shares.fullness)
    for index, _ in view.chosen_pools:
        if (fuller & (pool_of == index)).any():
            onto_low[pool_of == index] = False
    usual = LandingRule(only=only)
    for node in found:
        fuller_low = onto_low & (pool_of == pool_of[node]) & (rank > rank[node])
        yield LandingRule(only=only | fuller_low) if fuller_low.any() else usual


def _ranks(names: Sequence[str], fullness: Floats) -> Rows:
    """(nodes,) rank of each node, the emptiest first, then by name."""
    by_name = np.argsort(np.argsort(np.array(names)))
    return np.argsort(np.lexsort((by_name, np.nan_to_num(fullness))))


def _target_loads(view: StrategyView, args: HighNodeUtilizationArgs) -> Loads | None:
    """Loads of target nodes, with the week ahead: a night or a weekend says nothing of the days that follow.

    By requests they are those of real CPU without a reserve, where every node has a CPU target: with these loads nodes
    without one would be no targets.
    """
    ahead, base = view.peaks is not None and view.peaks.week is not None, view.base
    if args.source == "Requests" and not (ahead and np.isfinite(base.target[:, 0]).all()):
        return None
    if view.peaks is not None:
        base = with_week(base, view.snapshot, view.node_pools, view.cpu, view.peaks)
    return _with_reserve(base, args.headroom if args.source == "CPU" else 0.0)


def _with_reserve(base: Loads, reserve: float) -> Loads:
    """Loads of target nodes: none is hot, and each takes pods up to `reserve` percentage points below its target."""
    target = base.target - reserve / 100 * base.room
    return replace(base, high=np.full(base.high.shape, np.nan), target=target, low=target)


def _by_cpu(view: StrategyView, base: Loads) -> _Shares:
    """By real CPU and the other resources with thresholds, in the strategy's pools."""
    now, room = base.node[:, 0], base.room[:, 0]
    mine = view.in_chosen_pools
    share = _lately(view, now) / room
    low = np.where(mine, base.low[:, 0] / room, np.nan)
    others = [base.resources.index(name) for name in view.node_pools.resources if name in base.resources]
    of_others = [_lately_of(view, base.resources[at], base.node[:, at]) / base.room[:, at] for at in others]
    return _Shares(
        words=("real CPU", *(f"real {base.resources[at]}" for at in others)),
        share=np.column_stack([share, *of_others]),
        low=np.column_stack([low, np.where(mine[:, None], base.low[:, others] / base.room[:, others], np.nan)]),
    )


def _lately(view: StrategyView, now: Floats) -> Floats:
    """(nodes,) real CPU as in `_highest`."""
    return _highest(now, view.usage.samples)


def _lately_of(view: StrategyView, resource: str, now: Floats) -> Floats:
    """(nodes,) the same of another resource."""
    used = view.usage.resources.get(resource)
    return now if used is None else _highest(now, used.samples)


def _highest(now: Floats, samples: Floats) -> Floats:
    """(nodes,) the maximum of `now` and the last `samples`, so that one dip makes no node low; NaN where `now` is."""
    readings = np.fmax.reduce(samples, axis=0, initial=-np.inf)
    out: Floats = np.where(np.isfinite(now), np.fmax(now, readings), np.nan)
    return out


def _most_used(view: StrategyView, base: Loads) -> Floats:
    """(nodes,) share of CPU in use, recently or at the predicted peak; NaN where usage isn't known."""
    lately = _lately(view, base.node[:, 0])
    peak = np.full(len(lately), np.nan) if view.peaks is None else view.peaks.node_millicores
    out: Floats = np.where(np.isfinite(lately), np.fmax(lately, peak), np.nan) / base.room[:, 0]
    return out


def _usage_of(view: StrategyView, resource: str, room: Floats, requests: Floats) -> tuple[Floats, Floats]:
    """(nodes,) share in use, as in `_most_used`; and (pods,) amount in use, in the unit of `requests` (pods,) and
    `room` (nodes,). A pod of unknown usage uses all it requests."""
    if resource == CPU:
        return _most_used(view, view.base), view.base.pod[:, 0]
    used = view.usage.resources.get(resource)
    if used is None:
        return np.full(len(room), np.nan), requests
    peaks, lately = peaks_in_units(view.peaks, resource), _highest(used.node, used.samples)
    if peaks is not None:
        lately = np.where(np.isfinite(lately), np.fmax(lately, peaks.node_millicores), np.nan)
    unit = np.append(room / used.capacity, np.nan)[view.snapshot.pods.node]  # pods on no node come last
    in_use = used.pod * unit
    return lately / used.capacity, np.where(np.isfinite(in_use), in_use, requests)


def _by_requests(view: StrategyView) -> _Shares:
    names = requested_resources(pool for _, pool in view.chosen_pools)
    node, room, _ = requested(view.snapshot, names)
    low = np.full(node.shape, np.nan)
    for index, pool in view.chosen_pools:
        if pool.request_thresholds is not None:
            for resource, percent in pool.request_thresholds.low.items():
                low[view.node_pools.of_node == index, names.index(resource)] = percent / 100
    low[room == 0] = np.nan  # a node without the resource
    share = node / np.where(room > 0, room, 1.0)
    return _Shares(words=tuple(f"requested {name}" for name in names), share=share, low=low)


def _unjudged(view: StrategyView, looked: Bools, shares: _Shares) -> dict[int, Refusal]:
    """Nodes without known shares, and nodes that are not Ready."""
    unknown = looked & ~np.isfinite(shares.fullness)
    out = {
        node: view.usage.problems.get(node) or Refusal.of(Reason.NO_SAMPLE) for node in np.flatnonzero(unknown).tolist()
    }
    for node in np.flatnonzero(looked & ~view.snapshot.nodes.ready).tolist():
        out[node] = Refusal.of(Reason.NODE_NOT_READY)
    return out


def _begun(view: StrategyView) -> dict[int, float]:
    """Draining node -> time of the last eviction from it, or of its cordon."""
    mine, last = {index for index, _ in view.chosen_pools}, dict[str, float]()
    for move in view.recent:
        last[move.node] = max(move.at, last.get(move.node, move.at))
    return {
        node: max(since, last.get(view.snapshot.nodes.names[node], since))
        for node, (why, since) in view.cordons.items()
        if why == DRAINING and int(view.node_pools.of_node[node]) in mine and not _annotation(view, node)
    }


def _kept(view: StrategyView, node: int, *, whole: bool) -> str:
    """Why a low node is not drained; empty when it is."""
    nodes = view.snapshot.nodes
    if annotation := _annotation(view, node):
        return annotation
    if why := view.projection.closed.get(node):
        return why
    if node in view.cordons and view.cordons[node][0] != DRAINING:
        return f"cordoned by rebalancer for {view.cordons[node][0]}"
    # a whole node is drained behind our own cordon; foreign cordons are never touched
    return "cordoned, not by rebalancer" if whole and nodes.unschedulable[node] else ""


def _annotation(view: StrategyView, node: int) -> str:
    """The annotation that prevents draining, with its value."""
    for key in KEEPING_ANNOTATIONS:
        value = view.snapshot.nodes.annotations[node].get(key)
        if value is not None and parse_flag(value) is not False:
            return f'{key} is "{value}"'
    return ""


# ---- release


def _release(view: StrategyView, args: HighNodeUtilizationArgs) -> Findings:
    snapshot, pods, nodes = view.snapshot, view.snapshot.pods, view.snapshot.nodes
    looked, what = nodes_in_scope(view), "CPU" if args.resource == CPU else args.resource
    node, room, pod = requested(snapshot, (args.resource,))
    has = room[:, 0] > 0
    room = np.where(room > 0, room, 1.0)
    asked, (used, in_use) = node[:, 0] / room[:, 0], _usage_of(view, args.resource, room[:, 0], pod[:, 0])
    full = looked & nodes.ready & ~nodes.unschedulable & ~view.projection.is_closed
    full &= has & (node[:, 0] * 100 >= args.full * room[:, 0])
    idle = full & (used <= args.idle / 100)
    gap = pod[:, 0] - in_use
    waits = fills(snapshot) & ~pods.terminating & (pods.phase == RUNNING)
    waits &= (pods.started <= view.now - args.min_age) & (gap > 0)
    found = np.flatnonzero(idle & (counted(snapshot, waits) > 0)).tolist()
    found.sort(key=lambda each: (used[each] - asked[each], nodes.names[each]))
    findings = []
    for each in found:
        on_it = snapshot.pods_on(each)
        ranked = by_name(snapshot, on_it[waits[on_it]].astype(np.int64))
        findings.append(
            Finding(
                strategy=view.strategy.name,
                node=each,
                pool=view.node_pools.names[each],
                reason=(
                    f"full by requests ({percent(asked[each])} of its {what}) and idle in fact "
                    f"({percent(used[each])} in use), to be brought down to {percent(args.release_target / 100)} "
                    "requested"
                ),
                resource=args.resource,
                cpu_share=float(asked[each]),
                high=args.full / 100,
                target=args.release_target / 100,
                candidates=ranked[np.lexsort((pods.started[ranked], -gap[ranked]))].astype(np.int32),
                in_order=True,
                makes_room=True,
            )
        )
    unknown = np.flatnonzero(full & np.isnan(used)).tolist()
    target = args.release_target / 100 * room
    return Findings(
        findings=tuple(findings),
        # no node is hot by requests: other moves of the plan are not checked against these
        loads=Loads(
            resources=(args.resource,),
            node=node,
            room=room,
            high=np.full(room.shape, np.nan),
            target=target,
            low=target,
            pod=pod,
            measured=False,
        ),
        skipped={each: view.usage.problems.get(each) or Refusal.of(Reason.NO_SAMPLE) for each in unknown},
    )
