"""Which Kubernetes cluster the evictions of each name are of: two clusters of one name don't share a ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # nullable, so rows that are there stay as they are, and no table is rebuilt
    with op.batch_alter_table("scopes") as scopes:
        scopes.add_column(sa.Column("cluster_uid", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("scopes") as scopes:
        scopes.drop_column("cluster_uid")
