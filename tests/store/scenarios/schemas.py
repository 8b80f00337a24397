"""The schema of each revision, and rows for all of its tables, made from the schema itself: a new migration needs no
new rows here."""

import json
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

import rebalancer
from rebalancer.store.db.engine import write
from tests.store.builders import NOW

MIGRATIONS = Path(rebalancer.__file__).parent.parent / "migrations"
ROWS = 3
"""Of each table; in the second of them everything is NULL that may be."""

Row = dict[str, Any]


def directory(folder: Path = MIGRATIONS) -> ScriptDirectory:
    """The migrations in a folder, as Alembic knows them."""
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return ScriptDirectory.from_config(config)


REVISIONS = sorted(script.revision for script in directory().walk_revisions())


@cache
def renames() -> ModuleType:
    """The migration that renamed tables and columns: its `TABLES` and `COLUMNS`."""
    return directory().get_revision("0007").module


def now_named(table: str, column: str) -> tuple[str, str | None]:
    """(table, column) by their names today; None for the column that was dropped."""
    if (table, column) == ("memory", "kind"):
        return renames().TABLES[table], None
    return renames().TABLES.get(table, table), renames().COLUMNS.get(table, {}).get(column, column)


def up_to(revision: str, folder: Path) -> Path:
    """A folder with our migrations as they were when `revision` was the newest."""
    copy = folder / f"up-to-{revision}"
    shutil.copytree(MIGRATIONS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    kept = {Path(script.path).name for script in directory().iterate_revisions(revision, "base")}
    for file in (copy / "versions").glob("*.py"):
        if file.name not in kept:
            file.unlink()
    return copy


def downgrade(engine: sa.Engine, to: str, scripts: Path = MIGRATIONS) -> None:
    """Take back the revisions after `to`."""

    def work(connection: sa.Connection) -> None:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(scripts))
        command.downgrade(config, to)

    write(engine, work)


def insert(engine: sa.Engine, statements: Iterable[str]) -> None:
    """Rows as an earlier version wrote them."""
    write(engine, lambda connection: [connection.execute(sa.text(each)) for each in statements])


def old_rows(url: str, count: int) -> tuple[str, str]:
    """A subquery with an `i` from 1 to `count`, and a moment long ago, in the dialect of the database."""
    if "sqlite" not in url:
        return f"(SELECT generate_series(1, {count}) AS i)", "TIMESTAMPTZ '2025-01-01 00:00:00Z'"
    numbers = f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)"
    return numbers, "'2025-01-01 00:00:00.000000'"


def reflected(engine: sa.Engine) -> sa.MetaData:
    """What is in the database now, without what Alembic keeps there."""
    found = sa.MetaData()
    found.reflect(engine)
    found.remove(found.tables["alembic_version"])
    return found


def fill(connection: sa.Connection, schema: sa.MetaData, *, first: int = 1) -> dict[str, list[Row]]:
    """Write rows into every table of the schema, naming its columns and no others; what was written, by table.

    A table that may have one row keeps the one that it has.
    """
    written: dict[str, list[Row]] = {}
    for table in schema.sorted_tables:
        allowed = _allowed(connection, table)
        rows = written[table.name] = []
        count = ROWS
        if allowed.get("id") == ["1"]:
            count = 0 if connection.execute(sa.select(table)).first() else 1
        for number in range(first, first + count):
            row = _row(table, number, allowed, written, empty=number - first == 1)
            done = connection.execute(table.insert().values(row))
            keys = zip(table.primary_key.columns.keys(), done.inserted_primary_key or (), strict=True)
            rows.append({**row, **dict(keys)})
    return written


def change(connection: sa.Connection, schema: sa.MetaData, written: dict[str, list[Row]], *, first: int) -> None:
    """Write every column of the rows anew that is no key."""
    for table in schema.sorted_tables:
        allowed = _allowed(connection, table)
        keys = table.primary_key.columns
        kept = {*keys.keys(), *(key.parent.name for key in table.foreign_keys)}
        for number, row in enumerate(written[table.name], start=first):
            new = _row(table, number, allowed, written, empty=False)
            values = {name: value for name, value in new.items() if name not in kept}
            done = connection.execute(
                table.update().where(*(column == row[column.name] for column in keys)).values(values)
            )
            assert done.rowcount == 1, table


