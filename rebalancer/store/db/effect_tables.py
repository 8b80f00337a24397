"""The tables of what became of it: see `tables`."""

import json
import zlib
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from rebalancer.store.db.tables import CYCLES, METADATA, Instant, Measure, RowId, Words


class Packed(TypeDecorator[Any]):
    """JSON, deflated: for much that is read seldom and by nobody but us."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        return None if value is None else zlib.compress(json.dumps(value, separators=(",", ":")).encode())

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(zlib.decompress(value))


# What a cycle measured on every node that it looked at, one row a cycle: as rows of `node_lines` it would be gigabytes.
# Pruning moves what is still of interest there after two days.
LOOKS = Table(
    "looks",
    METADATA,
    Column("cycle", Text, ForeignKey(CYCLES.c.id, ondelete="CASCADE"), primary_key=True),
    Column("nodes", Packed, nullable=False),  # [[pool, high, {node: share or null}]]
)

# What is looked at again after an eviction: written in the cycle that evicted, so that a restart misses none.
ASSESSMENTS = Table(
    "assessments",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("cycle", Text, nullable=False),  # no key of `cycles`: what is due outlives them
    Column("node", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("step", Text, nullable=False),  # model.effect.Step
    Column("acted_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("before_share", Measure),
    Column("planned_share", Measure),
    Column("target", Measure),
    Column("high", Measure),
    Column("capacity_millicores", Measure),
    Column("pods", JSON, nullable=False),  # [[uid, namespace/name, millicores or null, evicted]]
    Column("made_at", Instant),  # NULL: what follows isn't known yet
    Column("late", Boolean, nullable=False),
    Column("after_share", Measure),
    Column("account", JSON(none_as_null=True)),  # model.effect.Account by its fields
    Column("outcome", Text),  # model.effect.Outcome
    Column("detail", Words, nullable=False),
    UniqueConstraint("cycle", "node", "step"),
    Index(None, "cluster", "acted_at"),
)
# Few are due at any time: the index holds only those.
Index(
    "ix_assessments_due",
    ASSESSMENTS.c.cluster,
    ASSESSMENTS.c.due_at,
    sqlite_where=ASSESSMENTS.c.made_at.is_(None),
    postgresql_where=ASSESSMENTS.c.made_at.is_(None),
)

# Nodes that were hot by the organisation's own standard.
HOT_EPISODES = Table(
    "hot_episodes",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),  # NULL: still hot
    Column("peak_share", Measure),
    Column("threshold", Measure),
    Column("found_at", Instant),
    Column("found_by", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("evictions", Integer, nullable=False),
    Column("ours", Measure),
    Column("miss", Text),  # model.effect.MissReason
    Column("stuck", Text),  # model.effect.Stuck
    Column("codes", JSON(none_as_null=True)),  # {model.reason.Reason: how many}
    Column("detail", Words, nullable=False),
    Column("cooled", Boolean),
    UniqueConstraint("cluster", "node", "started_at"),
    Index(None, "cluster", "started_at"),
)

POOL_HOURS = Table(
    "pool_hours",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("hour", Integer, primary_key=True, autoincrement=False),  # since the epoch, UTC
    Column("pool", Text, primary_key=True),
    Column("nodes", Integer, nullable=False),
    Column("hot_nodes", Measure),
    Column("hot_node_minutes", Measure),
    Column("cpu_share", Measure),
    Column("requested_share", Measure),
    Column("spread", Measure),
    Column("highest_share", Measure),
    Column("new_pods", Integer, nullable=False),
    Column("new_pods_on_warm", Integer, nullable=False),
)

# A day's counts, which stay when their details are pruned.
EFFECT_DAYS = Table(
    "effect_days",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),  # since the epoch, UTC
    Column("pool", Text, primary_key=True),
    Column("strategy", Text, primary_key=True),
    Column("trigger", Text, primary_key=True),
    Column("hot", Integer, nullable=False),
    Column("found", Integer, nullable=False),
    Column("acted", Integer, nullable=False),
    Column("cooled", Integer, nullable=False),
    Column("assessed", Integer, nullable=False),
    Column("evictions", Integer, nullable=False),
    Column("relief_planned", Measure),  # cores
    Column("relief_measured", Measure),
    Column("hot_node_minutes", Measure),
    Column("prevented", Integer, nullable=False),
    Column("false_alarms", Integer, nullable=False),
    Column("too_late", Integer, nullable=False),
    Column("reasons", JSON(none_as_null=True)),
)

# How far the standard was evaluated, and for how long the cluster's policy keeps details.
EFFECT_STATE = Table(
    "effect_state",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("standard_read_until", Instant),
    Column("keep_details_seconds", Measure),
)
