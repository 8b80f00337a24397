"""A plan that was approved, against the cluster as it is now: exactly its evictions, or none.

The strategies find their nodes again. Of their candidates only the pods of the plan are kept, so that no other one can
be evicted. The plan is made once more from these alone, in its order and without the calls: limits, budgets, guards,
windows and landings are those of now. Anything that differs is an error, before the first eviction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.cycle.context import CycleContext, NullRecords
from rebalancer.cycle.observe.observation import ANY, Observation, find, unsafe
from rebalancer.cycle.plan.by_mode import by_mode
from rebalancer.cycle.plan.planning import PlanningSession, TimeLimit
from rebalancer.cycle.soft_taints import SoftTaintController, our_cordons
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Eviction
from rebalancer.model.decisions.plan import CycleReport, Finding, Goal
from rebalancer.model.decisions.plan_file import PlanFile, PlannedEviction
from rebalancer.model.decisions.proposals import Proposal
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.notation.figures import clock_time, counted
from rebalancer.planner import Planner, PlanProgress
from rebalancer.planner.plan.plan_input import PlannedMove
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings


class PlanChangedError(UnsafeDataError):
    """A plan that is not carried out: it is not as it was when it was made."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the plan is not carried out: {what}")
        self.what = what


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedPlan:
    """The evictions of a plan file or of a proposal."""

    id: str
    """Also the id of the cycle that carries it out."""
    expires_at: float
    """Seconds since the epoch."""
    evictions: tuple[PlannedEviction, ...]
    """In the order of the plan."""
    proposed_by: RebalancerPolicy | None = None
    """The policy whose parts in `mode: Approve` planned it; None = all parts of the policy in use did."""
    request: CycleRequest = ANY
    """What it was planned for."""
    begin: Callable[[], None] = lambda: None
    """Called once, before the first eviction. Raises PlanChangedError."""


def approved_file(plan: PlanFile, policy: RebalancerPolicy, *, cluster_uid: str, own_hash: str) -> ApprovedPlan:
    """The plan of a file. `cluster_uid` is of the cluster that is connected, `own_hash` of the policy in use. Raises
    PlanChangedError where it is not of these."""
    if (plan.cluster, plan.cluster_uid) != (policy.cluster, cluster_uid):
        raise PlanChangedError(f"it is of another cluster: {plan.cluster}, {plan.cluster_uid or 'without a UID'}")
    _check_policy(plan.policy_hash, own_hash)
    return ApprovedPlan(id=plan.id, expires_at=plan.expires_at, evictions=plan.evictions)


def approved_proposal(
    proposal: Proposal, policy: RebalancerPolicy, *, own_hash: str, begin: Callable[[], None]
) -> ApprovedPlan:
    """The plan of a proposal of this cluster. Raises PlanChangedError where it is of another policy."""
    plan = proposal.plan
    _check_policy(plan.policy_hash, own_hash)
    thresholds = {(mark.node, mark.resource): mark for mark in plan.thresholds}
    return ApprovedPlan(
        id=proposal.run,
        expires_at=proposal.expires_at,
        evictions=plan.evictions,
        proposed_by=policy,
        request=CycleRequest(thresholds=thresholds, due=plan.due),
        begin=begin,
    )


def _check_policy(planned: str, own: str) -> None:
    if planned != own:
        raise PlanChangedError("the policy has changed since it was made")


def check_time(approved: ApprovedPlan, context: CycleContext, *, now: float) -> None:
    """Whether the plan has not expired, and was not carried out before. Raises PlanChangedError."""
    if now >= approved.expires_at:
        raise PlanChangedError(f"it expired at {clock_time(approved.expires_at)}")
    if (begun := context.records.begun(approved.id)) is not None:
        raise PlanChangedError(f"it was carried out before, at {clock_time(begun)}")


def approved_findings(
    approved: ApprovedPlan, context: CycleContext, policy: RebalancerPolicy, seen: Observation
) -> list[Findings]:
    """The findings of now with the pods of the plan as their only candidates. Raises PlanChangedError where a pod is
    gone, or its strategy doesn't want it moved any more, and for a proposal UnsafeDataError where the metrics can't be
    trusted now: it stays approved meanwhile."""
    if (refusal := unsafe(seen, policy)) is not None:
        raise PlanChangedError(refusal.message) if approved.proposed_by is None else UnsafeDataError(refusal.message)
    wanted = _pods(approved, seen.snapshot)
    of_strategy: dict[str, list[int]] = {}
    for move in approved.evictions:
        of_strategy.setdefault(move.strategy, []).append(wanted[move.uid])
    found = [
        replace(
            each,
            findings=tuple(_only(finding, of_strategy.get(finding.strategy, []), seen) for finding in each.findings),
        )
        for each in _found(approved, context, policy, seen)
    ]
    for move in approved.evictions:
        pod = wanted[move.uid]
        of_node = [
            finding
            for each in found
            for finding in each.findings
            if finding.strategy == move.strategy and seen.snapshot.nodes.names[finding.node] == move.node
        ]
        if not of_node:
            raise PlanChangedError(_not_found(move, found, seen))
        if not any(pod in finding.candidates for finding in of_node):
            raise PlanChangedError(f"{move.full_name} on {move.node}: {move.strategy} doesn't want it moved any more")
    return [
        replace(each, findings=tuple(finding for finding in each.findings if len(finding.candidates))) for each in found
    ]


