"""Where replacements land and how long their pods take to leave; how far each cluster looks back; the last pruning."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # nullable, so rows that are there stay as they are, and no table is rebuilt
    with op.batch_alter_table("evictions") as evictions:
        evictions.add_column(sa.Column("landing_pool", sa.Text()))
        evictions.add_column(sa.Column("grace_seconds", sa.Double()))
    with op.batch_alter_table("cluster_limits") as cluster_limits:
        cluster_limits.add_column(sa.Column("looks_back_seconds", sa.Double()))
    with op.batch_alter_table("ledger") as ledger:
        ledger.add_column(sa.Column("pruned", sa.DateTime(timezone=True)))


def downgrade() -> None:
    raise NotImplementedError("the ledger is never taken back to an older schema: restore a backup")
