"""Faults of the process and the clock."""

from tests.faults.matrix.row import fault

PROCESS = (
    fault(
        "Killed at any step of a cycle (SIGKILL)",
        "The next process reconciles what was begun; ledger and cluster agree.",
        "tests/e2e/test_kill_everywhere.py::test_killed_at_every_step_of_a_cycle",
        "tests/store/test_ledger_crash.py::test_killed_at_any_step_the_ledger_agrees_with_the_cluster",
        "tests/e2e/test_interruptions.py::test_a_kill_during_the_call_is_visible_and_settled_at_the_next_start",
        "tests/store/test_ledger_reconcile.py::test_the_pod_decides",
        "tests/faults/test_kills.py::test_a_daemon_that_is_killed_at_random_moments_loses_and_doubles_nothing",
        ends="start of the next process",
        seen="`reconciled` in the log",
    ),
    fault(
        "The leader is killed or replaced, or the world changes, between an approval and its evictions",
        "The next leader carries the proposal out, exactly as it was approved, or refuses all of it. Once its "
        "evictions have begun no process begins them again.",
        "tests/e2e/test_daemon_approvals.py::test_what_is_approved_is_carried_out_once_also_by_the_next_leader",
        "tests/stories/test_approvals.py::test_one_whose_process_is_killed_is_carried_out_at_most_once",
        "tests/stories/test_approvals.py::test_of_two_processes_one_carries_it_out",
        "tests/stories/test_approvals.py::test_a_changed_world_refuses_all_of_it_and_is_named",
        "tests/stories/test_approvals.py::test_whatever_happens_only_approved_evictions_are_made",
        "tests/store/test_proposals.py::test_of_many_at_once_one_decides",
        "tests/store/test_proposals.py::test_one_that_expired_can_be_neither_approved_nor_begun",
        ends="when a replica leads, or the proposal expires",
        seen="`rebalancer proposals --all`",
        action="approve the next proposal",
    ),
    fault(
        "Replicas are paused, killed or cut off while they lead (SIGSTOP, SIGKILL, partition)",
        "No term evicts once a later one has, but for the calls under way (8 at most), which are counted. A leader "
        "that was paused or cut off stands by. One that is paused for over 100 s with a call under way, and ends "
        "before it has the answer and the database, may leave an eviction that isn't counted.",
        "tests/e2e/test_daemon_replicas.py::test_no_term_evicts_once_a_later_one_has",
        "tests/e2e/test_daemon_replicas.py::test_what_was_begun_is_settled_and_counted_if_it_happened",
        "tests/e2e/test_daemon_replicas.py::test_a_replica_that_has_lost_the_lease_stands_by",
        "tests/faults/test_soak.py::test_failovers_never_two_evictors_but_for_the_call_under_way",
        "tests/faults/test_soak.py::test_an_answer_after_the_refund_is_counted_although_the_database_is_away",
        "tests/kube/test_lease_renewals.py::test_it_holds_until_ten_seconds_after_the_last_renewal",
        "tests/store/test_ledger_outcomes.py::test_a_stale_term_cannot_reserve",
        "tests/store/test_ledger_outcomes.py::test_a_new_leader_fences_before_its_first_reservation",
        "tests/store/test_ledger_outcomes.py::test_an_answer_that_comes_after_the_refund_counts_again",
        "tests/store/test_ledger_outcomes.py::"
        "test_an_answer_after_the_refund_that_could_not_be_written_counts_once_it_is",
        "tests/daemon/test_gauges.py::test_outcomes_that_could_not_be_written_are_tried_in_every_round",
        "tests/store/test_ledger_reconcile.py::test_a_process_that_was_stopped_while_it_reconciled_overwrites_nothing",
        "tests/store/test_ledger_reconcile.py::"
        "test_a_pod_that_was_alive_before_the_grace_period_ended_proves_nothing_after_it",
        ends="15 s: the lease's duration",
        seen="`rebalancer_lease_term`, log `lease lost, standing by`",
    ),
    fault(
        "One random fault after another, in several clusters that share a database",
        "Ledger and clusters agree on every eviction; no limit is passed.",
        "tests/faults/test_soak.py::test_soak_ledger_and_clusters_agree_after_ten_minutes_of_faults",
        seen="as for each fault",
    ),
    fault(
        "An unexpected error in a watch, a reader, a strategy, a page of the dashboard or a thread",
        "That part is restarted or skipped, with waits of 1 s to 60 s; the rest goes on. A kind whose watch failed is "
        "not current until it is listed again: no eviction until then. Cordons of a strategy that fails stay.",
        "tests/e2e/test_daemon_parts.py::test_parts_that_fail_are_skipped_and_the_rest_goes_on",
        "tests/kube/test_watch.py::test_an_unexpected_error_at_an_event_restarts_the_watch_with_a_list",
        "tests/kube/test_watch.py::"
        "test_an_object_that_fails_in_every_list_is_read_ever_more_seldom_and_the_rest_when_it_is_gone",
        "tests/kube/test_cache.py::test_a_broken_watch_of_budgets_leaves_no_snapshot_until_it_is_fresh",
        "tests/kube/test_cache.py::test_an_unexpected_error_in_the_snapshot_is_unsafe_data_and_a_failed_part",
        "tests/cycle/test_isolated_strategies.py::test_the_others_find_and_the_note_has_the_cause",
        "tests/cycle/test_isolated_strategies.py::test_the_cordons_of_a_strategy_that_fails_stay",
        "tests/daemon/test_worker.py::test_an_unexpected_error_ends_its_cycle_alone_and_its_request",
        "tests/daemon/test_worker.py::test_alerts_that_can_not_be_read_by_a_defect_stop_no_other_cycle",
        "tests/daemon/test_supervisor.py::test_a_thread_that_raises_is_run_again_after_a_wait",
        "tests/daemon/test_journaling.py::test_a_defect_is_a_failed_part_until_the_journal_goes_on",
        "tests/web/test_dashboard_mistakes.py::test_a_page_that_fails_is_a_failed_part_until_it_is_shown",
        ends="60 s",
        seen="log `part failed`, `rebalancer_part_failures_total`, `parts` in `/readyz?verbose`, note of the cycle, "
        "`status`, `doctor`",
        action="report it",
    ),
    fault(
        "An unexpected error of the lease or the ledger",
        "The process exits; the kubelet restarts it. Nothing is evicted that was not reserved.",
        "tests/e2e/test_daemon_parts.py::test_an_unexpected_error_of_the_ledger_ends_the_process",
        "tests/daemon/test_supervisor.py::test_any_error_of_a_vital_thread_ends_the_wait",
        ends="restart",
        seen="log `thread died`",
        action="report it",
    ),
    fault(
        "A plugin strategy hangs",
        "It is stopped after 10 s and skipped; the others find.",
        "tests/cycle/test_plugin_limit.py::test_a_plugin_that_hangs_is_stopped",
        "tests/cycle/test_plugin_limit.py::test_a_plugin_has_ten_seconds",
        "tests/strategies/test_plugin_answers.py::test_a_plugin_that_hangs_is_skipped_and_the_others_find",
        ends="when its call has ended",
        seen="note of the cycle",
        action="fix the plugin",
    ),
    fault(
        "The clock is set back, also in the middle of a cycle",
        "Intervals and waits use the monotonic clock; limits allow no more than before.",
        "tests/daemon/test_triggers.py::test_a_clock_that_was_set_back_does_not_stop_the_timer",
        "tests/daemon/test_triggers.py::test_a_wait_of_a_cycle_is_as_long_as_it_was_meant_when_the_clock_is_set_back",
        "tests/daemon/test_clock_set_back.py::test_the_inbox_is_read_again_in_time_when_the_clock_is_set_back",
        "tests/daemon/test_clock_set_back.py::test_a_rest_after_an_error_is_as_long_as_it_was_meant_when_the_clock_is_set_back",
        "tests/daemon/test_clock_set_back.py::test_a_heartbeat_is_a_reading_of_the_monotonic_clock",
        "tests/kube/test_lease.py::test_a_lease_lasts_no_longer_when_the_clock_is_set_back",
        "tests/store/test_ledger_locks.py::test_a_clock_that_is_set_back_opens_nothing",
        "tests/store/test_ledger_reconcile.py::"
        "test_a_clock_that_is_set_back_in_the_middle_of_a_cycle_refunds_and_opens_nothing",
        ends="5 s",
        seen="a periodic cycle",
    ),
)
