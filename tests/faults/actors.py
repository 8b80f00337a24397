"""The matrix by actor: the worst that each can do to the pods of others and to the daemon, what bounds it, its tests.
`docs/operations/actors.md` is made from it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """One row. Each case of a parametrized test is a case of its own."""

    name: str
    """What the actor does."""
    worst: str
    """What it costs others at most."""
    bound: str
    """What holds it: a rule of the program, or a key of the policy."""
    tests: tuple[str, ...]
    """Of pytest: `file::test`."""


ALWAYS = "always"


def power(name: str, worst: str, *tests: str, bound: str = ALWAYS) -> Power:
    return Power(name=name, worst=worst, bound=bound, tests=tests)


_BETWEEN = "tests/strategies/test_anti_affinity_between_namespaces.py"
_TRUST = "tests/constraints/test_trust.py"
_HERE = "tests/faults/test_actors.py"

POD_CREATOR = (
    power(
        "A pod that can't be evicted (bare, of a DaemonSet, static, opted out) has required anti-affinity over all "
        "namespaces, or labels that others' anti-affinity selects",
        "Nothing: it evicts no pod of another namespace, wherever replacements land.",
        f"{_BETWEEN}::test_a_pod_that_can_not_be_evicted_evicts_no_pod_of_another_namespace",
        f"{_BETWEEN}::test_nor_does_it_as_the_pod_that_their_terms_select",
        f"{_BETWEEN}::test_wherever_the_replacements_land_it_follows_them_in_vain",
        f"{_BETWEEN}::test_strangers_that_can_not_be_evicted_change_no_finding",
        "tests/faults/test_actors_real.py::"
        "test_a_bare_pod_with_anti_affinity_over_all_namespaces_evicts_none_of_others",
    ),
    power(
        "A pod that can be evicted has anti-affinity over all namespaces",
        "Nothing: the pod that has the term goes, and none of another namespace in its place.",
        f"{_BETWEEN}::test_a_pod_that_can_be_evicted_goes_for_its_own_term",
        f"{_BETWEEN}::test_where_the_holder_is_refused_nobody_of_another_namespace_goes_instead",
        f"{_BETWEEN}::test_a_term_of_another_namespace_does_not_decide_which_pod_of_a_service_goes",
        f"{_BETWEEN}::test_every_candidate_holds_a_violated_term_or_is_in_conflict_in_its_own_namespace",
    ),
    power(
        "Pods that can't be evicted carry the labels, constraints, restarts or age that other strategies look for",
        "Nothing: no finding about pods of others changes.",
        f"{_HERE}::test_pods_that_can_not_be_evicted_change_no_finding_about_others",
    ),
    power(
        "A pod that stays uses, or requests, most of its node",
        "Its neighbours are evicted: by which pods relieve the node, not by who loads it.",
        f"{_HERE}::test_the_load_of_a_pod_that_stays_takes_no_more_off_its_node_than_limits_allow",
        f"{_HERE}::test_what_a_pod_that_stays_requests_takes_no_more_off_its_node_than_limits_allow",
        bound="`limits.node`, `limits.service`, budgets; requests by a ResourceQuota",
    ),
    power(
        "Thousands of pending pods of high priority",
        "Fewer evictions: they take the room of replacements, as in kube-scheduler. The plan ends in time.",
        f"{_HERE}::test_thousands_of_pending_pods_cause_no_eviction_and_end_no_plan",
        bound="a ResourceQuota",
    ),
    power(
        "A pod with anti-affinity against all pods keeps replacements off its node",
        "Fewer landings there, as in kube-scheduler.",
        "tests/placement/test_affinity.py::test_anti_affinity_of_a_pod_that_is_there_counts_too",
        bound="an admission policy",
    ),
    power(
        "Pods shield themselves: `evict`, vetoes, windows, levels, names, volumes, priorities, never Ready",
        "They stay, and their nodes can't be drained, unless the policy says so. An unknown `evict` value is named.",
        f"{_TRUST}::test_without_a_rule_every_shield_counts_also_against_maintenance",
        f"{_TRUST}::test_a_shield_counts_only_where_its_namespace_is_trusted_with_it",
        f"{_TRUST}::test_operators_may_drain_despite_it_and_for_nothing_else",
        f"{_TRUST}::test_the_refusal_names_trust_as_what_lifts_it",
        f"{_TRUST}::test_a_tenant_that_uses_every_shield_keeps_no_rack_from_being_drained_where_operators_say_so",
        "tests/faults/test_actors_real.py::"
        "test_a_tenant_s_shields_keep_no_rack_from_being_drained_where_the_policy_says_so",
        "tests/kube/test_evict.py::test_the_annotation_does_not_count_where_the_policy_does_not_trust_it",
        bound="`trust.shields`, `trust.maintenanceShields`",
    ),
    power(
        "Many pods shield themselves, or for ever",
        "As many as the policy trusts the namespace with, for as long.",
        f"{_TRUST}::test_of_more_shielded_pods_than_are_trusted_the_oldest_keep_their_shields",
        f"{_TRUST}::test_every_written_shield_is_counted",
        f"{_TRUST}::test_shields_end_with_a_pod_s_age",
        bound="`trust.maxPods`, `trust.maxAge`",
    ),
    power(
        "A pod takes another service's identity, or a cheaper level",
        "It uses up that service's limits and cooldowns: fewer evictions. Its own pods go first.",
        f"{_TRUST}::test_a_service_identity_counts_where_the_label_is_trusted",
        f"{_TRUST}::test_limits_and_costs_go_by_the_level_that_counts",
        bound="`trust` without `Name` and `Level`",
    ),
    power(
        "A pod makes its eviction dear, by a grace period of days",
        "Pods that cost less go first. It costs three ordinary evictions at most, and goes from a hot node.",
        "tests/planner/test_price.py::test_no_grace_period_keeps_a_pod_in_place",
    ),
    power(
        "A change window that is fuzzed, or costs much to search",
        "It counts as closed, for that service only; no search is slow.",
        "tests/policy/test_windows.py::test_no_annotation_raises_or_opens_without_being_understood",
        "tests/policy/test_windows.py::test_a_broken_annotation_closes_and_says_why",
        "tests/policy/test_windows.py::test_no_search_is_slow",
    ),
)

NAMESPACE_ADMIN = (
    power(
        "All its services turn unready, again and again",
        "Its own pods stay.",
        "tests/projection/test_disturbance.py::test_the_services_of_one_namespace_stop_nothing",
    ),
    power(
        "Thousands of PodDisruptionBudgets",
        "Its own pods stay. Plans of others are the same, and take little longer.",
        f"{_HERE}::test_thousands_of_budgets_in_a_namespace_change_no_plan_of_others_and_take_little_time",
        bound="who may create budgets",
    ),
    power(
        "A budget that allows nothing, or services too small for `guards.minReplicas`",
        "Its own pods stay, in a drain too: no rule of `trust` lifts these.",
        f"{_TRUST}::test_budgets_and_min_replicas_hold_against_a_drain_that_trusts_nobody",
        "tests/constraints/test_budgets.py::test_several_budgets_are_named_in_one_order_however_they_are_listed",
        bound="who may create budgets",
    ),
    power(
        "Labels on the Namespace: opting out, or what `trust` selects by",
        "Its own pods stay; a rule of `trust` by labels trusts who may write them.",
        f"{_TRUST}::test_the_first_rule_that_matches_a_namespace_counts_by_name_and_by_labels",
        f"{_TRUST}::test_what_operators_write_counts_whoever_is_trusted",
        bound="`trust.namespaces` by name",
    ),
    power(
        "A ResourceQuota without room",
        "Its own pods stay.",
        "tests/constraints/test_quotas.py::test_what_pods_do_not_use_finished_pods_and_other_namespaces_refuse_none",
        "tests/constraints/test_quotas.py::test_a_quota_is_not_waited_for",
    ),
)

CONTROLLER_AUTHOR = (
    power(
        "Pods of an owner whose kind is not known, without an owner, or bound to their node",
        "They stay, whatever is trusted.",
        f"{_TRUST}::test_what_a_pod_is_protects_it_whoever_is_trusted",
        bound="`guards.ownerKinds`",
    ),
    power(
        "A rollout that never ends, a service that is never healthy or always scaled",
        "Its own pods stay; in a drain that doesn't trust its `Health`, while `guards.minReplicas` others are Ready, "
        "they go.",
        f"{_TRUST}::test_a_service_that_is_never_healthy_keeps_its_ready_pods_only_while_few_are_ready",
        "tests/constraints/test_autoscalers.py::test_a_service_that_an_autoscaler_is_changing_is_left_alone",
        bound="`trust` without `Health`",
    ),
    power(
        "A controller that makes each replacement on the node that it left",
        "It is not evicted for a node's load.",
        "tests/stories/test_coming_back.py::test_a_pod_that_would_come_back_is_not_evicted",
    ),
    power(
        "Replacements that never become Ready",
        "The pool pauses for a stated time, then goes on without that service.",
        "tests/stories/test_late_replacements.py::"
        "test_a_replacement_that_never_starts_stops_the_pool_for_a_stated_time_or_until_it_is_resolved",
        "tests/stories/test_late_replacements.py::test_a_sibling_that_is_not_ready_stops_neither_pool_nor_cluster",
        "tests/constraints/test_late_evictions.py::test_late_replacements_stop_their_service_then_their_pool_then_all",
        bound="`safety.circuitBreaker`",
    ),
)

ALERT_SENDER = (
    power(
        "An alert names a pod, a namespace or a service",
        "Nothing: an alert names a node. The strategy chooses among its pods, as without the alert.",
        "tests/daemon/test_alert_power.py::test_an_alert_names_a_node_and_chooses_no_pod_of_it",
    ),
    power(
        "Alerts with the lowest thresholds, again and again under other names",
        "`alerts.maxExcess` percent of a node in `alerts.expireAfter`.",
        "tests/daemon/test_alert_power.py::test_the_excess_of_an_alert_is_bounded",
        "tests/daemon/test_alert_power.py::test_what_was_evicted_from_the_node_counts",
        "tests/daemon/test_alert_power.py::test_an_alert_whose_excess_is_used_up_waits",
        bound="`alerts.minHigh`, `alerts.minTarget`, `alerts.maxExcess`, limits",
    ),
    power(
        "Hundreds of alerts at a time",
        "One cycle for all that are due, each retried after a minute at the earliest. Cycles never overlap.",
        "tests/daemon/test_alert_power.py::test_hundreds_of_alerts_are_one_cycle_and_none_before_they_are_retried",
        bound="the connections of an address, the size of a delivery",
    ),
    power(
        "New alerts about one node, again and again",
        "One cycle a minute for the node, a strategy and a resource. An alert about another node does not wait.",
        "tests/daemon/test_alert_power.py::test_new_alerts_about_a_node_start_a_cycle_a_minute_and_the_first_at_once",
        "tests/daemon/test_alert_power.py::test_a_new_alert_about_another_node_waits_for_no_other",
    ),
    power(
        "An alert whose rule names another strategy, for any node",
        "What the strategy evicts from that node in its periodic cycles, sooner. No label or annotation of the alert "
        "selects a strategy, or a node that the strategy does not choose.",
        "tests/daemon/test_alert_strategies.py::test_an_alert_starts_the_strategy_of_its_rule_on_its_node_alone",
        "tests/daemon/test_alert_strategies.py::"
        "test_an_alert_about_a_node_that_its_strategy_does_not_choose_evicts_nothing",
        "tests/daemon/test_alert_strategies.py::test_an_alert_that_starts_one_strategy_starts_no_other",
        "tests/daemon/test_alert_strategies.py::test_guards_hold_in_a_cycle_that_an_alert_started",
        bound="the strategies of `alerts.rules`, their arguments, guards, limits, windows",
    ),
    power(
        "An alert about a node that is not hot by measurement",
        "Nothing is evicted; the disagreement is recorded.",
        "tests/daemon/test_alert_requests.py::test_where_measurement_and_alert_disagree_that_is_written_down",
    ),
)

METRICS_WRITER = (
    power(
        "Writes a node hot",
        "Nothing, unless its pods' usage explains the load; then as many pods of it as limits allow, one of a service "
        "at a time by default.",
        f"{_HERE}::test_a_node_that_is_written_hot_loses_no_more_pods_than_limits_allow",
        bound="`limits.node`, `limits.service`, `limits.perCycle`",
    ),
    power(
        "Writes all nodes hot",
        "Nothing is evicted: no node could take a replacement.",
        f"{_HERE}::test_where_every_node_is_written_hot_nothing_is_evicted",
    ),
    power(
        "Writes values that are stale, partial, of other nodes, in percent, or no numbers",
        "The node is skipped, or the cycle stops.",
        "tests/prometheus/test_prometheus_answers.py::"
        "test_one_node_without_a_usable_number_is_skipped_and_the_others_are_read",
        "tests/prometheus/test_prometheus_answers.py::"
        "test_a_node_with_many_times_its_capacity_is_skipped_and_the_others_are_read",
        "tests/prometheus/test_prometheus_answers.py::test_percent_instead_of_a_share_is_refused_by_naming_the_field",
        "tests/prometheus/test_prometheus_answers.py::test_a_raw_sample_that_is_too_old_is_refused_with_its_age",
        "tests/kube/test_metrics_server.py::test_nonsense_is_not_a_number_and_never_zero",
    ),
)

NODE = (
    power(
        "Claims more capacity than it has",
        "It is a target, for kube-scheduler too; as many replacements at a time as limits allow.",
        f"{_HERE}::test_a_node_that_claims_a_thousand_cores_takes_no_more_replacements_at_a_time_than_limits_allow",
        bound="`limits.replacements.perNode`",
    ),
    power(
        "Reports its pods as failed, or as restarted without end",
        "Its own pods are evicted, as limits allow; none of another node.",
        f"{_HERE}::test_what_a_node_says_of_its_pods_evicts_no_pod_of_another_node",
        bound="`limits.node`",
    ),
    power(
        "Claims the labels of another zone",
        "One pod for each of its own that is in conflict there.",
        f"{_HERE}::test_a_node_that_claims_another_zone_costs_others_one_pod_for_each_of_its_own_at_most",
        bound="NodeRestriction, limits",
    ),
    power(
        "Claims to be chosen for maintenance, or labels of another pool",
        "It is drained, `maxConcurrentNodes` at a time, by the rules of that pool.",
        "tests/strategies/test_node_maintenance.py::test_never_two_waves_at_work_and_never_more_nodes_than_allowed",
        "tests/strategies/test_node_maintenance.py::"
        "test_nodes_of_other_pools_are_not_touched_and_those_named_in_vain_are_noted",
        bound="NodeMaintenance with `nodes`, by name",
    ),
    power(
        "Claims to be Ready, or not, or about to leave",
        "It takes no replacements, and is not evaluated. Services with a pod on it are left alone, and its pods take "
        "headroom elsewhere. Where a quarter of the nodes does so at once, evictions stop for ten minutes.",
        "tests/placement/test_landing.py::test_nodes_that_leave_are_new_or_not_ready_are_closed",
        "tests/strategies/test_low_node_utilization.py::test_a_node_that_is_not_ready_or_about_to_go_is_skipped",
        "tests/projection/test_replicas.py::test_the_pod_on_the_leaving_node_may_go_ahead_of_the_drain",
        "tests/projection/test_leaving.py::test_the_pods_of_a_lost_node_are_about_to_go_for_10_minutes",
        "tests/projection/test_disturbance.py::test_what_was_lost_ten_minutes_ago_is_a_state",
        bound="services with a pod on it; ten minutes",
    ),
)

ACTORS = {
    "Pod creator": POD_CREATOR,
    "Namespace admin": NAMESPACE_ADMIN,
    "Controller author": CONTROLLER_AUTHOR,
    "Alert sender": ALERT_SENDER,
    "Metrics writer": METRICS_WRITER,
    "Node": NODE,
}
