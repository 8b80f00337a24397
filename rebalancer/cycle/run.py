"""One cycle: observe, find, plan, admit, evict, record, schedule assessments.

A dry run leaves out `evict` alone, so what `plan` prints is what `run` would do.
"""

import math
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.backoff import backoff_seconds
from rebalancer.constraints.in_flight import typical_start_up
from rebalancer.constraints.limits import refusal_for
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.drains import record_drains
from rebalancer.cycle.ledger_state import closed_note
from rebalancer.cycle.observation import ANY, Observation, find, high_thresholds, observe, unsafe
from rebalancer.cycle.planning import PlanningSession
from rebalancer.cycle.request import CycleRequest
from rebalancer.cycle.resource_notes import resource_notes
from rebalancer.cycle.scheduled_assessments import schedule_assessments
from rebalancer.cycle.simulation import AppliedTaints, apply_taints
from rebalancer.cycle.summary import describe
from rebalancer.cycle.waiting import Waiting
from rebalancer.forecast.leaks import leaks_note
from rebalancer.model.eviction import DID_NOT_HAPPEN, Answer, Eviction, Outcome, PodAmount
from rebalancer.model.limits import EVERY_NODE, Denied, EvictionBackoff
from rebalancer.model.plan import CycleReport, Trigger
from rebalancer.model.ports import Ledger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings

LEASE_MARGIN_SECONDS = 5.0
"""No eviction begins with less left of the lease, which bounds the call."""

MAX_SERVER_ERRORS = 3
"""Errors of the API server that end a cycle."""

CYCLE_STOPPING_ERRORS = (Reason.SERVER_THROTTLED, Reason.SERVER_FORBIDDEN, Reason.LEASE_LOST)
"""Answers that every later call would get too."""

WEBHOOK_REFUSALS = (Reason.SERVER_WEBHOOK, Reason.SERVER_WEBHOOK_FAILED)
"""Answers that other pods of the same service would get too, but not those of other services."""

BACKGROUND_SECONDS = 600.0
"""An eviction in the background that has not moved its pod by then is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The result of a cycle."""

    observation: Observation
    found: list[Findings]
    """Of each strategy of the policy, in its order; empty where the cycle was stopped."""
    taints: AppliedTaints
    planner: Planner
    """After its last move. Its admission and its placement model have the plan counted in."""
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
    context: CycleContext, policy: RebalancerPolicy, *, trigger: Trigger = Trigger.MANUAL, dry_run: bool
) -> CycleReport:
    """An empty report. Its holder can read what was done also after a cycle that ended in an error."""
    return CycleReport(
        id=uuid.uuid4().hex,
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
) -> Cycle:
    """The stages in their order. `snapshot` is the cluster where it has been read already."""
    with timed(report, "observe"):
        seen = observe(context, policy, writes=not report.dry_run, snapshot=snapshot)
    report.notes += [
        *(closed_note(each) for each in seen.ledger_state.closed),
        *seen.usage.notes,
        *resource_notes(seen.snapshot, seen.usage, seen.node_pools),
    ]
    if (leaking := leaks_note(context.memory_leaks(seen.snapshot, seen.now))) is not None:
        report.notes.append(leaking)
    context.records.begin(report)
    report.stopped = unsafe(seen, policy)
    with timed(report, "find"):
        found = [] if report.stopped else find(seen, policy, request)
    if not (report.dry_run or report.stopped):
        record_drains(context, seen, found)
    session = PlanningSession(context=context, observation=seen, found=found, policy=policy)
    with timed(report, "steer"):
        taints = apply_taints(session, report)
    with timed(report, "relieve"):
        planner = relieve(session, report, taints, server_dry_run=server_dry_run)
    schedule_assessments(context, report, seen, found, policy)
    describe(report, seen, found, planner, taints, high_thresholds(seen, found, policy, request))
    report.finished_at = context.clock.now()
    context.records.finish(report)
    return Cycle(observation=seen, found=found, taints=taints, planner=planner, report=report)


