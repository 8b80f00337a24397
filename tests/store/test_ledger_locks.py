"""Clocks and locks: whatever waits, and whatever the clock does, no limit is passed."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from rebalancer.model.decisions.limits import Denied, Scope
from rebalancer.model.errors import ConnectError
from rebalancer.store import open_engine
from rebalancer.store.db.engine import write
from tests.real.servers.postgres import PostgresServer
from tests.store.builders import GLOBAL, NOW, SteppingClock, rate
from tests.store.readers import raw_connection, read_rows
from tests.store.scenarios.ledger_cluster import OTHER, Cluster

WEB = Scope("service", "shop/web")


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


@contextmanager
def held(url, kind="global"):
    """Another connection that holds the lock of these scopes (SQLite: of the file) until its COMMIT; and threads."""
    with raw_connection(url) as other, ThreadPoolExecutor(2) as pool:
        other.execute("BEGIN IMMEDIATE" if "sqlite" in url else "BEGIN")
        if "sqlite" not in url:
            other.execute(f"SELECT * FROM scopes WHERE kind = '{kind}' FOR UPDATE")
        yield other, pool


@pytest.fixture
def on_postgres(postgres_engine):
    """A cluster with one reservation, where each row has a lock of its own."""
    cluster = Cluster(postgres_engine, SteppingClock())
    cluster.reserve()
    return cluster


def test_the_clock_is_read_after_the_locks_are_held(url, engine):
    """Read before, an entry could be written behind the back of one that waited for a shorter time."""
    cluster = Cluster(engine, None)
    cluster.reserve()
    with held(url) as (other, pool):
        waiting = pool.submit(cluster.reserve, pod="web-2")
        time.sleep(0.5)
        freed = datetime.now(UTC).timestamp()
        other.execute("COMMIT")
        record = waiting.result().reserved.record
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
    assert len({each.reserved.record for each in answers if not isinstance(each, Denied)}) == 10
    assert sum(row.scope == GLOBAL for row in read_rows(url)) == 10


@pytest.mark.real
def test_a_server_that_is_stricter_by_default_counts_right_too(postgres: PostgresServer, newest_postgres_url):
    """Under repeatable read a transaction that waited for a lock would count what was there before it waited."""
    name = newest_postgres_url.rpartition("/")[2]
    postgres.admin(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'repeatable read'")
    engine = open_engine(newest_postgres_url)
    test_threads_of_two_clusters_never_pass_a_limit_together(
        newest_postgres_url, Cluster(engine, SteppingClock()), Cluster(engine, SteppingClock(), OTHER)
    )
    engine.dispose()


@pytest.mark.real
def test_a_deadlock_is_tried_again(newest_postgres_url, on_postgres):
    # the other connection locks in another order: the cluster's row is held, and the global one is wanted
    with held(newest_postgres_url) as (other, pool):
        other.execute("SET deadlock_timeout = '60s'")  # so that the reservation is the victim
        waiting = pool.submit(on_postgres.reserve, pod="web-2")
        time.sleep(0.3)
        # it holds its cluster by now
        wanted = pool.submit(other.execute, "SELECT * FROM scopes WHERE kind = 'cluster' FOR UPDATE")
        wanted.result(timeout=30)
        other.execute("COMMIT")
        assert waiting.result(timeout=30).reserved.record


def test_a_ledger_that_cannot_be_read_reserves_nothing(url, engine, blue):
    write(engine, lambda connection: connection.execute(text("DROP TABLE entries")))
    with pytest.raises(Exception, match="entries") as raised:
        blue.reserve()
    assert not isinstance(raised.value, OperationalError)


def test_a_locked_sqlite_file_reserves_nothing(newest_sqlite_url, impatient_engine):
    cluster = Cluster(impatient_engine, SteppingClock())
    with held(newest_sqlite_url) as (other, _):
        with pytest.raises(ConnectError, match="locked by another process"):
            cluster.reserve()
        other.execute("COMMIT")
    assert cluster.reserve().reserved.record


@pytest.mark.real
def test_after_a_pause_has_returned_nothing_is_reserved(newest_postgres_url, on_postgres):
    """A reservation that has looked for pauses already is waited for."""
    # as a reservation does while it counts
    with held(newest_postgres_url, "service") as (other, pool):
        pausing = pool.submit(on_postgres.ledger.pause, WEB, reason="r", created_by="ana", until=None)
        time.sleep(0.3)
        assert not pausing.done()
        other.execute("COMMIT")
        pausing.result(timeout=30)
    assert on_postgres.reserve(pod="web-2").pause.created_by == "ana"


@pytest.mark.real
def test_a_scope_that_is_pruned_while_a_reservation_waits_for_it_is_made_anew(newest_postgres_url, on_postgres):
    with held(newest_postgres_url, "service") as (other, pool):
        waiting = pool.submit(on_postgres.reserve, rate(WEB, 2), pod="web-2")
        time.sleep(0.3)
        assert not waiting.done()
        other.execute("DELETE FROM scopes WHERE kind = 'service'")
        other.execute("COMMIT")
        assert waiting.result(timeout=30).reserved.record
        (count,) = other.execute("SELECT count(*) FROM scopes WHERE kind = 'service'").fetchone()
    assert count == 1
    assert on_postgres.reserve(rate(WEB, 2)).used == 2
