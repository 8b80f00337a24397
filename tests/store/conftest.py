"""Every test here runs on SQLite and on a real PostgreSQL, unless its subject exists on one of them only."""

import itertools
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from rebalancer.store import SqlRecords, open_engine, open_records, upgrade
from tests.real.servers.postgres import PostgresServer
from tests.store.builders import CLUSTER, SteppingClock
from tests.store.scenarios.ledger_cluster import OTHER, Cluster


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture(scope="session")
def newest_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the newest schema, to be copied: making one takes longer than most tests."""
    path = tmp_path_factory.mktemp("newest") / "rebalancer.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def newest_postgres(postgres: PostgresServer) -> str:
    """The name of a database with the newest schema, to be copied."""
    # a name of its own: folders that share these fixtures make one each, in the same server
    name = f"newest_{uuid.uuid4().hex}"
    upgrade(postgres.create_database(name))
    return name


@pytest.fixture
def postgres_name(postgres: PostgresServer, numbers: Iterator[int]) -> Iterator[str]:
    """Of a database that is not there yet, and will be gone."""
    name = f"store_{next(numbers)}"
    yield name
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_name: str) -> str:
    return postgres.create_database(postgres_name)


@pytest.fixture
def newest_postgres_url(postgres: PostgresServer, postgres_name: str, newest_postgres: str) -> str:
    postgres.admin(f'CREATE DATABASE "{postgres_name}" TEMPLATE "{newest_postgres}"')
    return postgres.url(postgres_name)


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "rebalancer.db"


@pytest.fixture
def sqlite_url(sqlite_path: Path) -> str:
    return f"sqlite:///{sqlite_path}"


@pytest.fixture
def newest_sqlite_url(sqlite_path: Path, newest_sqlite: Path) -> str:
    shutil.copy(newest_sqlite, sqlite_path)
    return f"sqlite:///{sqlite_path}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty_url(backend: str, request: pytest.FixtureRequest) -> str:
    """A database without any table (SQLite: no file yet)."""
    return str(request.getfixturevalue("sqlite_url" if backend == "sqlite" else "postgres_url"))


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest) -> str:
    """A database with the newest schema."""
    return str(request.getfixturevalue("newest_sqlite_url" if backend == "sqlite" else "newest_postgres_url"))


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def records(url: str, clock: SteppingClock) -> Iterator[SqlRecords]:
    with open_records(url=url, cluster=CLUSTER, clock=clock) as made:
        yield made


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Engine]:
    made = open_engine(url, **options)
    try:
        yield made
    finally:
        made.dispose()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    with opened(url) as made:
        yield made


@pytest.fixture
def sqlite_engine(newest_sqlite_url: str) -> Iterator[Engine]:
    with opened(newest_sqlite_url) as made:
        yield made


@pytest.fixture
def postgres_engine(newest_postgres_url: str) -> Iterator[Engine]:
    with opened(newest_postgres_url) as made:
        yield made


@pytest.fixture
def impatient_engine(newest_sqlite_url: str) -> Iterator[Engine]:
    """It waits for hardly any time for a SQLite file that is locked."""
    with opened(newest_sqlite_url, busy_timeout_seconds=0.2) as made:
        yield made


@pytest.fixture
def elsewhere_records(url: str, clock: SteppingClock) -> Iterator[SqlRecords]:
    """Another cluster's, in the same database."""
    with open_records(url=url, cluster=OTHER, clock=clock) as made:
        yield made


@pytest.fixture
def blue(engine: Engine, clock: SteppingClock) -> Cluster:
    return Cluster(engine, clock)


@pytest.fixture
def green(engine: Engine, clock: SteppingClock) -> Cluster:
    return Cluster(engine, clock, OTHER)
