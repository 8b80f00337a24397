"""The ledger: scopes and what counts in them, pauses, give-up memory, and what clusters tell each other."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    instant = sa.DateTime(timezone=True)

    # nullable, so rows that are there stay as they are, and no table is rebuilt
    with op.batch_alter_table("evictions") as evictions:
        for column in (
            sa.Column("service_identity", sa.Text()),
            sa.Column("level", sa.Text()),
            sa.Column("ready_before", sa.Integer()),
            sa.Column("wanted_before", sa.Integer()),
            sa.Column("deadline_at", instant),
            sa.Column("owner_uid", sa.Text()),
            sa.Column("landing_node", sa.Text()),
            sa.Column("pull_bytes", sa.Double()),
            sa.Column("replacement_pod", sa.Text()),
            sa.Column("replacement_uid", sa.Text()),
            sa.Column("replacement_node", sa.Text()),
            sa.Column("late", sa.Boolean()),
        ):
            evictions.add_column(column)
    op.create_table(
        "scopes",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger()),
        sa.PrimaryKeyConstraint("kind", "key", name=op.f("pk_scopes")),
    )
    op.create_table(
        "entries",
        sa.Column("id", row_id, nullable=False),
        sa.Column("eviction", row_id, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("at", instant, nullable=False),
        sa.Column("counted", sa.Boolean(), nullable=False),
        sa.Column("in_flight", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_entries")),
        sa.ForeignKeyConstraint(["eviction"], ["evictions.id"], name=op.f("fk_entries_eviction_evictions")),
    )
    op.create_index(op.f("ix_entries_eviction"), "entries", ["eviction"])
    op.create_index(op.f("ix_entries_kind_key_at"), "entries", ["kind", "key", "at"])
    op.create_index(op.f("ix_entries_at"), "entries", ["at"])
    in_flight = sa.column("in_flight", sa.Boolean()) == sa.true()
    op.create_index(
        "ix_entries_in_flight", "entries", ["kind", "key"], sqlite_where=in_flight, postgresql_where=in_flight
    )
    op.create_table(
        "pauses",
        sa.Column("id", row_id, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("created", instant, nullable=False),
        sa.Column("until", instant),
        sa.Column("ended", instant),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pauses")),
    )
    op.create_table(
        "memory",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("service_identity", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("until", instant, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("updated", instant, nullable=False),
        sa.CheckConstraint("kind IN ('gaveUp')", name=op.f("ck_memory_kind")),
        sa.PrimaryKeyConstraint("cluster", "service_identity", "node", "kind", name=op.f("pk_memory")),
    )
    op.create_table(
        "ready_reports",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("service_identity", sa.Text(), nullable=False),
        sa.Column("ready", sa.Integer(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("reported_at", instant, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "service_identity", name=op.f("pk_ready_reports")),
    )
    op.create_index(op.f("ix_ready_reports_service_identity"), "ready_reports", ["service_identity"])
    op.create_table(
        "cluster_limits",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("updated", instant, nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_cluster_limits")),
    )


def downgrade() -> None:
    raise NotImplementedError("the ledger is never taken back to an older schema: restore a backup")
