"""From findings to a planner that knows where everything lands: which nodes to steer away from or to cordon, and for
how long to think."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.cordons import CordonRequests, asked, cordoned_by_others, lasting, mask
from rebalancer.cycle.observation import Observation
from rebalancer.cycle.steering import our_cordons, our_taints
from rebalancer.model.plan import PEAK, CycleReport, Goal, Loads, PodRefusal
from rebalancer.model.reason import Reason
from rebalancer.model.steering import CORDONS, MAINTENANCE, PREDICTED_HOT
from rebalancer.planner import Planner
from rebalancer.planner.steering import SoftTaintBudget
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.limits import resolve
from rebalancer.strategies import Findings

Bools = NDArray[np.bool_]

PLAN_SECONDS_AT_MOST = 20.0
"""What is not decided by then is left for the next cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedMarks:
    """How nodes are while a plan runs: made so in a real run, assumed in a dry one."""

    steered: Bools
    """(nodes,) carry our taint, a soft one or that of a cordon."""
    cordoned: Bools
    """(nodes,) are cordoned, by us or by somebody else."""
    not_emptied: Mapping[tuple[str, str], PodRefusal]
    """Pod -> why its node is not emptied, by the rehearsal; the plan itself sees only that it isn't cordoned."""

    def said(self, refusals: Iterable[PodRefusal]) -> list[PodRefusal]:
        """The plan's refusals, with the rehearsal's reason where that is the real one."""
        return [
            self.not_emptied.get((each.namespace, each.name), each) if each.code is Reason.NOT_CORDONED else each
            for each in refusals
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DesiredTaints:
    """What nodes shall carry while the plan runs."""

    values: Mapping[str, str]
    """Node -> value of our taint."""
    not_emptied: Mapping[tuple[str, str], PodRefusal] = field(default_factory=dict)
    """As in `AppliedMarks`."""


def steer(
    context: CycleContext,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    report: CycleReport,
) -> AppliedMarks:
    """Taint and cordon nodes for this plan.

    It is rehearsed, so that everything is there before the first eviction. What earlier plans left and this one doesn't
    want is removed, also when nothing can be planned.
    """
    soft_taint_controller = context.soft_taint_controller
    soft_taint_controller.see(seen.snapshot)
    if report.stopped is not None:
        want = _DesiredTaints(values=lasting(seen, policy))
    else:
        want = _wanted(context, seen, found, policy, report)
    wanted = want.values
    if soft_taint_controller.remove_only:
        # nobody stays to let go of a drained node; maintenance is for people to end, and outlives every process
        wanted = {name: value for name, value in wanted.items() if value == MAINTENANCE}
    held = set(wanted) if report.dry_run else soft_taint_controller.hold(wanted)
    cordons = {name for name in held if wanted[name] in CORDONS}
    report.steered = {name: wanted[name] for name in sorted(held - cordons)}
    report.cordons_before = {name: value for name, (value, _) in sorted(our_cordons(seen.snapshot).items())}
    report.cordons = {name: wanted[name] for name in sorted(cordons)}
    return AppliedMarks(
        steered=mask(seen, held),
        cordoned=mask(seen, cordons) | cordoned_by_others(seen),
        not_emptied=want.not_emptied,
    )


def _wanted(
    context: CycleContext, seen: Observation, found: list[Findings], policy: RebalancerPolicy, report: CycleReport
) -> _DesiredTaints:
    want = asked(seen, found)
    steers = policy.soft_taint.mode == "Taint" and not context.soft_taint_controller.remove_only
    steering = kept(seen, found, policy) if steers else {}
    there = {name: value for name, (value, _) in our_cordons(seen.snapshot).items()}
    to_plan = steers and any(each.findings for each in found)
    if not (to_plan or want.value_of or want.sure.items() - there.items()):
        return _DesiredTaints(values={**steering, **want.sure, **want.drained})
    if not context.soft_taint_controller.granted():
        report.notes.append("nodes may not be patched, so none is steered away from: only sure landings count")
        if want.value_of or want.sure:
            report.notes.append("nodes may not be patched, so none is cordoned: no whole node is emptied")
        return _DesiredTaints(values={**steering, **there})
    if not (to_plan or want.value_of):
        return _DesiredTaints(values={**steering, **want.sure, **want.drained})
    return simulate(context, seen, found, policy, steering, want, TimeLimit(PLAN_SECONDS_AT_MOST), steers=steers)


def kept(seen: Observation, found: list[Findings], policy: RebalancerPolicy) -> dict[str, str]:
    """Node -> value of our soft taints that stay from an earlier plan: it hasn't cooled, or what left it hasn't landed.

    None is kept for longer than the policy says, whatever the node does.
    """
    index, loads = seen.snapshot.node_index, _loads(seen, found)
    warm = _any_of(seen, [_over_target(each, ahead=False) for each in loads])
    warm_ahead = _any_of(seen, [_over_target(each, ahead=True) for each in loads])
    on_their_way = {each.node for each in seen.ledger_state.open_evictions}
    out = {}
    for name, (value, since) in our_taints(seen.snapshot).items():
        is_warm = (warm_ahead if value == PREDICTED_HOT else warm)[index[name]]
        if _may_go_on((value, since), seen.now, policy) and (is_warm or name in on_their_way):
            out[name] = value
    return out


def _may_go_on(taint: tuple[str, float], now: float, policy: RebalancerPolicy) -> bool:
    """Whether a taint of ours is a soft one that is not too old to stay, where this plan needs it, too: a node that is
    emptied in several cycles would be let go in the second if the others might take its pods again."""
    value, since = taint
    return value not in CORDONS and now - since <= policy.soft_taint.max_age


def _over_target(loads: Loads, *, ahead: bool) -> Bools:
    """(nodes,) over the target: now, or with `ahead` also at the peak."""
    counts = [ahead or name != PEAK for name in loads.resources]
    out: Bools = np.asarray((loads.node > loads.target)[:, counts].any(axis=1), dtype=np.bool_)
    return out


def _loads(seen: Observation, found: list[Findings]) -> list[Loads]:
    """Those by which a node can be hot."""
    loads = [seen.base, *(each.loads for each in found)]
    return [each for each in loads if each is not None and np.isfinite(each.high).any()]


def _any_of(seen: Observation, masks: list[Bools]) -> Bools:
    """(nodes,) in any of the masks."""
    out: Bools = np.logical_or.reduce([np.zeros(len(seen.pool_of), dtype=np.bool_), *masks])
    return out


def simulate(
    context: CycleContext,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    kept: Mapping[str, str],
    want: CordonRequests,
    limit: "TimeLimit",
    *,
    steers: bool,
) -> _DesiredTaints:
    """Soft taints that are kept, on what stands in the plan's way, then on the nodes that it cools; and cordons of the
    nodes that it empties. Without `steers` no soft one."""
    names, index = seen.snapshot.nodes.names, seen.snapshot.node_index
    there = our_taints(seen.snapshot)
    lost = [name for name, taint in there.items() if name not in kept and not _may_go_on(taint, seen.now, policy)]
    cordoned = mask(seen, {**want.sure, **want.drained}) | cordoned_by_others(seen)
    sizes = np.bincount(seen.pool_of[seen.pool_of >= 0], minlength=len(policy.pools)).tolist()
    budget = SoftTaintBudget(
        # a node that has just lost its taint to age goes without for this cycle; one that is cordoned needs no other
        pool_of=np.where(mask(seen, lost) | cordoned, -1, seen.pool_of),
        left=[
            resolve(policy.soft_taint.max_nodes, size, policy.soft_taint.max_nodes_at_least) if steers else 0
            for size in sizes
        ],
        hot=_any_of(seen, [loads.hot for loads in _loads(seen, found)]),
        due=_any_of(seen, [loads.over & ~loads.hot for loads in _loads(seen, found)]),
        free=mask(
            seen, (seen.snapshot.nodes.names[node] for each in found for node in each.maintenance_nodes if steers)
        ),
    )
    for name in sorted(kept):
        budget.take([index[name]])
    cooled = {(each.strategy, each.node) for all_ in found for each in all_.findings if each.goal is Goal.COOL}
    planner = plan(context, seen, found, policy, steered=budget.mask, cordoned=cordoned, steering=budget, limit=limit)
    moved, sources = False, []
    while (move := planner.next_move()) is not None:
        if (refusal := planner.admission.reserve(move)) is not None:
            planner.reject(move, refusal)
            continue
        planner.accept(move)
        moved = True
        if (move.strategy, move.node_index) in cooled:
            sources.append(move.node_index)
    # where taints were lost to age this cycle can't tell: what is being emptied waits for the next one
    waits = want.drained if any(there[name][0] not in CORDONS for name in lost) else {}
    begun = {name: value for name, value in want.value_of.items() if planner.cordoned[index[name]] or name in waits}
    cordons = {**begun, **want.sure}
    for node in sources:
        budget.take([node])
    # with the value that is there: another one would make it look new
    steering = {names[node]: there.get(names[node], (value, 0.0))[0] for node, value in budget.chosen.items()}
    return _DesiredTaints(
        values={**(steering if moved else kept), **cordons},
        not_emptied={
            (each.namespace, each.name): each
            for each in (planner.refusals() if want.value_of else ())
            if each.node in want.value_of and each.node not in cordons
        },
    )


def plan(
    context: CycleContext,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    *,
    steered: Bools | None = None,
    cordoned: Bools | None = None,
    steering: SoftTaintBudget | None = None,
    limit: "TimeLimit | None" = None,
) -> Planner:
    """A planner over everything that was found, behind the one door."""
    limit = limit or TimeLimit(math.inf)
    admission = EvictionAdmission(
        policy=policy,
        snapshot=seen.snapshot,
        pool_of=seen.pool_of,
        ledger_state=seen.ledger_state,
        now=seen.now,
        own_pod=context.own_pod,
    )
    if steered is None:
        steered = np.zeros(len(seen.pool_of), dtype=np.bool_)
    return Planner(
        snapshot=seen.snapshot,
        found=found,
        admission=admission,
        cpu_millicores=seen.usage.pod_cpu_millicores,
        pools=seen.node_pools.names,
        config=context.scheduler,
        base=seen.base,
        steered=steered,
        cordoned=cordoned,
        steering=steering,
        out_of_time=limit,
        share_of_time=limit.share,
        young_seconds=policy.safety.cooldowns.new_node,
        closed=mask(seen, context.soft_taint_controller.uncertain),
    )


class TimeLimit:
    """Says whether so much time was spent; the machine's, whatever clock the cluster goes by."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __call__(self) -> bool:
        return self._left() < 0

    def share(self, parts: int) -> Callable[[], bool]:
        """Says whether one of so many equal parts of what is left now was spent."""
        others = self._left() * (1 - 1 / parts)
        return lambda: self._left() < others

    def _left(self) -> float:
        return self._end - time.monotonic()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time that doesn't count: waiting for a limit, calling the API server."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - began
