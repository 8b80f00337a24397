"""Findings of the parts of a policy that act, and of those in dry run.

A cycle plans and carries out the findings of the parts that act, as if there were no others. Then it plans those in dry
run, with the moves that were made counted in. So a dry run takes no limit and no headroom from a real eviction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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

    found: list[Findings]
    """Of all parts."""
    acting: list[Findings]
    in_dry_run: list[Findings]
    """Empty where no finding is in dry run."""


def by_mode(
    found: list[Findings], policy: RebalancerPolicy, look: Callable[[RebalancerPolicy], list[Findings]]
) -> FindingsByMode:
    """The findings of the parts that act, and of those in dry run. `found`: of the policy, by `look`.

    A strategy with both kinds of pools looks again at each kind alone: what it counts, such as nodes that are drained
    at a time, must not be used up by a pool in dry run.
    """
    if not (found and has_dry_runs(policy)):
        return FindingsByMode(found=found, acting=found, in_dry_run=[])
    pools = [[*(each.pools or (pool.name for pool in policy.pools))] for each in policy.strategies]
    dry = [
        [name for name in names if part_in_dry_run(policy, each, name)]
        for each, names in zip(policy.strategies, pools, strict=True)
    ]
    acts = [[name for name in names if name not in some] for names, some in zip(pools, dry, strict=True)]
    acting, in_dry_run = (_of_pools(found, policy, look, *kinds) for kinds in ((acts, dry), (dry, acts)))
    return FindingsByMode(
        found=[_both(*each) for each in zip(found, acting, in_dry_run, strict=True)],
        acting=acting,
        in_dry_run=in_dry_run if any(each.findings for each in in_dry_run) else [],
    )


def _of_pools(
    found: list[Findings],
    policy: RebalancerPolicy,
    look: Callable[[RebalancerPolicy], list[Findings]],
    mine: Sequence[Sequence[str]],
    others: Sequence[Sequence[str]],
) -> list[Findings]:
    """Of each strategy the findings in its pools of one kind. `mine`, `others`: names of these pools, and of those of
    the other kind. Loads are of all pools: their targets hold for the others' replacements too."""
    narrowed = [
        each.model_copy(update={"pools": tuple(names)})
        for each, names, rest in zip(policy.strategies, mine, others, strict=True)
        if names and rest
    ]
    again = iter(look(policy.model_copy(update={"strategies": tuple(narrowed)})) if narrowed else ())
    out = []
    for each, names, rest in zip(found, mine, others, strict=True):
        if names and rest:
            out.append(replace(next(again), loads=each.loads))
        else:
            out.append(each if names else Findings(findings=(), loads=each.loads))
    return out


def _both(whole: Findings, acting: Findings, in_dry_run: Findings) -> Findings:
    """The findings of one strategy in all its pools."""
    if not (acting.findings or in_dry_run.findings):
        return whole
    parts = (acting.progress, in_dry_run.progress)
    progress = {state: sum(each.get(state, 0) for each in parts) for state in {**parts[0], **parts[1]}}
    return replace(whole, findings=(*acting.findings, *in_dry_run.findings), progress=progress)


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
