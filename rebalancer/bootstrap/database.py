"""The database alone: for what people say and ask of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.bootstrap.adapters import records_of
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import SystemClock
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import DatabaseStatus, Pruned, SqlLedger, SqlRecords, prune, shown_url, status, upgrade
from rebalancer.store import database_exists as exists


@contextmanager
def open_ledger(policy: RebalancerPolicy, settings: Settings) -> Iterator[SqlLedger]:
    """The ledger alone, for what people say and ask. A new SQLite file gets its tables."""
    if settings.database.startswith("sqlite") and not exists(settings.database):
        upgrade(settings.database)
    with records_of(settings, policy, SystemClock()) as records:
        yield records.ledger()


@contextmanager
def kept_records(policy: RebalancerPolicy, settings: Settings) -> Iterator[SqlRecords | None]:
    """What is recorded; None where there is no database yet. Raises ConfigError, ConnectError."""
    if not exists(settings.database):
        yield None
        return
    with records_of(settings, policy, SystemClock()) as records:
        yield records


def database_exists(settings: Settings) -> bool:
    """Whether there is a database: always for a server, for SQLite when its file is there."""
    return exists(settings.database)


def database_upgrade(settings: Settings) -> str:
    """Bring the schema up to date; the revision it has then."""
    return upgrade(settings.database)


def database_status(settings: Settings) -> DatabaseStatus:
    """What is in the database."""
    return status(settings.database)


def database_prune(settings: Settings, *, older_than: float | None, dry_run: bool) -> Pruned:
    """Drop what no limit can see any more. Raises ConfigError, also for a schema that isn't current; ConnectError."""
    return prune(settings.database, older_than=older_than, dry_run=dry_run)


def database_shown(settings: Settings) -> str:
    """The database's URL without its password."""
    return shown_url(settings.database)
