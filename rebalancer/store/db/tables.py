"""The tables; those of assessments and rates are in `effect_tables`. A change here needs a migration in
`migrations/versions`; a test compares the two.

Names of nodes, pods and services are kept as text, not as keys of other tables: the rows must stay readable long after
the things they name are gone. Several clusters may share one database, so every query is by `cluster`.
"""

import math
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    Uuid,
    true,
)


class Instant(TypeDecorator[float]):
    """Seconds since the epoch, kept as a UTC timestamp (to the microsecond).

    SQLite drops the time zone of a timestamp, so what comes back from it is read as UTC.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromtimestamp(value, UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> float | None:
        if value is None:
            return None
        at: datetime = value if value.tzinfo else value.replace(tzinfo=UTC)
        return at.timestamp()


class Measure(TypeDecorator[float]):
    """A measured figure; NaN ("not known") is kept as NULL, as SQLite does anyway and PostgreSQL does not."""

    impl = Double()
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None or not math.isfinite(value) else float(value)


class Words(TypeDecorator[str]):
    """Text from outside (an API server's message): PostgreSQL refuses the NUL character, so it is left out."""

    impl = Text()
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.replace("\x00", "")


# SQLite numbers rows only in a column of exactly the type INTEGER.
RowId = BigInteger().with_variant(Integer(), "sqlite")

# Named constraints: Alembic's batch mode can't change a nameless one on SQLite.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# One row: which ledger this is. A leader that finds another identity in the Lease evicts nothing.
LEDGER = Table(
    "ledger",
    METADATA,
    Column("id", Integer, CheckConstraint("id = 1", name="single"), primary_key=True, autoincrement=False),
    Column("identity", Uuid, nullable=False),
    Column("created", Instant, nullable=False),
    Column("pruned", Instant),  # when old entries were last dropped
)

CYCLES = Table(
    "cycles",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("finished_at", Instant),  # NULL: still running, or its process died
    Column("version", Text, nullable=False),  # of rebalancer
    Column("stopped_code", Text),
    Column("stopped_message", Words),
    Column("notes", JSON, nullable=False),  # list of sentences
    # Totals, NULL until the cycle has finished. Outcomes are counted from the evictions: they change when settled.
    Column("nodes", Integer),
    Column("hot_nodes", Integer),
    Column("findings", Integer),
    Column("evictions", Integer),
    Column("refusals", Integer),
    Column("hot_node_minutes", Measure),  # that its evictions remove; NULL: none, or written before 0015
    Column("price", Measure),  # of its evictions
    Index(None, "cluster", "started_at"),
)

CYCLE_NODES = Table(
    "cycle_nodes",
    METADATA,
    Column("cycle", Text, ForeignKey(CYCLES.c.id, ondelete="CASCADE"), primary_key=True),
    Column("node", Text, primary_key=True),
    Column("pool", Text, nullable=False),
    Column("cpu_before", Measure),  # shares
    Column("cpu_planned", Measure),
    Column("cpu_after", Measure),
    Column("hot", Boolean, nullable=False),
    Column("high", Measure),  # the share over which it would have been found; NULL: not evaluated
)

FINDINGS = Table(
    "findings",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cycle", Text, ForeignKey(CYCLES.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("node", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("resource", Text),  # of the three shares; NULL: written before 0013, CPU or what the reason names
    Column("cpu_share", Measure),
    Column("high", Measure),
    Column("target", Measure),
    Column("reason", Words, nullable=False),
    # [[resource, share, high, target]] of other resources that the node was hot by; NULL: none
    Column("others", JSON(none_as_null=True)),
)

# Never deleted with its cycle: limits count these rows.
EVICTIONS = Table(
    "evictions",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cycle", Text, ForeignKey(CYCLES.c.id), nullable=False, index=True),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("service", Text, nullable=False),  # namespace/name
    Column("service_kind", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("cpu_millicores", Measure),
    Column("target_nodes", JSON, nullable=False),  # [{node, probability}], most likely first
    Column("reason", Words, nullable=False),  # why it is moved
    Column("outcome", Text, nullable=False),  # model.plan.Outcome
    Column("code", Text),  # model.reason.Reason of a refusal or failure
    Column("detail", Words, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("planned_at", Instant, nullable=False),  # written, just before the call
    Column("answered_at", Instant),  # the call answered, or timed out
    Column("reconciled_at", Instant),  # the unknown outcome was reconciled with the API server's state
    Column("replaced_at", Instant),  # its replacement was Ready
    Column("lease_term", BigInteger),
    # What a reservation knows and a dry run's row doesn't: NULL there, and in rows older than the ledger.
    Column("service_identity", Text),
    Column("level", Text),
    Column("ready_before", Integer),
    Column("desired_before", Integer),
    Column("deadline_at", Instant),  # later, without a landing, it is late
    Column("owner_uid", Text),
    Column("target_node", Text),  # where the replacement is expected
    Column("pull_bytes", Measure),
    Column("replacement_pod", Text),
    Column("replacement_uid", Text),
    Column("replacement_node", Text),
    Column("late", Boolean),
    Column("target_pool", Text),
    Column("grace_seconds", Measure),  # the evicted pod's own
    Column("in_background", Boolean),  # another component carries it out
    Column("closed_at", Instant),  # no longer in flight, without a replacement that was seen Ready
    Column("closed_by", Words),
    Column("closed_reason", Words),
    Column("resource", Text),  # that its node was to be relieved of; NULL: another goal, or written before 0014
    Column("amounts", JSON(none_as_null=True)),  # {resource besides CPU: [amount, share of the node]}
    Index(None, "cluster", "planned_at"),
    Index(None, "service", "planned_at"),
    Index(None, "node", "planned_at"),
    Index(None, "cluster", "outcome"),
)

# A cycle may refuse 100,000 candidates: per node and code a count and a few examples are kept.
REFUSALS = Table(
    "refusals",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cycle", Text, ForeignKey(CYCLES.c.id, ondelete="CASCADE"), nullable=False),
    Column("node", Text, nullable=False),
    Column("code", Text, nullable=False),  # model.reason.Reason
    Column("count", Integer, nullable=False),
    # [{namespace, pod, message, cpu_millicores where known}], pod is empty where the node is meant
    Column("examples", JSON, nullable=False),
    UniqueConstraint("cycle", "node", "code"),
)

# The rows that are locked, in the order of their key, while a reservation counts. One that nothing counts in any more
# may be pruned: the next reservation creates it again.
SCOPES = Table(
    "scopes",
    METADATA,
    Column("kind", Text, primary_key=True),  # model.limits.ScopeKind
    Column("key", Text, primary_key=True),
    Column("term", BigInteger),  # of a cluster: the highest lease term that was seen
    Column("sequence", BigInteger),  # of a cluster: number of its reservations ever
    Column("cluster_uid", Text),  # of a cluster: UID of its namespace kube-system
)

# One row for each eviction and scope. Those of an eviction that did not happen stay, and count no more.
ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("eviction", RowId, ForeignKey(EVICTIONS.c.id), nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("at", Instant, nullable=False),  # by the ledger's clock, read while the scope's row was locked
    Column("counted", Boolean, nullable=False),
    Column("in_flight", Boolean, nullable=False),
    Index(None, "kind", "key", "at"),
    Index(None, "at"),
)
# Few rows are in flight at any time: the index holds only those.
Index(
    "ix_entries_in_flight",
    ENTRIES.c.kind,
    ENTRIES.c.key,
    sqlite_where=ENTRIES.c.in_flight == true(),
    postgresql_where=ENTRIES.c.in_flight == true(),
)

PAUSES = Table(
    "pauses",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("reason", Words, nullable=False),
    Column("created_by", Words, nullable=False),
    Column("created", Instant, nullable=False),
    Column("until", Instant),  # NULL: until resumed
    Column("ended", Instant),  # resumed
)

# What is remembered about a service on a node.
EVICTION_BACKOFFS = Table(
    "eviction_backoffs",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("service_identity", Text, primary_key=True),
    Column("node", Text, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("until", Instant, nullable=False),
    Column("reason", Words, nullable=False),
    Column("updated", Instant, nullable=False),
    Column("resource", Text),  # evictions for others of these are not held back; NULL: all are
)

# Ready replicas of each service in each cluster, by that cluster's last report.
READY_REPORTS = Table(
    "ready_reports",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("service_identity", Text, primary_key=True, index=True),
    Column("ready", Integer, nullable=False),
    Column("desired", Integer, nullable=False),
    Column("reported_at", Instant, nullable=False),
)

# The global limits that each cluster states: they should be the same.
CLUSTER_LIMITS = Table(
    "cluster_limits",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("text", Text, nullable=False),  # JSON
    Column("updated", Instant, nullable=False),
    Column("longest_window_seconds", Measure),  # its longest window; NULL: stated by an older version
    Column("nodes", Integer),  # its nodes, of which global percentages are taken; NULL as above
)

# Alerts, from before they are acknowledged until they are over; then they keep repeats from opening them again.
ALERT_EPISODES = Table(
    "alert_episodes",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("starts_at", Instant, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("annotations", JSON, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state IN ('open', 'resolved', 'expired', 'refused')", name="state"),
        nullable=False,
    ),
    Column("received_at", Instant, nullable=False),
    Column("last_received_at", Instant, nullable=False),  # the last delivery in which it fires
    Column("next_at", Instant, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("reason", Words, nullable=False),
    UniqueConstraint("cluster", "fingerprint", "starts_at"),
    Index(None, "cluster", "state", "next_at"),
)

# Plans of the parts in mode Approve (model.decisions.proposals). No limit reads them.
PROPOSALS = Table(
    "proposals",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint(
            "state IN "
            "('Proposed', 'Approved', 'Started', 'CarriedOut', 'Rejected', 'Expired', 'Superseded', 'Refused')",
            name="state",
        ),
        nullable=False,
    ),
    Column("cycle", Text, nullable=False),  # that planned it
    Column("run", Text, nullable=False),  # id of the cycle that carries it out
    Column("policy_hash", Text, nullable=False),
    Column("proposed_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("decided_by", Words),
    Column("decided_at", Instant),
    Column("reason", Words, nullable=False),
    Column("evictions", JSON, nullable=False),
    Column("thresholds", JSON, nullable=False),  # of alerts
    Column("due", JSON, nullable=False),  # [[node, resource, seconds since the epoch]]
    Index(None, "cluster", "proposed_at"),
    Index(None, "cluster", "state"),
)
# One is open for each pool and strategy.
Index(
    "uq_proposals_open",
    PROPOSALS.c.cluster,
    PROPOSALS.c.pool,
    PROPOSALS.c.strategy,
    unique=True,
    sqlite_where=PROPOSALS.c.state.in_(("Proposed", "Approved")),
    postgresql_where=PROPOSALS.c.state.in_(("Proposed", "Approved")),
)

# Evictions whose replacement comes first (model.decisions.surges).
SURGES = Table(
    "surges",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("eviction", RowId, ForeignKey(EVICTIONS.c.id, ondelete="CASCADE"), nullable=False, index=True),
    *(Column(name, Text, nullable=False) for name in ("namespace", "deployment", "deployment_uid", "pod", "pod_uid")),
    Column("replicas", Integer, nullable=False),  # before
    Column("state", Text, nullable=False),
    Column("reason", Words, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("deadline_at", Instant, nullable=False),
    Column("quiet_at", Instant, nullable=False),  # from then on no call without an answer can be under way
    Column("ended_at", Instant),
)
_OPEN, _ONE = SURGES.c.ended_at.is_(None), (SURGES.c.cluster, SURGES.c.deployment_uid)
Index("uq_surges_open", *_ONE, unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN)

# Forecasts and their actuals: one row for each kind, node and day. No limit reads them.
FORECASTS = Table(
    "forecasts",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("kind", Text, CheckConstraint("kind IN ('daily', 'ahead')", name="kind"), nullable=False),
    Column("node", Text, nullable=False),
    Column("day", Integer, nullable=False),  # days since the epoch, UTC: the one that it counts for
    Column("pool", Text, nullable=False),
    Column("made_at", Instant, nullable=False),
    Column("until", Instant, nullable=False),
    Column("predictor", Text, nullable=False),
    Column("peak_millicores", Measure),
    Column("peak_at", Instant),
    Column("margin_millicores", Measure),
    Column("capacity_millicores", Measure),
    Column("high", Measure),  # share; NULL where the pool has no fixed one
    Column("days_used", Integer, nullable=False),
    Column("confidence", Measure),
    Column("pods", JSON, nullable=False),  # [[first characters of the uid, share of the peak]]; [] once it is verified
    Column("hot_from", Instant),
    Column("evaluated_at", Instant),  # NULL: what follows isn't known yet
    Column("actual_p95_millicores", Measure),
    Column("actual_peak_millicores", Measure),
    Column("actual_peak_at", Instant),
    Column("departed_peak_share", Measure),
    Column("counterfactual_peak_millicores", Measure),
    Column("verdict", Text),  # model.forecasts.Verdict
    UniqueConstraint("cluster", "kind", "node", "day"),
    Index(None, "made_at"),
)
# Those of a day or two wait for verification: a partial index.
Index(
    "ix_forecasts_waiting",
    FORECASTS.c.cluster,
    FORECASTS.c.until,
    sqlite_where=FORECASTS.c.evaluated_at.is_(None),
    postgresql_where=FORECASTS.c.evaluated_at.is_(None),
)

# Forecasts of a pool and period (model.outcomes) that later forecasts learn from, in one packed value for all nodes.
FORECAST_OUTCOMES = Table(
    "forecast_outcomes",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("period", Integer, primary_key=True, autoincrement=False),
    Column("made_at", Instant, nullable=False),
    Column("evaluated_at", Instant),  # NULL: without actuals yet
    Column("data", LargeBinary, nullable=False),  # after the others: reads of them don't touch it
)
