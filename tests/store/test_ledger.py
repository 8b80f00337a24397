"""Reserving: what counts, for how long, and what is let through."""

import math

import pytest

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Check, Denied, Pause, Scope
from rebalancer.model.errors import UnsafeDataError
from tests.store.builders import CLUSTER, GLOBAL, NOW, build_scopes, in_flight, rate, separation, spacing
from tests.store.readers import cycle_report, read_rows
from tests.store.scenarios.ledger_cluster import OTHER

WEB = Scope("service", "shop/web")


def test_a_reservation_is_one_row_and_an_entry_for_each_scope(url, blue):
    eviction = blue.reserve(rate(GLOBAL, 1), term=7)
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["id"], row["outcome"], row["planned_at"], row["lease_term"]) == (
        eviction.reserved.record,
        "planned",
        NOW,
        7,
    )
    assert (row["service_identity"], row["level"], row["owner_uid"]) == ("shop/web", "gold", "uid-of-web")
    assert (row["ready_before"], row["desired_before"], row["deadline_at"]) == (3, 3, NOW + 600)
    assert (row["target_node"], row["pull_bytes"], row["late"], row["dry_run"]) == ("n2", 5e8, False, False)
    rows = read_rows(url)
    assert sorted(each.scope for each in rows) == sorted(build_scopes())
    assert {(each.at_us, each.counted, each.in_flight) for each in rows} == {(round(NOW * 1e6), True, True)}


def test_the_cluster_is_always_counted(url, blue):
    blue.reserve(rate(GLOBAL, 1), scopes=(GLOBAL, GLOBAL))
    assert sorted(each.scope for each in read_rows(url)) == [("cluster", CLUSTER), ("global", "")]


def test_the_window_slides(blue, clock):
    limit = rate(WEB, 2, 60)
    blue.reserve(limit)
    clock.sleep(40)
    blue.reserve(limit)
    # a fixed window would begin anew at some point here
    for wait, next_at in ((0, NOW + 60), (19.999999, NOW + 60)):
        clock.sleep(wait)
        assert blue.reserve(limit) == Denied(check=limit, used=2, next_at=next_at)
    clock.at = NOW + 60
    assert blue.reserve(limit).reserved.record
    assert blue.reserve(limit) == Denied(check=limit, used=2, next_at=NOW + 100)


def test_a_limit_that_was_lowered_waits_until_enough_have_left(blue, clock):
    for _ in range(4):
        blue.reserve(rate(WEB, 4))
        clock.sleep(1)
    lower = rate(WEB, 2)
    # the third must leave, so that one is left
    assert blue.reserve(lower) == Denied(check=lower, used=4, next_at=NOW + 2 + 60)


@pytest.mark.parametrize("at_most", [0, -1])
def test_a_limit_of_nothing_lets_nothing_through(url, blue, at_most):
    for limit in (rate(WEB, at_most), in_flight(WEB, at_most)):
        assert blue.reserve(limit) == Denied(check=limit, used=0, next_at=None)
    assert read_rows(url) == []


@pytest.mark.parametrize("per", [math.nan, math.inf])
def test_a_broken_duration_closes(blue, per):
    blue.reserve()
    for broken in (rate(WEB, 1, per), spacing(WEB, per)):
        denied = blue.reserve(broken)
        assert (denied.used, denied.next_at) == (1, None)


def test_spacing_looks_at_the_newest_only(blue, clock):
    apart = spacing(WEB, 30)
    blue.reserve(apart)
    clock.sleep(10)
    assert blue.reserve(apart) == Denied(check=apart, used=1, next_at=NOW + 30)
    assert blue.reserve(spacing(Scope("service", "shop/db"), 30), service="db").reserved.record
    clock.sleep(20)
    assert blue.reserve(apart).reserved.record
    assert blue.reserve(apart).next_at == NOW + 60


def test_separation_looks_at_other_clusters_only(blue, green, clock):
    apart = separation(WEB, 300)
    assert blue.reserve(apart).reserved.record
    clock.sleep(1)
    assert blue.reserve(apart).reserved.record
    assert green.reserve(apart) == Denied(check=apart, used=2, next_at=NOW + 1 + 300)
    assert green.reserve(separation(Scope("service", "shop/db"), 300), service="db").reserved.record
    clock.at = NOW + 301
    assert green.reserve(apart).reserved.record


def test_in_flight_frees_up_by_landing_only(blue, clock):
    limit = in_flight(WEB, 1)
    eviction = blue.answer(blue.reserve(limit), Outcome.EVICTED)
    clock.sleep(10_000)
    blue.ledger.late(eviction.reserved.record)
    assert blue.reserve(limit) == Denied(check=limit, used=1, next_at=None)
    blue.ledger.landed(eviction.reserved.record, at=clock.now(), pod="web-9", uid="uid-web-9", node="n3")
    assert blue.reserve(limit).reserved.record
    (row, _) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["replaced_at"], row["late"]) == (NOW + 10_000, True)
    assert (row["replacement_pod"], row["replacement_uid"], row["replacement_node"]) == ("web-9", "uid-web-9", "n3")


def test_of_several_full_checks_the_one_that_frees_up_last_is_reported(blue):
    scopes = build_scopes()
    blue.reserve()
    short, long, never = rate(scopes[2], 1, 10), rate(WEB, 1, 3600), in_flight(GLOBAL, 1)
    assert blue.reserve(short, long, rate(GLOBAL, 5)) == Denied(check=long, used=1, next_at=NOW + 3600)
    assert blue.reserve(short, never, long) == Denied(check=never, used=1, next_at=None)


