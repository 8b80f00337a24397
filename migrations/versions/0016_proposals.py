"""Plans that wait for an approval."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

STATES = ("Proposed", "Approved", "Started", "CarriedOut", "Rejected", "Expired", "Superseded", "Refused")


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "proposals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column(
            "state",
            sa.Text(),
            sa.CheckConstraint(f"state IN ({', '.join(map(repr, STATES))})", name=op.f("ck_proposals_state")),
            nullable=False,
        ),
        sa.Column("cycle", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("policy_hash", sa.Text(), nullable=False),
        sa.Column("proposed_at", instant, nullable=False),
        sa.Column("expires_at", instant, nullable=False),
        sa.Column("decided_by", sa.Text()),
        sa.Column("decided_at", instant),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evictions", sa.JSON(), nullable=False),
        sa.Column("thresholds", sa.JSON(), nullable=False),
        sa.Column("due", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_proposals"),
    )
    op.create_index("ix_proposals_cluster_proposed_at", "proposals", ["cluster", "proposed_at"])
    op.create_index("ix_proposals_cluster_state", "proposals", ["cluster", "state"])
    is_open = sa.text("state IN ('Proposed', 'Approved')")
    op.create_index(
        "uq_proposals_open",
        "proposals",
        ["cluster", "pool", "strategy"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )


def downgrade() -> None:
    op.drop_table("proposals")
