"""One URL to one engine, transactions on it, and the database's errors as ours.

SQLite is a file, on one machine: WAL (readers don't wait for the writer), every commit on the disk before it returns,
foreign keys on, and writers that take the write lock first (`BEGIN IMMEDIATE`), because a reader that turns writer
half-way is refused by SQLite without waiting. PostgreSQL is for more than one replica or cluster.

No message made here contains a password, whatever the driver says.
"""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, quote_plus

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random_exponential

from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError

T = TypeVar("T")

EXPECTED_URL = "expected sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"
UPGRADE_HINT = "run `rebalancer db upgrade`"

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_SECRET_OPTIONS = ("password", "sslpassword")
_SHORTEST_REPLACED = 4
"""A shorter password stands in half of all words: replacing it would spoil the text and show what it is."""
_PHRASES = (
    "Connection refused",
    "failed to resolve host",
    "timeout expired",
    "server closed the connection unexpectedly",
    "password authentication failed",
    "no pg_hba.conf entry",
    "permission denied",
    "does not exist",
    "invalid connection option",
    "no such table",
    "no such column",
)
"""What of a driver's words is passed on when the password can't be taken out of them."""

# Every statement is small; one that takes longer than this waits for something that should end the cycle, not hang it.
_POSTGRES_SESSION = (
    "SET statement_timeout = '15s'; SET lock_timeout = '10s'; "
    "SET idle_in_transaction_session_timeout = '60s'; SET TIME ZONE 'UTC'"
)
_DEAD_PEER = {"keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3, "tcp_user_timeout": 15_000}
"""libpq's parameters: a connection ends after 15 s without an answer (seconds; the last in milliseconds)."""
_SERIALIZATION_FAILURE, _DEADLOCK = "40001", "40P01"
_WRITE_ATTEMPTS = 5
_LONGEST_DETAIL = 400
_BEGIN_OPTION = "rebalancer_begin"
_LAST_WRITE_OPTION = "rebalancer_last_write"


@dataclass(slots=True)
class _LastWrite:
    problem: str = ""
    """Why it failed; empty = it worked, or there was none."""


def open_engine(
    url: str, *, create: bool = False, busy_timeout_seconds: float = 5.0, connect_timeout_seconds: int = 5
) -> Engine:
    """An engine for `url`, after one connection has been made. The caller disposes of it.

    `create` allows a SQLite file that does not exist yet; its folder must exist. `busy_timeout_seconds` is how long a
    SQLite statement waits for another process's lock.

    Raises ConfigError for a URL or file that can't be one of ours, ConnectError for a database that can't be reached.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        _check_file(parsed, create=create)
        engine = _sqlite(parsed, busy_timeout_seconds=busy_timeout_seconds)
    else:
        engine = _postgres(parsed, connect_timeout_seconds=connect_timeout_seconds)
    engine.update_execution_options(**{_LAST_WRITE_OPTION: _LastWrite()})
    try:
        # a read, not just a connection: SQLite looks at its file only when asked for something in it
        read(engine, lambda connection: connection.exec_driver_sql("SELECT 1"))
        if engine.dialect.name == "sqlite":
            _bind_to_file(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def database_exists(url: str) -> bool:
    """Whether something can be opened: for SQLite whether its file is there, for a server always (it is not contacted).

    Raises ConfigError for a URL that can't be one of ours or an inaccessible file.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite":
        return True
    try:
        return _file_of(parsed).exists()
    except OSError as error:
        raise _not_looked_at(parsed, error) from None


def shown_url(url: str | URL) -> str:
    """The URL as it may be printed: without passwords. Raises ConfigError for one that can't be read."""
    parsed = _parse(url) if isinstance(url, str) else url
    hidden = {key: "***" if key in _SECRET_OPTIONS else value for key, value in parsed.query.items()}
    shown = parsed.set(drivername=parsed.get_backend_name(), query=hidden)
    # only the mark of what is hidden: a value that holds such characters itself stays encoded
    return shown.render_as_string(hide_password=True).replace("=%2A%2A%2A", "=***")


def read(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run `work` in one transaction that sees one state of the database. Raises ConfigError, ConnectError."""
    try:
        with engine.connect() as connection, connection.begin():
            return work(connection)
    except SQLAlchemyError as error:
        raise as_model_error(error, engine.url) from None


def write(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run `work` in one transaction and commit it; all of it happens or nothing.

    On a serialization failure or deadlock PostgreSQL has rolled everything back and `work` runs again, a few times with
    growing, random pauses; so `work` must do nothing but talk to its connection. Nothing else is tried again: after a
    lost connection it is not known whether the commit arrived.

    Raises ConfigError, ConnectError.
    """

    def once() -> T:
        with engine.connect() as connection:
            connection.execution_options(**{_BEGIN_OPTION: "BEGIN IMMEDIATE"})
            with connection.begin():
                return work(connection)

    retrying = Retrying(
        retry=retry_if_exception(_rolled_back),
        stop=stop_after_attempt(_WRITE_ATTEMPTS),
        wait=wait_exponential(0.02) + wait_random_exponential(0.02),
        reraise=True,
    )
    try:
        done = retrying(once)
    except SQLAlchemyError as error:
        problem = as_model_error(error, engine.url)
        if isinstance(problem, RebalancerError):
            _last_write(engine).problem = str(problem)
        raise problem from None
    _last_write(engine).problem = ""
    return done


def last_write_problem(engine: Engine) -> str:
    """Why the last `write` failed; empty = it worked, or there was none. A full disk fails no read."""
    return _last_write(engine).problem


def check_integrity(engine: Engine, tables: Iterable[str]) -> None:
    """Raises ConfigError where a SQLite file's tables, or their indexes, are damaged: some damage reads as rows that
    are missing. PostgreSQL has checksums of its own, and nothing is done."""
    if engine.dialect.name != "sqlite":
        return
    checks = [f"PRAGMA integrity_check('{table}')" for table in tables]
    answers = read(engine, lambda connection: [connection.exec_driver_sql(check).scalar() for check in checks])
    for found in answers:
        if found != "ok":
            detail = " ".join(str(found).split())[:_LONGEST_DETAIL]
            raise ConfigError(f"{shown_url(engine.url)}: the database file is damaged: {detail}: restore a backup")


def _last_write(engine: Engine) -> _LastWrite:
    found: _LastWrite = engine.get_execution_options().get(_LAST_WRITE_OPTION, _LastWrite())
    return found


def _rolled_back(error: BaseException) -> bool:
    return isinstance(error, SQLAlchemyError) and _sqlstate(error) in (_SERIALIZATION_FAILURE, _DEADLOCK)


def as_model_error(error: SQLAlchemyError, url: URL) -> RebalancerError | SQLAlchemyError:
    """`error` as one line for a person; what can only be a mistake of ours stays as it is."""
    shown = shown_url(url)
    if isinstance(error, PoolTimeoutError):
        return ConnectError(f"{shown}: all connections of the pool are in use")
    if not isinstance(error, DBAPIError):
        return error
    detail = _detail(error, url)
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_error(error.orig, shown, detail) or error
    return _postgres_error(error, shown, detail) or error


def _parse(url: str) -> URL:
    """Raises ConfigError, which never repeats the URL: it may hold a password in any of its parts."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(f"database URL: not a URL: {EXPECTED_URL}") from None
    except ValueError:
        raise ConfigError(
            "database URL: the port is not a number (a password with @ : / or % must be percent-encoded)"
        ) from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        known = parsed.drivername if parsed.drivername.replace("+", "").isalnum() else "?"
        raise ConfigError(f"database URL: {known}:// is not supported: {EXPECTED_URL}")
    if driver.startswith("postgresql"):
        if "@" in f"{parsed.host}{parsed.database}":
            raise ConfigError("database URL: more than one @: one in the password must be percent-encoded, as %40")
        if not parsed.database:
            raise ConfigError(f"database URL: names no database: {EXPECTED_URL}")
    elif parsed.host:
        raise ConfigError(
            "database URL: too few slashes: expected sqlite:///<file>, and a fourth one for a path from the root"
        )
    elif not parsed.database or ":memory:" in parsed.database or parsed.query.get("mode") == "memory":
        raise ConfigError("database URL: a database in memory forgets every limit: expected sqlite:///<file>")
    return parsed.set(drivername=driver)


def _check_file(url: URL, *, create: bool) -> None:
    path = _file_of(url)
    shown = shown_url(url)
    try:
        if not path.parent.is_dir():
            raise ConfigError(f"{shown}: the folder {path.parent} does not exist")
        if path.is_dir():
            raise ConfigError(f"{shown}: {path} is a folder: expected a file")
        if not create and not path.exists():
            # connecting would leave an empty file behind
            raise ConfigError(f"{shown}: {path} does not exist: {UPGRADE_HINT}")
    except OSError as error:
        raise _not_looked_at(url, error) from None


def _file_of(url: URL) -> Path:
    return Path((url.database or "").removeprefix("file:"))


def _not_looked_at(url: URL, error: OSError) -> ConfigError:
    return ConfigError(f"{shown_url(url)}: the file can't be looked at: {error.strerror or error}")


def _sqlite(url: URL, *, busy_timeout_seconds: float) -> Engine:
    engine = create_engine(url, connect_args={"timeout": busy_timeout_seconds}, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _entry: ConnectionPoolEntry) -> None:
        # the driver would begin later than needed, and not before a SELECT
        connection.isolation_level = None
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                _switch_to_wal(connection)
        except BaseException:
            connection.close()
            raise

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN_OPTION, "BEGIN"))

    return engine


def _bind_to_file(engine: Engine) -> None:
    """Let every transaction fail once another file, or none, has the path of the one that is open: what is written to a
    file without a name is gone with the process, and limits would count evictions that no later process knows."""
    path, shown = _file_of(engine.url), shown_url(engine.url)
    opened = _identity(path)

    def check(*_: Any) -> None:
        if _identity(path) != opened:
            raise ConnectError(
                f"{shown}: the file was removed or replaced while it was open: put it back, or restart the process"
            )

    # before a connection is made too: it would leave an empty file behind
    event.listen(engine, "do_connect", check)
    event.listen(engine, "begin", check)


def _identity(path: Path) -> tuple[int, int] | None:
    """(device, inode) of a file; None where there is none, or it can't be looked at. An open file keeps its inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _switch_to_wal(connection: Any) -> None:
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        # the mode is a property of the file: if it is in use just now, a later connection switches it
        if not error.sqlite_errorname.startswith("SQLITE_BUSY"):
            raise


def _postgres(url: URL, *, connect_timeout_seconds: int) -> Engine:
    # no prepared statements on the server: they break behind PgBouncer, and we run few statements
    arguments: dict[str, Any] = {"prepare_threshold": None}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = connect_timeout_seconds
    # A server that vanishes without closing its connections answers nothing, ever: the kernel's default is two hours.
    for option, value in _DEAD_PEER.items():
        if option not in url.query:
            arguments[option] = value
    if "application_name" not in url.query:
        arguments["application_name"] = "rebalancer"
    # Said with each BEGIN: where a server's default is stricter, a transaction would count the rows as they were before
    # it waited for a scope's lock, and let more through than the limit.
    level: Literal["READ COMMITTED"] = "READ COMMITTED"
    engine = create_engine(
        url, connect_args=arguments, isolation_level=level, pool_pre_ping=True, pool_timeout=10, hide_parameters=True
    )

    from rebalancer.store.db.bounded_connection import BoundedConnection

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _entry: ConnectionPoolEntry, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return BoundedConnection.connect(*args, **options)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _entry: ConnectionPoolEntry) -> None:
        try:
            # outside of a transaction, or a rollback would undo the settings
            connection.autocommit = True
            connection.execute(_POSTGRES_SESSION)
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise

    return engine


def _sqlite_error(error: sqlite3.Error, shown: str, detail: str) -> RebalancerError | None:
    # an error of the Python wrapper (not of SQLite itself) carries no name
    name: str = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ConnectError(f"{shown}: locked by another process for too long")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return ConnectError(f"{shown}: the file or its folder can't be written: {detail}")
    if name.startswith(("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_PROTOCOL")):
        return ConnectError(f"{shown}: {detail}")
    if name.startswith("SQLITE_NOTADB"):
        return ConfigError(f"{shown}: not a SQLite database file")
    if name.startswith("SQLITE_CORRUPT"):
        return ConfigError(f"{shown}: the database file is damaged: {detail}")
    said = str(error)
    if said.startswith(("no such table", "no such column")) or " has no column named " in said:
        return ConfigError(f"{shown}: {detail}: {UPGRADE_HINT}")
    return None


def _postgres_error(error: DBAPIError, shown: str, detail: str) -> RebalancerError | None:
    state = _sqlstate(error)
    if state in ("42P01", "42703"):  # no such table, no such column
        return ConfigError(f"{shown}: {detail}: {UPGRADE_HINT}")
    if state is None and type(error).__name__ == "ProgrammingError":  # an option in the URL that libpq doesn't know
        return ConfigError(f"{shown}: {detail}")
    # 42501: no privilege. The other classes: connection, authorization, resources, shutdown, I/O, locks and time-outs,
    # a read-only server, transactions that had to be rolled back too often.
    classes = ("08", "28", "3D", "53", "55", "57", "58", "25", "40")
    if state is None or state == "42501" or state.startswith(classes):
        return ConnectError(f"{shown}: {detail}")
    return None


def _sqlstate(error: SQLAlchemyError) -> str | None:
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state if isinstance(state, str) else None


def _detail(error: DBAPIError, url: URL) -> str:
    """The driver's message, without passwords; where one is too short to be replaced, only what kind of error it is."""
    given = [url.password, *(url.query.get(key) for key in _SECRET_OPTIONS)]
    # an option that stands twice in the URL is a tuple
    secrets = [one for each in given if each for one in ((each,) if isinstance(each, str) else each) if one]
    if any(len(secret) < _SHORTEST_REPLACED for secret in secrets):
        state = _sqlstate(error)
        kind = type(error.orig).__name__ + (f" (SQLSTATE {state})" if state else "")
        known = [phrase for phrase in _PHRASES if phrase in str(error.orig)]
        return ": ".join((kind, *known)) + " (the rest is held back: it may hold the password)"
    # PostgreSQL shows the statement behind "LINE"; the driver's advice comes on further lines
    text = " ".join(str(error.orig).split()).partition(" LINE ")[0]
    for secret in secrets:
        for form in (secret, quote(secret, safe=""), quote_plus(secret)):
            text = text.replace(form, "***")
    return text[:_LONGEST_DETAIL]
