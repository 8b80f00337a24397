"""Alembic, run by us: users need no `alembic.ini`.

The migrations are data beside the code: `migrations/` at the root of a checkout, `_data/migrations` inside a wheel.
A migration is never edited once it was released; `migrations/env.py` says how to add one.
"""

import io
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, event, text

import rebalancer
from rebalancer.model.errors import ConfigError
from rebalancer.store.db.engine import UPGRADE_HINT, open_engine, read, shown_url, write

# "rebalanc" as a number: one upgrade at a time in a PostgreSQL database
_UPGRADE_LOCK = int.from_bytes(b"rebalanc", "big")


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
        return write(engine, lambda connection: _upgrade(connection, config=_config(scripts)))
    finally:
        engine.dispose()


def check_schema(engine: Engine, *, scripts: Path | None = None) -> None:
    """Raises ConfigError when the database's schema is behind or ahead of this version of rebalancer."""
    directory = ScriptDirectory.from_config(_config(scripts))
    revision = read(engine, schema_revision)
    if revision == _head(directory):
        return
    shown = shown_url(engine.url)
    if revision is None:
        raise ConfigError(f"{shown}: no tables of rebalancer yet: {UPGRADE_HINT}")
    if revision in _known(directory):
        raise ConfigError(f"{shown}: schema {revision} is behind {_head(directory)}: {UPGRADE_HINT}")
    raise ConfigError(_ahead(shown, revision))


def _upgrade(connection: Connection, *, config: Config) -> str:
    postgres = connection.dialect.name == "postgresql"
    if postgres:
        # let go at the end of the transaction, whatever happens: a lock of the session would survive in the pool
        connection.execute(text("SET LOCAL lock_timeout = '2min'"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    directory = ScriptDirectory.from_config(config)
    revision = schema_revision(connection)
    if revision is not None and revision not in _known(directory):
        raise ConfigError(_ahead(shown_url(connection.engine.url), revision))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if not postgres and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()):
        raise ConfigError(f"{shown_url(connection.engine.url)}: the upgrade would leave {len(broken)} orphaned rows")
    return _head(directory)


def _ahead(shown: str, revision: str) -> str:
    return f"{shown}: schema {revision} is newer than rebalancer {rebalancer.__version__}: run a newer rebalancer"


def schema_revision(connection: Connection) -> str | None:
    """The database's revision; None where nothing was migrated yet."""
    return MigrationContext.configure(connection).get_current_revision()


def newest_revision(scripts: Path | None = None) -> str:
    """The newest revision that this version of rebalancer knows. Raises ConfigError."""
    return _head(ScriptDirectory.from_config(_config(scripts)))


def _head(directory: ScriptDirectory) -> str:
    head = directory.get_current_head()
    if head is None:
        raise ConfigError(f"{directory.dir}: holds no migrations: the installation is damaged")
    return head


def _known(directory: ScriptDirectory) -> frozenset[str]:
    return frozenset(script.revision for script in directory.walk_revisions())


def _config(scripts: Path | None) -> Config:
    # Alembic's output is discarded: stdout is for the command's output
    config = Config(stdout=io.StringIO(), output_buffer=io.StringIO())
    config.set_main_option("script_location", str(scripts or _scripts()).replace("%", "%%"))
    return config


def _scripts() -> Path:
    package = Path(rebalancer.__file__).parent
    for folder in (package / "_data" / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigError(f"{package}: the migrations are missing: the installation is damaged")
