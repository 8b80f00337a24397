"""Reserving, refunding and landing: what counts, for how long, and who is let through."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.model.limits import Denied, Entry, Scope
from rebalancer.model.plan import Outcome
from rebalancer.store import SqlLedger, SqlRecords, open_engine, settle_unsettled
from rebalancer.store.engine import write
from tests.real.postgres_server import PostgresServer
from tests.store.builders import (
    CLUSTER,
    GLOBAL,
    NOW,
    FakeReader,
    PodSeen,
    SteppingClock,
    build_details,
    build_eviction,
    build_report,
    build_scopes,
    in_flight,
    rate,
    separation,
    spacing,
)
from tests.store.ledger_reader import raw_connection, read_rows

WEB = Scope("service", "shop/web")
OTHER = "green"


@pytest.fixture
def engine(url):
    opened = open_engine(url)
    yield opened
    opened.dispose()


class Cluster:
    """One cluster's side of the ledger, with a cycle that was begun."""

    def __init__(self, engine, clock, name=CLUSTER):
        self.name = name
        self.ledger = SqlLedger(engine=engine, cluster=name, clock=clock)
        self.records = SqlRecords(engine=engine, cluster=name, clock=clock or SteppingClock())
        self.report = build_report(cycle=f"cycle-of-{name}")
        self.records.begin(self.report)

    def reserve(self, *checks, pod="web-1", node="n1", service="web", term=None, scopes=None, **details):
        eviction = build_eviction(pod=pod, node=node, service=service)
        answer = self.ledger.reserve(
            self.report,
            eviction,
            scopes=scopes or build_scopes(cluster=self.name, node=node, service=service),
            checks=checks,
            term=term,
            details=build_details(service=service, **details),
        )
        if isinstance(answer, Denied):
            return answer
        eviction.record = answer
        return eviction

    def answer(self, eviction, outcome):
        eviction.outcome = outcome
        self.ledger.outcome(eviction)
        return eviction


@pytest.fixture
def blue(engine, clock):
    return Cluster(engine, clock)


@pytest.fixture
def green(engine, clock):
    return Cluster(engine, clock, OTHER)


def test_a_reservation_is_one_row_and_an_entry_for_each_scope(url, blue):
    eviction = blue.reserve(rate(GLOBAL, 1), term=7)
    (row,) = blue.records.cycle_report(blue.report.id)["evictions"]
    assert (row["id"], row["outcome"], row["planned_at"], row["lease_term"]) == (eviction.record, "planned", NOW, 7)
    assert (row["service_identity"], row["level"], row["owner_uid"]) == ("shop/web", "gold", "uid-of-web")
    assert (row["ready_before"], row["wanted_before"], row["deadline_at"]) == (3, 3, NOW + 600)
    assert (row["landing_node"], row["pull_bytes"], row["late"], row["dry_run"]) == ("n2", 5e8, False, False)
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
    assert blue.reserve(limit).record
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
    assert blue.reserve(spacing(Scope("service", "shop/db"), 30), service="db").record
    clock.sleep(20)
    assert blue.reserve(apart).record
    assert blue.reserve(apart).next_at == NOW + 60


def test_separation_looks_at_other_clusters_only(blue, green, clock):
    apart = separation(WEB, 300)
    assert blue.reserve(apart).record
    clock.sleep(1)
    assert blue.reserve(apart).record
    assert green.reserve(apart) == Denied(check=apart, used=2, next_at=NOW + 1 + 300)
    assert green.reserve(separation(Scope("service", "shop/db"), 300), service="db").record
    clock.at = NOW + 301
    assert green.reserve(apart).record


def test_in_flight_frees_up_by_landing_only(blue, clock):
    limit = in_flight(WEB, 1)
    eviction = blue.answer(blue.reserve(limit), Outcome.EVICTED)
    clock.sleep(10_000)
    blue.ledger.late(eviction.record)
    assert blue.reserve(limit) == Denied(check=limit, used=1, next_at=None)
    blue.ledger.landed(eviction.record, at=clock.now(), pod="web-9", uid="uid-web-9", node="n3")
    assert blue.reserve(limit).record
    (row, _) = blue.records.cycle_report(blue.report.id)["evictions"]
    assert (row["replaced_at"], row["late"]) == (NOW + 10_000, True)
    assert (row["replacement_pod"], row["replacement_uid"], row["replacement_node"]) == ("web-9", "uid-web-9", "n3")


def test_of_several_full_checks_the_one_that_frees_up_last_is_told(blue):
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
    assert [row["id"] for row in blue.records.cycle_report(blue.report.id)["evictions"]] == [first.record]


def test_global_and_service_are_shared_and_the_rest_is_not(blue, green):
    blue.reserve()
    for limit in (rate(GLOBAL, 1), rate(WEB, 1)):
        assert green.reserve(limit).check == limit
    assert green.reserve(rate(Scope("node", f"{OTHER}/n1"), 1)).record


def test_a_check_that_does_not_count_the_eviction_is_a_mistake(blue):
    with pytest.raises(ValueError, match="service shop/db"):
        blue.reserve(rate(Scope("service", "shop/db"), 1))


