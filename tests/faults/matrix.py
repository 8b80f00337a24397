"""The fault matrix: what happens in each fault, and its tests. `docs/operations/faults.md` is made from it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row. Each case of a parametrized test is a fault of its own."""

    name: str
    outcome: str
    ends: str
    """How long the outcome lasts after the fault's end."""
    seen: str
    """Log line, metric, check of `/readyz` or reason code."""
    action: str
    tests: tuple[str, ...]
    """Of pytest: `file::test`."""


NEXT_CYCLE = "next cycle"
NOTHING = "nothing"


def fault(
    name: str, outcome: str, *tests: str, ends: str = NEXT_CYCLE, seen: str = NOTHING, action: str = NOTHING
) -> Fault:
    return Fault(name=name, outcome=outcome, ends=ends, seen=seen, action=action, tests=tests)


EVICTIONS = (
    fault(
        "Any answer to an eviction: refused, throttled, 404, 409, 5xx, a proxy's page, a cut connection",
        "One call at most. Without an answer of the API server, or with a 5xx that is not known to have done nothing, "
        "it stays counted until the pod is seen.",
        "tests/kube/test_evict.py::test_every_answer_has_its_outcome_and_is_asked_for_once",
        "tests/kube/test_evict.py::test_no_answer_in_time_is_unknown",
        "tests/store/test_ledger_outcomes.py::test_only_what_certainly_did_not_happen_is_refunded",
        "tests/store/test_ledger_outcomes.py::test_reconciling_decides_what_an_unknown_outcome_costs",
        seen="outcome and code `Server...` in records and metrics",
    ),
    fault(
        "A call is held past the lease of its process, by the network or a slow API server",
        "It is sent 20 s after its reservation at the latest, and stays counted for 100 s although its pod is alive.",
        "tests/kube/test_evict.py::test_a_call_that_would_leave_long_after_its_reservation_is_not_sent",
        "tests/store/test_ledger_reconcile.py::"
        "test_a_call_that_is_held_past_the_lease_stays_counted_until_it_can_not_arrive",
        ends="100 s",
        seen="outcome `unknown`",
    ),
    fault(
        "The API server throttles evictions: 429 with Retry-After",
        "No other call starts before; calls under way end. After 3 in a plan, or a Retry-After longer than "
        "`safety.maxWait`, the plan ends.",
        "tests/stories/test_calls_in_flight.py::test_retry_after_stops_new_calls_until_it_ends_and_nothing_else",
        "tests/stories/test_calls_in_flight.py::test_a_server_that_goes_on_throttling_ends_the_plan",
        "tests/stories/test_calls_in_flight.py::test_a_retry_after_that_is_longer_than_the_longest_wait_ends_the_plan",
        "tests/kube/test_evict.py::test_the_wait_of_a_throttled_call_is_in_the_answer",
        ends="the Retry-After, or next cycle",
        seen="code `ServerThrottled`",
    ),
    fault(
        "One of several calls in flight is refused, or the database, the lease or the process ends meanwhile",
        "No other call starts; those under way are awaited and recorded. After a refusal the rest is planned "
        "again without that move.",
        "tests/stories/test_calls_in_flight.py::test_a_refusal_is_undone_although_later_moves_are_under_way",
        "tests/stories/test_calls_in_flight.py::test_an_error_in_the_middle_leaves_no_call_unrecorded",
        "tests/stories/test_calls_in_flight.py::test_no_call_starts_once_the_process_stops_or_the_lease_is_lost",
        "tests/faults/test_together.py::test_calls_that_go_together_under_faults_are_reserved_limited_and_recorded",
        ends="at once, or next cycle",
        seen="outcomes in records and metrics",
    ),
    fault(
        "The pod is not as planned: gone, another uid, terminating, finished, on another node",
        "Not evicted.",
        "tests/kube/test_evict.py::test_a_pod_that_is_not_as_planned_is_not_evicted",
        seen="codes `ServerGone`, `ServerUidChanged`, `Terminating`, `Finished`",
    ),
    fault(
        "The lease runs out between plan and call",
        "Not evicted.",
        "tests/kube/test_evict.py::test_without_the_lease_nothing_is_sent_after_the_reread",
        "tests/kube/test_evict.py::test_the_answer_is_waited_for_no_longer_than_the_lease_lasts",
        "tests/bootstrap/test_evictor.py::test_without_the_lease_or_the_number_in_it_the_evictor_sends_nothing",
        "tests/bootstrap/test_evictor.py::test_the_evictor_waits_no_longer_than_the_lease_lasts",
        ends="when the lease is held again",
        seen="code `LeaseLost`",
    ),
    fault(
        "A minimum spacing bars the next eviction of a plan",
        "The cycle waits for it, up to `safety.maxWait`, and goes on.",
        "tests/stories/test_spacing.py::test_a_cycle_waits_for_the_spacing_and_goes_on",
        "tests/store/test_ledger.py::test_spacing_looks_at_the_newest_only",
        ends="at once",
    ),
    fault(
        "An admission webhook refuses one service, or can't be called",
        "That service is left alone with a growing backoff; the cycle goes on with others.",
        "tests/stories/test_webhooks.py::test_a_webhook_that_refuses_one_service_does_not_end_the_cycle",
        "tests/stories/test_webhooks.py::test_the_backoff_grows_survives_a_restart_and_ends_when_the_webhook_admits_the_service",
        "tests/constraints/test_backoff_seconds.py::test_a_backoff_grows_with_each_time_and_is_never_longer_than_its_longest",
        ends="the backoff, a day at most by default",
        seen="codes `ServerWebhook`, `WebhookBackoff`; `rebalancer status`",
        action="ask the owner of the webhook",
    ),
)

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
        "tests/kube/test_lease.py::test_it_holds_until_ten_seconds_after_the_last_renewal",
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
        "tests/web/test_dashboard.py::test_a_page_that_fails_is_a_failed_part_until_it_is_shown",
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
        "tests/strategies/test_plugins.py::test_a_plugin_that_hangs_is_skipped_and_the_others_find",
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

