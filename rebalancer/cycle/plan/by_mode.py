"""Findings of the parts of a policy by their mode: those that act, those that wait for an approval, those in dry run.

A cycle plans and carries out the findings of the parts that act, as if there were no others. Then it plans those that
wait for an approval, and last those in dry run, each with the moves before it counted in. So what is only planned takes
no limit and no headroom from a real eviction, and a dry run takes none from a proposal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rebalancer.cycle.plan.planning import PlanningSession
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Eviction
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.modes import mode_of, modes, part_held
from rebalancer.policy.schema.strategies.base import StrategyBase
from rebalancer.policy.schema.types import Mode
from rebalancer.strategies import Findings

HELD: Mapping[Mode, str] = {"Approve": "propose", "DryRun": "dryRun"}
"""Modes of the parts that make no eviction in the cycle, in the order in which they are planned -> the stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsByMode:
    """Findings of each strategy of the policy, in its order."""

    found: list[Findings]
    """Of all parts."""
    acting: list[Findings]
    held: Mapping[Mode, list[Findings]]
    """Of each mode of `HELD` that has findings."""


def by_mode(
    found: list[Findings], policy: RebalancerPolicy, look: Callable[[RebalancerPolicy], list[Findings]]
) -> FindingsByMode:
    """The findings of the parts of each mode. `found`: of the policy, by `look`.

    A strategy with pools of several modes looks again at those of each mode alone: what it counts, such as nodes that
    are drained at a time, must not be used up by a pool that doesn't act.
    """
    if not found or modes(policy) == {"Act"}:
        return FindingsByMode(found=found, acting=found, held={})
    pools = [[*(each.pools or (pool.name for pool in policy.pools))] for each in policy.strategies]
    of: dict[Mode, list[Findings]] = {}
    for mode in ("Act", *HELD):
        mine = [
            [name for name in names if mode_of(policy, each, name) == mode]
            for each, names in zip(policy.strategies, pools, strict=True)
        ]
        of[mode] = _of_pools(found, policy, look, mine, pools)
    return FindingsByMode(
        found=[_together(*each) for each in zip(found, *of.values(), strict=True)],
        acting=of["Act"],
        held={mode: of[mode] for mode in HELD if any(each.findings for each in of[mode])},
    )


def _of_pools(
    found: list[Findings],
    policy: RebalancerPolicy,
    look: Callable[[RebalancerPolicy], list[Findings]],
    mine: Sequence[Sequence[str]],
    pools: Sequence[Sequence[str]],
) -> list[Findings]:
    """Of each strategy the findings in its pools of one mode. `mine`, `pools`: names of these, and of all its pools.
    Loads are of all pools: their targets hold for the others' replacements too."""
    some = [0 < len(names) < len(every) for names, every in zip(mine, pools, strict=True)]
    narrowed = [
        each.model_copy(update={"pools": tuple(names)})
        for each, names, is_part in zip(policy.strategies, mine, some, strict=True)
        if is_part
    ]
    again = iter(look(policy.model_copy(update={"strategies": tuple(narrowed)})) if narrowed else ())
    out = []
    for each, names, is_part in zip(found, mine, some, strict=True):
        if is_part:
            out.append(replace(next(again), loads=each.loads))
        else:
            out.append(each if names else Findings(findings=(), loads=each.loads))
    return out


def _together(whole: Findings, *parts: Findings) -> Findings:
    """The findings of one strategy in all its pools."""
    if not any(each.findings for each in parts):
        return whole
    states = dict.fromkeys(state for each in parts for state in each.progress)
    progress = {state: sum(each.progress.get(state, 0) for each in parts) for state in states}
    return replace(whole, findings=tuple(finding for each in parts for finding in each.findings), progress=progress)


def session_of_held(
    before: PlanningSession, planner: Planner, report: CycleReport, found: list[Findings]
) -> PlanningSession:
    """The session that plans the findings of a mode of `HELD`. `before` and `report` are those of the cycle, `planner`
    the last one; its moves are counted as made."""
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
        taints_held_pools=True,
        detail=lambda eviction: held_by(eviction, before.policy),
        made=[made[each.pod] for each in moves],
        progress=replace(progress, moves=moves, screened=False),
    )


def held_by(eviction: Eviction, policy: RebalancerPolicy) -> str:
    """Why an eviction is not made at once, such as `dry run of pool a`."""
    return next(filter(None, (part_held(policy, each, eviction.pool) for each in wanting(eviction, policy))), "")


def wanting(eviction: Eviction, policy: RebalancerPolicy) -> list[StrategyBase]:
    """The strategies of an eviction's name in its pool."""
    of_name = [each for each in policy.strategies if each.name == eviction.strategy]
    return [each for each in of_name if eviction.pool in (each.pools or (eviction.pool,))]
