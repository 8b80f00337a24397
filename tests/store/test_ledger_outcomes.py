"""What an outcome, a landing, a settling and a newer lease term change."""

import pytest

from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.model.limits import Denied, Scope
from rebalancer.model.plan import Outcome
from rebalancer.store import settle_unsettled
from tests.store.builders import NOW, FakeReader, PodSeen, rate
from tests.store.ledger_reader import read_rows

WEB = Scope("service", "shop/web")


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [(Outcome.EVICTED, True), (Outcome.UNKNOWN, True), (Outcome.REFUSED, False), (Outcome.FAILED, False)],
)
@pytest.mark.parametrize("through", ["ledger", "records"])
def test_only_what_certainly_did_not_happen_is_refunded(url, blue, clock, outcome, counts, through):
    eviction = blue.reserve(rate(WEB, 1))
    clock.sleep(2)
    eviction.outcome, eviction.detail = outcome, "so it was"
    getattr(blue, through).outcome(eviction)
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(counts, counts)}
    (row,) = blue.records.cycle_report(blue.report.id)["evictions"]
    assert (row["outcome"], row["detail"], row["answered_at"]) == (outcome.value, "so it was", NOW + 2)
    assert isinstance(blue.reserve(rate(WEB, 1)), Denied) is counts


def test_a_refund_can_be_repeated_and_gives_back_one_only(url, blue):
    first, second = blue.reserve(rate(WEB, 2)), blue.reserve(rate(WEB, 2))
    for _ in range(3):
        blue.ledger.cancel_reservation(first.record)
    assert {row.eviction for row in read_rows(url) if row.counted} == {second.record}
    assert blue.reserve(rate(WEB, 2)).record
    assert blue.reserve(rate(WEB, 2)).used == 2
    assert blue.records.unsettled()[0].record == second.record


def test_a_refund_keeps_what_the_api_server_said(blue):
    eviction = blue.reserve()
    eviction.detail = "no room in the budget"
    blue.answer(eviction, Outcome.REFUSED)
    blue.ledger.cancel_reservation(eviction.record)
    (row,) = blue.records.cycle_report(blue.report.id)["evictions"]
    assert (row["outcome"], row["detail"]) == ("refused", "no room in the budget")


def test_another_clusters_eviction_cannot_be_changed(url, blue, green):
    eviction = blue.reserve()
    for change in (
        lambda: green.answer(eviction, Outcome.FAILED),
        lambda: green.ledger.cancel_reservation(eviction.record),
        lambda: green.ledger.landed(eviction.record, at=NOW),
        lambda: green.ledger.late(eviction.record),
    ):
        with pytest.raises(UnsafeDataError, match="not in the database"):
            change()
    assert all(row.counted and row.in_flight for row in read_rows(url))


@pytest.mark.parametrize(("alive", "counts"), [(True, False), (False, True)])
def test_settling_decides_what_an_unknown_one_costs(url, blue, clock, alive, counts):
    eviction = blue.reserve()
    blue.answer(eviction, Outcome.UNKNOWN)
    clock.sleep(61)
    seen = {("shop", "web-1"): PodSeen(uid="uid-web-1")} if alive else {}
    (settled,) = settle_unsettled(records=blue.records, reader=FakeReader(pods=seen), now=clock.now())
    assert settled.outcome is (Outcome.FAILED if alive else Outcome.EVICTED)
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(counts, counts)}
    assert len(blue.ledger.open_evictions()) == counts


@pytest.mark.parametrize(("alive", "counts"), [(True, False), (False, True)])
def test_the_ledger_settles_by_itself_what_has_no_outcome_for_a_minute(url, blue, clock, alive, counts):
    """As each cycle asks it to."""
    blue.reserve()
    seen = {("shop", "web-1"): PodSeen(uid="uid-web-1")} if alive else {}
    if alive:
        assert blue.ledger.settle_unsettled(FakeReader(pods=seen)) == 0  # the call may be on its way
    clock.sleep(61)
    assert blue.ledger.settle_unsettled(FakeReader(pods=seen)) == 1
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(counts, counts)}
    (row,) = blue.records.cycle_report(blue.report.id)["evictions"]
    assert (row["outcome"], row["settled_at"]) == ("failed" if alive else "evicted", NOW + 61)
    # nobody is asked when there is nothing to settle
    assert blue.ledger.settle_unsettled(FakeReader(error=ConnectError("no"))) == 0


def test_a_replacement_that_the_records_saw_is_in_flight_no_more(url, blue):
    eviction = blue.reserve()
    blue.records.replaced(eviction.record, at=NOW + 5)
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(True, False)}


# -- terms -------------------------------------------------------------------------------------------------------------


def test_a_stale_term_cannot_reserve(url, blue, green):
    assert blue.reserve(term=4).record
    assert blue.reserve(term=6).record
    before = read_rows(url)
    for stale in (5, 4, None):
        with pytest.raises(UnsafeDataError, match="stale, the ledger has seen 6"):
            blue.reserve(term=stale)
    assert read_rows(url) == before
    assert blue.reserve(term=6).record
    # a term is a cluster's own
    assert green.reserve(term=1).record


def test_a_new_leader_fences_before_its_first_reservation(blue):
    blue.reserve(term=4)
    blue.ledger.fence(5)
    with pytest.raises(UnsafeDataError, match="lease term \\(4\\) is stale"):
        blue.reserve(term=4)
    with pytest.raises(UnsafeDataError):
        blue.ledger.fence(4)
    blue.ledger.fence(5)


def test_a_denied_reservation_fences_too(blue):
    blue.reserve(rate(WEB, 1), term=4)
    assert blue.reserve(rate(WEB, 1), term=5).used == 1
    with pytest.raises(UnsafeDataError):
        blue.reserve(term=4)