def relieve(session: PlanningSession, report: CycleReport, taints: AppliedTaints, *, server_dry_run: bool) -> Planner:
    """Plan, admit, evict and record, one move after the other. The planner has a reason for each pod that stays."""
    context, seen, found, policy = session.context, session.observation, session.found, session.policy
    planner = session.planner(soft_tainted=taints.soft_tainted, cordoned=taints.cordoned, choice=taints.choice)
    waiting = Waiting(session, report, planner)
    server_errors = 0
    while (eviction := planner.next_move() or waiting.next_move()) is not None:
        if context.stopping():
            interrupt(report, planner, Refusal.of(Reason.STOPPING))
            break
        with session.limit.stopped():
            if not steered(context, report, planner, taints, eviction):
                continue
            refusal = admit(context, report, seen, planner.admission, eviction, policy)
        if refusal is not None:
            planner.reject(eviction, refusal)
            if refusal.code in (Reason.LEASE_LOST, Reason.STOPPING):
                interrupt(report, planner, refusal)
            continue
        report.evictions.append(eviction)
        waiting.date(eviction)
        with session.limit.stopped():
            schedule_assessments(context, report, seen, found, policy, node=eviction.node)
            answer = evict(context, eviction, dry_run=report.dry_run, server_dry_run=server_dry_run)
        if answer.outcome not in DID_NOT_HAPPEN:
            planner.accept(eviction)
            continue
        refusal = answer.refusal or Refusal.of(Reason.SERVER_ERROR)
        planner.admission.cancel_reservation(eviction)
        planner.reject(eviction, refusal)
        if refusal.code in WEBHOOK_REFUSALS:
            back_off_service(context, planner.admission, eviction, refusal, policy, dry_run=report.dry_run)
        server_errors += refusal.code in (Reason.SERVER_ERROR, Reason.SERVER_WEBHOOK_FAILED)
        if refusal.code in CYCLE_STOPPING_ERRORS or server_errors >= MAX_SERVER_ERRORS:
            interrupt(report, planner, refusal)
    return planner


def steered(
    context: CycleContext, report: CycleReport, planner: Planner, taints: AppliedTaints, eviction: Eviction
) -> bool:
    """Apply the soft taints that the move needs. Where that fails the move is refused."""
    needed = planner.taints_of(eviction)
    if not needed or taints.add(needed, context.soft_taint_controller, report):
        return True
    planner.reject(eviction, Refusal.of(Reason.TARGET_NODE_WITHOUT_HEADROOM, "a soft taint could not be applied"))
    return False


@contextmanager
def timed(report: CycleReport, stage: str) -> Iterator[None]:
    """Write the stage's seconds into the report."""
    began = time.monotonic()
    try:
        yield
    finally:
        report.stages[stage] = time.monotonic() - began


def interrupt(report: CycleReport, planner: Planner, refusal: Refusal) -> None:
    """End the plan before it is complete."""
    report.interrupted = refusal
    report.notes.append(f"stopped before the plan was done: {refusal.message}")
    planner.stop(refusal)


def admit(
    context: CycleContext,
    report: CycleReport,
    seen: Observation,
    admission: EvictionAdmission,
    eviction: Eviction,
    policy: RebalancerPolicy,
) -> Refusal | None:
    """Reserve the eviction in this plan and, in a real run, in the ledger, whose row is written before the call.

    Minimum spacing is waited for, up to the policy's `safety.maxWait`.
    """
    due = admission.due(eviction)
    if isinstance(due, Refusal):
        return due
    admission.reserve(eviction)
    expect_replacement(eviction, seen.snapshot)
    eviction.amounts = amounts_of(eviction, seen)
    if report.dry_run:
        eviction.not_before = due if due > seen.now else None
        eviction.record = context.records.planned(report, eviction)
        return None
    assert context.ledger is not None
    wait = due - context.clock.now()
    if wait > 0:
        context.clock.sleep(wait)
    refusal = None
    if context.stopping():
        refusal = Refusal.of(Reason.STOPPING)
    elif context.lease is None or not context.lease.holds(LEASE_MARGIN_SECONDS):
        refusal = Refusal.of(Reason.LEASE_LOST)
    else:
        eviction.deadline_at = replacement_deadline(eviction, policy, context.ledger)
        checks = admission.checks(eviction)
        answer = context.ledger.reserve(report, eviction, checks=checks, term=context.lease.term)
        if isinstance(answer, Denied):
            refusal = refusal_for(answer)
        else:
            eviction.record = answer
    if refusal is not None:
        admission.cancel_reservation(eviction)
    return refusal


