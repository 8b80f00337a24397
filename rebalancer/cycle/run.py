"""One cycle: observe, find, plan, admit, evict, record, schedule assessments.

A dry run leaves out the calls alone, so what `plan` prints is what `run` would do. Parts of the policy that don't act
are planned after the others, from the same observation; those that need an approval are proposed.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.evict.calls import EvictionCalls
from rebalancer.cycle.evict.execution import Execution, make_call
from rebalancer.cycle.evict.scheduled_assessments import schedule_assessments
from rebalancer.cycle.isolation import isolated
from rebalancer.cycle.observe.drains import record_drains
from rebalancer.cycle.observe.isolated_strategies import PART
from rebalancer.cycle.observe.ledger_state import closed_note
from rebalancer.cycle.observe.observation import ANY, Observation, find, high_thresholds, observe, unsafe
from rebalancer.cycle.observe.obstacle_notes import obstacle_notes
from rebalancer.cycle.observe.resource_notes import resource_notes
from rebalancer.cycle.plan.approved import (
    ApprovedPlan,
    approved_findings,
    check_moves,
    check_time,
    reading_only,
    session_of,
)
from rebalancer.cycle.plan.by_mode import HELD, FindingsByMode, by_mode, session_of_held
from rebalancer.cycle.plan.planning import PlanningSession, TimeLimit
from rebalancer.cycle.plan.simulation import AppliedTaints, apply_taints
from rebalancer.cycle.report.proposals import propose
from rebalancer.cycle.report.summary import Plan, describe
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.forecast.memory.leaks import leaks_note
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Answer, Eviction
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.modes import acts
from rebalancer.strategies import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The result of a cycle."""

    observation: Observation
    found: list[Findings]
    """Of each strategy of the policy, in its order; empty where the cycle was stopped."""
    taints: AppliedTaints
    planner: Planner
    """After the last move, of the parts that don't act where there are some. Its admission and its placement model have
    the plan counted in."""
    report: CycleReport


def run_cycle(
    context: CycleContext,
    policy: RebalancerPolicy,
    *,
    request: CycleRequest = ANY,
    dry_run: bool,
    server_dry_run: bool = False,
) -> Cycle:
    """Run one cycle and record it. Raises ConnectError, ConfigError or UnsafeDataError where nothing can be observed.

    Data that can be read but not trusted ends in `report.stopped`, with nothing planned.
    """
    report = begin_report(context, policy, trigger=request.trigger, dry_run=dry_run)
    return execute_cycle(context, policy, report, request=request, server_dry_run=server_dry_run)


def begin_report(
    context: CycleContext,
    policy: RebalancerPolicy,
    *,
    trigger: Trigger = Trigger.MANUAL,
    dry_run: bool,
    cycle: str | None = None,
) -> CycleReport:
    """An empty report, of the cycle with this id; None for a new one. Its holder can read what was done also after a
    cycle that ended in an error."""
    return CycleReport(
        id=cycle or uuid.uuid4().hex,
        cluster=policy.cluster,
        trigger=trigger,
        dry_run=dry_run,
        started_at=context.clock.now(),
    )


