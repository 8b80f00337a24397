"""The database: what was decided is written before the call, its outcome after.

    url ──> open_engine ──> check_schema ──> SqlRecords ──> begin, planned, outcome, finish, recent_moves
     └────> upgrade, status                      └────────> SqlLedger ──> reserve, outcome, landed, entries,
                                                                          reconcile_outcomes (at the next start)

- `tables`    the tables, and how time and measurements are kept in them
- `engine`    one URL to one engine: SQLite (a file) or PostgreSQL; transactions; errors in one line, without secrets
- `migrate`   Alembic, run by us: `upgrade` and `status`
- `ledger`    how many evictions, how fast, how many at once: reserved in one transaction each, over all clusters
- `counting`  the locks, the clock and the sliding windows behind it
- `notes`     what people, the past and other clusters say: pauses, give-up memory, ready replicas, stated limits
- `forecasts` what was expected of each node, and what came
- `effect`    whether it helped: assessments, episodes, hours, a day's counts
- `node_observations` what our cycles said of single nodes
- `records`   the adapter behind `model.ports.Records`
- `rows`      the rows of evictions, which both write, and the entries that hang on them
- `pruning`   dropping what no limit can see any more, and details that are too old, as `details` says
- `reconcile` outcomes that were never written, from the API server's state
- `history`   cycles read back as plain dicts
- `reading`   what the dashboard reads: pages of cycles, single nodes, services
- `blocks`    days of CPU, in files beside the database: a cache

Times are seconds since the epoch in Python and UTC timestamps in the database. A figure that is not known is NaN in
the domain, None in the dicts of `history` and NULL in the database, never zero.

Every function raises `ConfigError` for a URL, file or schema that can't be used and `ConnectError` for a database that
can't be reached, is locked or refuses us. Whoever gets one before an eviction must not evict.
"""

from rebalancer.store.blocks import BlockStore
from rebalancer.store.cycles.reading import SqlReading
from rebalancer.store.cycles.records import SqlRecords, open_records
from rebalancer.store.db.engine import database_exists, open_engine, shown_url
from rebalancer.store.db.migrate import DatabaseStatus, check_schema, status, upgrade
from rebalancer.store.evaluation import SqlEffect
from rebalancer.store.forecasts import SqlForecasts
from rebalancer.store.inbox import SqlInbox
from rebalancer.store.ledger.ledger import SqlLedger
from rebalancer.store.retention.pruning import Pruned, prune

__all__ = [
    "BlockStore",
    "DatabaseStatus",
    "Pruned",
    "SqlEffect",
    "SqlForecasts",
    "SqlInbox",
    "SqlLedger",
    "SqlReading",
    "SqlRecords",
    "check_schema",
    "database_exists",
    "open_engine",
    "open_records",
    "prune",
    "shown_url",
    "status",
    "upgrade",
]
