"""Faults of evictions."""

from tests.faults.matrix.row import fault

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
