"""Pauses, give-up memory, ready replicas and stated limits come back as they were, to whom they concern."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rebalancer.model.decisions.limits import EvictionBackoff, Pause, RemoteReadiness, Scope
from rebalancer.store import SqlLedger
from tests.store.builders import CLUSTER, GLOBAL, NOW

OWN = Scope("cluster", CLUSTER)


@pytest.fixture
def ledger(records, clock):
    return records.ledger(clock=clock)


@pytest.fixture
def green(records, clock):
    return SqlLedger(engine=records._engine, cluster="green", clock=clock)


def test_a_pause_ends_by_itself_or_by_hand(ledger, clock):
    web = Scope("service", "shop/web")
    ledger.pause(OWN, reason="release day", created_by="ana", until=NOW + 60)
    clock.sleep(1)
    ledger.pause(web, reason="incident 7", created_by="bo", until=None)
    assert ledger.pauses() == [
        Pause(scope=OWN, reason="release day", created_by="ana", until=NOW + 60),
        Pause(scope=web, reason="incident 7", created_by="bo", until=None),
    ]
    clock.at = NOW + 60
    assert [each.scope for each in ledger.pauses()] == [web]
    assert ledger.resume(OWN) == 0
    assert ledger.resume(web) == 1
    assert ledger.resume(web) == 0
    assert ledger.pauses() == []


def test_pausing_again_replaces_the_pause(ledger):
    ledger.pause(OWN, reason="short", created_by="ana", until=NOW + 60)
    ledger.pause(OWN, reason="longer", created_by="bo", until=NOW + 600)
    (pause,) = ledger.pauses()
    assert (pause.reason, pause.until) == ("longer", NOW + 600)
    assert ledger.resume(OWN) == 1
    assert ledger.pauses() == []


def test_pauses_concern_their_own_cluster_or_all(ledger, green):
    for scope in (GLOBAL, OWN, Scope("pool", f"{CLUSTER}/general"), Scope("pool", f"{CLUSTER}er/general")):
        ledger.pause(scope, reason="x", created_by="ana", until=None)
    assert [each.scope for each in green.pauses()] == [GLOBAL]
    assert len(ledger.pauses()) == 3


def test_a_backoff_lasts_longer_each_time(ledger, green, clock):
    def again():
        return ledger.back_off(
            service_identity="shop/web", node="n1", reason="came back", seconds=lambda count: 100.0 * 2 ** (count - 1)
        )

    first = again()
    assert first == EvictionBackoff(
        service_identity="shop/web", node="n1", until=NOW + 100, count=1, reason="came back"
    )
    assert ledger.backoffs() == [first]
    assert green.backoffs() == []
    clock.sleep(100)
    assert ledger.backoffs() == []
    second = again()
    assert (second.count, second.until) == (2, NOW + 300)
    assert ledger.backoffs() == [second]


def test_a_backoff_is_of_a_resource_and_of_all_where_two_overlap(ledger, clock):
    def again(resource):
        return ledger.back_off(
            service_identity="shop/web", node="n1", reason="no help", seconds=lambda count: 100.0, resource=resource
        )

    first = again("memory")
    assert (first.resource, again("memory").resource) == ("memory", "memory")
    assert [each.resource for each in ledger.backoffs()] == ["memory"]
    assert again("cpu").resource == ""
    assert again("cpu").resource == ""
    clock.sleep(101)
    last = again("cpu")
    assert (last.resource, last.count) == ("cpu", 5)
    assert ledger.backoffs() == [last]


def test_backoffs_started_at_once_count_each(ledger):
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(
            lambda _: ledger.back_off(service_identity="a", node="n", reason="", seconds=float).count, range(20)
        )
    assert sorted(found) == list(range(1, 21))


def test_ready_replicas_of_the_other_clusters_add_up(ledger, green, records, clock):
    red = SqlLedger(engine=records._engine, cluster="red", clock=clock)
    ledger.publish_readiness({"shop/web": (9, 9)})
    green.publish_readiness({"shop/web": (3, 4), "shop/db": (1, 1)})
    red.publish_readiness({"shop/web": (5, 5), "shop/api": (2, 2)})
    services = ["shop/web", "shop/db", "shop/none"]
    assert ledger.remote_readiness(services, max_age_seconds=60) == {
        "shop/web": RemoteReadiness(8, 9, 2),
        "shop/db": RemoteReadiness(1, 1, 1),
    }
    clock.sleep(61)
    red.publish_readiness({"shop/web": (4, 5)})
    # an old report: nothing ready, but as much is wanted; and red has no shop/api any more
    assert ledger.remote_readiness([*services, "shop/api"], max_age_seconds=60) == {
        "shop/web": RemoteReadiness(4, 9, 2),
        "shop/db": RemoteReadiness(0, 1, 1),
    }
    red.publish_readiness({})
    assert ledger.remote_readiness(["shop/web"], max_age_seconds=60) == {"shop/web": RemoteReadiness(0, 4, 1)}


def test_many_services_are_reported_and_asked_at_once(ledger, green):
    services = {f"shop/s{number:04}": (1, 2) for number in range(3000)}
    green.publish_readiness(services)
    assert len(ledger.remote_readiness(list(services), max_age_seconds=1)) == 3000
    green.publish_readiness({"shop/s0000": (2, 2)})
    assert ledger.remote_readiness(list(services), max_age_seconds=1) == {"shop/s0000": RemoteReadiness(2, 2, 1)}


def test_each_cluster_states_its_global_limits(ledger, green):
    ledger.publish_global_limits(digest="a", text='{"evictions": 1}', longest_window_seconds=60.0, nodes=3)
    green.publish_global_limits(digest="b", text='{"evictions": 2}', longest_window_seconds=60.0, nodes=3)
    ledger.publish_global_limits(digest="c", text='{"evictions": 3}', longest_window_seconds=60.0, nodes=3)
    assert green.global_limits() == {"blue": '{"evictions": 3}', "green": '{"evictions": 2}'}
