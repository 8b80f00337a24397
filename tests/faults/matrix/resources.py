"""Faults of disk, memory, file descriptors and names."""

from tests.faults.matrix.row import fault

RESOURCES = (
    fault(
        "An answer of the API server arrives byte by byte",
        "It ends with the request's timeout: 30 s, for an eviction what is left of the lease.",
        "tests/kube/test_client.py::test_an_answer_that_arrives_byte_by_byte_ends_with_the_timeout",
        seen="log `cycle failed`, code `ServerUnknown`: `no answer within`",
        action="fix the network",
    ),
    fault(
        "The disk of the database is full",
        "Nothing is reserved, so nothing is evicted. Webhooks answer 503, and Alertmanager sends again.",
        "tests/e2e/test_daemon_resources.py::test_a_full_disk_of_the_database_evicts_nothing_until_there_is_room",
        "tests/daemon/test_gauges.py::test_a_write_that_failed_is_tried_again_without_a_cycle",
        "tests/store/test_store_engine.py::test_the_last_write_that_failed_is_known_until_one_works",
        "tests/store/test_store_engine.py::test_a_server_that_takes_no_writes_is_a_failed_write",
        ends="10 s",
        seen="log `cycle failed`: `database or disk is full`; `[-]database`: `the last write failed`",
        action="make room",
    ),
    fault(
        "The disk of the history is full",
        "Evictions go on without new forecasts; what was written of a day is removed.",
        "tests/store/test_blocks.py::test_a_day_that_found_no_room_is_one_line_and_leaves_nothing_behind",
        ends="10 s",
        seen="log `forecast run failed`: `No space left on device`",
        action="make room",
    ),
    fault(
        "The log can't be written: its disk is full",
        "Everything goes on; lines are lost. Records, metrics and Events are complete.",
        "tests/e2e/test_daemon_resources.py::test_a_log_that_can_not_be_written_stops_nothing",
        ends="at once",
        seen="lines that are missing",
        action="make room",
    ),
    fault(
        "No file descriptor is free",
        "What can't be read fails its cycle. Each listener has one in reserve: connections are accepted one "
        "after the other, so `/livez` answers.",
        "tests/e2e/test_daemon_resources.py::"
        "test_without_file_descriptors_the_daemon_says_so_once_a_minute_and_recovers",
        "tests/e2e/test_daemon_resources.py::test_livez_answers_without_a_free_file_descriptor",
        "tests/web/test_listening.py::test_without_a_free_descriptor_connections_are_accepted_one_after_the_other",
        ends="10 s",
        seen="log `connections can't be accepted` every minute, `Too many open files`",
        action="raise the limit; report it",
    ),
    fault(
        "No memory is left, no thread can start",
        "The process exits once a thread or a watch fails, or the kernel kills it; the kubelet restarts it.",
        "tests/e2e/test_daemon_resources.py::test_without_memory_the_daemon_says_so_without_a_traceback",
        "tests/daemon/test_supervisor.py::test_an_error_that_is_no_parts_own_ends_the_wait_with_its_name",
        "tests/kube/test_watch.py::test_a_watch_without_memory_ends",
        ends="restart",
        seen="log `out of memory`",
        action="raise the pod's memory limit",
    ),
    fault(
        "DNS fails",
        "Nothing leads, nothing is evicted.",
        "tests/e2e/test_daemon_resources.py::test_without_names_nothing_leads_and_the_daemon_recovers",
        ends="10 s",
        seen="log `not leading`: `its name does not resolve`, `[-]lease`, `[-]cache`",
        action="fix DNS",
    ),
)
