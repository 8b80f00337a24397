"""What an outcome, a landing, a settling and a newer lease term change."""

import math

import pytest

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Outcome, PodAmount
from rebalancer.model.decisions.limits import EVERY_NODE, Denied, Scope
from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.store.ledger import outcomes
from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS
from tests.builders import set_fields
from tests.store.builders import NOW, FakeReader, PodSeen, build_eviction, build_report, in_flight, rate
from tests.store.readers import cycle_report, read_rows
from tests.store.scenarios.ledger_cluster import evict

WEB = Scope("service", "shop/web")


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [(Outcome.EVICTED, True), (Outcome.UNKNOWN, True), (Outcome.REFUSED, False), (Outcome.FAILED, False)],
)
@pytest.mark.parametrize("through", ["ledger", "records"])
def test_only_what_certainly_did_not_happen_is_refunded(url, blue, clock, outcome, counts, through):
    eviction = blue.reserve(rate(WEB, 1))
    clock.sleep(2)
    set_fields(eviction, outcome=outcome, detail="so it was")
    getattr(blue, through).outcome(eviction)
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(counts, counts)}
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["outcome"], row["detail"], row["answered_at"]) == (outcome.value, "so it was", NOW + 2)
    assert isinstance(blue.reserve(rate(WEB, 1)), Denied) is counts


@pytest.mark.parametrize("outcome", [Outcome.EVICTED, Outcome.UNKNOWN])
def test_an_answer_that_comes_after_the_refund_counts_again(url, blue, clock, outcome):
    eviction = blue.reserve(rate(WEB, 1))
    clock.sleep(CALL_GRACE_SECONDS + 10)
    alive = FakeReader(pods={("shop", eviction.pod): PodSeen(uid=eviction.uid)})
    (refunded,) = blue.ledger.reconcile_outcomes(alive)
    assert refunded.answered.outcome is Outcome.FAILED
    # the process was stopped with its call under way, and goes on
    blue.answer(eviction, outcome)
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(True, True)}
    assert [each.reserved.record for each in blue.ledger.open_evictions()] == [eviction.reserved.record]
    # the eviction happened now, not when it was reserved
    denied = blue.reserve(rate(WEB, 1))
    assert isinstance(denied, Denied)
    assert denied.next_at == NOW + CALL_GRACE_SECONDS + 10 + 60


def away(*_):
    raise ConnectError("the database is away")


def answer_without_a_database(blue, eviction, outcome):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes, "write", away)
        with pytest.raises(ConnectError):
            blue.answer(eviction, outcome)
        if outcome in MAY_HAVE_HAPPENED:
            with pytest.raises(ConnectError):
                blue.ledger.write_unwritten()


@pytest.mark.parametrize("outcome", [Outcome.EVICTED, Outcome.UNKNOWN])
def test_an_answer_after_the_refund_that_could_not_be_written_counts_once_it_is(url, blue, clock, outcome):
    eviction = blue.reserve(rate(WEB, 1))
    clock.sleep(CALL_GRACE_SECONDS + 10)
    blue.ledger.reconcile_outcomes(FakeReader(pods={("shop", eviction.pod): PodSeen(uid=eviction.uid)}))
    answer_without_a_database(blue, eviction, outcome)
    assert [each.uid for each in blue.ledger.unwritten] == [eviction.uid]
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(False, False)}
    clock.sleep(20)
    blue.ledger.write_unwritten()
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(True, True)}
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["outcome"], row["answered_at"]) == (outcome.value, NOW + CALL_GRACE_SECONDS + 30)
    assert blue.ledger.unwritten == ()
    assert isinstance(blue.reserve(rate(WEB, 1)), Denied)


@pytest.mark.parametrize("outcome", [Outcome.EVICTED, Outcome.UNKNOWN])
def test_an_answer_that_could_not_be_written_changes_nothing_that_is_reconciled_as_evicted(blue, clock, outcome):
    eviction = blue.reserve()
    answer_without_a_database(blue, eviction, outcome)
    clock.sleep(5)
    blue.ledger.reconcile_outcomes(FakeReader())
    before = cycle_report(blue.records, blue.report.id)["evictions"]
    assert [each["outcome"] for each in before] == ["evicted"]
    clock.sleep(5)
    blue.ledger.write_unwritten()
    assert cycle_report(blue.records, blue.report.id)["evictions"] == before
    assert blue.ledger.unwritten == ()


