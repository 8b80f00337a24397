"""The resource that an eviction, its assessment and its backoff are for, and what the evicted pod used of each.

Rows before have NULL: evictions and assessments were for CPU, or for no resource; their backoffs hold for all.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# nullable, so rows that are there stay as they are, and no table is rebuilt
COLUMNS = (
    ("evictions", "resource", sa.Text),
    ("evictions", "amounts", sa.JSON),
    ("findings", "others", sa.JSON),
    ("assessments", "resource", sa.Text),
    ("eviction_backoffs", "resource", sa.Text),
)


def upgrade() -> None:
    for table, column, kind in COLUMNS:
        op.add_column(table, sa.Column(column, kind()))


def downgrade() -> None:
    for table, column, _ in reversed(COLUMNS):
        # in place: a table that is rebuilt loses the rows that refer to it
        op.drop_column(table, column)