def test_a_dry_run_reserves_nothing(blue):
    blue.report.dry_run = True
    with pytest.raises(ValueError, match="dry run"):
        blue.reserve()


# -- outcomes ---------------------------------------------------------------------------------------------------------


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
        blue.ledger.refund(first.record)
    assert {row.eviction for row in read_rows(url) if row.counted} == {second.record}
    assert blue.reserve(rate(WEB, 2)).record
    assert blue.reserve(rate(WEB, 2)).used == 2
    assert blue.records.unsettled()[0].record == second.record


def test_a_refund_keeps_what_the_api_server_said(blue):
    eviction = blue.reserve()
    eviction.detail = "no room in the budget"
    blue.answer(eviction, Outcome.REFUSED)
    blue.ledger.refund(eviction.record)
    (row,) = blue.records.cycle_report(blue.report.id)["evictions"]
    assert (row["outcome"], row["detail"]) == ("refused", "no room in the budget")


def test_another_clusters_eviction_cannot_be_changed(url, blue, green):
    eviction = blue.reserve()
    for change in (
        lambda: green.answer(eviction, Outcome.FAILED),
        lambda: green.ledger.refund(eviction.record),
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


def test_a_replacement_that_the_records_saw_is_in_flight_no_more(url, blue):
    eviction = blue.reserve()
    blue.records.replaced(eviction.record, at=NOW + 5)
    assert {(row.counted, row.in_flight) for row in read_rows(url)} == {(True, False)}


# -- terms ------------------------------------------------------------------------------------------------------------


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


# -- views ------------------------------------------------------------------------------------------------------------


def test_open_evictions_tell_what_the_tracker_needs(blue, green, clock):
    first = blue.answer(blue.reserve(), Outcome.EVICTED)
    clock.sleep(1)
    second = blue.reserve(pod="db-0", service="db", ready_before=1)
    green.reserve()
    blue.answer(blue.reserve(pod="web-3"), Outcome.REFUSED)
    blue.ledger.late(first.record)
    one, two = blue.ledger.open_evictions()
    assert (one.record, one.cluster, one.pool, one.node, one.late) == (first.record, CLUSTER, "general", "n1", True)
    assert (one.namespace, one.pod, one.uid, one.at) == ("shop", "web-1", "uid-web-1", NOW)
    assert (one.service_kind, one.service_name, one.service_identity) == ("Deployment", "web", "shop/web")
    assert (one.deadline_at, one.ready_before, one.wanted_before, one.pull_bytes) == (NOW + 600, 3, 3, 5e8)
    assert (two.record, two.pod, two.ready_before, two.late) == (second.record, "db-0", 1, False)
    blue.ledger.landed(first.record, at=clock.now())
    assert [each.record for each in blue.ledger.open_evictions()] == [second.record]


def test_entries_are_what_counts_for_this_cluster(blue, green, clock):
    old = blue.answer(blue.reserve(service="old"), Outcome.EVICTED)
    landed = blue.answer(blue.reserve(service="gone"), Outcome.EVICTED)
    blue.ledger.landed(landed.record, at=NOW)
    clock.sleep(100)
    blue.answer(blue.reserve(service="refused"), Outcome.REFUSED)
    green.reserve(service="web")
    mine = blue.answer(blue.reserve(service="db"), Outcome.EVICTED)
    blue.ledger.landed(mine.record, at=clock.now())

    found = blue.ledger.entries(60)

    shared = {GLOBAL, WEB}
    assert [(each.at, each.in_flight) for each in found] == [(NOW, True)] * 5 + [(NOW + 100, True)] * 2 + [
        (NOW + 100, False)
    ] * 5
    assert {each.scope for each in found[:5]} == set(build_scopes(service="old"))
    assert {each.scope for each in found[5:7]} == shared
    assert {each.scope for each in found[7:]} == set(build_scopes(service="db"))
    assert blue.ledger.entries(60, [WEB]) == [Entry(WEB, NOW + 100, True)]
    assert blue.ledger.entries(60, []) == []
    # with a longer memory the landed one is there too
    assert len(blue.ledger.entries(101)) == 17
    assert old.record


def test_a_cluster_whose_name_begins_like_ours_is_another(blue, engine, clock):
    longer = Cluster(engine, clock, f"{CLUSTER}-2")
    longer.reserve()
    assert {each.scope.kind for each in blue.ledger.entries(60)} == {"global", "service"}


def test_services_evicted_elsewhere(blue, green, clock):
    blue.reserve(service="mine")
    green.reserve(service="web")
    green.answer(green.reserve(service="refused"), Outcome.REFUSED)
    clock.sleep(10)
    green.reserve(service="web")
    assert blue.ledger.services_evicted_elsewhere(60) == {"shop/web": NOW + 10}
    assert green.ledger.services_evicted_elsewhere(60) == {"shop/mine": NOW}
    clock.sleep(60)
    assert blue.ledger.services_evicted_elsewhere(60) == {}


# -- clocks and locks -------------------------------------------------------------------------------------------------


def test_without_a_clock_the_databases_is_used(url, engine):
    cluster = Cluster(engine, None)
    before = time.time()
    cluster.reserve(rate(WEB, 1))
    assert before - 0.002 <= read_rows(url)[0].at_us / 1e6 <= time.time() + 0.002
    assert abs(cluster.ledger.now() - time.time()) < 1
    denied = cluster.reserve(rate(WEB, 1))
    assert before + 59.9 < denied.next_at < time.time() + 60.1


def test_a_clock_that_is_set_back_opens_nothing(blue, clock):
    for _ in range(2):
        blue.reserve(rate(WEB, 2))
    clock.at = NOW - 3600
    assert blue.reserve(rate(WEB, 2)) == Denied(check=rate(WEB, 2), used=2, next_at=NOW + 60)


def hold_global(url):
    """Something else that holds the lock which every reservation needs; call the answer to let go."""
    holder = raw_connection(url)
    connection = holder.__enter__()
    connection.execute("BEGIN IMMEDIATE" if "sqlite" in url else "BEGIN")
    if "sqlite" not in url:
        connection.execute("SELECT * FROM scopes WHERE kind = 'global' FOR UPDATE")

    def let_go():
        connection.execute("COMMIT")
        holder.__exit__(None, None, None)

    return let_go


def test_the_clock_is_read_after_the_locks_are_held(url, engine):
    """Read before, an entry could be written behind the back of one that waited for a shorter time."""
    cluster = Cluster(engine, None)
    cluster.reserve()
    let_go = hold_global(url)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cluster.reserve, pod="web-2")
        time.sleep(0.5)
        freed = datetime.now(UTC).timestamp()
        let_go()
        record = waiting.result().record
    (at,) = {row.at_us for row in read_rows(url) if row.eviction == record}
    assert at / 1e6 >= freed - 0.002


