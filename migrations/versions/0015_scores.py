"""What the evictions of a cycle are worth: hot node-minutes that they remove, and their price."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

COLUMNS = ("hot_node_minutes", "price")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("cycles", sa.Column(name, sa.Double()))


def downgrade() -> None:
    for name in COLUMNS:
        # not in a batch: it would drop the table, which others refer to
        op.drop_column("cycles", name)
