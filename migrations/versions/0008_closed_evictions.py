"""Evictions in the background, and evictions that were closed, by whom and why; the nodes of each cluster."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # nullable, so rows that are there stay as they are, and no table is rebuilt
    with op.batch_alter_table("evictions") as evictions:
        evictions.add_column(sa.Column("in_background", sa.Boolean()))
        evictions.add_column(sa.Column("closed_at", sa.DateTime(timezone=True)))
        evictions.add_column(sa.Column("closed_by", sa.Text()))
        evictions.add_column(sa.Column("closed_reason", sa.Text()))
    with op.batch_alter_table("cluster_limits") as cluster_limits:
        cluster_limits.add_column(sa.Column("nodes", sa.Integer()))


def downgrade() -> None:
    with op.batch_alter_table("cluster_limits") as cluster_limits:
        cluster_limits.drop_column("nodes")
    with op.batch_alter_table("evictions") as evictions:
        for column in ("closed_reason", "closed_by", "closed_at", "in_background"):
            evictions.drop_column(column)
