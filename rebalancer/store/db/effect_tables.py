"""Tables of assessments, hot episodes, hours and daily counts: see `tables`."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from rebalancer.model.decisions.plan import NodeLine
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.store.db.tables import CYCLES, METADATA, Instant, Measure, RowId, Words


class Packed(TypeDecorator[Any]):
    """Deflated JSON: for large values that are read rarely and only by this program."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        return None if value is None else zlib.compress(json.dumps(value, separators=(",", ":")).encode())

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json_decoder(object).decode(zlib.decompress(value))


# Measured shares of all nodes that a cycle evaluated, one row per cycle: as `cycle_nodes` they would be gigabytes.
# After two days retention moves those of longer interest there.
NODE_MEASUREMENTS = Table(
    "node_measurements",
    METADATA,
    Column("cycle", Text, ForeignKey(CYCLES.c.id, ondelete="CASCADE"), primary_key=True),
    Column("nodes", Packed, nullable=False),  # [[pool, high, {node: share or null}]]
)

# Assessments after evictions: scheduled in the cycle that evicted, so that a restart misses none.
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
    Column("last_eviction_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("before_share", Measure),
    Column("planned_share", Measure),
    Column("target", Measure),
    Column("high", Measure),
    Column("capacity_millicores", Measure),  # in the unit of the resource: its name is older than resources
    Column("pods", JSON, nullable=False),  # [[uid, namespace/name, amount or null, evicted]]
    Column("assessed_at", Instant),  # NULL: what follows isn't known yet
    Column("late", Boolean, nullable=False),
    Column("after_share", Measure),
    Column("breakdown", JSON(none_as_null=True)),  # model.effect.ChangeBreakdown by its fields
    Column("outcome", Text),  # model.effect.Outcome
    Column("detail", Words, nullable=False),
    Column("resource", Text),  # by which the effect is measured; NULL: CPU
    UniqueConstraint("cycle", "node", "step"),
    Index(None, "cluster", "last_eviction_at"),
)
# Few are due at any time: a partial index.
Index(
    "ix_assessments_due",
    ASSESSMENTS.c.cluster,
    ASSESSMENTS.c.due_at,
    sqlite_where=ASSESSMENTS.c.assessed_at.is_(None),
    postgresql_where=ASSESSMENTS.c.assessed_at.is_(None),
)

# Nodes that were hot by the hot-node SLO.
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
    Column("discovered_at", Instant),
    Column("discovery_trigger", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("evictions", Integer, nullable=False),
    Column("measured_peak_share", Measure),
    Column("miss_reason", Text),  # model.reason.MissReason
    Column("blocked_reason", Text),  # model.reason.BlockedReason
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
    Column("share_stddev", Measure),
    Column("highest_share", Measure),
    Column("new_pods", Integer, nullable=False),
    Column("new_pods_over_target", Integer, nullable=False),
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
    Column("discovered", Integer, nullable=False),
    Column("evicted_from", Integer, nullable=False),
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
    # NULL: counted by an older version
    Column("nodes_emptied", Integer),
    Column("nodes_removed", Integer),
    Column("nodes_in_vain", Integer),
    Column("core_hours_saved", Measure),
)

# Nodes that were emptied for an autoscaler, and what became known of them.
DRAINED_NODES = Table(
    "drained_nodes",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("node", Text, primary_key=True),
    Column("emptied_at", Instant, primary_key=True),
    Column("pool", Text, nullable=False),
    Column("capacity_millicores", Measure),
    Column("pool_nodes", Integer, nullable=False),
    Column("removed_at", Instant),
    Column("in_vain_at", Instant),
    Column("given_back_at", Instant),
)

# What pods requested on nodes at the cycles of the last hours.
REQUESTED = Table(
    "requested",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("at", Instant, primary_key=True),
    Column("nodes", Packed, nullable=False),  # {node: {resource: amount}}
)

# How far the hot-node SLO was evaluated, and the detail retention of the cluster's policy.
EFFECT_STATE = Table(
    "effect_state",
    METADATA,
    Column("cluster", Text, primary_key=True),
    Column("slo_evaluated_until", Instant),
    Column("detail_retention_seconds", Measure),
)

DIGITS = 6
"""Of a packed share."""
NodeMeasurements = Sequence[tuple[str, float, Mapping[str, float | None]]]
"""(pool, high, node -> share): the nodes of a pool have few highs, mostly one."""


def pack_node_measurements(lines: Iterable[NodeLine]) -> NodeMeasurements:
    """The value of `node_measurements.nodes`: the nodes that the cycle evaluated."""
    out: dict[tuple[str, float], dict[str, float | None]] = {}
    for line in lines:
        if line.high is not None:
            share = None if line.cpu_before is None else round(line.cpu_before, DIGITS)
            out.setdefault((line.pool, round(line.high, DIGITS)), {})[line.name] = share
    return [(pool, high, nodes) for (pool, high), nodes in out.items()]


def unpack_node_measurements(
    measured: NodeMeasurements, wanted: Iterable[str]
) -> Iterator[tuple[str, str, float | None, float]]:
    """(pool, node, share, high) of those of the `wanted` nodes that are in it."""
    for pool, high, nodes in measured:
        for node in wanted:
            if node in nodes:
                yield pool, node, nodes[node], high
