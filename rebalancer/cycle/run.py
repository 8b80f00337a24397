"""One cycle, one story: observe, find, plan, admit, evict, record; then assess.

A dry run is the same story with `evict` left out, so what `plan` prints is what `run` would do.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.in_flight import typical_start_up
from rebalancer.constraints.limits import refusal_for
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.observation import ANY, Observation, find, high_thresholds, observe, unsafe
from rebalancer.cycle.planning import PLAN_SECONDS_AT_MOST, AppliedMarks, TimeLimit, plan, steer
from rebalancer.cycle.request import CycleRequest
from rebalancer.cycle.scheduled_assessments import scheduled_assessments
from rebalancer.model.eviction import DID_NOT_HAPPEN, MAY_HAVE_HAPPENED, Answer, Eviction, Outcome
from rebalancer.model.limits import Denied
from rebalancer.model.plan import CycleReport, NodeLine, PodRefusal, Trigger
from rebalancer.model.ports import Ledger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings

LEASE_MARGIN_SECONDS = 5.0
"""With less left of the lease no eviction is begun; the call itself is bounded by what is left then."""

MAX_SERVER_ERRORS = 3
"""So many errors of the API server in one cycle are enough."""

CYCLE_STOPPING_ERRORS = (Reason.SERVER_THROTTLED, Reason.SERVER_FORBIDDEN, Reason.LEASE_LOST)
"""Answers that the next call would get too."""


def run_cycle(
    context: CycleContext,
    policy: RebalancerPolicy,
    *,
    request: CycleRequest = ANY,
    dry_run: bool,
    server_dry_run: bool = False,
) -> CycleReport:
    """Run one cycle and record it. Raises ConnectError, ConfigError or UnsafeDataError when it can't even observe.

    Data that is readable but not safe to act on ends in `report.stopped`, with nothing planned.
    """
    report = begin_report(context, policy, trigger=request.trigger, dry_run=dry_run)
    execute_cycle(context, policy, report, request=request, server_dry_run=server_dry_run)
    return report


def begin_report(
    context: CycleContext, policy: RebalancerPolicy, *, trigger: Trigger = Trigger.MANUAL, dry_run: bool
) -> CycleReport:
    """An empty report: whoever holds it sees what was done, even when the cycle ends in an error."""
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
) -> None:
    """The story itself."""
    with timed(report, "observe"):
        seen = observe(context, policy, writes=not report.dry_run)
    context.records.begin(report)
    report.stopped = unsafe(seen, policy)
    with timed(report, "find"):
        found = [] if report.stopped else find(seen, policy, request)
    with timed(report, "steer"):
        held = steer(context, seen, found, policy, report)
    with timed(report, "relieve"):
        planner = relieve(context, seen, found, policy, report, held, server_dry_run=server_dry_run)
    expect(context, report, seen, found, policy)
    describe(report, seen, found, planner, held, policy, high_thresholds(seen, found, policy, request))
    report.finished_at = context.clock.now()
    context.records.finish(report)


def relieve(
    context: CycleContext,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    report: CycleReport,
    held: AppliedMarks,
    *,
    server_dry_run: bool,
) -> Planner:
    """Plan, admit, evict and record one move after the other; the planner, with a reason for whatever stays."""
    thinking = TimeLimit(PLAN_SECONDS_AT_MOST)
    planner = plan(context, seen, found, policy, steered=held.steered, cordoned=held.cordoned, limit=thinking)
    server_errors = 0
    while (eviction := planner.next_move()) is not None:
        if context.stopping():
            interrupt(report, planner, Refusal.of(Reason.STOPPING))
            break
        with thinking.stopped():
            refusal = admit(context, report, seen, planner.admission, eviction, policy)
        if refusal is not None:
            planner.reject(eviction, refusal)
            if refusal.code in (Reason.LEASE_LOST, Reason.STOPPING):
                interrupt(report, planner, refusal)
            continue
        report.evictions.append(eviction)
        with thinking.stopped():
            expect(context, report, seen, found, policy, node=eviction.node)
            answer = evict(context, eviction, dry_run=report.dry_run, server_dry_run=server_dry_run)
        if answer.outcome not in DID_NOT_HAPPEN:
            planner.accept(eviction)
            continue
        refusal = answer.refusal or Refusal.of(Reason.SERVER_ERROR)
        planner.admission.cancel_reservation(eviction)
        planner.reject(eviction, refusal)
        server_errors += refusal.code is Reason.SERVER_ERROR
        if refusal.code in CYCLE_STOPPING_ERRORS or server_errors >= MAX_SERVER_ERRORS:
            interrupt(report, planner, refusal)
    return planner


def expect(
    context: CycleContext,
    report: CycleReport,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    *,
    node: str | None = None,
) -> None:
    """Write down what is to be looked at again, of one node or of all: before each call, so that nothing is missed."""
    if context.effect is not None and not report.dry_run and report.evictions:
        context.effect.expect(scheduled_assessments(report, seen, found, policy, now=context.clock.now(), node=node))


@contextmanager
def timed(report: CycleReport, stage: str) -> Iterator[None]:
    """Note how long a stage took."""
    began = time.monotonic()
    try:
        yield
    finally:
        report.stages[stage] = time.monotonic() - began


def interrupt(report: CycleReport, planner: Planner, refusal: Refusal) -> None:
    """End the plan before it is done."""
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
    """Reserve the move: in this plan, and for a real run in the ledger, whose row is written before the call.

    A move that has to be spaced out is waited for, as long as the policy allows.
    """
    due = admission.due(eviction)
    if isinstance(due, Refusal):
        return due
    admission.reserve(eviction)
    expect_replacement(eviction, seen.snapshot)
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


def replacement_deadline(eviction: Eviction, policy: RebalancerPolicy, ledger: Ledger) -> float:
    """When the replacement is late: after the grace period and the usual start-up time of the service's pods."""
    in_flight = policy.safety.in_flight
    start_up = typical_start_up(ledger.start_ups(str(eviction.service)), otherwise=in_flight.start_up)
    return ledger.now() + eviction.grace_seconds + start_up + in_flight.margin


