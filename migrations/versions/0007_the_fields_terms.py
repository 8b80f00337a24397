"""Tables, columns, codes and JSON keys renamed to the terms of the glossary; every row is kept.

The rows of renamed tables are copied, so that their constraints follow the new names; columns are renamed in place.
A program that knows only the old names fails with its next statement: replicas are stopped before the upgrade.
"""

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TABLES = {"looks": "node_measurements", "node_lines": "cycle_nodes", "memory": "eviction_backoffs"}
COLUMNS = {
    "evictions": {
        "landings": "target_nodes",
        "landing_node": "target_node",
        "landing_pool": "target_pool",
        "wanted_before": "desired_before",
        "settled_at": "reconciled_at",
    },
    "ready_reports": {"wanted": "desired"},
    "pauses": {"who": "created_by"},
    "cluster_limits": {"looks_back_seconds": "longest_window_seconds"},
    "alert_episodes": {"heard_at": "last_received_at", "tries": "attempts"},
    "forecasts": {
        "judged_at": "evaluated_at",
        "without_us_millicores": "counterfactual_peak_millicores",
        "changed_share": "departed_peak_share",
    },
    "assessments": {"acted_at": "last_eviction_at", "made_at": "assessed_at", "account": "breakdown"},
    "hot_episodes": {
        "found_at": "discovered_at",
        "found_by": "discovery_trigger",
        "ours": "measured_peak_share",
        "miss": "miss_reason",
        "stuck": "blocked_reason",
    },
    "pool_hours": {"spread": "share_stddev", "new_pods_on_warm": "new_pods_over_target"},
    "effect_days": {"found": "discovered", "acted": "evicted_from"},
    "effect_state": {"standard_read_until": "slo_evaluated_until", "keep_details_seconds": "detail_retention_seconds"},
}
REASONS = {
    "Braked": "CircuitBreakerOpen",
    "GaveUp": "EvictionBackoff",
    "Debounce": "StabilizationWindow",
    "ServiceLate": "ReplacementLate",
    "NoLanding": "NoTargetNode",
    "NoRoomInTargets": "NoNodeWithHeadroom",
    "WouldComeBack": "WouldReturnToNode",
    "LandingTooWarm": "TargetNodeWithoutHeadroom",
    "LandingNotModelled": "PlacementNotModelled",
    "LandingClosed": "TargetNodeUnavailable",
    "LandingNotBetter": "TargetNodeNotBetter",
    "NowhereBetter": "NoBetterNode",
    "EnoughGo": "EnoughEvicted",
    "EvenAlready": "AlreadyBalanced",
    "CantEmpty": "NodeNotDrainable",
    "NotItsTurn": "DrainQueued",
    "MovedBefore": "RepeatedEviction",
    "MovedElsewhere": "MovedInOtherCluster",
    "ReadyShare": "ReadyShareTooLow",
    "WindowBroken": "WindowInvalid",
    "NobodyNoisy": "NoNoisyNeighbour",
    "OutOfTime": "PlanningTimeout",
    "LimitLandings": "LimitReplacements",
    "LimitPulls": "LimitImagePulls",
}
MISSES = {"debounce": "stabilizationWindow", "notSensitive": "belowThreshold", "notLookedAt": "notEvaluated"}
BLOCKED = {"noLanding": "noTargetNode"}
OUTCOMES = {
    "tooLittleMoved": "tooFewEvicted",
    "newPodsLanded": "newPodsArrived",
    "restGrew": "remainingPodsGrew",
    "cameBack": "replacementsReturned",
}
BREAKDOWN = {
    "left": "departed",
    "landed": "arrived",
    "came_back": "returned",
    "grew": "remaining_change",
    "unexplained": "residual",
}
DAY_REASONS = {
    f"{group}/{old}": f"{group}/{new}"
    for group, codes in (("discovery", MISSES), ("eviction", BLOCKED), ("effect", OUTCOMES))
    for old, new in codes.items()
}
CODES = (
    ("cycles", "stopped_code", REASONS),
    ("evictions", "code", REASONS),
    ("refusals", "code", REASONS),
    ("hot_episodes", "miss_reason", MISSES),
    ("hot_episodes", "blocked_reason", BLOCKED),
    ("assessments", "outcome", OUTCOMES),
)
"""(table, column, old -> new)"""
KEYS = (
    ("evictions", "target_nodes", {"share": "probability"}),
    ("assessments", "breakdown", BREAKDOWN),
    ("hot_episodes", "codes", REASONS),
    ("effect_days", "reasons", DAY_REASONS),
)
"""(table, JSON column, old key -> new): of the object, or of each object in the list."""


