"""The store's fixtures: what a cycle writes to the ledger is tested on both databases."""

from tests.store.conftest import (
    backend,
    blue,
    clock,
    engine,
    green,
    newest_postgres,
    newest_postgres_url,
    newest_sqlite,
    newest_sqlite_url,
    numbers,
    postgres_name,
    sqlite_path,
    url,
)

__all__ = [
    "backend",
    "blue",
    "clock",
    "engine",
    "green",
    "newest_postgres",
    "newest_postgres_url",
    "newest_sqlite",
    "newest_sqlite_url",
    "numbers",
    "postgres_name",
    "sqlite_path",
    "url",
]