def test_an_answer_that_could_not_be_written_is_not_written_into_the_row_of_another_pod(blue):
    eviction, other = blue.reserve(), blue.reserve(uid="another")
    # the database was restored: another eviction has the number
    set_fields(eviction, record=other.reserved.record)
    answer_without_a_database(blue, eviction, Outcome.EVICTED)
    blue.ledger.write_unwritten()
    rows = cycle_report(blue.records, blue.report.id)["evictions"]
    assert {each["outcome"] for each in rows} == {"planned"}
    assert blue.ledger.unwritten == ()


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.FAILED])
def test_an_answer_of_what_did_not_happen_is_left_to_the_reconciliation(blue, outcome):
    answer_without_a_database(blue, blue.reserve(), outcome)
    assert blue.ledger.unwritten == ()


def test_a_refund_can_be_repeated_and_gives_back_one_only(url, blue):
    first, second = blue.reserve(rate(WEB, 2)), blue.reserve(rate(WEB, 2))
    for _ in range(3):
        blue.ledger.cancel_reservation(first.reserved.record)
    assert {row.eviction for row in read_rows(url) if row.counted} == {second.reserved.record}
    assert blue.reserve(rate(WEB, 2)).reserved.record
    assert blue.reserve(rate(WEB, 2)).used == 2
    assert blue.ledger.unreconciled()[0].reserved.record == second.reserved.record


def test_a_refund_keeps_the_api_servers_message(blue):
    eviction = blue.reserve()
    set_fields(eviction, detail="no room in the budget")
    blue.answer(eviction, Outcome.REFUSED)
    blue.ledger.cancel_reservation(eviction.reserved.record)
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["outcome"], row["detail"]) == ("refused", "no room in the budget")


def test_a_closed_eviction_is_no_longer_in_flight_and_keeps_who_when_and_why(url, blue, clock):
    eviction = blue.answer(blue.reserve(rate(WEB, 1), in_flight(WEB, 1)), Outcome.EVICTED)
    clock.sleep(5)
    blue.ledger.close(eviction.reserved.record, by="ana", reason="the service was given up")
    assert list(blue.ledger.open_evictions()) == []
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(True, False)}
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["closed_at"], row["closed_by"], row["closed_reason"]) == (NOW + 5, "ana", "the service was given up")
    assert row["replaced_at"] is None
    # a limit of what is in flight has room again, a rate has not
    assert blue.reserve(in_flight(WEB, 1)).reserved.record
    assert isinstance(blue.reserve(rate(WEB, 1)), Denied)


def test_an_eviction_in_the_background_has_a_deadline_of_its_own(blue, clock):
    eviction = blue.reserve(deadline_at=NOW + 60)
    set_fields(eviction, in_background=True, deadline_at=NOW + 600)
    blue.answer(eviction, Outcome.EVICTED)
    (flying,) = blue.ledger.open_evictions()
    assert (flying.answered.in_background, flying.reserved.deadline_at) == (True, NOW + 600)


def test_an_eviction_that_lost_its_answer_and_goes_on_in_the_background_is_followed_as_such(blue, clock):
    blue.answer(blue.reserve(), Outcome.UNKNOWN)
    clock.sleep(CALL_GRACE_SECONDS + 1)
    seen = FakeReader(pods={("shop", "web-1"): PodSeen(uid="uid-web-1", eviction_in_progress=True)})
    (known,) = blue.ledger.reconcile_outcomes(seen)
    assert (known.answered.outcome, known.answered.in_background) == (Outcome.EVICTED, True)
    (flying,) = blue.ledger.open_evictions()
    assert (flying.answered.outcome, flying.answered.in_background) == (Outcome.EVICTED, True)


def test_an_eviction_that_is_admitted_ends_the_backoff_of_its_service_on_every_node(blue, green):
    for ledger in (blue.ledger, green.ledger):
        for node in ("n1", EVERY_NODE):
            ledger.back_off(service_identity="shop/web", node=node, reason="denied", seconds=lambda count: 600.0)
    blue.answer(blue.reserve(), Outcome.REFUSED)
    assert len(blue.ledger.backoffs()) == 2
    blue.answer(blue.reserve(), Outcome.EVICTED)
    assert [each.node for each in blue.ledger.backoffs()] == ["n1"]
    assert len(green.ledger.backoffs()) == 2