LEASE = (
    fault(
        "The Lease belongs to another ledger",
        "The replica doesn't lead.",
        "tests/kube/test_lease.py::test_a_lease_of_another_ledger_is_refused",
        "tests/kube/test_lease.py::test_a_changed_ledger_ends_the_lease",
        "tests/kube/test_leadership.py::test_what_keeps_a_replica_from_leading_is_logged_and_following_is_not",
        ends="when people have removed the annotation or the second database",
        seen="log `not leading` every minute, `[-]lease`, `rebalancer_lease_prevented`",
        action="use one database",
    ),
    fault(
        "The database was restored from a backup, or a standby without the last commits took over",
        "Nothing is evicted; `rebalancer db accept-restore` counts missing evictions again where Events or "
        "replacements show them, and pauses the cluster for the longest window while others are missing.",
        "tests/kube/test_lease.py::test_a_ledger_that_lacks_reservations_does_not_lead",
        "tests/kube/test_lease.py::test_no_call_is_sent_while_the_number_can_not_be_written",
        "tests/store/test_ledger.py::test_a_database_that_lost_reservations_makes_none_until_it_is_accepted",
        "tests/stories/test_restored_database.py::test_a_restored_database_evicts_nothing_until_it_is_accepted",
        "tests/e2e/test_daemon_databases.py::"
        "test_a_standby_without_the_last_commit_evicts_nothing_until_people_accept_it",
        "tests/e2e/test_restored_ledger.py::"
        "test_evictions_that_a_restored_ledger_lacks_are_counted_again_from_their_events",
        "tests/stories/test_restored_database.py::"
        "test_evictions_that_a_restored_ledger_lacks_are_counted_again_by_their_replacements",
        "tests/stories/test_restored_database.py::test_of_more_new_pods_than_missing_evictions_none_is_counted",
        ends="when it is accepted",
        seen="log `not leading` every minute, `[-]lease`, `rebalancer_lease_prevented`",
        action="[accept it](upgrade.md#restore)",
    ),
    fault(
        "`cluster` in the policy was changed",
        "Nothing is evicted: no limit of the new name counts the evictions under the old one.",
        "tests/e2e/test_restored_ledger.py::test_a_cluster_that_got_another_name_says_so",
        ends="when the old name is back, or the new one is accepted",
        seen="log `not leading` every minute with both names, `[-]lease`, `rebalancer_lease_prevented`",
        action="[change it back, or accept it](upgrade.md#restore)",
    ),
    fault(
        "Two clusters with one database have the same name in `cluster`",
        "The second doesn't lead: the ledger knows the UID of the first one's namespace `kube-system`.",
        "tests/e2e/test_daemon_databases.py::"
        "test_of_two_clusters_with_one_name_the_second_evicts_nothing_until_people_say_so",
        "tests/store/test_ledger_outcomes.py::test_a_ledger_belongs_to_one_kubernetes_cluster_of_its_name",
        ends="when each has a name of its own, or a rebuilt cluster is accepted",
        seen="log `not leading` every minute, `[-]lease`, `rebalancer_lease_prevented`",
        action="rename one; [accept](upgrade.md#restore) a rebuilt one",
    ),
    fault(
        "The Lease is stolen, deleted, or its renewals fail or lose their answers",
        "The lease ends 10 s after the last renewal, and that term for good; a lost answer is read again. The process "
        "stands by with its caches, and leads again in a later term once no cycle of the lost one runs.",
        "tests/faults/test_standby.py::test_a_stolen_lease_makes_the_leader_stand_by_until_it_is_free",
        "tests/kube/test_leadership.py::test_a_lost_lease_stands_by_and_leads_again_in_a_later_term",
        "tests/kube/test_leadership.py::test_no_term_begins_while_a_cycle_of_the_lost_one_runs",
        "tests/kube/test_leadership.py::test_a_lock_that_is_lost_never_leads_again_by_itself",
        "tests/kube/test_lease.py::test_a_lease_that_was_abandoned_is_acquired_as_that_of_any_other_process",
        "tests/kube/test_lease.py::test_a_renewal_that_is_answered_after_the_lease_ran_out_does_not_bring_it_back",
        "tests/daemon/test_terms.py::test_a_cycle_runs_in_the_term_that_was_begun_and_in_no_other",
        "tests/daemon/test_terms.py::test_a_term_begins_with_a_cycle_of_the_whole_cluster_and_a_later_one_anew",
        "tests/cycle/test_reservation.py::test_without_a_term_that_is_held_nothing_reaches_the_ledger",
        "tests/kube/test_lease.py::test_a_lease_that_ran_out_is_lost_for_good",
        "tests/kube/test_lease.py::test_a_failed_renewal_keeps_the_old_deadline",
        "tests/kube/test_lease.py::test_a_renewal_whose_answer_was_lost_goes_on",
        "tests/kube/test_lease.py::test_a_stolen_lease_is_lost_at_the_next_renewal",
        "tests/kube/test_lease.py::test_a_lease_that_was_stolen_with_the_same_ledger_is_lost",
        "tests/kube/test_lease.py::test_a_lease_that_was_deleted_ends_ten_seconds_after_its_last_renewal",
        "tests/kube/test_lease.py::test_a_renewal_counts_from_before_it_was_sent",
        "tests/kube/test_lease.py::test_the_same_holder_in_a_later_term_is_not_us",
        "tests/kube/test_lease.py::test_a_creation_whose_answer_was_lost_is_ours",
        "tests/kube/test_lease.py::test_a_lease_that_only_looks_expired_is_not_taken",
        "tests/kube/test_lease.py::test_a_document_that_is_no_lease_ends_nothing_and_is_not_believed",
        ends="20 s",
        seen="log `lease lost, standing by`, `rebalancer_lease_held`, `[-]lease` while the server fails",
    ),
    fault(
        "The API server answers every call in 6 s",
        "The lease can't be renewed in time: the process stands by and evicts nothing. Its caches stay, nothing is "
        "listed again.",
        "tests/faults/test_standby.py::test_an_api_server_that_answers_in_6_s_makes_the_leader_stand_by",
        ends="20 s",
        seen="log `lease lost, standing by`, then `not leading`; `[-]lease`, `rebalancer_lease_prevented`",
        action="see why the API server is slow",
    ),
)

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

