"""An eviction whose outcome was never written is found again, and reconciled with the API server's state."""

import subprocess
import sys

import pytest

from rebalancer.kube.actions.evict import SEND_SECONDS
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Denied, Scope
from rebalancer.model.errors import ConnectError
from rebalancer.store import status
from rebalancer.store.db.bounded_connection import ANSWER_SECONDS
from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS, reconciled_outcome
from tests.store.builders import NOW, FakeReader, PodSeen, build_eviction, build_report, rate
from tests.store.readers import cycle_report, read_rows
from tests.store.scenarios.ledger_cluster import evict

WEB = Scope("service", "shop/web")

DIES_BEFORE_THE_OUTCOME = """
import os, sys
from rebalancer.store import open_records
from tests.store.builders import CLUSTER, SteppingClock, build_eviction, build_report
records = open_records(url=sys.argv[1], cluster=CLUSTER, clock=SteppingClock())
report = build_report()
records.begin(report)
eviction = build_eviction()
records.planned(report, eviction)
os._exit(9)
"""


@pytest.fixture
def ledger(records, clock):
    return records.ledger(clock=clock)


@pytest.mark.parametrize("was", [Outcome.PLANNED, Outcome.UNKNOWN])
@pytest.mark.parametrize(
    ("pod", "becomes", "says"),
    [
        (None, Outcome.EVICTED, "the pod is gone: counted as evicted"),
        (PodSeen(uid="another"), Outcome.EVICTED, "another pod has its name"),
        (PodSeen(uid="uid-web-1", terminating=True), Outcome.EVICTED, "terminating"),
        (PodSeen(uid="uid-web-1", eviction_in_progress=True), Outcome.EVICTED, "in the background"),
        (PodSeen(uid="uid-web-1"), Outcome.FAILED, "the pod is alive"),
    ],
)
def test_the_pod_decides(was, pod, becomes, says):
    outcome, detail = reconciled_outcome(build_eviction(outcome=was), pod)
    assert outcome is becomes
    assert says in detail


def test_a_process_killed_before_the_outcome_leaves_a_row_that_is_reconciled(url, records, ledger, clock):
    killed = subprocess.run([sys.executable, "-c", DIES_BEFORE_THE_OUTCOME, url], check=False, timeout=60)
    assert killed.returncode == 9

    (row,) = ledger.unreconciled()
    assert (row.pod, row.uid) == ("web-1", "uid-web-1")
    assert (row.answered.outcome, row.reserved.planned_at) == (Outcome.PLANNED, NOW)
    assert status(url).unreconciled == 1
    assert [move.node for move in records.recent_moves(NOW)] == ["n1"]

    clock.sleep(5)
    (known,) = ledger.reconcile_outcomes(FakeReader())

    assert known.answered.outcome is Outcome.EVICTED
    assert ledger.unreconciled() == []
    assert status(url).unreconciled == 0
    (kept,) = cycle_report(records, "c1")["evictions"]
    assert (kept["outcome"], kept["detail"]) == ("evicted", "the pod is gone: counted as evicted")
    assert (kept["answered_at"], kept["reconciled_at"]) == (None, NOW + 5)
    # when it happened is not when we found out
    assert [move.at for move in records.recent_moves(NOW)] == [NOW]


def test_a_pod_that_is_alive_takes_it_back_once_no_call_can_be_on_its_way(records, ledger, clock):
    report = build_report()
    records.begin(report)
    evict(records, report, build_eviction(), Outcome.UNKNOWN, "no answer in time")
    reader = FakeReader(pods={("shop", "web-1"): PodSeen(uid="uid-web-1")})

    clock.sleep(10)
    assert ledger.reconcile_outcomes(reader) == []
    assert len(records.recent_moves(NOW)) == 1

    clock.sleep(CALL_GRACE_SECONDS)
    (known,) = ledger.reconcile_outcomes(reader)
    assert known.answered.outcome is Outcome.FAILED
    assert list(records.recent_moves(NOW)) == []


