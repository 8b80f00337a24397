"""Every test here runs on SQLite and on a real PostgreSQL, unless its subject exists on one of them only."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from rebalancer.store import SqlRecords, open_engine, open_records, upgrade
from tests.real.postgres_server import PostgresServer
from tests.store.builders import CLUSTER, SteppingClock
from tests.store.ledger_cluster import OTHER, Cluster


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def postgres_url(postgres: PostgresServer, numbers: Iterator[int]) -> Iterator[str]:
    name = f"store_{next(numbers)}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'rebalancer.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without any table (SQLite: no file yet)."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
def url(empty_url: str) -> str:
    """A database with the newest schema."""
    upgrade(empty_url)
    return empty_url


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def records(url: str, clock: SteppingClock) -> Iterator[SqlRecords]:
    with open_records(url=url, cluster=CLUSTER, clock=clock) as opened:
        yield opened


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = open_engine(url)
    yield opened
    opened.dispose()


@pytest.fixture
def blue(engine: Engine, clock: SteppingClock) -> Cluster:
    return Cluster(engine, clock)


@pytest.fixture
def green(engine: Engine, clock: SteppingClock) -> Cluster:
    return Cluster(engine, clock, OTHER)