FRONT_DOOR = (
    fault(
        "Bodies that are no deliveries: too long, chunked, slow, fuzzed, other JSON, of two lengths",
        "A 4xx with one line; no eviction.",
        "tests/web/test_alerts.py::test_what_is_no_payload_is_refused_in_one_line",
        "tests/web/test_fuzz.py::test_no_body_breaks_the_webhook",
        "tests/web/test_server.py::test_a_body_that_is_too_long_is_answered_413",
        "tests/web/test_server.py::test_a_body_that_does_not_come_is_answered_408_and_hung_up",
        "tests/web/test_server.py::test_a_connection_that_dawdles_is_closed",
        "tests/web/test_server.py::test_a_byte_now_and_then_buys_no_time",
        "tests/web/test_server.py::test_a_head_that_is_too_long_or_none_is_refused",
        "tests/web/test_server.py::test_a_request_with_two_lengths_is_answered_400_and_ends_the_connection",
        "tests/web/test_alert_times.py::test_a_time_at_the_year_10000_is_answered_400_in_one_line",
        "tests/web/test_alert_times.py::test_a_body_nested_100000_deep_is_answered_400_in_one_line",
        ends="at once",
        seen="status code",
    ),
    fault(
        "Hundreds of idle connections, of one client or many; a client that keeps all of its connections busy",
        "The longest idle one makes room; where all are busy, 503. Probes have a listener of their own.",
        "tests/web/test_front_door.py::test_idle_connections_of_one_client_keep_none_out",
        "tests/web/test_front_door.py::test_idle_connections_of_many_clients_keep_none_out",
        "tests/web/test_front_door.py::test_of_many_busy_clients_no_more_are_served_than_fit",
        "tests/web/test_front_door.py::test_probes_have_a_listener_and_a_thread_of_their_own",
        "tests/web/test_front_door.py::test_a_client_that_keeps_all_its_connections_busy_is_refused_alone",
        "tests/web/test_server.py::test_more_busy_connections_than_it_takes_are_turned_away_and_later_served",
        ends="at once",
        seen="`rebalancer_http_requests_total` goes on",
        action="a NetworkPolicy",
    ),
    fault(
        "Hundreds of TLS handshakes that don't end, of one client or many",
        "They count as connections from their acceptance on, and end after 10 s.",
        "tests/web/test_front_door.py::test_handshakes_that_do_not_end_count_in_the_bounds",
        "tests/web/test_front_door.py::test_a_handshake_that_does_not_end_is_closed_in_time",
        "tests/web/test_front_door.py::test_a_client_that_keeps_all_its_connections_busy_gets_no_more_by_trying_again",
        ends="at once",
        action="a NetworkPolicy",
    ),
    fault(
        "A client that doesn't read its answer",
        "Its connection is closed after 30 s.",
        "tests/web/test_front_door.py::test_a_client_that_does_not_read_is_hung_up",
        ends="30 s",
    ),
    fault(
        "A file with a token, password or certificate hangs (dead NFS, a pipe); checks of `/readyz` hang",
        "The web API answers 503, the old certificate stays; `/livez` answers, `/readyz` says not ready.",
        "tests/web/test_front_door.py::test_a_token_that_is_a_pipe_takes_no_probe_away",
        "tests/web/test_front_door.py::test_a_token_that_hangs_takes_no_probe_away",
        "tests/web/test_front_door.py::test_other_requests_are_answered_while_a_token_is_read",
        "tests/web/test_front_door.py::test_a_certificate_that_hangs_takes_no_probe_away",
        "tests/web/test_front_door.py::test_other_requests_are_answered_while_a_certificate_is_read",
        "tests/web/test_front_door.py::test_checks_that_hang_are_not_ready_and_take_livez_not_away",
        ends="10 s",
        seen="log `can't be read: no answer within 2 s`",
        action="fix the volume",
    ),
    fault(
        "A page of another origin, a form, or a foreign name in Host, with a browser's credentials",
        "403 or 415; nothing changes, and a dashboard without credentials shows nothing.",
        "tests/web/test_foreign_requests.py::test_a_type_that_a_form_can_send_is_refused",
        "tests/web/test_foreign_requests.py::test_a_page_of_another_origin_changes_nothing",
        "tests/web/test_foreign_requests.py::test_a_foreign_host_changes_nothing",
        "tests/web/test_foreign_requests.py::test_without_credentials_the_host_is_always_checked",
        "tests/web/test_dashboard_access.py::test_without_credentials_no_page_is_read_under_a_foreign_name",
        "tests/e2e/test_front_door.py::test_a_public_address_without_authentication_ends_the_start",
        ends="at once",
        seen="status code, log line",
    ),
    fault(
        "A link to a proposal that is altered, forged, used or expired, or pressed on a page of another origin",
        "403, 410 or 415 in one line; nothing is decided.",
        "tests/web/test_approvals.py::test_no_altered_or_forged_link_decides_anything",
        "tests/web/test_approvals.py::test_a_link_shows_the_proposal_and_its_button_approves_it",
        "tests/web/test_approvals.py::test_a_link_is_used_once",
        "tests/web/test_approvals.py::test_a_link_ends_with_its_proposal",
        "tests/web/test_approvals.py::test_the_button_is_pressed_on_our_own_page_alone",
        "tests/web/test_approvals.py::test_neither_key_nor_signature_is_logged",
        ends="at once",
        seen="status code, log line",
    ),
    fault(
        "10,000 alerts in one delivery, or more",
        "Written in parts for at most 8 s; 503 with `deferred` for the rest, and each repetition gets further.",
        "tests/web/test_large_deliveries.py::test_ten_thousand_alerts_are_taken_without_a_statement_for_each",
        "tests/web/test_large_deliveries.py::test_a_delivery_that_takes_too_long_is_partly_accepted_and_says_so",
        "tests/web/test_large_deliveries.py::test_more_alerts_than_a_delivery_may_have_are_ignored_and_counted",
        ends="the next deliveries",
        seen="answer, log line, `rebalancer_alerts_ignored_total`",
        action="group by more labels",
    ),
    fault(
        "An alert with a target of 1%, the lowest `high`, or an end that has passed",
        "Refused, bounded by `alerts.maxExcess`, or resolved.",
        "tests/daemon/test_alert_power.py::test_a_target_of_1_is_refused",
        "tests/daemon/test_alert_power.py::test_the_policy_says_how_low_a_high_may_be",
        "tests/daemon/test_alert_power.py::test_no_alert_takes_more_than_the_bounded_excess_off_a_node",
        "tests/daemon/test_alert_power.py::test_an_alert_whose_end_has_passed_does_not_count",
        ends="at once",
        seen="log `alerts rejected`; reason of findings and evictions",
        action="fix the alerting rule",
    ),
    fault(
        "Missing, wrong or duplicate credentials; a secret file that is empty or gone",
        "401, or 503 while our own file can't be read; nothing changes.",
        "tests/web/test_auth.py::test_only_the_right_credentials_pass",
        "tests/web/test_auth.py::test_a_file_that_empties_or_vanishes_closes_the_door_until_it_is_back",
        "tests/web/test_auth.py::test_a_password_file_without_a_user_closes_the_door",
        ends="at once; a new file within seconds",
        seen="log line about the file",
        action="fix the file",
    ),
)

MATRIX = {
    "Evictions": EVICTIONS,
    "Process and clock": PROCESS,
    "Disk, memory, file descriptors, names": RESOURCES,
    "Lease and ledger": LEASE,
    "API server and Prometheus": SOURCES,
    "Database": DATABASE,
    "Web API": FRONT_DOOR,
}
