"""Cycles, what they found, evicted and refused, and the ledger's identity."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    instant = sa.DateTime(timezone=True)

    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.Uuid(), nullable=False),
        sa.Column("created", instant, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_ledger_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
    )
    op.create_table(
        "cycles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("started_at", instant, nullable=False),
        sa.Column("finished_at", instant),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("stopped_code", sa.Text()),
        sa.Column("stopped_message", sa.Text()),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("nodes", sa.Integer()),
        sa.Column("hot_nodes", sa.Integer()),
        sa.Column("findings", sa.Integer()),
        sa.Column("evictions", sa.Integer()),
        sa.Column("refusals", sa.Integer()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cycles")),
    )
    op.create_index(op.f("ix_cycles_cluster_started_at"), "cycles", ["cluster", "started_at"])
    op.create_table(
        "node_lines",
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("cpu_before", sa.Double()),
        sa.Column("cpu_planned", sa.Double()),
        sa.Column("cpu_after", sa.Double()),
        sa.Column("hot", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cycle", "node", name=op.f("pk_node_lines")),
        sa.ForeignKeyConstraint(["cycle"], ["cycles.id"], name=op.f("fk_node_lines_cycle_cycles"), ondelete="CASCADE"),
    )
    op.create_table(
        "findings",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("cpu_share", sa.Double()),
        sa.Column("high", sa.Double()),
        sa.Column("target", sa.Double()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
        sa.ForeignKeyConstraint(["cycle"], ["cycles.id"], name=op.f("fk_findings_cycle_cycles"), ondelete="CASCADE"),
    )
    op.create_index(op.f("ix_findings_cycle"), "findings", ["cycle"])
    op.create_table(
        "evictions",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("pod", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("service_kind", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("cpu_millicores", sa.Double()),
        sa.Column("landings", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("code", sa.Text()),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("planned_at", instant, nullable=False),
        sa.Column("answered_at", instant),
        sa.Column("settled_at", instant),
        sa.Column("replaced_at", instant),
        sa.Column("lease_term", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evictions")),
        sa.ForeignKeyConstraint(["cycle"], ["cycles.id"], name=op.f("fk_evictions_cycle_cycles")),
    )
    op.create_index(op.f("ix_evictions_cycle"), "evictions", ["cycle"])
    op.create_index(op.f("ix_evictions_cluster_planned_at"), "evictions", ["cluster", "planned_at"])
    op.create_index(op.f("ix_evictions_service_planned_at"), "evictions", ["service", "planned_at"])
    op.create_index(op.f("ix_evictions_node_planned_at"), "evictions", ["node", "planned_at"])
    op.create_index(op.f("ix_evictions_cluster_outcome"), "evictions", ["cluster", "outcome"])
    op.create_table(
        "refusals",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("examples", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refusals")),
        sa.ForeignKeyConstraint(["cycle"], ["cycles.id"], name=op.f("fk_refusals_cycle_cycles"), ondelete="CASCADE"),
        sa.UniqueConstraint("cycle", "node", "code", name=op.f("uq_refusals_cycle_node_code")),
    )


def downgrade() -> None:
    raise NotImplementedError("the ledger is never taken back to an older schema: restore a backup")