def evict(context: CycleContext, eviction: Eviction, *, dry_run: bool, server_dry_run: bool) -> Answer:
    """Make the call and write its outcome. A dry run makes none; a server dry run probes."""
    if dry_run and not server_dry_run:
        return Answer(outcome=Outcome.PLANNED)
    answer = context.evictor.evict(eviction, server_dry_run=dry_run)
    eviction.outcome = answer.outcome
    eviction.code = answer.refusal.code if answer.refusal else None
    eviction.detail = answer.refusal.message if answer.refusal else ""
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


def describe(
    report: CycleReport,
    seen: Observation,
    found: list[Findings],
    planner: Planner,
    held: AppliedMarks,
    policy: RebalancerPolicy,
    high: NDArray[np.float64],
) -> None:
    """Fill the report with what was seen, found and refused. `high` (nodes,) is what `high_thresholds` says."""
    snapshot, names = seen.snapshot, seen.snapshot.nodes.names
    room = snapshot.nodes.cpu_capacity_millicores
    planned = seen.usage.node_cpu_millicores.copy()
    for eviction in report.evictions:
        if eviction.outcome in MAY_HAVE_HAPPENED:
            cpu = np.nan_to_num(eviction.cpu_millicores)
            planned[eviction.node_index] -= cpu
            if eviction.target_node:
                planned[seen.snapshot.node_index[eviction.target_node]] += cpu
    hot = np.zeros(len(names), dtype=bool)
    for findings in found:
        if findings.loads is not None:
            hot |= findings.loads.hot
        report.findings += [(finding, names[finding.node]) for finding in findings.findings]
        report.notes += findings.notes
        for state, count in findings.progress.items():
            report.progress[state] = report.progress.get(state, 0) + count
        report.refusals += [
            PodRefusal(node=names[node], namespace="", name="", code=refusal.code, message=refusal.message)
            for node, refusal in sorted(findings.skipped.items())
        ]
    report.refusals += held.said(planner.refusals())
    for check in planner.admission.rules.every_check(()):
        if check.kind in ("rate", "inFlight"):
            left = max(check.at_most - planner.admission.view.used(check), 0)
            report.limits_left[check.scope.kind] = min(left, report.limits_left.get(check.scope.kind, left))
    for index in sorted(range(len(names)), key=lambda node: names[node]):
        report.nodes.append(
            NodeLine(
                name=names[index],
                pool=seen.node_pools.names[index],
                cpu_before=_share(seen.usage.node_cpu_millicores[index], room[index]),
                cpu_planned=_share(planned[index], room[index]),
                hot=bool(hot[index]),
                high=float(high[index]) if np.isfinite(high[index]) else None,
            )
        )


def _share(millicores: float, room: float) -> float | None:
    return float(millicores / room) if np.isfinite(millicores) and room > 0 else None
