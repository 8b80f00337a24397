"""Findings of the parts of a policy that act, and of those in dry run.

A cycle plans and carries out the findings of the parts that act, as if there were no others. Then it plans those in dry
run, with the moves that were made counted in. So a dry run takes no limit and no headroom from a real eviction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rebalancer.cycle.observe.observation import Observation
from rebalancer.cycle.plan.planning import PlanningSession
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Eviction
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.modes import has_dry_runs, part_in_dry_run
from rebalancer.strategies import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsByMode:
    """Findings of each strategy of the policy, in its order."""

    acting: list[Findings]
    in_dry_run: list[Findings]
    """Empty where no finding is in dry run."""


def by_mode(found: list[Findings], policy: RebalancerPolicy, seen: Observation) -> FindingsByMode:
    """The findings, cordons and emptied nodes of parts that act, and those of parts in dry run."""
    if not (found and has_dry_runs(policy)):
        return FindingsByMode(acting=found, in_dry_run=[])
    acting, in_dry_run = [], []
    for strategy, findings in zip(policy.strategies, found, strict=True):
        parts = [part_in_dry_run(policy, strategy, pool) for pool in seen.node_pools.names]
        acting.append(_of_nodes(findings, [not part for part in parts]))
        in_dry_run.append(_of_nodes(findings, [bool(part) for part in parts]))
    return FindingsByMode(acting=acting, in_dry_run=in_dry_run if any(each.findings for each in in_dry_run) else [])


def _of_nodes(findings: Findings, chosen: Sequence[bool]) -> Findings:
    return replace(
        findings,
        findings=tuple(each for each in findings.findings if chosen[each.node]),
        cordons={node: why for node, why in findings.cordons.items() if chosen[node]},
        emptied={node: is_over for node, is_over in findings.emptied.items() if chosen[node]},
    )


def session_in_dry_run(
    before: PlanningSession, planner: Planner, report: CycleReport, found: list[Findings]
) -> PlanningSession:
    """The session that plans the findings in dry run. `before`, `planner` and `report` are those of the plan that was
    carried out; its moves are counted as made."""
    controller = before.context.soft_taint_controller
    # a controller of its own, as what the other one knows of taints is newer than the snapshot
    assumed = SoftTaintController(taints=controller.taints, remove_only=controller.remove_only)
    made = {each.in_plan.pod_index: each for each in report.evictions if each.answered.outcome not in DID_NOT_HAPPEN}
    progress = planner.state.progress({}, waited=0, patience=before.patience)
    moves = tuple(each for each in progress.moves if each.pod in made)
    return PlanningSession(
        context=replace(before.context, soft_taint_controller=assumed),
        observation=before.observation,
        found=found,
        policy=before.policy,
        limit=before.limit,
        taints_pools_in_dry_run=True,
        detail=lambda eviction: f"dry run of {part_of(eviction, before.policy)}",
        made=[made[each.pod] for each in moves],
        progress=replace(progress, moves=moves, screened=False),
    )


def part_of(eviction: Eviction, policy: RebalancerPolicy) -> str:
    """The part of the policy by which an eviction is in dry run."""
    wanting = [
        each
        for each in policy.strategies
        if each.name == eviction.strategy and eviction.pool in (each.pools or (eviction.pool,))
    ]
    return next(filter(None, (part_in_dry_run(policy, each, eviction.pool) for each in wanting)), "")