def upgrade() -> None:
    _copy_tables(TABLES)
    for table, columns in COLUMNS.items():
        for old, new in columns.items():
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    _rename_index("acted_at", "last_eviction_at")
    _rewrite(lambda names: names)


def downgrade() -> None:
    _rewrite(lambda names: {new: old for old, new in names.items()})
    for table, columns in COLUMNS.items():
        for old, new in columns.items():
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")
    _rename_index("last_eviction_at", "acted_at")
    _copy_tables({new: old for old, new in TABLES.items()})


def _copy_tables(names: Mapping[str, str]) -> None:
    """Create each table under its new name, copy its rows and drop the old one. Only `memory` has a kind."""
    instant = sa.DateTime(timezone=True)
    measurements, nodes, backoffs = names.values()
    op.create_table(
        measurements,
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("nodes", sa.LargeBinary(), nullable=False),
        *_keys_of_a_cycle(measurements, "cycle"),
    )
    op.create_table(
        nodes,
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("cpu_before", sa.Double()),
        sa.Column("cpu_planned", sa.Double()),
        sa.Column("cpu_after", sa.Double()),
        sa.Column("hot", sa.Boolean(), nullable=False),
        sa.Column("high", sa.Double()),
        *_keys_of_a_cycle(nodes, "cycle", "node"),
    )
    kind: list[Any] = []
    if backoffs == "memory":
        check = sa.CheckConstraint("kind IN ('gaveUp')", name=op.f(f"ck_{backoffs}_kind"))
        kind = [sa.Column("kind", sa.Text(), nullable=False), check]
    key = ("cluster", "service_identity", "node", *(["kind"] if kind else []))
    op.create_table(
        backoffs,
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("service_identity", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        *kind,
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("until", instant, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("updated", instant, nullable=False),
        sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{backoffs}")),
    )
    columns = (
        "cycle, nodes",
        "cycle, node, pool, cpu_before, cpu_planned, cpu_after, hot, high",
        "cluster, service_identity, node, count, until, reason, updated",
    )
    for (old, new), these in zip(names.items(), columns, strict=True):
        of_kind = ("kind, ", "'gaveUp', ") if new == "memory" else ("", "")
        op.execute(f"INSERT INTO {new} ({of_kind[0]}{these}) SELECT {of_kind[1]}{these} FROM {old}")
        op.drop_table(old)


def _keys_of_a_cycle(table: str, *key: str) -> tuple[sa.PrimaryKeyConstraint, sa.ForeignKeyConstraint]:
    return (
        sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{table}")),
        sa.ForeignKeyConstraint(["cycle"], ["cycles.id"], name=op.f(f"fk_{table}_cycle_cycles"), ondelete="CASCADE"),
    )


def _rename_index(old: str, new: str) -> None:
    # those with a condition keep their names, and their conditions follow the columns
    op.drop_index(op.f(f"ix_assessments_cluster_{old}"), "assessments")
    op.create_index(op.f(f"ix_assessments_cluster_{new}"), "assessments", ["cluster", new])


def _rewrite(direction: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
    """Replace codes, and keys of JSON objects."""
    connection = op.get_bind()
    for table, column, names in CODES:
        known = direction(names)
        rows = sa.table(table, sa.column(column, sa.Text()))
        code = rows.c[column]
        connection.execute(sa.update(rows).where(code.in_(known)).values({column: sa.case(known, value=code)}))
    for table, column, names in KEYS:
        _rewrite_keys(connection, table, column, direction(names))


def _rewrite_keys(connection: sa.Connection, table: str, column: str, names: Mapping[str, str]) -> None:
    found = sa.Table(table, sa.MetaData(), autoload_with=connection)
    keys = list(found.primary_key.columns)
    values = found.c[column]
    read = sa.select(*keys, sa.type_coerce(values, sa.JSON()).label("value")).where(values.is_not(None))
    changes = [
        {**{f"key_{number}": part for number, part in enumerate(key)}, "new": new}
        for *key, value in connection.execute(read).all()
        if (new := _renamed(value, names)) != value
    ]
    if changes:
        this = (key == sa.bindparam(f"key_{number}") for number, key in enumerate(keys))
        write = sa.update(found).where(*this).values({column: sa.bindparam("new", type_=sa.JSON())})
        connection.execute(write, changes)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return {names.get(key, key): each for key, each in value.items()} if isinstance(value, dict) else value