def test_while_the_api_server_cannot_be_asked_everything_stays(records, ledger):
    report = build_report()
    records.begin(report)
    records.planned(report, build_eviction())
    with pytest.raises(ConnectError):
        ledger.reconcile_outcomes(FakeReader(error=ConnectError("no")))
    assert len(ledger.unreconciled()) == 1


def test_with_nothing_to_reconcile_the_api_server_is_not_read(ledger):
    assert ledger.reconcile_outcomes(FakeReader(error=ConnectError("no"))) == []


@pytest.mark.parametrize("age", [0.0, CALL_GRACE_SECONDS + 10])
def test_a_process_that_was_stopped_while_it_reconciled_overwrites_nothing(url, blue, clock, age):
    eviction = blue.reserve(rate(WEB, 1))
    clock.sleep(age)

    class Stopped(FakeReader):
        """The pod is alive when it is read; then the process stands still, and another one reconciles."""

        def pod_states(self, pods):
            clock.sleep(CALL_GRACE_SECONDS + 10)
            (known,) = blue.ledger.reconcile_outcomes(FakeReader())
            assert known.answered.outcome is Outcome.EVICTED
            return {("shop", "web-1"): PodSeen(uid=eviction.uid)}

    assert blue.ledger.reconcile_outcomes(Stopped()) == []
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert row["outcome"] == "evicted"
    assert {row.counted for row in read_rows(url)} == {True}


def test_a_pod_that_was_alive_before_the_grace_period_ended_proves_nothing_after_it(blue, clock):
    blue.reserve(rate(WEB, 1))

    class Stopped(FakeReader):
        """The process stands still after the pod was read."""

        def pod_states(self, pods):
            clock.sleep(CALL_GRACE_SECONDS + 10)
            return {("shop", "web-1"): PodSeen(uid="uid-web-1")}

    assert blue.ledger.reconcile_outcomes(Stopped()) == []
    assert len(blue.ledger.unreconciled()) == 1


def test_a_call_that_is_held_past_the_lease_stays_counted_until_it_can_not_arrive(blue, clock):
    """Its process has lost the lease; the API server works on the call for as long as it lets requests run."""
    limit = rate(WEB, 1, 3600)
    held = blue.reserve(limit, term=1, pod="web-1")
    blue.answer(held, Outcome.UNKNOWN)
    blue.ledger.fence(2)
    alive = FakeReader(pods={("shop", "web-1"): PodSeen(uid=held.uid)})
    server, sent, committed = 60.0, SEND_SECONDS, ANSWER_SECONDS
    for seconds in (16.0, 45.0, server + sent + committed - 62.0):
        clock.sleep(seconds)
        assert blue.ledger.reconcile_outcomes(alive) == []
        assert isinstance(blue.reserve(limit, term=2, pod="web-2"), Denied)
    # it arrives
    (known,) = blue.ledger.reconcile_outcomes(FakeReader())
    assert known.answered.outcome is Outcome.EVICTED
    assert isinstance(blue.reserve(limit, term=2, pod="web-2"), Denied)


@pytest.mark.parametrize("back_seconds", [5.0, 3600.0, 90000.0])
def test_a_clock_that_is_set_back_in_the_middle_of_a_cycle_refunds_and_opens_nothing(blue, clock, back_seconds):
    """Between a reservation and its answer, and once more between two reservations."""
    limits = (rate(WEB, 3, 3600), rate(WEB, 5, 86400))
    first = blue.reserve(*limits, pod="web-1")
    began = clock.now()
    clock.sleep(-back_seconds)
    blue.answer(first, Outcome.UNKNOWN)
    assert blue.ledger.reconcile_outcomes(FakeReader(pods={("shop", "web-1"): PodSeen(uid=first.uid)})) == []
    for pod in ("web-2", "web-3"):
        assert blue.reserve(*limits, pod=pod).reserved.record
        clock.sleep(-back_seconds)
    assert isinstance(blue.reserve(*limits, pod="web-4"), Denied)
    # the clock is right again: what was reserved before it was wrong counts for its whole window
    clock.at = began + 3600.0 - 1.0
    assert isinstance(blue.reserve(rate(WEB, 1, 3600), pod="web-4"), Denied)
