"""Soft taints and cordons of a cycle: a simulation of the plan chooses them, and they are applied before the first
eviction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.cycle.observe.observation import Observation
from rebalancer.cycle.plan.cordons import CordonRequests, cordon_requests, cordoned_by_others, lasting, mask
from rebalancer.cycle.plan.planning import PlanningSession
from rebalancer.cycle.soft_taints import SoftTaintController, our_cordons, our_taints
from rebalancer.model.cluster.steering import CORDONS, MAINTENANCE, PREDICTED_HOT, ROOM
from rebalancer.model.decisions.plan import CycleReport, Loads, PodRefusal, is_predicted
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Reason
from rebalancer.planner import Choice, Planner
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.plan.search import Simulated, carry_out, search
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.limits import resolve
from rebalancer.strategies import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTaints:
    """Taints and cordons of the nodes while the plan runs: applied in a real run, assumed in a dry run."""

    soft_tainted: Bools
    """(nodes,) with our taint, a soft one or that of a cordon."""
    cordoned: Bools
    """(nodes,) cordoned, by us or by others."""
    not_emptied: Mapping[tuple[str, str], PodRefusal]
    """(namespace, name) of a pod -> why its node is not emptied. The plan itself sees only that it isn't cordoned."""
    choice: Choice | None = None
    """The simulated plan; None = nothing was simulated."""
    values: dict[str, str] = field(default_factory=dict)
    """Node -> value of our taint; more are added while the plan runs."""

    def add(self, taints: Mapping[str, str], controller: SoftTaintController, report: CycleReport) -> bool:
        """Apply more soft taints (node -> value), in a dry run none; False where one couldn't be applied."""
        self.values.update(taints)
        if not report.dry_run and not taints.keys() <= controller.hold(self.values):
            return False
        report.soft_tainted = dict(sorted({**report.soft_tainted, **taints}.items()))
        return True

    def refusals(self, refusals: Iterable[PodRefusal]) -> list[PodRefusal]:
        """The plan's refusals; NOT_CORDONED is replaced by the simulation's reason."""
        return [
            self.not_emptied.get((each.namespace, each.name), each) if each.code is Reason.NOT_CORDONED else each
            for each in refusals
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DesiredTaints:
    values: Mapping[str, str]
    """Node -> value of our taint while the plan runs."""
    not_emptied: Mapping[tuple[str, str], PodRefusal] = field(default_factory=dict)
    choice: Choice | None = None
    """Both as in `AppliedTaints`."""


def apply_taints(session: PlanningSession, report: CycleReport) -> AppliedTaints:
    """Taint and cordon the nodes for this plan, and write both into the report.

    Taints of earlier plans that this one doesn't need are removed, also when nothing can be planned.
    """
    seen, controller = session.observation, session.context.soft_taint_controller
    controller.see(seen.snapshot)
    if report.stopped is not None:
        desired = _DesiredTaints(values=lasting(seen, session.policy))
    else:
        desired = _desired(session, report)
    values = desired.values
    if controller.remove_only:
        # this process doesn't stay to uncordon a drained node; a cordon for maintenance outlives every process
        values = {name: value for name, value in values.items() if value == MAINTENANCE}
    with session.limit.stopped():
        held = set(values) if report.dry_run else controller.hold(values)
    cordons = {name for name in held if values[name] in CORDONS}
    report.soft_tainted = {name: values[name] for name in sorted(held - cordons)}
    report.cordons_before = {name: value for name, (value, _) in sorted(our_cordons(seen.snapshot).items())}
    report.cordons = {name: values[name] for name in sorted(cordons)}
    return AppliedTaints(
        soft_tainted=mask(seen, held),
        cordoned=mask(seen, cordons) | cordoned_by_others(seen),
        not_emptied=desired.not_emptied,
        choice=desired.choice,
        values=dict(values),
    )


def _desired(session: PlanningSession, report: CycleReport) -> _DesiredTaints:
    seen, found, controller = session.observation, session.found, session.context.soft_taint_controller
    requests = cordon_requests(seen, found)
    taints_nodes = session.policy.soft_taint.mode == "Taint" and not controller.remove_only
    soft = kept(seen, found, session.policy) if taints_nodes else {}
    index, untouched = seen.snapshot.node_index, session.untouched
    soft = {name: value for name, value in soft.items() if not untouched[index[name]]}
    there = {name: value for name, (value, _) in our_cordons(seen.snapshot).items()}
    to_plan = any(each.findings for each in found)
    changes_cordons = bool(requests.value_of or requests.sure.items() - there.items())
    if not (to_plan or changes_cordons):
        return _DesiredTaints(values={**soft, **requests.sure, **requests.drained})
    granted = True
    # a dry run changes no node, and shows what is planned with the permission
    if (taints_nodes or changes_cordons) and not report.dry_run:
        with session.limit.stopped():
            granted = controller.granted()
    if not granted:
        report.notes.append("nodes may not be patched, so none gets a soft taint: only certain landings count")
        if requests.value_of or requests.sure:
            report.notes.append("nodes may not be patched, so none is cordoned: no whole node is emptied")
        taints_nodes, requests = False, replace(requests, value_of={}, sure={}, drained=there)
    if not (to_plan or requests.value_of):
        return _DesiredTaints(values={**soft, **requests.sure, **requests.drained})
    return simulate(session, soft, requests, taints_nodes=taints_nodes)


def kept(seen: Observation, found: list[Findings], policy: RebalancerPolicy) -> dict[str, str]:
    """Node -> value of the soft taints of an earlier plan that stay: the node hasn't cooled, its room is held for a
    pending pod, or a replacement of a pod of it hasn't landed. None stays for longer than `softTaint.maxAge`."""
    index, loads = seen.snapshot.node_index, _loads(seen, found)
    warm = _any_of(seen, [_over_target(each, ahead=False) for each in loads])
    warm_ahead = _any_of(seen, [_over_target(each, ahead=True) for each in loads])
    rooms = {node for each in found for node in each.rooms.values()}
    in_flight = {each.node for each in seen.ledger_state.open_evictions}
    out = {}
    for name, (value, since) in our_taints(seen.snapshot.nodes).items():
        is_warm = (warm_ahead if value == PREDICTED_HOT else warm)[index[name]]
        is_held = value == ROOM and index[name] in rooms
        if _may_stay((value, since), seen.now, policy) and (is_warm or is_held or name in in_flight):
            out[name] = value
    return out


def _may_stay(taint: tuple[str, float], now: float, policy: RebalancerPolicy) -> bool:
    """Whether a taint of ours is a soft one that is not too old."""
    value, since = taint
    return value not in CORDONS and now - since <= policy.soft_taint.max_age


def _over_target(loads: Loads, *, ahead: bool) -> Bools:
    """(nodes,) over the target: now, or with `ahead` also at the peak."""
    counts = [ahead or not is_predicted(name) for name in loads.resources]
    out: Bools = np.asarray((loads.node > loads.target)[:, counts].any(axis=1), dtype=np.bool_)
    return out


def _loads(seen: Observation, found: list[Findings]) -> list[Loads]:
    """The loads by which a node can be hot."""
    loads = [seen.base, *(each.loads for each in found)]
    return [each for each in loads if each is not None and np.isfinite(each.high).any()]


def _any_of(seen: Observation, masks: list[Bools]) -> Bools:
    """(nodes,) in any of the masks."""
    out: Bools = np.logical_or.reduce([np.zeros(len(seen.pool_of), dtype=np.bool_), *masks])
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Simulation:
    """What is kept of a simulated plan."""

    moved: bool
    choice: Choice
    chosen: Mapping[int, str]
    """Node -> value of its soft taint."""
    cordoned: Bools
    refusals: list[PodRefusal]

    @classmethod
    def of(cls, plan: Simulated, budget: SoftTaintBudget) -> "_Simulation":
        return cls(
            moved=bool(plan.moves),
            choice=plan.followed,
            chosen=dict(budget.chosen),
            cordoned=plan.planner.cordoned.copy(),
            refusals=plan.planner.outcome.refusals(),
        )


def simulate(
    session: PlanningSession, soft: Mapping[str, str], requests: CordonRequests, *, taints_nodes: bool
) -> _DesiredTaints:
    """The taints and cordons with which the plan reaches most, found in half of the planning time that is left.

    Soft taints go to the nodes of `soft` (node -> value, from earlier plans), then to those that bar a landing; without
    `taints_nodes` to none. Cordons go to the nodes that the plan empties.
    """
    seen = session.observation
    names, index = seen.snapshot.nodes.names, seen.snapshot.node_index
    there = our_taints(seen.snapshot.nodes)
    expired = [
        name for name, taint in there.items() if name not in soft and not _may_stay(taint, seen.now, session.policy)
    ]
    cordoned = mask(seen, {**requests.sure, **requests.drained}) | cordoned_by_others(seen)
    never = mask(seen, expired) | cordoned
    never = never | session.untouched
    limit = session.limit.half()
    budget = _budget(session, never, taints_nodes=taints_nodes)

    def plan(choice: Choice) -> Planner:
        budget.start_over()
        for name in sorted(soft):
            budget.take([index[name]])
        return session.planner(
            soft_tainted=budget.mask,
            cordoned=cordoned,
            steering=budget if taints_nodes or requests.value_of else None,
            limit=limit,
            choice=choice,
        )

    best: _Simulation | None = None
    plans: Iterable[Simulated] = search(plan, limit, patient=session.patience > 0)
    if session.script is not None:
        given = Choice(script=session.script)
        plans = (carry_out(plan(given), given),)
    for better in plans:
        best = _Simulation.of(better, budget)
    assert best is not None
    # with expired taints this simulation is no evidence: a node that is being drained waits for the next cycle
    waits = requests.drained if any(there[name][0] not in CORDONS for name in expired) else {}
    begun = {name: value for name, value in requests.value_of.items() if best.cordoned[index[name]] or name in waits}
    cordons = {**begun, **requests.sure}
    # the value that is there stays: another one would reset the taint's age
    chosen = {names[node]: there.get(names[node], (value, 0.0))[0] for node, value in best.chosen.items()}
    # a drain is tried as a whole before its first move: then all taints are there from the start
    at_once = bool(requests.value_of)
    at_first = soft if not best.moved or not at_once else chosen
    return _DesiredTaints(
        values={**at_first, **cordons},
        choice=replace(best.choice, script=(), known={}) if at_once else best.choice,
        not_emptied={
            (each.namespace, each.name): each
            for each in (best.refusals if requests.value_of else ())
            if each.node in requests.value_of and each.node not in cordons
        },
    )


def _budget(session: PlanningSession, never: Bools, *, taints_nodes: bool) -> SoftTaintBudget:
    """Soft taints that the policy allows in each pool. `never` (nodes,): an expired taint pauses for one cycle, and a
    cordoned node needs none."""
    seen, found, limits = session.observation, session.found, session.policy.soft_taint
    sizes = np.bincount(seen.pool_of[seen.pool_of >= 0], minlength=len(session.policy.pools)).tolist()
    return SoftTaintBudget(
        pool_of=np.where(never, -1, seen.pool_of),
        left=[resolve(limits.max_nodes, size, limits.max_nodes_at_least) if taints_nodes else 0 for size in sizes],
        hot=_any_of(seen, [loads.hot for loads in _loads(seen, found)]),
        due=_any_of(seen, [loads.over & ~loads.hot for loads in _loads(seen, found)]),
        free=mask(
            seen, (seen.snapshot.nodes.names[node] for each in found for node in each.maintenance_nodes if taints_nodes)
        ),
    )
