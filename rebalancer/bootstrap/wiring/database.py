"""The database alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import (
    DatabaseStatus,
    Pruned,
    SqlLedger,
    SqlProposals,
    SqlRecords,
    open_records,
    prune,
    shown_url,
    status,
    upgrade,
)
from rebalancer.store import database_exists as exists


def records_of(settings: Settings, policy: RebalancerPolicy, clock: Clock) -> SqlRecords:
    """The records of the policy's cluster. Raises ConfigError, ConnectError."""
    return open_records(url=settings.database, cluster=policy.cluster, clock=clock)


def create_database(settings: Settings) -> None:
    """Create a SQLite file that is not there yet, with its tables. Raises ConfigError, ConnectError."""
    if settings.database.startswith("sqlite") and not exists(settings.database):
        upgrade(settings.database)


@contextmanager
def open_ledger(policy: RebalancerPolicy, settings: Settings) -> Iterator[SqlLedger]:
    """The ledger alone. A new SQLite file gets its tables."""
    create_database(settings)
    with records_of(settings, policy, SystemClock()) as records:
        yield records.ledger()


@contextmanager
def open_proposals(
    policy: RebalancerPolicy, settings: Settings, *, clock: Clock | None = None
) -> Iterator[SqlProposals]:
    """The proposals alone. Times are by the database's clock unless a `clock` replaces it. Raises ConfigError without a
    database: the daemon that proposes has one."""
    if not exists(settings.database):
        raise ConfigError(f"{database_shown(settings)}: no such database; expected that of the daemon")
    with records_of(settings, policy, SystemClock()) as records:
        yield records.proposals(clock=clock)


@contextmanager
def kept_records(policy: RebalancerPolicy, settings: Settings) -> Iterator[SqlRecords | None]:
    """The records; None where there is no database yet. Raises ConfigError, ConnectError."""
    if not exists(settings.database):
        yield None
        return
    with records_of(settings, policy, SystemClock()) as records:
        yield records


def database_exists(settings: Settings) -> bool:
    """Whether there is a database: always for a server, for SQLite when its file exists."""
    return exists(settings.database)


def database_upgrade(settings: Settings) -> str:
    """Upgrade the schema; returns its revision."""
    return upgrade(settings.database)


def database_status(settings: Settings) -> DatabaseStatus:
    """Revision and row counts."""
    return status(settings.database)


def database_prune(settings: Settings, *, older_than: float | None, dry_run: bool) -> Pruned:
    """Delete entries that no limit counts any more. Raises ConfigError (also where an upgrade is due), ConnectError."""
    return prune(settings.database, older_than=older_than, dry_run=dry_run)


def database_shown(settings: Settings) -> str:
    """The database's URL without its password."""
    return shown_url(settings.database)
