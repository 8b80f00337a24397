"""Evictions whose replacement comes first."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    instant, row_id = sa.DateTime(timezone=True), sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "surges",
        sa.Column("id", row_id, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("eviction", row_id, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("deployment_uid", sa.Text(), nullable=False),
        sa.Column("pod", sa.Text(), nullable=False),
        sa.Column("pod_uid", sa.Text(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("started_at", instant, nullable=False),
        sa.Column("deadline_at", instant, nullable=False),
        sa.Column("quiet_at", instant, nullable=False),
        sa.Column("ended_at", instant),
        sa.ForeignKeyConstraint(
            ["eviction"], ["evictions.id"], name="fk_surges_eviction_evictions", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_surges"),
    )
    op.create_index("ix_surges_eviction", "surges", ["eviction"])
    is_open = sa.text("ended_at IS NULL")
    op.create_index(
        "uq_surges_open",
        "surges",
        ["cluster", "deployment_uid"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )


def downgrade() -> None:
    op.drop_table("surges")