def _found(
    approved: ApprovedPlan, context: CycleContext, policy: RebalancerPolicy, seen: Observation
) -> list[Findings]:
    """The findings of the parts that planned it. Nodes that other parts keep cordoned stay so."""

    def look(by: RebalancerPolicy) -> list[Findings]:
        return find(seen, by, approved.request, parts=context.parts)

    if approved.proposed_by is None:
        return look(policy)
    found = look(approved.proposed_by)
    modes = by_mode(found, approved.proposed_by, look)
    held = modes.held.get("Approve", [replace(each, findings=()) for each in found])
    names, stay = seen.snapshot.nodes.names, {*our_cordons(seen.snapshot), *(move.node for move in approved.evictions)}
    out = []
    for each, acting in zip(held, modes.acting, strict=True):
        # a cordon that no finding asks for is removed, and one that is not there yet was not approved
        cordons = {node: why for node, why in {**acting.cordons, **each.cordons}.items() if names[node] in stay}
        out.append(replace(each, cordons=cordons, emptied={**acting.emptied, **each.emptied}))
    return out


def _pods(plan: ApprovedPlan, snapshot: ClusterSnapshot) -> dict[str, int]:
    """UID -> index of the pods of the plan."""
    index = {uid: at for at, uid in enumerate(snapshot.pods.uids)}
    names = {
        (snapshot.namespaces[namespace], name)
        for namespace, name in zip(snapshot.pods.namespace.tolist(), snapshot.pods.names, strict=True)
    }
    for move in plan.evictions:
        if move.uid not in index:
            replaced = (move.namespace, move.pod) in names
            raise PlanChangedError(
                f"{move.full_name} {'was replaced by another pod of its name' if replaced else 'is gone'}"
            )
        node = int(snapshot.pods.node[index[move.uid]])
        if node < 0 or snapshot.nodes.names[node] != move.node:
            raise PlanChangedError(f"{move.full_name} is not on {move.node} any more")
    return {move.uid: index[move.uid] for move in plan.evictions}


def _only(finding: Finding, wanted: Sequence[int], seen: Observation) -> Finding:
    """The finding with those of its candidates that are in the plan."""
    kept = finding.candidates[np.isin(finding.candidates, wanted)]
    if finding.goal is Goal.EMPTY and 0 < len(kept) < len(finding.candidates):
        other = next(each for each in finding.candidates.tolist() if each not in kept)
        pod, node = seen.snapshot.pod(other), seen.snapshot.nodes.names[finding.node]
        raise PlanChangedError(f"{node} would be emptied, and {pod.namespace}/{pod.name} on it is not in the plan")
    return replace(finding, candidates=kept)


def _not_found(move: PlannedEviction, found: Sequence[Findings], seen: Observation) -> str:
    node = seen.snapshot.node_index[move.node]
    skipped = next((each.skipped[node].message for each in found if node in each.skipped), "")
    return f"{move.strategy} doesn't find {move.node} any more" + (f": {skipped}" if skipped else "")


def session_of(
    approved: ApprovedPlan, context: CycleContext, policy: RebalancerPolicy, seen: Observation, found: list[Findings]
) -> PlanningSession:
    """The session that plans these findings in the order of the plan. What an eviction is worth was approved with it,
    and isn't judged again."""
    wanted = _pods(approved, seen.snapshot)
    return PlanningSession(
        context=context,
        observation=seen,
        found=found,
        policy=policy,
        limit=TimeLimit(context.planning_seconds),
        script=tuple(PlannedMove(pod=wanted[move.uid], checked=None, taints={}) for move in approved.evictions),
        progress=PlanProgress(),
    )


def reading_only(context: CycleContext) -> CycleContext:
    """The same context for a cycle that changes nothing."""
    controller = context.soft_taint_controller
    return replace(
        context,
        records=NullRecords(context.records),
        soft_taint_controller=SoftTaintController(taints=controller.taints, remove_only=controller.remove_only),
    )


def check_moves(approved: ApprovedPlan, planner: Planner, moves: Sequence[Eviction]) -> None:
    """Whether the plan of now has the same evictions, in the same way and with landings that the plan shows. Raises
    UnsafeDataError."""
    made = {each.uid: each for each in moves}
    refused = planner.outcome.refused
    names = planner.state.snapshot.pods.uids
    why = {names[pod]: refusal.message for pod, refusal in refused.items()}
    for move in approved.evictions:
        if (now := made.get(move.uid)) is None:
            raise PlanChangedError(
                f"{move.full_name} on {move.node}: {why.get(move.uid, 'it can no longer be planned')}"
            )
        if now.in_plan.replacement_first != move.replacement_first:
            ways = {False: "an eviction", True: "replacement first"}
            would, shows = ways[now.in_plan.replacement_first], ways[move.replacement_first]
            raise PlanChangedError(f"{move.full_name} would be moved by {would}, and the plan shows {shows}")
        shown = {each.node for each in move.target_nodes}
        if now.target_node and now.target_node not in shown:
            raise PlanChangedError(f"{move.full_name} would land on {now.target_node}, which the plan does not show")


def not_made(approved: ApprovedPlan, report: CycleReport) -> str:
    """How many evictions of the plan were not made, as a sentence; empty for none."""
    outcome = {each.uid: each.answered for each in report.evictions}
    pods = {(each.namespace, each.name): each.message for each in report.refusals}
    left = [
        each for each in approved.evictions if each.uid not in outcome or outcome[each.uid].outcome in DID_NOT_HAPPEN
    ]
    if not left:
        return ""
    first = left[0]
    why = outcome[first.uid].detail if first.uid in outcome else pods.get((first.namespace, first.pod), "")
    whole = counted(len(approved.evictions), "eviction")
    return f"{len(left)} of {whole} of the plan were not made: {first.full_name}" + (f": {why}" if why else "")
