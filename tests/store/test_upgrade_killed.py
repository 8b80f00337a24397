"""An upgrade that is killed (`kill -9`) half-way leaves the database as it was, and the next one does all of it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from rebalancer.store import open_engine, status, upgrade
from rebalancer.store.db.engine import read, write
from tests.store.scenarios.schemas import REVISIONS, fill, reflected, rows_of, up_to

PARTS = {"begun": 0.02, "half": 0.5, "nearly done": 0.9}
"""Share of the statements, with which a PostgreSQL and a SQLite file may differ in number."""
COMMIT = "commit"
BEFORE = (None, "0006")
"""Revisions before the upgrade: none, and the one before all tables are renamed."""


def upgraded(url: str, moment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "tests.store.programs.killed_upgrade", url, moment]
    return subprocess.run(program, check=False, timeout=120, capture_output=True, text=True)


@pytest.fixture
def engine(empty_url: str) -> Iterator[sa.Engine]:
    opened = open_engine(empty_url, create=True)
    yield opened
    opened.dispose()


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, int]:
    """How many an upgrade of a SQLite file has; one of PostgreSQL has about as many."""
    counts: dict[str | None, int] = {}
    for revision in BEFORE:
        folder = tmp_path_factory.mktemp("statements")
        url = f"sqlite:///{folder / 'rebalancer.db'}"
        if revision is not None:
            upgrade(url, scripts=up_to(revision, folder))
        counts[revision] = int(upgraded(url, "count").stdout)
    return counts


@pytest.mark.parametrize("part", [*PARTS, COMMIT])
@pytest.mark.parametrize("revision", BEFORE)
def test_an_upgrade_that_is_killed_changes_nothing_and_the_next_one_everything(
    revision: str | None,
    part: str,
    empty_url: str,
    engine: sa.Engine,
    statements: dict[str | None, int],
    tmp_path: Path,
) -> None:
    old, before = None, {}
    if revision is not None:
        upgrade(empty_url, scripts=up_to(revision, tmp_path))
        old = reflected(engine)
        write(engine, lambda connection: fill(connection, old))
        before = read(engine, lambda connection: rows_of(connection, old, as_now=False))
    moment = COMMIT if part == COMMIT else str(max(2, int(PARTS[part] * statements[revision])))
    died = upgraded(empty_url, moment)
    assert died.returncode == -signal.SIGKILL, died.stderr

    if old is None:
        assert read(engine, lambda connection: sa.inspect(connection).get_table_names()) == []
    else:
        assert read(engine, lambda connection: rows_of(connection, old, as_now=False)) == before
    assert status(empty_url).revision == revision

    assert upgrade(empty_url) == REVISIONS[-1]
    assert status(empty_url).revision == REVISIONS[-1]
    if old is not None:
        now = read(engine, lambda connection: rows_of(connection, old, as_now=True))
        assert {name: len(rows) for name, rows in now.items()} == {
            name: count for name, count in status(empty_url).rows.items() if count
        }
    assert upgraded(empty_url, "count").returncode == 0
