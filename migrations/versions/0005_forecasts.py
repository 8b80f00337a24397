"""Forecasts: what was expected of each node, and what came."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "forecasts",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("made_at", instant, nullable=False),
        sa.Column("until", instant, nullable=False),
        sa.Column("predictor", sa.Text(), nullable=False),
        sa.Column("peak_millicores", sa.Double()),
        sa.Column("peak_at", instant),
        sa.Column("margin_millicores", sa.Double()),
        sa.Column("capacity_millicores", sa.Double()),
        sa.Column("high", sa.Double()),
        sa.Column("days_used", sa.Integer(), nullable=False),
        sa.Column("confidence", sa.Double()),
        sa.Column("pods", sa.JSON(), nullable=False),
        sa.Column("hot_from", instant),
        sa.Column("judged_at", instant),
        sa.Column("actual_p95_millicores", sa.Double()),
        sa.Column("actual_peak_millicores", sa.Double()),
        sa.Column("actual_peak_at", instant),
        sa.Column("changed_share", sa.Double()),
        sa.Column("without_us_millicores", sa.Double()),
        sa.Column("verdict", sa.Text()),
        sa.CheckConstraint("kind IN ('daily', 'ahead')", name=op.f("ck_forecasts_kind")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_forecasts")),
        sa.UniqueConstraint("cluster", "kind", "node", "day", name=op.f("uq_forecasts_cluster_kind_node_day")),
    )
    op.create_index(op.f("ix_forecasts_made_at"), "forecasts", ["made_at"])
    waiting = sa.column("judged_at", instant).is_(None)
    op.create_index(
        "ix_forecasts_waiting", "forecasts", ["cluster", "until"], sqlite_where=waiting, postgresql_where=waiting
    )


def downgrade() -> None:
    # unlike the ledger's: no limit counts these rows, they are only lost
    op.drop_table("forecasts")
