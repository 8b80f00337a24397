"""Number of reservations of each cluster, which its Lease knows too: a restored database is behind it."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # nullable, so rows that are there stay as they are, and no table is rebuilt
    with op.batch_alter_table("scopes") as scopes:
        scopes.add_column(sa.Column("sequence", sa.BigInteger()))


def downgrade() -> None:
    with op.batch_alter_table("scopes") as scopes:
        scopes.drop_column("sequence")