def test_a_denied_eviction_leaves_nothing_that_counts(url, blue):
    first = blue.reserve(rate(WEB, 1), rate(GLOBAL, 9))
    before = read_rows(url)
    blue.reserve(rate(WEB, 1), rate(GLOBAL, 9), pod="web-2")
    assert read_rows(url) == before
    assert [row["id"] for row in cycle_report(blue.records, blue.report.id)["evictions"]] == [first.reserved.record]


def test_global_and_service_are_shared_and_the_rest_is_not(blue, green):
    blue.reserve()
    for limit in (rate(GLOBAL, 1), rate(WEB, 1)):
        assert green.reserve(limit).check == limit
    assert green.reserve(rate(Scope("node", f"{OTHER}/n1"), 1)).reserved.record


def test_a_check_that_does_not_count_the_eviction_is_a_mistake(blue):
    with pytest.raises(ValueError, match="service shop/db"):
        blue.reserve(rate(Scope("service", "shop/db"), 1))


def test_a_dry_run_reserves_nothing(blue):
    blue.report.dry_run = True
    with pytest.raises(ValueError, match="dry run"):
        blue.reserve()


# -- images to pull ---------------------------------------------------------------------------------------------------

PULLS = Scope("pulls", f"{CLUSTER}/general")
GIB = 2**30


def pulling(amount, at_most=20 * GIB):
    return Check(scope=PULLS, kind="bytes", at_most=at_most, amount=amount)


def pull(cluster, amount, *, at_most=20 * GIB, **fields):
    scopes = (*build_scopes(), PULLS)
    return cluster.reserve(pulling(amount, at_most), scopes=scopes, pull_bytes=amount, **fields)


def test_bytes_of_those_in_flight_add_up_and_free_up_by_landing(blue, clock):
    first = pull(blue, 12.0 * GIB)
    assert pull(blue, 8.0 * GIB).reserved.record  # exactly full
    assert pull(blue, 1.0) == Denied(check=pulling(1.0), used=20 * GIB, next_at=None)
    clock.sleep(10_000)
    assert pull(blue, 1.0).next_at is None
    blue.ledger.landed(first.reserved.record, at=clock.now())
    assert pull(blue, 12.0 * GIB + 1).used == 8 * GIB
    assert pull(blue, 12.0 * GIB).reserved.record


def test_a_single_image_that_is_larger_than_the_limit_is_refused(url, blue):
    assert pull(blue, 25.0 * GIB) == Denied(check=pulling(25.0 * GIB), used=0, next_at=None)
    assert read_rows(url) == []


@pytest.mark.parametrize("amount", [math.nan, math.inf])
def test_an_amount_that_is_not_known_closes(blue, amount):
    denied = pull(blue, amount)
    assert (denied.check.kind, denied.used, denied.next_at) == ("bytes", 0, None)


def test_what_did_not_happen_gives_its_bytes_back(blue):
    blue.answer(pull(blue, 15.0 * GIB), Outcome.REFUSED)
    unknown = blue.answer(pull(blue, 15.0 * GIB), Outcome.UNKNOWN)
    assert pull(blue, 15.0 * GIB).used == 15 * GIB
    blue.ledger.cancel_reservation(unknown.reserved.record)
    assert pull(blue, 15.0 * GIB).reserved.record


def test_bytes_are_of_the_pool_where_they_land(blue, green):
    pull(blue, 15.0 * GIB)
    other = Scope("pulls", f"{CLUSTER}/batch")
    check = Check(scope=other, kind="bytes", at_most=20 * GIB, amount=15.0 * GIB)
    assert blue.reserve(check, scopes=(GLOBAL, other), pull_bytes=15.0 * GIB).reserved.record


# -- pauses -----------------------------------------------------------------------------------------------------------


def test_a_pause_that_was_made_meanwhile_denies(url, blue, clock):
    pause = Pause(scope=WEB, reason="incident 7", created_by="ana", until=NOW + 60)
    blue.ledger.pause(WEB, reason="incident 7", created_by="ana", until=NOW + 60)
    assert blue.reserve(rate(WEB, 1)) == Denied.by(pause)
    assert read_rows(url) == []
    assert blue.reserve(scopes=build_scopes(service="db"), service="db").reserved.record
    clock.at = NOW + 60
    assert blue.reserve(rate(WEB, 1)).reserved.record


def test_a_pause_goes_before_a_full_check(blue):
    blue.reserve()
    blue.ledger.pause(GLOBAL, reason="r", created_by="bo", until=None)
    denied = blue.reserve(in_flight(WEB, 1))
    assert (denied.pause.created_by, denied.next_at) == ("bo", None)
    blue.ledger.resume(GLOBAL)
    assert blue.reserve(in_flight(WEB, 1)).pause is None


@pytest.mark.parametrize("scope", [Scope("pool", f"{CLUSTER}/general"), Scope("cluster", OTHER)])
def test_a_pause_of_another_scope_denies_nothing(blue, scope):
    blue.ledger.pause(scope, reason="r", created_by="bo", until=None)
    assert blue.reserve().reserved.record


def test_a_database_that_lost_reservations_makes_none_until_it_is_accepted(engine, blue, clock):
    for _ in range(2):
        blue.reserve()
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE scopes SET sequence = 1 WHERE kind = 'cluster'")
    for use in (blue.reserve, blue.ledger.check_sequence):
        with pytest.raises(UnsafeDataError, match="1 evictions of this cluster, 2 were reserved"):
            use()
    blue.ledger.accept_restore(2, until=NOW + 60)
    assert blue.reserve().pause.until == NOW + 60
    clock.sleep(61)
    assert blue.reserve().reserved.record
    assert blue.ledger.sequence == blue.ledger.read_sequence() == 3
    blue.ledger.check_sequence()
