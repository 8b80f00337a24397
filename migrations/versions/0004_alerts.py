"""Alerts: one row for each cluster, fingerprint and start, written before the webhook answers."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "alert_episodes",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("annotations", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heard_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint("state IN ('open', 'resolved', 'expired', 'refused')", name=op.f("ck_alert_episodes_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_episodes")),
        sa.UniqueConstraint(
            "cluster", "fingerprint", "starts_at", name=op.f("uq_alert_episodes_cluster_fingerprint_starts_at")
        ),
    )
    op.create_index(op.f("ix_alert_episodes_cluster_state_next_at"), "alert_episodes", ["cluster", "state", "next_at"])


def downgrade() -> None:
    raise NotImplementedError("the ledger is never taken back to an older schema: restore a backup")
