"""Faults of the Lease and the ledger."""

from tests.faults.matrix.row import fault

LEASE = (
    fault(
        "The Lease belongs to another ledger",
        "The replica doesn't lead.",
        "tests/kube/test_lease_ledger.py::test_a_lease_of_another_ledger_is_refused",
        "tests/kube/test_lease_ledger.py::test_a_changed_ledger_ends_the_lease",
        "tests/kube/test_leadership.py::test_what_keeps_a_replica_from_leading_is_logged_and_following_is_not",
        ends="when people have removed the annotation or the second database",
        seen="log `not leading` every minute, `[-]lease`, `rebalancer_lease_prevented`",
        action="use one database",
    ),
    fault(
        "The database was restored from a backup, or a standby without the last commits took over",
        "Nothing is evicted; `rebalancer db accept-restore` counts missing evictions again where Events or "
        "replacements show them, and pauses the cluster for the longest window while others are missing.",
        "tests/kube/test_lease_ledger.py::test_a_ledger_that_lacks_reservations_does_not_lead",
        "tests/kube/test_lease_ledger.py::test_no_call_is_sent_while_the_number_can_not_be_written",
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
        "tests/kube/test_lease_renewals.py::test_a_lease_that_was_abandoned_is_acquired_as_that_of_any_other_process",
        "tests/kube/test_lease_renewals.py::test_a_renewal_that_is_answered_after_the_lease_ran_out_does_not_bring_it_back",
        "tests/daemon/test_terms.py::test_a_cycle_runs_in_the_term_that_was_begun_and_in_no_other",
        "tests/daemon/test_terms.py::test_a_term_begins_with_a_cycle_of_the_whole_cluster_and_a_later_one_anew",
        "tests/cycle/test_reservation.py::test_without_a_term_that_is_held_nothing_reaches_the_ledger",
        "tests/kube/test_lease_renewals.py::test_a_lease_that_ran_out_is_lost_for_good",
        "tests/kube/test_lease_renewals.py::test_a_failed_renewal_keeps_the_old_deadline",
        "tests/kube/test_lease_renewals.py::test_a_renewal_whose_answer_was_lost_goes_on",
        "tests/kube/test_lease_renewals.py::test_a_stolen_lease_is_lost_at_the_next_renewal",
        "tests/kube/test_lease_renewals.py::test_a_lease_that_was_stolen_with_the_same_ledger_is_lost",
        "tests/kube/test_lease_renewals.py::test_a_lease_that_was_deleted_ends_ten_seconds_after_its_last_renewal",
        "tests/kube/test_lease_renewals.py::test_a_renewal_counts_from_before_it_was_sent",
        "tests/kube/test_lease_renewals.py::test_the_same_holder_in_a_later_term_is_not_us",
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