def execute_cycle(
    context: CycleContext,
    policy: RebalancerPolicy,
    report: CycleReport,
    *,
    request: CycleRequest = ANY,
    server_dry_run: bool = False,
    snapshot: ClusterSnapshot | None = None,
    approved: ApprovedPlan | None = None,
) -> Cycle:
    """The stages in their order. `snapshot` is the cluster where it has been read already. With `approved` exactly its
    evictions are made, or UnsafeDataError is raised before the first one and before the cycle is recorded."""
    with timed(report, "observe"):
        seen = observe(context, policy, writes=not report.dry_run, snapshot=snapshot)
    given = None if approved is None else confirm(context, policy, report, seen, approved)
    basis = context.forecasts.basis(seen.now)
    report.notes += [
        *([basis] if basis else []),
        *(closed_note(each) for each in seen.ledger_state.closed),
        *seen.usage.notes,
        *seen.past_unknown,
        *resource_notes(seen.snapshot, seen.usage, seen.node_pools),
        *obstacle_notes(seen.snapshot, seen.node_pools),
    ]
    leaking, failed = isolated(
        "memory leaks are not known", lambda: leaks_note(context.forecasts.memory_leaks(seen.snapshot, seen.now))
    )
    report.notes += [*([leaking] if leaking else []), *failed]
    context.records.begin(report)
    report.notes += [each.note for each in context.parts.current() if not each.name.startswith(PART)]
    report.stopped = unsafe(seen, policy)
    with timed(report, "find"):
        found = [] if report.stopped else given or find(seen, policy, request, parts=context.parts)
        if approved is None:
            modes = by_mode(found, policy, lambda narrowed: find(seen, narrowed, request, parts=context.parts))
        else:
            modes = FindingsByMode(found=found, acting=found, held={})
        found = modes.found
    if not (report.dry_run or report.stopped):
        record_drains(context, seen, modes.acting)
    limit = TimeLimit(context.planning_seconds)
    session = PlanningSession(context=context, observation=seen, found=modes.acting, policy=policy, limit=limit)
    if approved is not None:
        session = session_of(approved, context, policy, seen, modes.acting)
    with timed(report, "steer"):
        taints = apply_taints(session, report)
    with timed(report, "relieve"):
        planner = relieve(session, report, taints, server_dry_run=server_dry_run)
    schedule_assessments(context, report, seen, modes.acting, policy)
    plans = [Plan(planner=planner, taints=taints, moves=tuple(report.evictions))]
    for mode, held in modes.held.items():
        with timed(report, HELD[mode]):
            dry = session_of_held(session, plans[-1].planner, report, held)
            # pods may have been evicted by now: that must be recorded whatever fails here
            plan, failed = isolated(
                f"the parts in mode {mode} are not planned",
                partial(plan_held, dry, report, server_dry_run=server_dry_run),
            )
            report.notes += failed
            plans += [plan] if plan is not None else []
            if plan is not None and acts(policy):
                report.not_made |= {move.uid for move in plan.moves}
    describe(report, seen, found, plans, high_thresholds(seen, found, policy, request))
    if not (report.dry_run or report.interrupted) and "Approve" in modes.held:
        kept, failed = isolated("the proposals are not kept", lambda: propose(context, policy, report, seen, request))
        report.proposals += kept or ()
        report.notes += failed
    report.finished_at = context.clock.now()
    context.records.finish(report)
    return Cycle(observation=seen, found=found, taints=taints, planner=plans[-1].planner, report=report)


def confirm(
    context: CycleContext, policy: RebalancerPolicy, report: CycleReport, seen: Observation, approved: ApprovedPlan
) -> list[Findings]:
    """The findings that carry out an approved plan, after its dry run has planned exactly the same. Raises
    PlanChangedError."""
    check_time(approved, context, now=seen.now)
    found = approved_findings(approved, context, policy, seen)
    dry = replace(report, dry_run=True, evictions=[], notes=[])
    session = session_of(approved, reading_only(context), policy, seen, found)
    planner = relieve(session, dry, apply_taints(session, dry), server_dry_run=False)
    check_moves(approved, planner, dry.evictions)
    approved.begin()
    return found


def plan_held(session: PlanningSession, report: CycleReport, *, server_dry_run: bool) -> Plan:
    """Plan and record the evictions of parts that don't act, after those that were made; they are added to the
    report."""
    dry = replace(report, dry_run=True, evictions=[], soft_tainted={}, cordons_before={}, cordons={})
    taints = apply_taints(session, dry)
    planner = relieve(session, dry, taints, server_dry_run=server_dry_run)
    report.evictions += dry.evictions
    report.interrupted = dry.interrupted
    return Plan(planner=planner, taints=taints, moves=tuple(dry.evictions))


def relieve(session: PlanningSession, report: CycleReport, taints: AppliedTaints, *, server_dry_run: bool) -> Planner:
    """Plan, admit, evict and record, in the plan's order. The planner has a reason for each pod that stays."""
    context = session.context

    def call(eviction: Eviction) -> Answer:
        return make_call(context, eviction, dry_run=report.dry_run, server_dry_run=server_dry_run)

    # dry runs are one at a time: each is probed alone anyway
    calls = EvictionCalls(call, at_most=1 if report.dry_run else context.max_calls)
    execution = Execution(session, report, taints, calls, server_dry_run=server_dry_run)
    try:
        return execution.run()
    finally:
        execution.record_rest()


@contextmanager
def timed(report: CycleReport, stage: str) -> Iterator[None]:
    """Write the stage's seconds into the report."""
    began = time.monotonic()
    try:
        yield
    finally:
        report.stages[stage] = time.monotonic() - began
