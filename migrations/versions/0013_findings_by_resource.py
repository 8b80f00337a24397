"""The resource by which a node was found hot. Findings before were by CPU, or by requests that their reason names."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("findings", sa.Column("resource", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("findings") as table:
        table.drop_column("resource")
