"""The execution of a plan: reservations in its order, calls in flight together, answers recorded as they arrive."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.pauses.backoff import backoff_seconds
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.evict.calls import MAX_CALLS, EvictionCalls
from rebalancer.cycle.evict.reservation import admit, reserve
from rebalancer.cycle.evict.scheduled_assessments import schedule_assessments
from rebalancer.cycle.evict.waiting import Waiting
from rebalancer.cycle.isolation import vital
from rebalancer.cycle.plan.cordons import mask
from rebalancer.cycle.plan.planning import PlanningSession
from rebalancer.cycle.plan.simulation import AppliedTaints
from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Answer, Eviction, Outcome
from rebalancer.model.decisions.limits import EVERY_NODE, EvictionBackoff
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.reason import Reason, Refusal, particulars
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy

LOG = logging.getLogger("rebalancer")

MAX_SERVER_ERRORS = 3
"""Errors of the API server that end a cycle."""

CYCLE_STOPPING_ERRORS = (Reason.SERVER_THROTTLED, Reason.SERVER_FORBIDDEN, Reason.LEASE_LOST)
"""Answers that every later call would get too."""

MOST_RESERVED_TOGETHER = MAX_CALLS // 2
"""Half of the calls: while these are in flight, the other half is planned and reserved."""

PAUSE_SECONDS = 1.0
"""How often a wait for the end of throttling looks whether the process stops."""

WEBHOOK_REFUSALS = (Reason.SERVER_WEBHOOK, Reason.SERVER_WEBHOOK_FAILED, Reason.SURGE_FORBIDDEN)
"""Answers that other pods of the same service would get too, but not those of other services."""

BACKGROUND_SECONDS = 600.0
"""An eviction in the background that has not moved its pod by then is closed."""


class Execution:
    """Carries out one plan: reservations one by one in the plan's order, their calls in flight together.

    A move whose call is in flight is counted as made when the next one is planned. The next one is reserved before that
    answer only where the answer couldn't change it (`Planner.depends`). Moves for which there is room are reserved
    together: before the first wait, they are written in one transaction, and then their calls start. When a call turns
    out not to have happened, no other starts until all answers are there; then another planner takes the place of this
    one, with the moves that happened counted in.
    """

    def __init__(
        self,
        session: PlanningSession,
        report: CycleReport,
        taints: AppliedTaints,
        calls: EvictionCalls,
        *,
        server_dry_run: bool,
    ) -> None:
        self._server_dry_run = server_dry_run
        self._session, self._report, self._taints, self._calls = session, report, taints, calls
        self._context = session.context
        self._planner = session.planner(
            soft_tainted=taints.soft_tainted, cordoned=taints.cordoned, choice=taints.choice
        )
        if report.interrupted is not None:
            self._planner.stop(report.interrupted)
        self._waiting = Waiting(session, report, self._planner)
        self._newest: Eviction | None = None
        """The last move that was carried out, while it isn't counted in the planner."""
        self._admitted: list[Eviction] = []
        """Moves of the plan that are to be reserved in the ledger together, in their order."""
        self._undone: dict[int, Refusal | None] = {}
        """Pod of a counted move that did not happen -> why; None = it may be planned again."""
        self._resume_at = 0.0
        """No call starts before (seconds since the epoch): the API server's Retry-After."""
        self._server_errors = 0

    def run(self) -> Planner:
        """Carry out the plan; the planner after its last move."""
        while (eviction := self._next_move()) is not None:
            self._carry_out(eviction)
        return self._planner

    def _next_move(self) -> Eviction | None:
        """The next move that depends on no call in flight; None at the end, with no call in flight."""
        while True:
            self._take_answers(self._has_room)
            if self._undone:
                self._plan_again()
            if self._newest is not None:
                self._planner.accept(self._newest)
                self._newest = None
            move = self._planner.next_move()
            if move is None:
                if self._is_idle():
                    return self._waiting.next_move()
                self._take_answers(self._is_idle)
                continue
            self._take_answers(partial(self._may_overlap, self._planner, move))
            if not self._undone and self._report.interrupted is None:
                return move

    def _may_overlap(self, planner: Planner, move: Eviction) -> bool:
        begun = (*self._calls.under_way, *self._admitted)
        return self._has_room() and not any(planner.depends(move, each) for each in begun)

    def _has_room(self) -> bool:
        return len(self._admitted) < min(self._calls.room, MOST_RESERVED_TOGETHER)

    def _carry_out(self, eviction: Eviction) -> None:
        """Admit one eviction, to be reserved and called at the next wait."""
        context, session, report, planner = self._context, self._session, self._report, self._planner
        if context.stopping():
            interrupt(report, planner, Refusal.of(Reason.STOPPING))
            return
        with session.limit.stopped():
            if not apply_needed_taints(context, report, planner, self._taints, eviction):
                return
        if not self._may_start(eviction):
            return
        eviction.answered = replace(eviction.answered, detail=session.detail(eviction))
        with session.limit.stopped():
            refusal = admit(context, report, session.observation, planner.admission, eviction)
        if refusal is not None:
            planner.reject(eviction, refusal)
            return
        self._waiting.date(eviction)
        self._admitted.append(eviction)
        self._newest = eviction

    def _reserve(self) -> None:
        """Reserve the admitted moves and start their calls, as many as there is room for."""
        if self._undone or self._report.interrupted is not None:
            self._withdraw()
            return
        context, session, report, admission = self._context, self._session, self._report, self._planner.admission
        first = self._calls.room
        moves, self._admitted = self._admitted[:first], self._admitted[first:]
        if not moves:
            return
        with session.limit.stopped():
            refusals = reserve(context, report, admission, moves, session.policy)
            reserved = [each for each, refusal in zip(moves, refusals, strict=True) if refusal is None]
            report.evictions += reserved
            if reserved:
                nodes = {each.node for each in reserved}
                schedule_assessments(context, report, session.observation, session.found, session.policy, nodes=nodes)
            for each in reserved:
                self._calls.start(each)
        for each, refusal in zip(moves, refusals, strict=True):
            if refusal is not None:
                self._refused(each, refusal)

    def _refused(self, eviction: Eviction, refusal: Refusal) -> None:
        """The ledger refused an admitted move."""
        self._planner.admission.cancel_reservation(eviction)
        if eviction is self._newest:
            self._newest = None
            self._planner.reject(eviction, refusal)
        else:
            self._undone[eviction.in_plan.pod_index] = refusal
        if refusal.code in (Reason.LEASE_LOST, Reason.STOPPING) and self._report.interrupted is None:
            interrupt(self._report, self._planner, refusal)

    def _withdraw(self) -> None:
        """Take back the admitted moves: they may be planned again."""
        for each in self._admitted:
            self._planner.admission.cancel_reservation(each)
            self._undone.setdefault(each.in_plan.pod_index, None)
            if each is self._newest:
                self._newest = None
        self._admitted = []

    def _may_start(self, eviction: Eviction) -> bool:
        """Wait for the API server's Retry-After. Before every wait all answers are taken; False where one of them may
        change the plan."""
        clock, due = self._context.clock, self._planner.admission.due(eviction)
        if not isinstance(due, Refusal) and max(due, self._resume_at) > clock.now():
            self._take_answers(self._is_idle)
        if self._undone or self._report.interrupted is not None:
            return False
        with self._session.limit.stopped():
            while (left := self._resume_at - clock.now()) > 0 and self._goes_on():
                clock.sleep(min(left, PAUSE_SECONDS))
        return True

    def _goes_on(self) -> bool:
        lease = self._context.lease
        leads = self._report.dry_run or (lease is not None and lease.holds())
        return leads and not self._context.stopping()

    def _plan_again(self) -> None:
        """Another planner takes the place of this one, without the moves that did not happen."""
        self._take_answers(self._is_idle)
        session, report, taints, before = self._session, self._report, self._taints, self._planner
        undone, self._undone = self._undone, {}
        self._planner = self._waiting.planner = session.planner(
            soft_tainted=taints.soft_tainted | mask(session.observation, report.soft_tainted),
            cordoned=taints.cordoned,
            choice=None if taints.choice is None else replace(taints.choice, script=(), known={}),
            progress=before.progress(undone),
            admission=before.admission,
        )
        if report.interrupted is not None:
            self._planner.stop(report.interrupted)

    # ---- answers

    def _is_idle(self) -> bool:
        return not (self._calls.under_way or self._admitted)

    def _take_answers(self, enough: Callable[[], bool]) -> None:
        """Take the answers that are there, then wait for more until there are enough. No move is left unreserved
        during a wait."""
        while True:
            if self._admitted and not enough():
                self._reserve()
            with self._session.limit.stopped():
                found = self._calls.take(wait=not enough())
                self._record(found)
            for eviction, answer in found:
                self._settle(eviction, answer)
            if not found and not (self._admitted and not enough()):
                return

    def _record(self, answers: Sequence[tuple[Eviction, Answer]]) -> None:
        if answers and (not self._report.dry_run or self._server_dry_run):
            record_answers(self._context, answers, dry_run=self._report.dry_run)
        for eviction, answer in () if self._report.dry_run else answers:
            why = "" if answer.refusal is None else f": {answer.refusal.message}"
            self._context.progress.event(f"{eviction.answered.outcome}: {eviction.full_name} from {eviction.node}{why}")

    def _settle(self, eviction: Eviction, answer: Answer) -> None:
        """Count the move, or undo its reservation."""
        context, report, planner, policy = self._context, self._report, self._planner, self._session.policy
        is_newest = eviction is self._newest
        if is_newest:
            self._newest = None
        if answer.outcome not in DID_NOT_HAPPEN:
            if is_newest:
                planner.accept(eviction)
            return
        refusal = answer.refusal or Refusal.of(Reason.SERVER_ERROR)
        planner.admission.cancel_reservation(eviction)
        throttled = refusal.code is Reason.SERVER_THROTTLED
        pause = answer.retry_after_seconds if throttled and not report.dry_run else None
        again = pause is not None and pause <= policy.safety.max_wait
        if again and pause is not None:
            self._resume_at = max(self._resume_at, context.clock.now() + pause)
        if not is_newest:
            self._undone[eviction.in_plan.pod_index] = None if again else refusal
        elif not again:
            planner.reject(eviction, refusal)
        if refusal.code in WEBHOOK_REFUSALS:
            back_off_service(context, planner.admission, eviction, refusal, policy, dry_run=report.dry_run)
        self._server_errors += throttled or refusal.code in (Reason.SERVER_ERROR, Reason.SERVER_WEBHOOK_FAILED)
        stops = refusal.code in CYCLE_STOPPING_ERRORS and not again
        if (stops or self._server_errors >= MAX_SERVER_ERRORS) and report.interrupted is None:
            interrupt(report, planner, refusal)

    def record_rest(self) -> None:
        """Await the calls in flight and record their answers; there are some only where an error ended the plan. What
        can't be recorded stays counted, and is reconciled."""
        while self._calls.under_way:
            try:
                self._record(self._calls.take(wait=True))
            except Exception as error:  # noqa: BLE001 - the error that ended the plan is raised
                LOG.warning("an eviction's answer could not be recorded: %s", error)


