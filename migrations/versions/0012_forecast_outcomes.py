"""Forecasts with what came of them, which later forecasts learn from."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "forecast_outcomes",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("period", sa.Integer(), nullable=False),
        sa.Column("made_at", instant, nullable=False),
        sa.Column("evaluated_at", instant),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "pool", "period", name="pk_forecast_outcomes"),
    )


def downgrade() -> None:
    op.drop_table("forecast_outcomes")
