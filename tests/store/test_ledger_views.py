"""What the ledger reports: what is in flight, what counts, what others did, how long replacements took."""

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import LedgerEntry, Scope
from tests.store.builders import CLUSTER, GLOBAL, NOW, build_scopes
from tests.store.scenarios.ledger_cluster import Cluster

WEB = Scope("service", "shop/web")


def test_open_evictions_have_what_the_tracker_needs(blue, green, clock):
    first = blue.answer(blue.reserve(), Outcome.EVICTED)
    clock.sleep(1)
    second = blue.reserve(pod="db-0", service="db", ready_before=1)
    green.reserve()
    blue.answer(blue.reserve(pod="web-3"), Outcome.REFUSED)
    blue.ledger.late(first.reserved.record)
    one, two = blue.ledger.open_evictions()
    assert (one.reserved.record, one.pool, one.node, one.replaced.late) == (
        first.reserved.record,
        "general",
        "n1",
        True,
    )
    assert (one.namespace, one.pod, one.uid, one.reserved.planned_at) == ("shop", "web-1", "uid-web-1", NOW)
    assert (one.service.kind, one.service.name, one.service_identity) == ("Deployment", "web", "shop/web")
    assert one.scopes == tuple(sorted(build_scopes()))
    assert one.target_nodes == (("n2", 0.75), ("n3", 0.25))
    assert (one.reserved.deadline_at, one.reserved.ready_before, one.reserved.desired_before, one.pull_bytes) == (
        NOW + 600,
        3,
        3,
        5e8,
    )
    assert (two.reserved.record, two.pod, two.reserved.ready_before, two.replaced.late) == (
        second.reserved.record,
        "db-0",
        1,
        False,
    )
    blue.ledger.landed(first.reserved.record, at=clock.now())
    assert [each.reserved.record for each in blue.ledger.open_evictions()] == [second.reserved.record]


def test_entries_are_what_counts_for_this_cluster(blue, green, clock):
    old = blue.answer(blue.reserve(service="old"), Outcome.EVICTED)
    landed = blue.answer(blue.reserve(service="gone"), Outcome.EVICTED)
    blue.ledger.landed(landed.reserved.record, at=NOW)
    clock.sleep(100)
    blue.answer(blue.reserve(service="refused"), Outcome.REFUSED)
    green.reserve(service="web")
    mine = blue.answer(blue.reserve(service="db"), Outcome.EVICTED)
    blue.ledger.landed(mine.reserved.record, at=clock.now())

    found = blue.ledger.entries(60)

    shared = {GLOBAL, WEB}
    assert [(each.at, each.in_flight) for each in found] == [(NOW, True)] * 5 + [(NOW + 100, True)] * 2 + [
        (NOW + 100, False)
    ] * 5
    assert {each.scope for each in found[:5]} == set(build_scopes(service="old"))
    assert {each.scope for each in found[5:7]} == shared
    assert {each.scope for each in found[7:]} == set(build_scopes(service="db"))
    assert blue.ledger.entries(60, [WEB]) == [LedgerEntry(WEB, NOW + 100, True)]
    assert blue.ledger.entries(60, []) == []
    # with a longer memory the landed one is there too
    assert len(blue.ledger.entries(101)) == 17
    assert old.reserved.record


def test_evicted_pods_are_those_of_this_cluster_that_may_be_gone(blue, green, clock):
    blue.answer(blue.reserve(pod="old"), Outcome.EVICTED)
    clock.sleep(100)
    gone = blue.answer(blue.reserve(pod="web-1"), Outcome.EVICTED)
    blue.ledger.landed(gone.reserved.record, at=clock.now())
    blue.answer(blue.reserve(pod="web-2"), Outcome.UNKNOWN)
    blue.answer(blue.reserve(pod="web-3"), Outcome.REFUSED)
    green.answer(green.reserve(pod="web-4"), Outcome.EVICTED)
    assert [(each.pod, each.node) for each in blue.ledger.evicted(NOW + 50)] == [("web-1", "n1"), ("web-2", "n1")]


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
    assert blue.ledger.services_evicted_remotely(60) == {"shop/web": NOW + 10}
    assert green.ledger.services_evicted_remotely(60) == {"shop/mine": NOW}
    clock.sleep(60)
    assert blue.ledger.services_evicted_remotely(60) == {}


