"""Faults of the database."""

from tests.faults.matrix.row import fault

DATABASE = (
    fault(
        "The database is locked, read-only, unreachable, or loses a connection half-way",
        "Nothing is reserved, so nothing is evicted.",
        "tests/store/test_ledger_locks.py::test_a_ledger_that_cannot_be_read_reserves_nothing",
        "tests/store/test_ledger_locks.py::test_a_locked_sqlite_file_reserves_nothing",
        "tests/store/test_store_engine.py::test_a_read_only_database_is_named",
        "tests/store/test_store_engine.py::test_a_connection_lost_half_way_is_not_tried_again",
        "tests/store/test_store_engine.py::test_a_server_that_never_answers_is_given_up",
        seen="`[-]database` with the reason",
        action="fix the database",
    ),
    fault(
        "The SQLite file is deleted, moved away or replaced while the daemon runs",
        "Nothing is reserved, so nothing is evicted; no new file is made.",
        "tests/store/test_store_engine.py::test_a_sqlite_file_that_lost_its_path_takes_no_transaction",
        "tests/e2e/test_daemon_resources.py::test_nothing_is_evicted_on_a_database_file_that_was_deleted",
        ends="when the file is back, or the process restarted",
        seen="`[-]database`: `the file was removed or replaced`",
        action="put it back, or [restore a backup](upgrade.md#restore), and restart",
    ),
    fault(
        "A PostgreSQL that vanishes without closing its connections",
        "Its connections end; nothing is reserved meanwhile.",
        "tests/store/test_store_engine.py::test_a_server_that_vanishes_is_given_up_after_fifteen_seconds",
        ends="15 s",
        seen="`[-]database` with the reason",
        action="fix the database",
    ),
    fault(
        "A PostgreSQL, or a proxy before it, takes everything and answers nothing",
        "A statement ends after 20 s of silence, a new connection after 5 s; nothing is reserved meanwhile.",
        "tests/store/test_black_hole.py::"
        "test_a_database_that_takes_everything_and_answers_nothing_reserves_nothing_for_a_time",
        "tests/store/test_black_hole.py::test_silence_in_the_middle_of_a_transaction_ends_it",
        "tests/store/test_black_hole.py::test_a_process_behind_a_black_hole_goes_on_in_its_other_threads",
        ends="25 s",
        seen="`[-]database`: `no answer within 20 s`",
        action="fix the database",
    ),
    fault(
        "A page of the SQLite file is damaged: zeros, noise, half of it gone",
        "An error, or the page isn't needed. A process that begins to lead checks the tables by which evictions are "
        "admitted; bits that turn within a value are not noticed.",
        "tests/store/test_corrupt_page.py::test_a_damaged_page_allows_no_eviction_beyond_a_limit",
        ends="when a backup is restored",
        seen="log `not leading`, `[-]lease`: `the database file is damaged`",
        action="[restore a backup](upgrade.md#restore)",
    ),
    fault(
        "An upgrade of the database is killed half-way (SIGKILL), on SQLite and on PostgreSQL",
        "The database is as it was; the next upgrade does all of it.",
        "tests/store/test_upgrade_killed.py::"
        "test_an_upgrade_that_is_killed_changes_nothing_and_the_next_one_everything",
        ends="the next upgrade",
        seen="`rebalancer db status`",
        action="upgrade again",
    ),
    fault(
        "PgBouncer in transaction mode stands in between",
        "Evictions and records as without it.",
        "tests/e2e/test_daemon_databases.py::test_pgbouncer_in_transaction_mode_is_a_database_like_any_other",
        ends="never",
        action="[set timeouts for the role](many-clusters.md#connections)",
    ),
    fault(
        "Deadlocks and serialization failures",
        "The transaction is tried again, a few times; no limit is passed.",
        "tests/store/test_store_engine.py::test_a_deadlock_is_tried_again_until_both_are_through",
        "tests/store/test_store_engine.py::test_a_serialization_failure_is_tried_a_few_times_and_then_an_error",
        "tests/store/test_ledger_locks.py::test_threads_of_two_clusters_never_pass_a_limit_together",
        "tests/store/test_ledger_locks.py::test_a_server_that_is_stricter_by_default_counts_right_too",
        ends="at once",
    ),
)
