"""A plan that was approved, against the cluster as it is now: exactly its evictions, or none.

The strategies find their nodes again. Of their candidates only the pods of the plan are kept, so that no other one can
be evicted. The plan is made once more from these alone, in its order and without the calls: limits, budgets, guards,
windows and landings are those of now. Anything that differs is an error, before the first eviction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.cycle.context import CycleContext, NullRecords
from rebalancer.cycle.observe.observation import Observation, find, unsafe
from rebalancer.cycle.plan.planning import PlanningSession, TimeLimit
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Eviction
from rebalancer.model.decisions.plan import CycleReport, Finding, Goal
from rebalancer.model.decisions.plan_file import PlanFile, PlannedEviction
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.notation.figures import clock_time, counted
from rebalancer.planner import Planner, PlanProgress
from rebalancer.planner.plan.plan_input import PlannedMove
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedPlan:
    """What carries out a plan file."""

    plan: PlanFile
    cluster_uid: str
    """Of the cluster that is connected now."""
    policy_hash: str
    """Of the policy in use."""


def check_file(approved: ApprovedPlan, context: CycleContext, policy: RebalancerPolicy, *, now: float) -> None:
    """Whether the plan is of this cluster and policy, not expired, and not carried out before. Raises
    UnsafeDataError."""
    plan = approved.plan
    if (plan.cluster, plan.cluster_uid) != (policy.cluster, approved.cluster_uid):
        raise changed(f"it is of another cluster: {plan.cluster}, {plan.cluster_uid or 'without a UID'}")
    if plan.policy_hash != approved.policy_hash:
        raise changed("the policy has changed since it was made")
    if now >= plan.expires_at:
        raise changed(f"it expired at {clock_time(plan.expires_at)}")
    if (begun := context.records.begun(plan.id)) is not None:
        raise changed(f"it was carried out before, at {clock_time(begun)}")


def changed(what: str) -> UnsafeDataError:
    """The error of a plan that is not carried out."""
    return UnsafeDataError(f"the plan is not carried out: {what}")


def approved_findings(
    approved: ApprovedPlan, context: CycleContext, policy: RebalancerPolicy, seen: Observation
) -> list[Findings]:
    """The findings of now with the pods of the plan as their only candidates. Raises UnsafeDataError where a pod is
    gone, or no strategy wants it moved any more."""
    if (refusal := unsafe(seen, policy)) is not None:
        raise changed(refusal.message)
    wanted = _pods(approved.plan, seen.snapshot)
    found = [
        replace(each, findings=tuple(_only(finding, wanted, seen) for finding in each.findings))
        for each in find(seen, policy, parts=context.parts)
    ]
    for move in approved.plan.evictions:
        pod = wanted[move.uid]
        of_node = [
            finding
            for each in found
            for finding in each.findings
            if finding.strategy == move.strategy and seen.snapshot.nodes.names[finding.node] == move.node
        ]
        if not of_node:
            raise changed(_not_found(move, found, seen))
        if not any(pod in finding.candidates for finding in of_node):
            raise changed(f"{move.full_name} on {move.node}: {move.strategy} doesn't want it moved any more")
    return [
        replace(each, findings=tuple(finding for finding in each.findings if len(finding.candidates))) for each in found
    ]


def _pods(plan: PlanFile, snapshot: ClusterSnapshot) -> dict[str, int]:
    """UID -> index of the pods of the plan."""
    index = {uid: at for at, uid in enumerate(snapshot.pods.uids)}
    names = {
        (snapshot.namespaces[namespace], name)
        for namespace, name in zip(snapshot.pods.namespace.tolist(), snapshot.pods.names, strict=True)
    }
    for move in plan.evictions:
        if move.uid not in index:
            replaced = (move.namespace, move.pod) in names
            raise changed(f"{move.full_name} {'was replaced by another pod of its name' if replaced else 'is gone'}")
        node = int(snapshot.pods.node[index[move.uid]])
        if node < 0 or snapshot.nodes.names[node] != move.node:
            raise changed(f"{move.full_name} is not on {move.node} any more")
    return {move.uid: index[move.uid] for move in plan.evictions}


def _only(finding: Finding, wanted: Mapping[str, int], seen: Observation) -> Finding:
    """The finding with those of its candidates that are in the plan."""
    kept = finding.candidates[np.isin(finding.candidates, list(wanted.values()))]
    if finding.goal is Goal.EMPTY and 0 < len(kept) < len(finding.candidates):
        other = next(each for each in finding.candidates.tolist() if each not in kept)
        pod, node = seen.snapshot.pod(other), seen.snapshot.nodes.names[finding.node]
        raise changed(f"{node} would be emptied, and {pod.namespace}/{pod.name} on it is not in the plan")
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
    wanted = _pods(approved.plan, seen.snapshot)
    return PlanningSession(
        context=context,
        observation=seen,
        found=found,
        policy=policy,
        limit=TimeLimit(context.planning_seconds),
        script=tuple(PlannedMove(pod=wanted[move.uid], checked=None, taints={}) for move in approved.plan.evictions),
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
    """Whether the plan of now has the same evictions, with landings that the plan shows. Raises UnsafeDataError."""
    made = {each.uid: each for each in moves}
    refused = planner.outcome.refused
    names = planner.state.snapshot.pods.uids
    why = {names[pod]: refusal.message for pod, refusal in refused.items()}
    for move in approved.plan.evictions:
        if (now := made.get(move.uid)) is None:
            raise changed(f"{move.full_name} on {move.node}: {why.get(move.uid, 'it can no longer be planned')}")
        shown = {each.node for each in move.target_nodes}
        if now.target_node and now.target_node not in shown:
            raise changed(f"{move.full_name} would land on {now.target_node}, which the plan does not show")


def check_made(approved: ApprovedPlan, report: CycleReport) -> None:
    """Whether every eviction of the plan was made. Raises UnsafeDataError, after the others were."""
    outcome = {each.uid: each.answered for each in report.evictions}
    pods = {(each.namespace, each.name): each.message for each in report.refusals}
    left = [
        each
        for each in approved.plan.evictions
        if each.uid not in outcome or outcome[each.uid].outcome in DID_NOT_HAPPEN
    ]
    if left:
        first = left[0]
        why = outcome[first.uid].detail if first.uid in outcome else pods.get((first.namespace, first.pod), "")
        raise UnsafeDataError(
            f"{len(left)} of {counted(len(approved.plan.evictions), 'eviction')} of the plan were not made: "
            f"{first.full_name}" + (f": {why}" if why else "")
        )
