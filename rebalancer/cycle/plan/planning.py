"""Planners of one cycle: one placement model, one time limit, one source of constraints."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from rebalancer.constraints.admission import EvictionAdmission, KnownStays
from rebalancer.cycle.context import MAX_PLANNING_SECONDS, CycleContext
from rebalancer.cycle.observe.observation import Observation
from rebalancer.cycle.plan.cordons import mask
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.notation.arrays import Bools
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner import Choice, PlanInput, Planner, PlanningTime, PlanProgress
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.plan.plan_input import PlannedMove
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.modes import held_pools
from rebalancer.strategies import Findings


class TimeLimit:
    """A limit on planning time, by the machine's monotonic clock. Calling it returns whether the time is spent."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __call__(self) -> bool:
        return self._left() < 0

    def share(self, parts: int) -> Callable[[], bool]:
        """Returns whether one of so many equal parts of the time that is left now is spent."""
        others = self._left() * (1 - 1 / parts)
        return lambda: self._left() < others

    def half(self) -> "TimeLimit":
        """A limit of half of the time that is left now."""
        return TimeLimit(self._left() / 2)

    def _left(self) -> float:
        return self._end - time.monotonic()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time inside doesn't count: waiting for a limit, calls to the API server."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - began


def new_admission(
    context: CycleContext, seen: Observation, policy: RebalancerPolicy, known: KnownStays | None = None
) -> EvictionAdmission:
    """The constraints of a cycle, with no move counted. `known` as in `EvictionAdmission`."""
    return EvictionAdmission(
        policy=policy,
        snapshot=seen.snapshot,
        pool_of=seen.pool_of,
        ledger_state=seen.ledger_state,
        now=seen.now,
        own_pod=context.own_pod,
        known=known,
        projection=seen.projection,
    )


@dataclass(slots=True, kw_only=True)
class PlanningSession:
    """What the simulation and the plan of one cycle have in common."""

    context: CycleContext
    observation: Observation
    found: list[Findings]
    policy: RebalancerPolicy
    limit: TimeLimit = field(default_factory=lambda: TimeLimit(MAX_PLANNING_SECONDS))
    taints_held_pools: bool = False
    """Whether nodes of pools that don't act may get soft taints: in a plan that makes no evictions."""
    detail: Callable[[Eviction], str] = lambda _eviction: ""
    """What is recorded with an eviction before its call."""
    made: Sequence[Eviction] = ()
    """Moves of an earlier plan of the cycle, in the order of `progress`."""
    progress: PlanProgress | None = None
    """How far that plan was."""
    script: Sequence[PlannedMove] | None = None
    """The moves to plan, in their order; None = the best plan is looked for."""
    _placement: PlacementModel | None = None
    _known: KnownStays = field(default_factory=dict)

    def planner(
        self,
        *,
        soft_tainted: Bools,
        cordoned: Bools,
        steering: SoftTaintBudget | None = None,
        limit: TimeLimit | None = None,
        choice: Choice | None = None,
        progress: PlanProgress | None = None,
        admission: EvictionAdmission | None = None,
    ) -> Planner:
        """A planner over all findings, with nothing counted yet but what was made before the session; what earlier
        planners of the session counted is undone. `soft_tainted`, `cordoned` (nodes,): soft taints and cordons while
        the plan runs. `steering` makes it a simulation. `choice` is the order of the candidates. `progress` of the plan
        that it takes the place of; it is counted in `admission`."""
        seen, limit = self.observation, limit or self.limit
        plan_input = PlanInput(
            snapshot=seen.snapshot,
            found=self.found,
            cpu_millicores=seen.usage.pod_cpu_millicores,
            pools=seen.node_pools.names,
            base=seen.base,
            reserve=seen.reserve,
            urgent=seen.projection.urgent,
        )
        return Planner(
            plan_input,
            placement=self._start_over(soft_tainted, cordoned, limit),
            admission=admission or self._admission(),
            steering=steering,
            time=PlanningTime(spent=limit, share=limit.share),
            patience=self.patience,
            choice=choice,
            progress=progress or self.progress,
        )

    @property
    def untouched(self) -> Bools:
        """(nodes,) that get no soft taint: those of pools that don't act."""
        held = held_pools(self.policy)
        of_pool = np.array([*(pool.name in held for pool in self.policy.pools), False])
        out: Bools = of_pool[self.observation.pool_of] & (not self.taints_held_pools)
        return out

    def _admission(self) -> EvictionAdmission:
        admission = new_admission(self.context, self.observation, self.policy, self._known)
        admission.count_made(self.made)
        return admission

    @property
    def patience(self) -> float:
        """How long the cycle may wait for its replacements, in seconds."""
        # a process that doesn't wait for its replacements can't remove a soft taint either
        return 0.0 if self.context.soft_taint_controller.remove_only else self.policy.planner.patience

    def _start_over(self, soft_tainted: Bools, cordoned: Bools, limit: TimeLimit) -> PlacementModel:
        seen = self.observation
        closed = mask(seen, self.context.soft_taint_controller.uncertain)
        if self._placement is None:
            findings = [finding for each in self.found for finding in each.findings]
            self._placement = PlacementModel(
                seen.snapshot,
                config=self.context.scheduler,
                soft_tainted=soft_tainted,
                cordoned=cordoned,
                closed=closed,
                out_of_time=limit,
                young_seconds=self.policy.safety.cooldowns.new_node,
                removed=seen.projection.closed,
                displaced=seen.projection.displaced_beside(finding.candidates for finding in findings),
                relieved={finding.node for finding in findings if finding.goal is Goal.COOL},
            )
        else:
            self._placement.start_over(soft_tainted=soft_tainted, cordoned=cordoned, closed=closed, out_of_time=limit)
        return self._placement
