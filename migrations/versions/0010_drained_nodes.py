"""Drained nodes, and what became of them; their daily counts."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COUNTS = ("nodes_emptied", "nodes_removed", "nodes_in_vain")


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "drained_nodes",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("emptied_at", instant, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("capacity_millicores", sa.Double()),
        sa.Column("pool_nodes", sa.Integer(), nullable=False),
        sa.Column("removed_at", instant),
        sa.Column("in_vain_at", instant),
        sa.Column("given_back_at", instant),
        sa.PrimaryKeyConstraint("cluster", "node", "emptied_at", name="pk_drained_nodes"),
    )
    # nullable, so rows that are there stay as they are, and no table is rebuilt
    with op.batch_alter_table("effect_days") as days:
        for column in COUNTS:
            days.add_column(sa.Column(column, sa.Integer()))
        days.add_column(sa.Column("core_hours_saved", sa.Double()))


def downgrade() -> None:
    with op.batch_alter_table("effect_days") as days:
        for column in ("core_hours_saved", *reversed(COUNTS)):
            days.drop_column(column)
    op.drop_table("drained_nodes")
