"""Faults of the API server and Prometheus."""

from tests.faults.matrix.row import fault

SOURCES = (
    fault(
        "An answer of the API server or Prometheus is JSON nested 100,000 deep",
        "One error, as for any answer that can't be read.",
        "tests/prometheus/test_nested_answers.py::test_an_answer_nested_100000_deep_is_one_clear_error",
        "tests/prometheus/test_nested_answers.py::test_a_version_nested_100000_deep_is_one_clear_error",
        "tests/kube/test_lists.py::test_a_page_nested_100000_deep_is_one_clear_error",
        seen="log `cycle failed`",
        action="fix the source",
    ),
    fault(
        'Prometheus answers `status: "error"` with HTTP 200, with or without data',
        "An error, as for any other status.",
        "tests/prometheus/test_prometheus_connection.py::"
        "test_an_error_with_http_status_200_is_an_error_whatever_data_it_has",
        seen="log `cycle failed`",
        action="fix the source",
    ),
    fault(
        "The body of an answer breaks off: of any status, to any call",
        "One error, as for a cut connection; the status of a watch counts without its body. A read is tried again, an "
        "eviction stays counted.",
        "tests/kube/test_broken_bodies.py::test_a_body_that_breaks_off_is_one_error_of_ours",
        "tests/kube/test_broken_bodies.py::test_the_status_of_a_watch_counts_without_its_body",
        "tests/kube/test_broken_bodies.py::test_an_eviction_whose_answer_breaks_off_is_unknown",
        "tests/faults/test_standby.py::test_watches_that_are_answered_with_an_error_that_breaks_off_end_nothing",
        "tests/prometheus/test_prometheus_connection.py::"
        "test_an_answer_that_breaks_off_is_asked_for_again_and_not_for_ever",
        "tests/notifications/test_notifications.py::test_an_answer_that_breaks_off_is_an_error_of_ours",
        ends="20 s",
        seen="log `cycle failed`, `[-]cache` with the reason",
    ),
    fault(
        "API server or Prometheus fails, is down or slow, or sends invalid, stale, missing, NaN or partial usage",
        "No eviction while it lasts.",
        "tests/stories/test_refusals_end.py::test_a_doubt_about_the_whole_picture_ends_with_its_cause",
        "tests/e2e/test_daemon_faults.py::"
        "test_nothing_moves_while_it_is_ill_and_everything_does_again_without_a_restart",
        "tests/e2e/test_interruptions.py::test_a_stale_prometheus_moves_nothing",
        "tests/e2e/test_interruptions.py::test_errors_of_the_api_server_are_retried_for_reads_and_never_for_evictions",
        "tests/kube/test_client.py::test_a_get_is_tried_exactly_as_often_as_we_say",
        "tests/e2e/test_daemon_stopping.py::test_an_api_server_that_throttles_everything_at_the_start_is_waited_for",
        seen="log `cycle failed`, codes `CoverageTooLow`, `PartialUsage`",
        action="fix the source",
    ),
    fault(
        "A watch breaks: cut, silent, expired, unreadable event, endless line, Retry-After of an hour",
        "It goes on from where it was, or lists again; never older than the cache's age limit.",
        "tests/kube/test_watch.py::test_a_watch_that_breaks_goes_on_from_where_it_was",
        "tests/kube/test_watch.py::test_an_expired_version_is_listed_anew_at_once",
        "tests/kube/test_watch.py::test_an_event_that_can_never_be_read_is_stepped_over_by_a_list",
        "tests/kube/test_watch.py::test_a_line_without_end_is_refused",
        "tests/kube/test_watch.py::test_a_silent_watch_is_opened_again_and_then_listed",
        "tests/kube/test_watch.py::test_no_wait_of_a_watch_is_longer_than_20_seconds",
        "tests/kube/test_watch.py::test_a_watch_that_could_not_be_opened_for_long_is_listed_again",
        "tests/kube/test_cache.py::test_what_had_no_news_for_too_long_is_not_decided_on",
        "tests/kube/test_cache.py::test_the_reason_why_nothing_comes_is_in_the_error",
        ends="20 s",
        seen="`rebalancer_watch_restarts_total`, `[-]cache` with the reason",
    ),
    fault(
        "A list breaks between two pages, or its pages are of different moments",
        "It is read again as a whole; never mixed.",
        "tests/kube/test_lists.py::test_a_list_that_breaks_half_way_is_read_again_and_never_mixed",
        "tests/kube/test_lists.py::test_a_page_of_another_moment_breaks_the_list",
        "tests/kube/test_lists.py::test_a_list_that_always_breaks_is_unsafe",
        ends="at once",
        seen="`rebalancer_watch_relists_total`",
    ),
    fault(
        "A server or credential plugin echoes a secret",
        "It is taken out of messages, records and logs.",
        "tests/e2e/test_secrets.py::test_a_token_that_is_echoed_is_not_printed",
        "tests/e2e/test_secrets.py::test_what_a_credential_plugin_prints_is_not_printed",
        "tests/kube/test_client.py::test_a_secret_that_a_server_echoes_is_in_no_message",
        "tests/kube/test_evict.py::test_a_secret_in_an_answer_is_in_no_refusal",
        "tests/daemon/test_logs.py::test_no_line_has_a_secret_whatever_text_it_comes_in",
        ends="never",
        seen="`***`",
    ),
)
