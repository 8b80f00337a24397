"""Alembic, run by us: users need no `alembic.ini`.

The migrations are data beside the code: `migrations/` at the root of a checkout, `_data/migrations` inside a wheel.
A migration is never edited once it was released; `migrations/env.py` says how to add one. Its revision is the number
that its file's name begins with, so Alembic is imported only for an upgrade.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, column, event, inspect, select, table, text

import rebalancer
from rebalancer.model.errors import ConfigError
from rebalancer.store.db.engine import UPGRADE_HINT, open_engine, read, shown_url, write

if TYPE_CHECKING:
    from alembic.config import Config

# "rebalanc" as a number: one upgrade at a time in a PostgreSQL database
_UPGRADE_LOCK = int.from_bytes(b"rebalanc", "big")
_VERSION = table("alembic_version", column("version_num"))


def upgrade(url: str, *, scripts: Path | None = None) -> str:
    """Bring the database to the newest schema, creating a SQLite file where there is none; the revision it has then.

    All of it is one transaction, so a migration that fails leaves the database as it was; one upgrade runs at a time.
    `scripts` is the folder of migrations, ours if None. Raises ConfigError, ConnectError.
    """
    engine = open_engine(url, create=True)
    if engine.dialect.name == "sqlite":
        # Batch mode rebuilds a table by dropping the old one. With foreign keys on, that would delete every row that
        # refers to it; and the pragma does nothing inside a transaction, so it is switched off for each connection.
        engine.dispose()
        event.listen(engine, "connect", lambda connection, _entry: connection.execute("PRAGMA foreign_keys = OFF"))
    try:
        return write(engine, lambda connection: _upgrade(connection, scripts or _scripts()))
    finally:
        engine.dispose()


def check_schema(engine: Engine, *, scripts: Path | None = None) -> None:
    """Raises ConfigError when the database's schema is behind or ahead of this version of rebalancer."""
    known = _revisions(scripts or _scripts())
    revision = read(engine, schema_revision)
    if revision == known[-1]:
        return
    shown = shown_url(engine.url)
    if revision is None:
        raise ConfigError(f"{shown}: no tables of rebalancer yet: {UPGRADE_HINT}")
    if revision in known:
        raise ConfigError(f"{shown}: schema {revision} is behind {known[-1]}: {UPGRADE_HINT}")
    raise ConfigError(_ahead(shown, revision))


def _upgrade(connection: Connection, scripts: Path) -> str:
    from alembic import command

    postgres = connection.dialect.name == "postgresql"
    if postgres:
        # let go at the end of the transaction, whatever happens: a lock of the session would survive in the pool
        driver: Any = connection.connection.driver_connection
        driver.unbounded = True
        connection.execute(text("SET LOCAL lock_timeout = '2min'"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    known, revision = _revisions(scripts), schema_revision(connection)
    if revision is not None and revision not in known:
        raise ConfigError(_ahead(shown_url(connection.engine.url), revision))
    config = _config(scripts)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if not postgres and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()):
        raise ConfigError(f"{shown_url(connection.engine.url)}: the upgrade would leave {len(broken)} orphaned rows")
    return known[-1]


def _ahead(shown: str, revision: str) -> str:
    return f"{shown}: schema {revision} is newer than rebalancer {rebalancer.__version__}: run a newer rebalancer"


def schema_revision(connection: Connection) -> str | None:
    """The database's revision; None where nothing was migrated yet."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar_one_or_none()


def newest_revision(scripts: Path | None = None) -> str:
    """The newest revision that this version of rebalancer knows. Raises ConfigError."""
    return _revisions(scripts or _scripts())[-1]


def _revisions(scripts: Path) -> list[str]:
    """All revisions, oldest first; at least one."""
    found = sorted(file.name.partition("_")[0] for file in (scripts / "versions").glob("*.py"))
    if not found:
        raise ConfigError(f"{scripts}: holds no migrations: the installation is damaged")
    return found


def _config(scripts: Path) -> "Config":
    from alembic.config import Config

    # Alembic's output is discarded: stdout is for the command's output
    config = Config(stdout=io.StringIO(), output_buffer=io.StringIO())
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    return config


def _scripts() -> Path:
    package = Path(rebalancer.__file__).parent
    for folder in (package / "_data" / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigError(f"{package}: the migrations are missing: the installation is damaged")
