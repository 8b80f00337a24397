"""Reservations on PostgreSQL in one round trip: what they may not do, and when they are made in steps."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.model.decisions.limits import Denied, Scope
from rebalancer.model.errors import ConnectError
from rebalancer.store.ledger import reservations, round_trip
from tests.store.builders import GLOBAL, in_flight, rate, spacing
from tests.store.readers import counted_times, fullest_window, in_flight_now, raw_connection, read_rows
from tests.store.scenarios.ledger_cluster import Cluster

CLUSTERS, SERVICES = ("blue", "green", "red"), ("web", "db")
WINDOW_SECONDS = 3600.0

pytestmark = pytest.mark.real


@pytest.fixture
def in_steps(monkeypatch):
    """How often a reservation was counted in steps."""
    counted, original = [], reservations.count

    def count(*arguments, **named):
        counted.append(1)
        return original(*arguments, **named)

    monkeypatch.setattr(reservations, "count", count)
    return counted


def test_a_reservation_that_every_check_admits_takes_one_round_trip(postgres_engine, in_steps):
    cluster = Cluster(postgres_engine, None)
    checks = (rate(GLOBAL, 3), spacing(Scope("service", "shop/web"), 0.0), in_flight(GLOBAL, 5))
    for term in (1, 1, 1):
        assert cluster.reserve(*checks, term=term).reserved.record
    # the first one made the term the cluster's
    assert len(in_steps) == 1
    assert cluster.reserve(*checks, term=1).check == rate(GLOBAL, 3)
    assert len(in_steps) == 2


@pytest.mark.parametrize("check", [rate(GLOBAL, 1, math.inf), rate(GLOBAL, 2**40), rate(GLOBAL, 1, 1e30)])
def test_figures_beyond_the_servers_arithmetic_are_counted_all_the_same(postgres_engine, check):
    cluster = Cluster(postgres_engine, None)
    assert cluster.reserve(check).reserved.record
    assert isinstance(cluster.reserve(check), Denied) == (check.at_most == 1)


def test_a_reservation_that_lost_its_server_is_no_reservation(newest_postgres_url, postgres_engine, monkeypatch):
    cluster = Cluster(postgres_engine, None)

    monkeypatch.setattr(round_trip, "_LOCK", "SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(ConnectError):
        cluster.reserve(rate(GLOBAL, 1))
    monkeypatch.undo()
    assert not read_rows(newest_postgres_url)
    assert cluster.reserve(rate(GLOBAL, 1)).reserved.record


counts = st.none() | st.integers(1, 9)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    limits=st.fixed_dictionaries({"rate": counts, "inFlight": counts, "service": counts, "cluster": counts}),
    services=st.lists(st.sampled_from(SERVICES), min_size=6, max_size=6),
)
def test_concurrent_reservations_never_exceed_a_limit_and_use_it_up(
    newest_postgres_url, postgres_engine, limits, services
):
    """Three clusters, two threads each, on connections of their own."""
    url = newest_postgres_url
    with raw_connection(url) as raw:
        for table in ("entries", "evictions", "scopes", "cycles"):
            raw.execute(f"DELETE FROM {table}")
    clusters = {name: Cluster(postgres_engine, None, name) for name in CLUSTERS}

    def checks(cluster, service):
        if limits["rate"] is not None:
            yield rate(GLOBAL, limits["rate"], WINDOW_SECONDS)
        if limits["inFlight"] is not None:
            yield in_flight(GLOBAL, limits["inFlight"])
        if limits["service"] is not None:
            yield rate(Scope("service", f"shop/{service}"), limits["service"], WINDOW_SECONDS)
        if limits["cluster"] is not None:
            yield in_flight(Scope("cluster", cluster), limits["cluster"])

    def some(name):
        return [clusters[name].reserve(*checks(name, each), pod=each, service=each) for each in services]

    with ThreadPoolExecutor(6) as pool:
        answers = [each for found in pool.map(some, CLUSTERS * 2) for each in found]
    rows = read_rows(url)
    times, flying = counted_times(rows), in_flight_now(rows)
    reserved = [each.reserved.record for each in answers if not isinstance(each, Denied)]
    assert sorted(reserved) == sorted({row.eviction for row in rows})

    def used(check):
        if check.kind == "inFlight":
            return flying.get(tuple(check.scope), 0)
        return fullest_window(times.get(tuple(check.scope), []), check.per_seconds)

    for cluster in CLUSTERS:
        for service in SERVICES:
            for check in checks(cluster, service):
                assert used(check) <= check.at_most
    for denied in answers:
        if isinstance(denied, Denied):
            assert used(denied.check) == denied.check.at_most, "denied although there was room"