def test_entries_have_what_is_to_be_pulled_while_it_is_in_flight(blue, clock):
    pulls = Scope("pulls", f"{CLUSTER}/general")
    scopes = (*build_scopes(), pulls)
    eviction = blue.reserve(scopes=scopes, pull_bytes=7e9, target_pool="general")
    assert {each.scope: each.pull_bytes for each in blue.ledger.entries(60)} == {
        scope: 7e9 if scope == pulls else 0.0 for scope in scopes
    }
    (flying,) = blue.ledger.open_evictions()
    assert (flying.target_pool, flying.pull_bytes) == ("general", 7e9)
    blue.ledger.landed(eviction.reserved.record, at=clock.now())
    assert {each.pull_bytes for each in blue.ledger.entries(60)} == {0.0}


def landed(cluster, clock, *, after, uid="uid-new", **details):
    eviction = cluster.answer(cluster.reserve(**{"grace_seconds": 30.0, **details}), Outcome.EVICTED)
    clock.sleep(after)
    cluster.ledger.landed(eviction.reserved.record, at=clock.now(), pod="web-9" if uid else "", uid=uid)
    return eviction


def test_start_ups_are_what_the_newest_replacements_of_a_service_took(blue, green, clock):
    for after in (70.0, 50.0, 20.0):
        landed(blue, clock, after=after, deadline_at=clock.now() + 600)
    landed(blue, clock, after=90.0, service="db", deadline_at=clock.now() + 600)
    landed(green, clock, after=95.0, deadline_at=clock.now() + 600)
    landed(blue, clock, after=99.0, uid="", deadline_at=clock.now() + 600)  # scaled down: nothing started
    blue.reserve()  # still in flight
    # the last one was Ready before its predecessor's grace period was over
    assert blue.ledger.start_ups("shop/web") == [-10.0, 20.0, 40.0]
    assert blue.ledger.start_ups("shop/none") == []
    assert blue.ledger.start_ups_by_service() == {"shop/web": [-10.0, 20.0, 40.0], "shop/db": [60.0]}


def test_a_landing_that_was_seen_too_late_gives_no_start_up(blue, clock):
    landed(blue, clock, after=700.0, deadline_at=clock.now() + 600)
    assert blue.ledger.start_ups("shop/web") == []
    slow = blue.answer(blue.reserve(grace_seconds=30.0, deadline_at=clock.now() + 600), Outcome.EVICTED)
    clock.sleep(610)
    blue.ledger.late(slow.reserved.record)  # a look found that it wasn't there
    clock.sleep(20)
    blue.ledger.landed(slow.reserved.record, at=clock.now(), uid="uid-new")
    assert blue.ledger.start_ups("shop/web") == [600.0]


def test_start_ups_are_of_the_last_twenty(blue, clock):
    for number in range(25):
        landed(blue, clock, after=30.0 + number, deadline_at=clock.now() + 600)
    newest = [float(number) for number in range(24, 4, -1)]
    assert blue.ledger.start_ups("shop/web") == newest
    assert blue.ledger.start_ups_by_service() == {"shop/web": newest}


def test_replacements_are_read_by_when_they_were_seen(blue, green, clock):
    landed(blue, clock, after=10.0, uid="first")
    landed(green, clock, after=10.0, uid="elsewhere")
    landed(blue, clock, after=10.0, uid="second")
    assert blue.ledger.replacements(NOW).keys() == {"first", "second"}
    assert blue.ledger.replacements(NOW + 30).keys() == {"second"}
    assert blue.ledger.replacements(NOW + 31) == {}