def test_another_clusters_eviction_cannot_be_changed(url, blue, green):
    eviction = blue.reserve()
    for change in (
        lambda: green.answer(eviction, Outcome.FAILED),
        lambda: green.ledger.cancel_reservation(eviction.reserved.record),
        lambda: green.ledger.landed(eviction.reserved.record, at=NOW),
        lambda: green.ledger.late(eviction.reserved.record),
        lambda: green.ledger.close(eviction.reserved.record, by="ana", reason="no"),
    ):
        with pytest.raises(UnsafeDataError, match="not in the database"):
            change()
    assert all(row.counted and row.in_flight for row in read_rows(url))


@pytest.mark.parametrize("was", [Outcome.PLANNED, Outcome.UNKNOWN])
@pytest.mark.parametrize(("alive", "counts"), [(True, False), (False, True)])
def test_reconciling_decides_what_an_unknown_outcome_costs(url, blue, clock, was, alive, counts):
    eviction = blue.reserve()
    if was is Outcome.UNKNOWN:
        blue.answer(eviction, Outcome.UNKNOWN)
    seen = {("shop", "web-1"): PodSeen(uid="uid-web-1")} if alive else {}
    if alive:
        assert blue.ledger.reconcile_outcomes(FakeReader(pods=seen)) == []  # the call may be in progress
    clock.sleep(CALL_GRACE_SECONDS + 1)
    (known,) = blue.ledger.reconcile_outcomes(FakeReader(pods=seen))
    assert known.answered.outcome is (Outcome.FAILED if alive else Outcome.EVICTED)
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(counts, counts)}
    assert len(blue.ledger.open_evictions()) == counts
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["outcome"], row["reconciled_at"]) == ("failed" if alive else "evicted", NOW + CALL_GRACE_SECONDS + 1)
    # the API server is not read when there is nothing to reconcile
    assert blue.ledger.reconcile_outcomes(FakeReader(error=ConnectError("no"))) == []


# -- terms -------------------------------------------------------------------------------------------------------------


def test_a_stale_term_cannot_reserve(url, blue, green):
    assert blue.reserve(term=4).reserved.record
    assert blue.reserve(term=6).reserved.record
    before = read_rows(url)
    for stale in (5, 4, None):
        with pytest.raises(UnsafeDataError, match="stale, the ledger has seen 6"):
            blue.reserve(term=stale)
    assert read_rows(url) == before
    assert blue.reserve(term=6).reserved.record
    # a term is a cluster's own
    assert green.reserve(term=1).reserved.record


def test_a_new_leader_fences_before_its_first_reservation(blue):
    blue.reserve(term=4)
    blue.ledger.fence(5)
    with pytest.raises(UnsafeDataError, match="lease term \\(4\\) is stale"):
        blue.reserve(term=4)
    with pytest.raises(UnsafeDataError):
        blue.ledger.fence(4)
    blue.ledger.fence(5)


def test_a_ledger_belongs_to_one_kubernetes_cluster_of_its_name(blue, green):
    assert blue.ledger.of_cluster("")
    assert blue.ledger.of_cluster("first")
    blue.ledger.fence(1)
    assert blue.ledger.of_cluster("first")
    assert green.ledger.of_cluster("second")
    assert not blue.ledger.of_cluster("second")
    with pytest.raises(UnsafeDataError, match="another Kubernetes cluster that is named"):
        blue.ledger.fence(2)
    blue.ledger.accept_restore(0, until=NOW + 60)
    blue.ledger.fence(2)
    assert not blue.ledger.of_cluster("first")


def test_a_denied_reservation_fences_too(blue):
    blue.reserve(rate(WEB, 1), term=4)
    assert blue.reserve(rate(WEB, 1), term=5).used == 1
    with pytest.raises(UnsafeDataError):
        blue.reserve(term=4)


def test_the_ledger_keeps_what_a_pod_used_of_each_resource(records, clock):
    report = build_report()
    records.begin(report)
    amounts = {"memory": PodAmount(2.5e9, 0.15), "licences": PodAmount(3.0, math.nan)}
    evict(records, report, build_eviction(resource="memory", amounts=amounts))
    evict(records, report, build_eviction(pod="web-2"))

    first, second = records.reading().evictions_from("n1", limit=10)[::-1]

    assert (first.resource, first.amounts["memory"]) == ("memory", amounts["memory"])
    assert first.share_of_node("memory", 0.0) == 0.15
    assert math.isnan(first.share_of_node("licences", 0.0))
    assert (second.resource, second.amounts) == ("", {})
    assert math.isnan(second.share_of_node("memory", 4000.0))
