"""What became of it: assessments, hot episodes, hours, days; and what a cycle measured on nodes that it didn't find."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    instant = sa.DateTime(timezone=True)

    # nullable, so rows that are there stay as they are, and no table is rebuilt
    with op.batch_alter_table("node_lines") as node_lines:
        node_lines.add_column(sa.Column("high", sa.Double()))
    op.create_table(
        "looks",
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("nodes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cycle", name=op.f("pk_looks")),
        sa.ForeignKeyConstraint(["cycle"], ["cycles.id"], name=op.f("fk_looks_cycle_cycles"), ondelete="CASCADE"),
    )
    op.create_table(
        "assessments",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("acted_at", instant, nullable=False),
        sa.Column("due_at", instant, nullable=False),
        sa.Column("before_share", sa.Double()),
        sa.Column("planned_share", sa.Double()),
        sa.Column("target", sa.Double()),
        sa.Column("high", sa.Double()),
        sa.Column("capacity_millicores", sa.Double()),
        sa.Column("pods", sa.JSON(), nullable=False),
        sa.Column("made_at", instant),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("after_share", sa.Double()),
        sa.Column("account", sa.JSON()),
        sa.Column("outcome", sa.Text()),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assessments")),
        sa.UniqueConstraint("cycle", "node", "step", name=op.f("uq_assessments_cycle_node_step")),
    )
    op.create_index(op.f("ix_assessments_cluster_acted_at"), "assessments", ["cluster", "acted_at"])
    not_made = sa.column("made_at", instant).is_(None)
    op.create_index(
        "ix_assessments_due", "assessments", ["cluster", "due_at"], sqlite_where=not_made, postgresql_where=not_made
    )
    op.create_table(
        "hot_episodes",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("started_at", instant, nullable=False),
        sa.Column("ended_at", instant),
        sa.Column("peak_share", sa.Double()),
        sa.Column("threshold", sa.Double()),
        sa.Column("found_at", instant),
        sa.Column("found_by", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("evictions", sa.Integer(), nullable=False),
        sa.Column("ours", sa.Double()),
        sa.Column("miss", sa.Text()),
        sa.Column("stuck", sa.Text()),
        sa.Column("codes", sa.JSON()),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("cooled", sa.Boolean()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hot_episodes")),
        sa.UniqueConstraint("cluster", "node", "started_at", name=op.f("uq_hot_episodes_cluster_node_started_at")),
    )
    op.create_index(op.f("ix_hot_episodes_cluster_started_at"), "hot_episodes", ["cluster", "started_at"])
    op.create_table(
        "pool_hours",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("hot_nodes", sa.Double()),
        sa.Column("hot_node_minutes", sa.Double()),
        sa.Column("cpu_share", sa.Double()),
        sa.Column("requested_share", sa.Double()),
        sa.Column("spread", sa.Double()),
        sa.Column("highest_share", sa.Double()),
        sa.Column("new_pods", sa.Integer(), nullable=False),
        sa.Column("new_pods_on_warm", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "hour", "pool", name=op.f("pk_pool_hours")),
    )
    op.create_table(
        "effect_days",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("hot", sa.Integer(), nullable=False),
        sa.Column("found", sa.Integer(), nullable=False),
        sa.Column("acted", sa.Integer(), nullable=False),
        sa.Column("cooled", sa.Integer(), nullable=False),
        sa.Column("assessed", sa.Integer(), nullable=False),
        sa.Column("evictions", sa.Integer(), nullable=False),
        sa.Column("relief_planned", sa.Double()),
        sa.Column("relief_measured", sa.Double()),
        sa.Column("hot_node_minutes", sa.Double()),
        sa.Column("prevented", sa.Integer(), nullable=False),
        sa.Column("false_alarms", sa.Integer(), nullable=False),
        sa.Column("too_late", sa.Integer(), nullable=False),
        sa.Column("reasons", sa.JSON()),
        sa.PrimaryKeyConstraint("cluster", "day", "pool", "strategy", "trigger", name=op.f("pk_effect_days")),
    )
    op.create_table(
        "effect_state",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("standard_read_until", instant),
        sa.Column("keep_details_seconds", sa.Double()),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_effect_state")),
    )


def downgrade() -> None:
    # unlike the ledger's: no limit counts these rows, they are only lost
    for table in ("effect_state", "effect_days", "pool_hours", "hot_episodes", "assessments", "looks"):
        op.drop_table(table)
    with op.batch_alter_table("node_lines") as node_lines:
        node_lines.drop_column("high")