def expect_replacement(eviction: Eviction, snapshot: ClusterSnapshot) -> None:
    """Fill in what the service has now: its replacement has landed once that is reached again."""
    eviction.desired_before, eviction.ready_before = snapshot.replicas(int(snapshot.pods.owner[eviction.pod_index]))
    eviction.grace_seconds = snapshot.pod(eviction.pod_index).template.grace_seconds


def amounts_of(eviction: Eviction, seen: Observation) -> dict[str, PodAmount]:
    """Resource besides CPU -> what the pod uses of it, where that is measured."""
    out = {}
    for name, used in seen.usage.resources.items():
        amount, capacity = float(used.pod[eviction.pod_index]), float(used.capacity[eviction.node_index])
        if math.isfinite(amount):
            relief = float(used.relieved[eviction.pod_index])
            out[name] = PodAmount(amount, relief / capacity if capacity > 0 else math.nan)
    return out


def replacement_deadline(eviction: Eviction, policy: RebalancerPolicy, ledger: Ledger) -> float:
    """When the replacement is late: after the grace period and the usual start-up time of the service's pods."""
    in_flight = policy.safety.in_flight
    start_up = typical_start_up(ledger.start_ups(str(eviction.service)), otherwise=in_flight.start_up)
    return ledger.now() + eviction.grace_seconds + start_up + in_flight.margin


def back_off_service(
    context: CycleContext,
    admission: EvictionAdmission,
    eviction: Eviction,
    refusal: Refusal,
    policy: RebalancerPolicy,
    *,
    dry_run: bool,
) -> None:
    """Leave the evicted pod's service alone: in this cycle, and in a real run for a time that the ledger keeps."""
    backoff = policy.safety.cooldowns.webhook_backoff
    identity, reason = eviction.service_identity, refusal.message.removeprefix(f"{refusal.code.sentence}: ")
    if dry_run or context.ledger is None:
        until = context.clock.now() + backoff_seconds(backoff, 1)
        kept = EvictionBackoff(service_identity=identity, node=EVERY_NODE, until=until, count=1, reason=reason)
    else:
        kept = context.ledger.back_off(
            service_identity=identity,
            node=EVERY_NODE,
            reason=reason,
            seconds=lambda count: backoff_seconds(backoff, count),
        )
    admission.back_off(kept)


def evict(context: CycleContext, eviction: Eviction, *, dry_run: bool, server_dry_run: bool) -> Answer:
    """Call the Eviction API and record the outcome. A dry run makes no call, a server dry run one with `dryRun=All`."""
    if dry_run and not server_dry_run:
        return Answer(outcome=Outcome.PLANNED)
    answer = context.evictor.evict(eviction, server_dry_run=dry_run)
    eviction.outcome = answer.outcome
    eviction.code = answer.refusal.code if answer.refusal else None
    eviction.detail = answer.refusal.message if answer.refusal else ""
    if answer.in_background and context.ledger is not None:
        eviction.in_background, eviction.deadline_at = True, context.ledger.now() + BACKGROUND_SECONDS
        eviction.detail = "its eviction continues in the background"
    if dry_run:
        if answer.outcome is Outcome.PLANNED:
            eviction.detail = "the API server would accept it, probed alone"
        context.records.outcome(eviction)
    elif context.ledger is not None:
        context.ledger.outcome(eviction)
        if answer.outcome is Outcome.EVICTED and not eviction.target_nodes and eviction.record is not None:
            # a finished pod has no replacement
            context.ledger.landed(eviction.record, at=context.ledger.now())
    return answer
