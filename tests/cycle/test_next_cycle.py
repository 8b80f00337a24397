"""When the next cycle for waiting moves is due, and that the wait ends."""

import math
from typing import Any

import pytest

from rebalancer.cycle.next_cycle import PATIENCE_SECONDS, PAUSE_SECONDS, WaitingMoves, waiting_moves
from rebalancer.cycle.request import CycleRequest, RequestScope
from rebalancer.model.eviction import Outcome
from rebalancer.model.plan import CycleReport, Trigger
from rebalancer.model.reason import Reason, Refusal
from tests.builders import a_policy, an_eviction

NOW = 1_790_000_000.0
POLICY = a_policy()
REQUEST = CycleRequest(trigger=Trigger.ALERT, scopes=frozenset({RequestScope(nodes=frozenset({"n1"}))}))
NO_CONTEXT: Any = None


def a_report(*, waits: bool = True, evicted: bool = False, not_before: float | None = None, **fields: Any) -> Any:
    return CycleReport(
        cluster="test",
        trigger=Trigger.ALERT,
        id="c",
        started_at=NOW,
        waiting=[an_eviction(waits_for="shop/web-1 to be Ready", not_before=not_before)] if waits else [],
        evictions=[an_eviction(outcome=Outcome.EVICTED)] if evicted else [],
        **{"dry_run": False, **fields},
    )


def left(report: CycleReport, *, now: float = NOW, before: WaitingMoves | None = None) -> WaitingMoves | None:
    return waiting_moves(report, POLICY, request=REQUEST, now=now, before=before)


def moves_of(report: CycleReport, **fields: Any) -> WaitingMoves:
    moves = left(report, **fields)
    assert moves is not None
    return moves


def test_the_next_cycle_has_the_scope_and_trigger_of_the_plan_that_waits() -> None:
    assert moves_of(a_report()).request == REQUEST


def test_it_is_due_at_the_earliest_expected_time() -> None:
    report = a_report(evicted=True)
    report.waiting = [an_eviction(not_before=NOW + seconds) for seconds in (70.0, 40.0)]
    moves = moves_of(report)
    assert moves.not_before == NOW + 40.0
    moves.next_read = math.inf
    assert not moves.due(NO_CONTEXT, now=NOW + 39.0)
    assert moves.due(NO_CONTEXT, now=NOW + 40.0)


def test_neither_a_cycle_nor_a_read_of_the_cluster_follows_at_once() -> None:
    moves = moves_of(a_report(not_before=NOW - 10.0))
    assert not moves.due(NO_CONTEXT, now=NOW + PAUSE_SECONDS - 0.1)
    assert moves.due(NO_CONTEXT, now=NOW + PAUSE_SECONDS)


@pytest.mark.parametrize(
    "report",
    [
        a_report(waits=False, evicted=True),
        a_report(evicted=True, dry_run=True),
        a_report(evicted=True, interrupted=Refusal.of(Reason.SERVER_THROTTLED)),
        a_report(waits=False, stopped=Refusal.of(Reason.COVERAGE_TOO_LOW)),
    ],
    ids=["nothing waits", "dry run", "interrupted", "stopped before anything waited"],
)
def test_no_cycle_follows(report: CycleReport) -> None:
    assert left(report) is None


def test_a_cycle_that_was_stopped_leaves_the_moves_waiting() -> None:
    before = moves_of(a_report(evicted=True))
    now = NOW + 30.0
    moves = moves_of(a_report(waits=False, stopped=Refusal.of(Reason.COVERAGE_TOO_LOW)), now=now, before=before)
    assert (moves.since, moves.ends) == (before.since, before.ends)
    assert now < moves.not_before < moves.ends


def test_patience_counts_from_the_last_eviction() -> None:
    first = moves_of(a_report(evicted=True))
    assert first.ends == NOW + PATIENCE_SECONDS
    in_vain = moves_of(a_report(), now=NOW + 60.0, before=first)
    assert in_vain.ends == first.ends
    again = moves_of(a_report(evicted=True), now=NOW + 90.0, before=in_vain)
    assert again.ends == NOW + 90.0 + PATIENCE_SECONDS
    assert left(a_report(), now=first.ends, before=in_vain) is None


def test_expected_times_that_never_come_true_cost_few_cycles() -> None:
    began, moves = [NOW], left(a_report(evicted=True, not_before=NOW))
    while moves is not None and moves.not_before < moves.ends:
        began.append(moves.not_before)
        moves = left(a_report(not_before=began[-1]), now=began[-1], before=moves)
    assert [at - NOW for at in began] == [0.0, 5.0, 15.0, 35.0, 75.0]
