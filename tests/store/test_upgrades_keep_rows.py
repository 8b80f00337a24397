"""From every revision to the newest: all rows and columns are kept. An older program goes on beside the newest if it
knows the names of today, and else changes nothing."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from rebalancer.model.errors import ConfigError
from rebalancer.model.reason import BlockedReason, MissReason, Reason
from rebalancer.model.records.effect import Outcome as Effect
from rebalancer.store import open_engine, status, upgrade
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import METADATA
from tests.store.scenarios.schemas import (
    MIGRATIONS,
    REVISIONS,
    ROWS,
    as_read,
    change,
    downgrade,
    fill,
    now_named,
    reflected,
    renames,
    rows_of,
    up_to,
)

RENAMED = "0007"
"""The revision with the names of today."""
EACH = pytest.mark.parametrize("revision", REVISIONS)


@pytest.fixture
def engine(empty_url: str) -> Iterator[sa.Engine]:
    """Of a database that has no table yet."""
    opened = open_engine(empty_url, create=True)
    yield opened
    opened.dispose()


@EACH
def test_an_upgrade_keeps_every_row_and_column(
    revision: str, empty_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    assert upgrade(empty_url, scripts=up_to(revision, tmp_path)) == revision
    old = reflected(engine)
    written = write(engine, lambda connection: fill(connection, old))
    before = read(engine, lambda connection: rows_of(connection, old, as_now=revision >= RENAMED))
    assert {len(rows) for rows in before.values()} == {1, ROWS}

    assert upgrade(empty_url) == REVISIONS[-1]

    assert read(engine, lambda connection: rows_of(connection, old, as_now=True)) == before
    assert {name: count for name, count in status(empty_url).rows.items() if count} == {
        name: len(rows) for name, rows in before.items()
    }
    # and today's program reads what was written then
    for name, rows in written.items():
        table = METADATA.tables[now_named(name, "")[0]]
        found = read(
            engine,
            lambda connection, table=table: connection.execute(
                sa.select(table).order_by(*table.primary_key.columns)
            ).all(),
        )
        wanted = [
            {new: as_read(value) for column, value in row.items() if (new := now_named(name, column)[1]) is not None}
            for row in rows
        ]
        seen = [{column: as_read(value) for column, value in row._mapping.items()} for row in found]
        assert [{column: row[column] for column in wanted[0]} for row in seen] == wanted, name
        # what is new says nothing about old rows
        assert {row[column] for row in seen for column in row.keys() - wanted[0].keys()} <= {None}, name


@pytest.mark.real
@pytest.mark.parametrize("revision", [each for each in REVISIONS if each < RENAMED])
def test_a_program_with_older_names_changes_nothing_after_the_upgrade(
    revision: str, postgres_url: str, tmp_path: Path
) -> None:
    upgrade(postgres_url, scripts=up_to(revision, tmp_path))
    engine = open_engine(postgres_url)
    old = reflected(engine)
    write(engine, lambda connection: fill(connection, old))
    upgrade(postgres_url)
    before = read(engine, lambda connection: rows_of(connection, old, as_now=True))
    for table in old.sorted_tables:
        if any(now_named(table.name, name) != (table.name, name) for name in table.columns.keys()):  # noqa: SIM118
            rewritten = table.update().values({column.name: column for column in table.columns})
            with pytest.raises(ConfigError, match="run `rebalancer db upgrade`"):
                write(engine, lambda connection, rewritten=rewritten: connection.execute(rewritten))
    assert read(engine, lambda connection: rows_of(connection, old, as_now=True)) == before
    engine.dispose()


@pytest.mark.real
@pytest.mark.parametrize("revision", [each for each in REVISIONS if each >= RENAMED])
def test_a_program_of_that_time_goes_on_beside_the_newest(revision: str, postgres_url: str, tmp_path: Path) -> None:
    """As replicas do that aren't replaced yet: their statements name the columns that they know. With SQLite the old
    program has ended before."""
    upgrade(postgres_url, scripts=up_to(revision, tmp_path))
    engine = open_engine(postgres_url)
    old = reflected(engine)
    before = write(engine, lambda connection: fill(connection, old))
    upgrade(postgres_url)
    new = reflected(engine)
    write(engine, lambda connection: change(connection, old, before, first=101))
    theirs = write(engine, lambda connection: fill(connection, old, first=11))
    write(engine, lambda connection: fill(connection, new, first=21))
    write(engine, lambda connection: change(connection, old, theirs, first=111))
    found = read(engine, lambda connection: rows_of(connection, old, as_now=True))
    counts = {name: len(rows) for name, rows in found.items()}
    assert counts == {name: 1 if name == "ledger" else 3 * ROWS for name in old.tables}
    if "pruned" in old.tables["ledger"].columns:
        # what the newest has written keeps none from dropping old rows
        for table in reversed(old.sorted_tables):
            write(engine, lambda connection, table=table: connection.execute(table.delete()))
        assert not any(read(engine, lambda connection: rows_of(connection, old, as_now=True)).values())
    engine.dispose()


def test_amounts_by_resource_can_be_taken_back_and_made_again(
    empty_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    upgrade(empty_url, scripts=up_to("0013", tmp_path))
    old = reflected(engine)
    write(engine, lambda connection: fill(connection, old))
    before = read(engine, lambda connection: rows_of(connection, old, as_now=True))
    scripts = up_to("0014", tmp_path)
    for _ in range(2):
        assert upgrade(empty_url, scripts=scripts) == "0014"
        assert "amounts" in reflected(engine).tables["evictions"].columns
        downgrade(engine, "0013", scripts)
        assert {name: set(table.columns.keys()) for name, table in reflected(engine).tables.items()} == {
            name: set(table.columns.keys()) for name, table in old.tables.items()
        }
        assert read(engine, lambda connection: rows_of(connection, old, as_now=True)) == before


LOSSES = {
    "rows": "op.execute('DELETE FROM entries WHERE id = 2')",
    "values": "op.execute('UPDATE evictions SET detail = reason')",
    "numbers": "op.execute('UPDATE pauses SET id = id + 100')",
    "one value": "op.execute('UPDATE eviction_backoffs SET count = count + 1 WHERE count = 1001')",
}


@pytest.mark.parametrize("loss", LOSSES)
def test_an_upgrade_that_loses_something_would_be_found(loss: str, sqlite_url: str, tmp_path: Path) -> None:
    upgrade(sqlite_url)
    engine = open_engine(sqlite_url)
    schema = reflected(engine)
    write(engine, lambda connection: fill(connection, schema))
    before = read(engine, lambda connection: rows_of(connection, schema, as_now=True))
    folder = tmp_path / "one more"
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9999_loses.py").write_text(
        f'from alembic import op\nrevision = "9999"\ndown_revision = "{REVISIONS[-1]}"\n'
        f"def upgrade() -> None:\n    {LOSSES[loss]}\n"
    )
    assert upgrade(sqlite_url, scripts=folder) == "9999"
    after = read(engine, lambda connection: rows_of(connection, schema, as_now=True))
    engine.dispose()
    assert len([name for name in before if before[name] != after[name]]) == 1


STORED = (
    ("cycles", "stopped_code", "OutOfTime", "PlanningTimeout"),
    ("refusals", "code", "NoLanding", "NoTargetNode"),
    ("evictions", "code", "GaveUp", "EvictionBackoff"),
    ("evictions", "target_nodes", '[{"node": "n2", "share": 0.75}]', '[{"node": "n2", "probability": 0.75}]'),
    ("hot_episodes", "miss_reason", "debounce", "stabilizationWindow"),
    ("hot_episodes", "blocked_reason", "noLanding", "noTargetNode"),
    ("hot_episodes", "codes", '{"Braked": 2, "TooYoung": 1}', '{"CircuitBreakerOpen": 2, "TooYoung": 1}'),
    ("assessments", "outcome", "cameBack", "replacementsReturned"),
    ("assessments", "breakdown", '{"left": 1.5, "grew": null}', '{"departed": 1.5, "remaining_change": null}'),
    (
        "effect_days",
        "reasons",
        '{"discovery/debounce": 1, "effect/cooled": 2, "effect/restGrew": 3}',
        '{"discovery/stabilizationWindow": 1, "effect/cooled": 2, "effect/remainingPodsGrew": 3}',
    ),
)
"""(table, column, value before revision 0007, value after)"""


def test_stored_codes_and_json_keys_are_renamed(empty_url: str, engine: sa.Engine, tmp_path: Path) -> None:
    upgrade(empty_url, scripts=up_to("0006", tmp_path))
    old = reflected(engine)
    write(engine, lambda connection: fill(connection, old))
    then_named = {now_named(table.name, each.name): each.name for table in old.tables.values() for each in table.c}
    ids: dict[str, tuple[object, ...]] = {}
    for table, column, before, _ in STORED:
        then = old.tables[table]
        first = sa.select(*then.primary_key.columns).order_by(*then.primary_key.columns).limit(1)
        ids[table] = key = read(engine, lambda connection, first=first: tuple(connection.execute(first).one()))
        this = [part == value for part, value in zip(then.primary_key.columns, key, strict=True)]
        value = json.loads(before) if before[0] in "[{" else before
        change = then.update().where(*this).values({then_named[table, column]: value})
        write(engine, lambda connection, change=change: connection.execute(change))
    upgrade(empty_url)
    for table, column, _, after in STORED:
        now = METADATA.tables[table]
        this = [part == value for part, value in zip(now.primary_key.columns, ids[table], strict=True)]
        query = sa.select(now.c[column]).where(*this)
        found = read(engine, lambda connection, query=query: connection.execute(query).scalar_one())
        assert found == (json.loads(after) if after[0] in "[{" else after), (table, column)


def test_every_renamed_code_is_one_of_today() -> None:
    module = renames()
    assert set(module.REASONS.values()) <= {each.value for each in Reason}
    assert set(module.MISSES.values()) <= {each.value for each in MissReason}
    assert set(module.BLOCKED.values()) <= {each.value for each in BlockedReason}
    assert set(module.OUTCOMES.values()) <= {each.value for each in Effect}
    assert not (set(module.REASONS) & {each.value for each in Reason})