def apply_needed_taints(
    context: CycleContext, report: CycleReport, planner: Planner, taints: AppliedTaints, eviction: Eviction
) -> bool:
    """Apply the soft taints that the move needs. Where that fails the move is refused."""
    needed = planner.taints_of(eviction)
    if not needed or taints.add(needed, context.soft_taint_controller, report):
        return True
    planner.reject(eviction, Refusal.of(Reason.TARGET_NODE_WITHOUT_HEADROOM, "a soft taint could not be applied"))
    return False


def interrupt(report: CycleReport, planner: Planner, refusal: Refusal) -> None:
    """End the plan before it is complete."""
    report.interrupted = refusal
    report.notes.append(f"stopped before the plan was done: {refusal.message}")
    planner.stop(refusal)


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
    identity, reason = eviction.service_identity, particulars(refusal.message, refusal.code.sentence)
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


def make_call(context: CycleContext, eviction: Eviction, *, dry_run: bool, server_dry_run: bool) -> Answer:
    """Call the Eviction API, or begin a surge. A dry run makes no call, a server dry run one with `dryRun=All`.
    Thread-safe."""
    if dry_run and not server_dry_run:
        return Answer(outcome=Outcome.PLANNED)
    if eviction.in_plan.replacement_first and context.surges is not None:
        return context.surges.begin(eviction, server_dry_run=dry_run)
    return context.evictor.evict(eviction, server_dry_run=dry_run)


