"""The database: every decision is recorded before its call, the outcome after it.

    url ──> open_engine ──> check_schema ──> SqlRecords ──> begin, planned, outcome, finish, recent_moves
     └────> upgrade, status                      └────────> SqlLedger ──> reserve, outcome, landed, late, reconcile

- `db`         tables, one engine for SQLite and PostgreSQL, transactions, migrations (Alembic)
- `ledger`     reservations of evictions over all clusters, and operator state: pauses, backoff, readiness
- `cycles`     records of cycles: `records` writes them, `reading` reads them for the dashboard
- `evaluation` assessments, hot episodes, hours and daily counts; `node_observations` of cycles
- `forecasts`  forecasts and their actuals; `forecast_sums` over many of them
- `outcomes`   forecasts that later forecasts learn from
- `inbox`      alerts until they are over
- `surges`     evictions whose replacement comes first
- `retention`  removal of rows by age and use
- `status`     the state that `rebalancer db status` shows
- `blocks`     days of CPU as files beside the database: a cache
- `journal`    what changed in the cluster, as files beside the day blocks, for replays

Times are seconds since the epoch in Python and UTC timestamps in the database. A value that is not known is NaN or None
in Python and NULL in the database, never zero.

All functions raise `ConfigError` for a URL, file or schema that is unusable, and `ConnectError` for a database that
can't be reached, is locked or rejects the connection. Either before an eviction means no eviction.
"""

from rebalancer.store.cycles.reading import SqlReading
from rebalancer.store.cycles.records import SqlRecords, open_records
from rebalancer.store.db.engine import database_exists, open_engine, shown_url
from rebalancer.store.db.migrate import check_schema, upgrade
from rebalancer.store.evaluation import SqlEffect
from rebalancer.store.forecasts import SqlForecasts
from rebalancer.store.inbox import SqlInbox
from rebalancer.store.ledger.ledger import SqlLedger
from rebalancer.store.outcomes import SqlOutcomes
from rebalancer.store.proposals import SqlProposals
from rebalancer.store.retention.pruning import Pruned, prune
from rebalancer.store.status import DatabaseStatus, status
from rebalancer.store.surges import SqlSurges

__all__ = [
    "DatabaseStatus",
    "Pruned",
    "SqlEffect",
    "SqlForecasts",
    "SqlInbox",
    "SqlLedger",
    "SqlOutcomes",
    "SqlProposals",
    "SqlReading",
    "SqlRecords",
    "SqlSurges",
    "check_schema",
    "database_exists",
    "open_engine",
    "open_records",
    "prune",
    "shown_url",
    "status",
    "upgrade",
]