def test_threads_of_two_clusters_never_pass_a_limit_together(url, blue, green):
    limit = rate(GLOBAL, 10)
    barrier = threading.Barrier(8)

    def one(number):
        barrier.wait(10)
        cluster = (blue, green)[number % 2]
        services = [f"s{each}" for each in ((number, 9) if number % 3 else (9, number))]
        return [cluster.reserve(limit, pod=f"p{number}", service=each) for each in services]

    with ThreadPoolExecutor(8) as pool:
        answers = [each for pair in pool.map(one, range(8)) for each in pair]
    assert sum(isinstance(each, Denied) for each in answers) == 6
    assert len({each.record for each in answers if not isinstance(each, Denied)}) == 10
    assert sum(row.scope == GLOBAL for row in read_rows(url)) == 10


@pytest.mark.real
def test_a_server_that_is_stricter_by_default_counts_right_too(postgres: PostgresServer, postgres_url):
    """Under repeatable read a transaction that waited for a lock would count what was there before it waited."""
    from rebalancer.store import upgrade

    upgrade(postgres_url)
    name = postgres_url.rpartition("/")[2]
    postgres.admin(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'repeatable read'")
    engine = open_engine(postgres_url)
    test_threads_of_two_clusters_never_pass_a_limit_together(
        postgres_url, Cluster(engine, SteppingClock()), Cluster(engine, SteppingClock(), OTHER)
    )
    engine.dispose()


@pytest.mark.real
def test_a_deadlock_is_tried_again(postgres_url):
    from rebalancer.store import upgrade

    upgrade(postgres_url)
    engine = open_engine(postgres_url)
    cluster = Cluster(engine, SteppingClock())
    cluster.reserve()

    # somebody who locks in another order: the cluster's row is held, and the global one is wanted
    with raw_connection(postgres_url) as other, ThreadPoolExecutor(2) as pool:
        other.execute("SET deadlock_timeout = '60s'")  # so that the reservation is the victim
        other.execute("BEGIN")
        other.execute("SELECT * FROM scopes WHERE kind = 'global' FOR UPDATE")
        waiting = pool.submit(cluster.reserve, pod="web-2")
        time.sleep(0.3)
        # it holds its cluster by now
        wanted = pool.submit(other.execute, "SELECT * FROM scopes WHERE kind = 'cluster' FOR UPDATE")
        wanted.result(timeout=30)
        other.execute("COMMIT")
        assert waiting.result(timeout=30).record
    engine.dispose()


def test_a_ledger_that_cannot_be_asked_reserves_nothing(url, engine, blue):
    write(engine, lambda connection: connection.execute(text("DROP TABLE entries")))
    with pytest.raises(Exception, match="entries") as told:
        blue.reserve()
    assert not isinstance(told.value, OperationalError)


def test_a_locked_sqlite_file_reserves_nothing(sqlite_url):
    from rebalancer.store import upgrade

    upgrade(sqlite_url)
    engine = open_engine(sqlite_url, busy_timeout_seconds=0.1)
    cluster = Cluster(engine, SteppingClock())
    let_go = hold_global(sqlite_url)
    with pytest.raises(ConnectError, match="locked by another process"):
        cluster.reserve()
    let_go()
    assert cluster.reserve().record
    engine.dispose()
