"""What pods requested on nodes, of the last minutes."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "requested",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("nodes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "at", name="pk_requested"),
    )


def downgrade() -> None:
    op.drop_table("requested")
