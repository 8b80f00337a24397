"""Waiting moves: when the next cycle for them is due, and cycles in a row until none waits.

A plan leaves a move to the next cycle when only a short wait bars it (`CycleReport.waiting`). That cycle plans again,
on new measurements, as soon as a replacement is Ready, or at the earliest time at which one of the moves is expected to
be possible. The wait ends when no pod was evicted for the policy's patience.
"""

import math
from dataclasses import dataclass

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.ledger_state import any_landed
from rebalancer.cycle.observation import ANY
from rebalancer.cycle.request import CycleRequest
from rebalancer.cycle.run import begin_report, execute_cycle
from rebalancer.model.eviction import DID_NOT_HAPPEN
from rebalancer.model.plan import CycleReport
from rebalancer.policy import RebalancerPolicy

PATIENCE_SECONDS = 120.0
"""Longest time without an eviction for which moves are waited for."""

PAUSE_SECONDS = 5.0
"""Shortest time from a cycle to the next for its waiting moves, and between two reads of the cluster."""

LONGEST_PAUSE_SECONDS = 30.0
"""Longest time between two reads of a cluster that is not watched: each read lists all pods."""


@dataclass(slots=True, kw_only=True)
class WaitingMoves:
    """The moves that a cycle left waiting. Times are seconds since the epoch."""

    request: CycleRequest
    """Scope of the cycle."""
    since: float
    """End of the last cycle that evicted a pod, or of the first without one that left moves waiting."""
    ends: float
    """The moves are left to the next regular cycle from then on."""
    not_before: float
    """Earliest expected time of a move; infinite = not known."""
    next_read: float
    """The cluster is not read before it."""
    in_vain: int = 0
    """Cycles in a row for these moves that evicted nothing."""

    def due(self, context: CycleContext, *, now: float, pause: float = PAUSE_SECONDS) -> bool:
        """Whether the next cycle should run: a move is expected to be possible, or a replacement is Ready that the
        ledger counts as in flight. The cluster is read again after `pause` seconds.

        Raises RebalancerError where the cluster or the ledger cannot be read.
        """
        if now >= self.not_before:
            return True
        if now < self.next_read:
            return False
        self.next_read = now + pause
        return any_landed(context.ledger, context.cluster)


def waiting_moves(
    report: CycleReport,
    policy: RebalancerPolicy,
    *,
    request: CycleRequest = ANY,
    now: float,
    before: WaitingMoves | None = None,
) -> WaitingMoves | None:
    """The moves that a finished cycle leaves waiting; None without one, and at the end of the policy's patience.

    `before`: those for which the cycle ran. They wait on after a cycle that was stopped, which decided nothing. A dry
    run leaves none: it evicts nothing, so the next one would plan the same.
    """
    stopped = report.stopped is not None and before is not None
    if report.dry_run or report.interrupted is not None or not (report.waiting or stopped):
        return None
    evicted = any(each.outcome not in DID_NOT_HAPPEN for each in report.evictions)
    since = now if before is None or evicted else before.since
    in_vain = 0 if before is None or evicted else before.in_vain + 1
    ends = since + patience_seconds(policy)
    # an expected time is an estimate: the pause doubles with each cycle that it started in vain
    earliest = now + PAUSE_SECONDS * 2**in_vain
    expected = [each.not_before for each in report.waiting if each.not_before is not None]
    not_before = earliest if stopped else max(min(expected, default=math.inf), earliest)
    if now + PAUSE_SECONDS > ends:
        return None
    return WaitingMoves(
        request=request,
        since=since,
        ends=ends,
        not_before=not_before,
        next_read=now + PAUSE_SECONDS,
        in_vain=in_vain,
    )


def patience_seconds(policy: RebalancerPolicy) -> float:
    """Longest time without an eviction for which moves are waited for."""
    del policy
    return PATIENCE_SECONDS


def run_cycles(
    context: CycleContext,
    policy: RebalancerPolicy,
    reports: list[CycleReport],
    *,
    dry_run: bool = False,
    wait: bool = True,
) -> None:
    """A cycle, and with `wait` further ones while moves wait. Each report is appended when its cycle begins.

    Raises as `run_cycle`.
    """
    waiting: WaitingMoves | None = None
    while True:
        report = begin_report(context, policy, dry_run=dry_run)
        reports.append(report)
        execute_cycle(context, policy, report)
        waiting = waiting_moves(report, policy, now=context.clock.now(), before=waiting) if wait else None
        if waiting is None or not _wait(context, waiting):
            break
    if report.waiting and not report.dry_run:
        report.notes.append(f"{len(report.waiting)} planned move(s) still wait and were not made")


def _wait(context: CycleContext, waiting: WaitingMoves) -> bool:
    """Wait for the next cycle; whether it is due before patience ends."""
    label, began, pause = "waiting moves", context.clock.now(), PAUSE_SECONDS
    seconds = max(round(waiting.ends - began), 1)
    try:
        while (now := context.clock.now()) < waiting.ends:
            context.progress.step(label, min(round(now - began), seconds - 1), seconds)
            if waiting.due(context, now=now, pause=pause):
                return True
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
            context.clock.sleep(max(min(waiting.next_read, waiting.not_before, waiting.ends) - now, 0.1))
    finally:
        context.progress.step(label, seconds, seconds)
    return False