def _row(
    table: sa.Table, number: int, allowed: dict[str, list[str]], written: dict[str, list[Row]], *, empty: bool
) -> Row:
    return {
        column.name: value
        for column in table.columns
        for value in _values(column, number, allowed, written, empty=empty)
    }


def _values(
    column: sa.Column[Any], number: int, allowed: dict[str, list[str]], written: dict[str, list[Row]], *, empty: bool
) -> Iterator[Any]:
    """What to write: one value, or none where the database numbers the rows."""
    if empty and column.nullable:
        yield None
        return
    for reference in column.foreign_keys:
        # the rows of one number belong together
        rows = written[reference.column.table.name]
        yield rows[(number - 1) % len(rows)][reference.column.name]
        return
    if column.name in allowed:
        words = allowed[column.name]
        word = words[number % len(words)]
        yield int(word) if isinstance(column.type, sa.Integer) else word
        return
    numbered = column.primary_key and len(column.table.primary_key.columns) == 1
    if not (numbered and isinstance(column.type, sa.Integer)):
        yield _value(column, number)


def _value(column: sa.Column[Any], number: int) -> Any:
    match column.type:
        case sa.Uuid():
            return UUID(int=number)
        case sa.CHAR():  # how SQLite keeps it
            return UUID(int=number).hex
        case sa.String():
            return f"{column} {number}: 'ä%' \\ \""
        case sa.Boolean():
            return number % 2 == 1
        case sa.Integer():
            return 1_000 + number
        case sa.Numeric() | sa.Float():
            return number + 0.1
        case sa.DateTime():
            return datetime.fromtimestamp(NOW, UTC) + timedelta(days=number, microseconds=number)
        case sa.JSON():
            return {"ä": [number, None, "'"], "of": str(column)}
        case sa.LargeBinary():
            return zlib.compress(json.dumps({"number": number}).encode())
    raise AssertionError(f"{column}: no value for {column.type!r}: add one here")


def _allowed(connection: sa.Connection, table: sa.Table) -> dict[str, list[str]]:
    """Column -> the values that a CHECK lets in, of a table."""
    found = {}
    for check in sa.inspect(connection).get_check_constraints(table.name):
        condition = str(check["sqltext"])
        # kind IN ('daily', 'ahead'); PostgreSQL: kind = ANY (ARRAY['daily'::text, 'ahead'::text]); id = 1
        (column,) = re.findall(r"\w+", re.split(r"=| IN ", condition)[0])
        found[column] = re.findall(r"'([^']*)'", condition) or re.findall(r"= (\d+)", condition)
        assert found[column], condition
    return found


def rows_of(connection: sa.Connection, schema: sa.MetaData, *, as_now: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Table -> its rows as the driver gives them, in a fixed order; those of `schema` only, by today's names.

    `as_now`: the database has today's names too.
    """
    quote = connection.dialect.identifier_preparer.quote
    out = {}
    for table in schema.sorted_tables:
        named = {name: now_named(table.name, name) for name in table.columns.keys()}  # noqa: SIM118
        new = {name: there[1] for name, there in named.items() if there[1] is not None}
        name = next(iter(named.values()))[0]
        columns = ", ".join(quote(new[each] if as_now else each) for each in new)
        ordered = [each.name for each in table.primary_key if each.name in new]
        keys = ", ".join(quote(new[each] if as_now else each) for each in ordered)
        there = quote(name if as_now else table.name)
        found = connection.exec_driver_sql(f"SELECT {columns} FROM {there} ORDER BY {keys}")
        out[name] = [dict(zip(new.values(), row, strict=True)) for row in found]
    return out


def as_read(value: Any) -> Any:
    """A written value as today's tables give it back."""
    match value:
        case datetime():
            return value.timestamp()
        case UUID():
            return value.hex
        case bytes():
            return json.loads(zlib.decompress(value))
    return value