def record_answers(context: CycleContext, answers: Sequence[tuple[Eviction, Answer]], *, dry_run: bool) -> None:
    """Record the outcomes of calls."""
    for eviction, answer in answers:
        code, detail = (answer.refusal.code, answer.refusal.message) if answer.refusal else (None, "")
        in_background = answer.in_background and context.ledger is not None
        if in_background and eviction.in_plan.replacement_first:
            detail = "its replacement comes first"
        elif in_background and context.ledger is not None:
            deadline, detail = context.ledger.now() + BACKGROUND_SECONDS, "its eviction continues in the background"
            eviction.reserved = replace(eviction.reserved, deadline_at=deadline)
        if dry_run and answer.outcome is Outcome.PLANNED:
            detail = "; ".join(filter(None, (eviction.answered.detail, "the API server would accept it, probed alone")))
        eviction.answered = replace(
            eviction.answered, outcome=answer.outcome, code=code, detail=detail, in_background=in_background
        )
        if dry_run:
            context.records.outcome(eviction)
    if dry_run or context.ledger is None:
        return
    with vital("recording the outcomes of evictions"):
        context.ledger.outcomes([eviction for eviction, _ in answers])
    for eviction, answer in answers:
        if answer.outcome is Outcome.EVICTED and not eviction.target_nodes and eviction.reserved.record is not None:
            # a finished pod has no replacement
            context.ledger.landed(eviction.reserved.record, at=context.ledger.now())
