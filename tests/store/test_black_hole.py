"""A PostgreSQL behind a network that takes everything and answers nothing: its kernel, or a proxy's, confirms each
packet, so neither keepalives nor the server's own time limits end anything."""

import time
from collections.abc import Iterator
from threading import Thread

import pytest
from sqlalchemy import text

from rebalancer.model.errors import ConnectError
from rebalancer.store import open_engine
from rebalancer.store.db import bounded_connection
from rebalancer.store.db.engine import read, write
from tests.e2e.servers import Cuttable, cuttable
from tests.store.scenarios.ledger_cluster import Cluster

pytestmark = pytest.mark.real

SILENCE_SECONDS = 2.0
CONNECT_SECONDS = 2
BOUND_SECONDS = SILENCE_SECONDS + CONNECT_SECONDS + 4.0


@pytest.fixture
def proxy(newest_postgres_url: str) -> Iterator[Cuttable]:
    with cuttable(f"http://{newest_postgres_url.rpartition('@')[2].partition('/')[0]}") as made:
        yield made


@pytest.fixture
def blue(newest_postgres_url: str, proxy: Cuttable, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose database is behind the proxy."""
    monkeypatch.setattr(bounded_connection, "ANSWER_SECONDS", SILENCE_SECONDS)
    address = newest_postgres_url.rpartition("@")[2].partition("/")[0]
    engine = open_engine(
        newest_postgres_url.replace(address, f"127.0.0.1:{proxy.port}"), connect_timeout_seconds=CONNECT_SECONDS
    )
    try:
        yield Cluster(engine, None)
    finally:
        proxy.cut()
        engine.dispose()


def test_the_wait_is_longer_than_the_servers_own_limit() -> None:
    assert 15.0 < bounded_connection.ANSWER_SECONDS <= 30.0


def test_a_database_that_takes_everything_and_answers_nothing_reserves_nothing_for_a_time(
    blue: Cluster, proxy: Cuttable
) -> None:
    assert blue.reserve().reserved.record  # type: ignore[no-untyped-call]
    proxy.swallow()
    for use in (blue.reserve, blue.ledger.check_sequence, blue.records.attempt_write):
        began = time.monotonic()
        with pytest.raises(ConnectError):
            use()
        assert time.monotonic() - began < BOUND_SECONDS
    proxy.mend()
    assert blue.reserve().reserved.record  # type: ignore[no-untyped-call]
    assert blue.ledger.read_sequence() == 2


def test_silence_in_the_middle_of_a_transaction_ends_it(blue: Cluster, proxy: Cuttable) -> None:
    engine = blue.ledger._engine
    with pytest.raises(ConnectError, match=f"no answer within {SILENCE_SECONDS:g} s"):
        write(engine, lambda connection: (proxy.swallow(), connection.execute(text("SELECT 1"))))
    proxy.mend()
    assert read(engine, lambda connection: connection.execute(text("SELECT 1")).scalar_one()) == 1


def test_an_answer_that_takes_longer_in_all_is_no_silence(blue: Cluster) -> None:
    """Rows that arrive one after the other for longer than the bound of a silence."""
    rows = text("SELECT repeat('x', 100000), pg_sleep(0.5) FROM generate_series(1, 6)")
    got = read(blue.ledger._engine, lambda connection: connection.execute(rows).all())
    assert len(got) == 6


def test_a_process_behind_a_black_hole_goes_on_in_its_other_threads(blue: Cluster, proxy: Cuttable) -> None:
    proxy.swallow()
    failed: list[str] = []

    def use() -> None:
        try:
            blue.ledger.check_sequence()
        except ConnectError as error:
            failed.append(str(error))

    threads = [Thread(target=use) for _ in range(4)]
    began = time.monotonic()
    for each in threads:
        each.start()
    for each in threads:
        each.join(BOUND_SECONDS * 2)
    assert len(failed) == len(threads)
    assert time.monotonic() - began < BOUND_SECONDS * 2
