"""What Alembic runs for each command. It works on the connection and in the transaction that it is given.

To add a migration: change `rebalancer/store/db/tables.py`, copy the newest file in `versions/` to the next number, set
`revision` and `down_revision`, and write the change with `op.batch_alter_table(...)` (SQLite can't alter most things in
place). `tests/store/test_store_migrations.py` compares the tables and the migrations.
"""

from alembic import context

from rebalancer.store.db.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
