"""How far tenants may shield their own pods (`trust`), and what no rule of it lifts."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from rebalancer.constraints.admission import EvictionAdmission, LedgerState, identity_of
from rebalancer.constraints.pods.trust import Trust
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason
from rebalancer.model.reason.shields import SHIELD_OF
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.trust import SHIELDS
from tests.builders import (
    NOW,
    APod,
    a_budget,
    a_door,
    a_node,
    a_policy,
    carry_out,
    cluster,
    planner_for,
    replicas,
    usage_of,
)

POLICY: dict[str, Any] = {
    "strategies": [{"name": "LowNodeUtilization"}, {"name": "NodeMaintenance", "args": {"nodes": ["rack-1"]}}],
    "guards": {"priorityBelow": 100, "labels": {"exclude": {"matchLabels": {"keep": "yes"}}}},
    "lists": {"deny": [{"selector": {"matchLabels": {"denied": "yes"}}}]},
    "serviceLevels": {"default": "usual", "levels": [{"name": "usual"}, {"name": "never", "evict": False}]},
    "safety": {"crossCluster": {"placedBy": {"matchLabels": {"karmada": "yes"}}}},
}


def noted(**annotations: str) -> dict[str, Any]:
    return {"template": {"annotations": annotations}}


def volume(**fields: Any) -> dict[str, Any]:
    return {"template": {"volumes": [fields]}}


SHIELDED: dict[str, tuple[str, Reason, dict[str, Any]]] = {
    "annotation": ("OptOut", Reason.OPTED_OUT, noted(**{"rebalancer.dev/evict": "false"})),
    "label": ("OptOut", Reason.OPTED_OUT, {"labels": {"rebalancer.dev/evict": "false"}}),
    "unknown value": ("OptOut", Reason.INVALID_OPT_OUT, noted(**{"rebalancer.dev/evict": "never"})),
    "veto": ("Veto", Reason.ANNOTATION_VETO, noted(**{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})),
    "in progress": (
        "InProgress",
        Reason.EVICTION_IN_PROGRESS,
        noted(**{"descheduler.alpha.kubernetes.io/eviction-in-progress": "someone"}),
    ),
    "window never": (
        "ChangeWindow",
        Reason.WINDOW_CLOSED,
        noted(**{"rebalancer.dev/change-window": "deny * * * * * 1m"}),
    ),
    "window broken": ("ChangeWindow", Reason.WINDOW_INVALID, noted(**{"rebalancer.dev/change-window": "never"})),
    "level": ("Level", Reason.LEVEL_FORBIDS, {"labels": {"rebalancer.dev/level": "never"}}),
    "unknown level": ("Level", Reason.UNKNOWN_LEVEL, noted(**{"rebalancer.dev/level": "mine"})),
    "named rebalancer": ("Name", Reason.OURSELVES, {"labels": {"app.kubernetes.io/name": "rebalancer"}}),
    "named prometheus": ("Name", Reason.OUR_PROMETHEUS, {"labels": {"app.kubernetes.io/name": "prometheus"}}),
    "named database": ("Name", Reason.OUR_DATABASE, {"labels": {"app.kubernetes.io/name": "postgres"}}),
    "group": ("Group", Reason.POD_GROUP, {"labels": {"volcano.sh/job-name": "mine"}}),
    "excluded label": ("Label", Reason.LABEL_EXCLUDED, {"labels": {"keep": "yes"}}),
    "denied label": ("Label", Reason.DENY_LISTED, {"labels": {"denied": "yes"}}),
    "placed by": ("Label", Reason.CROSS_CLUSTER, {"labels": {"karmada": "yes"}}),
    "critical": ("Priority", Reason.SYSTEM_CRITICAL, {"template": {"priorityClass": "system-cluster-critical"}}),
    "priority": ("Priority", Reason.PRIORITY_THRESHOLD, {"priority": 100}),
    "emptyDir": ("Volume", Reason.LOCAL_STORAGE, volume(emptyDir={"sizeLimit": "1Gi"})),
    "hostPath": ("Volume", Reason.HOST_PATH, volume(hostPath={"path": "/mine"})),
    "claim": ("Volume", Reason.PERSISTENT_VOLUME, volume(persistentVolumeClaim={"claimName": "data"})),
    "never Ready": ("Health", Reason.NOT_READY, {"ready": False}),
}
"""Name -> shield, the refusal by it, and the fields of the pods that have it."""


OUT = {"labels": {"rebalancer.dev/evict": "false"}}


def policy(*trust: dict[str, Any], **fields: Any) -> RebalancerPolicy:
    return a_policy(**{**POLICY, "trust": list(trust), **fields})


def snapshot(fields: dict[str, Any], *, others: list[APod] | None = None, **more: Any) -> ClusterSnapshot:
    pods = replicas("web", {"rack-1": 2, "other": 1}, **{"namespace": "team-a", **fields})
    claims = {"claims_known": True} if "claims_known" not in more else {}
    return cluster([a_node("rack-1"), a_node("other"), a_node("new")], [*pods, *(others or [])], **claims, **more)


def refused(made: ClusterSnapshot, policy: RebalancerPolicy, pod: int = 0, strategy: str = "") -> Reason | None:
    refusal = a_door(made, policy).stays(made.pod(pod), pool="general", strategy=strategy)
    return None if refusal is None else refusal.code


CASES = pytest.mark.parametrize("name", sorted(SHIELDED))


@CASES
def test_without_a_rule_every_shield_counts_also_against_maintenance(name: str) -> None:
    _, code, fields = SHIELDED[name]
    made = snapshot(fields)
    assert refused(made, policy()) is refused(made, policy(), strategy="NodeMaintenance") is code
    assert refused(made, policy({"namespaces": ["team-b"], "shields": []})) is code


@CASES
def test_a_shield_counts_only_where_its_namespace_is_trusted_with_it(name: str) -> None:
    shield, code, fields = SHIELDED[name]
    made = snapshot(fields)
    assert refused(made, policy({"namespaces": ["team-*"], "shields": [shield]})) is code
    others = [each for each in SHIELDS if each != shield]
    assert refused(made, policy({"namespaces": ["team-*"], "shields": others})) is None
    assert refused(made, policy({"shields": []})) is None


@CASES
def test_operators_may_drain_despite_it_and_for_nothing_else(name: str) -> None:
    _, code, fields = SHIELDED[name]
    made = snapshot(fields)
    rule = {"namespaces": ["team-*"], "maintenanceShields": []}
    assert refused(made, policy(rule), strategy="NodeMaintenance") is None
    assert refused(made, policy(rule)) is refused(made, policy(rule), strategy="LowNodeUtilization") is code


@CASES
def test_the_refusal_names_trust_as_what_lifts_it(name: str) -> None:
    shield, code, _ = SHIELDED[name]
    assert SHIELD_OF[code] == shield
    assert f"or trust without {shield}" in code.lifted_by


def test_every_shield_of_the_policy_has_a_case_and_a_reason() -> None:
    assert {shield for shield, _, _ in SHIELDED.values()} == set(SHIELDS) == set(SHIELD_OF.values())
    assert {str(each) for each in Reason} >= set(SHIELD_OF)


def test_the_first_rule_that_matches_a_namespace_counts_by_name_and_by_labels() -> None:
    made = snapshot(SHIELDED["label"][2], namespace_labels={"team-a": {"tenant": "yes"}})
    of_tenants = {"selector": {"matchLabels": {"tenant": "yes"}}, "shields": []}
    assert refused(made, policy(of_tenants)) is None
    assert refused(made, policy({"namespaces": ["team-a"]}, of_tenants)) is Reason.OPTED_OUT
    assert refused(made, policy({**of_tenants, "namespaces": ["other-*"]})) is Reason.OPTED_OUT
    assert refused(snapshot(SHIELDED["label"][2]), policy(of_tenants)) is Reason.OPTED_OUT


# ---- what no rule lifts


def test_budgets_and_min_replicas_hold_against_a_drain_that_trusts_nobody() -> None:
    nobody = policy({"shields": []}, guards={"minReplicas": 3})
    made = snapshot({"template": {"annotations": {"rebalancer.dev/evict": "false"}}})
    assert refused(made, nobody, strategy="NodeMaintenance") is None
    one = cluster([a_node("rack-1"), a_node("new")], replicas("web", {"rack-1": 2}))
    assert refused(one, nobody, strategy="NodeMaintenance") is Reason.MIN_REPLICAS
    held = snapshot(OUT, budgets=[a_budget("b", "web", 0, namespace="team-a")])
    assert drained(held, nobody) == ([], {Reason.BUDGET_EXHAUSTED})


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"owner_kind": "Pod"}, Reason.BARE_POD),
        ({"owner_kind": "DaemonSet"}, Reason.DAEMONSET_POD),
        ({"owner_kind": "Job"}, Reason.JOB_POD),
        ({"owner_kind": "CloneSet"}, Reason.UNKNOWN_OWNER_KIND),
        ({"terminating": True}, Reason.TERMINATING),
        ({"age": 60.0}, Reason.TOO_YOUNG),
        ({"template": {"annotations": {"kubernetes.io/config.source": "file"}}}, Reason.STATIC_POD),
        ({"template": {"notModelled": "its PodGroup"}}, Reason.PLACEMENT_NOT_MODELLED),
    ],
)
def test_what_a_pod_is_protects_it_whoever_is_trusted(fields: dict[str, Any], code: Reason) -> None:
    assert refused(snapshot(fields), policy({"shields": []}), strategy="NodeMaintenance") is code


def test_local_volumes_stay_whoever_is_trusted() -> None:
    made = snapshot(SHIELDED["claim"][2], local_claims=frozenset({("team-a", "data")}))
    assert refused(made, policy({"shields": []})) is Reason.LOCAL_VOLUME


def test_what_operators_write_counts_whoever_is_trusted() -> None:
    nobody = policy({"shields": []})
    nodes = [a_node("rack-1", labels={"pool": "general", "rebalancer.dev/evict": "false"})]
    assert refused(cluster(nodes, replicas("web", {"rack-1": 3})), nobody) is Reason.OPTED_OUT
    by_service = {"deny": [{"services": ["team-a/web"]}]}
    assert refused(snapshot({}), policy({"shields": []}, lists=by_service)) is Reason.DENY_LISTED
    closed = {"cluster": [{"kind": "Deny", "schedule": "* * * * *", "duration": "1m"}]}
    assert refused(snapshot({}), policy({"shields": []}, windows=closed)) is Reason.WINDOW_CLOSED
    opted_in = policy({"shields": []}, guards={"requireOptIn": True})
    assert refused(snapshot({}), opted_in) is Reason.NOT_OPTED_IN
    assert refused(snapshot({"labels": {"rebalancer.dev/evict": "true"}}), opted_in) is None


def test_rebalancer_s_own_namespace_is_trusted() -> None:
    made = snapshot(SHIELDED["named prometheus"][2])
    nobody = policy({"shields": []})

    def code(own: tuple[str, str]) -> Reason | None:
        pool_of = NodePools.of(nobody.pools, made.nodes).of_node
        admission = EvictionAdmission(
            policy=nobody, snapshot=made, pool_of=pool_of, ledger_state=LedgerState(), now=NOW, own_pod=own
        )
        refusal = admission.stays(made.pod(0), pool="general")
        return None if refusal is None else refusal.code

    assert code(("team-a", "rebalancer-0")) is Reason.OUR_PROMETHEUS
    assert code(("elsewhere", "rebalancer-0")) is None
    # its own pod is found by name
    assert code(("elsewhere", "web-0")) is None
    assert code(("team-a", "web-0")) is Reason.OURSELVES


# ---- how much


def test_of_more_shielded_pods_than_are_trusted_the_oldest_keep_their_shields() -> None:
    pods = [replace(each, age=86_400.0 * (1 + at)) for at, each in enumerate(replicas("web", {"rack-1": 4}, **OUT))]
    plain = replicas("api", {"rack-1": 3}, age=9e6)
    made = cluster([a_node("rack-1")], [*pods, *plain, *replicas("db", {"rack-1": 3}, namespace="other", **OUT)])
    two = policy({"maxPods": 2})
    codes = [refused(made, two, pod) for pod in range(4)]
    assert codes == [None, None, Reason.OPTED_OUT, Reason.OPTED_OUT]
    assert [refused(made, policy({"maxPods": 0}), pod) for pod in range(4)] == [None] * 4
    # each namespace has its own
    assert sum(refused(made, two, pod) is Reason.OPTED_OUT for pod in range(7, 10)) == 2


@pytest.mark.parametrize("name", [name for name in sorted(SHIELDED) if SHIELDED[name][0] != "Health"])
def test_every_written_shield_is_counted(name: str) -> None:
    _, code, fields = SHIELDED[name]
    made = snapshot(fields)
    codes = [refused(made, policy({"maxPods": 1}), pod) for pod in range(3)]
    assert sorted(codes, key=str) == sorted([None, None, code], key=str)


def test_pods_that_are_not_ready_are_not_counted() -> None:
    made = snapshot({"ready": False})
    assert [refused(made, policy({"maxPods": 0}), pod) for pod in range(3)] == [Reason.NOT_READY] * 3


def test_shields_end_with_a_pod_s_age() -> None:
    def codes(age: float, **rule: Any) -> set[Reason | None]:
        made = snapshot({**OUT, "age": age})
        return {refused(made, policy({"maxAge": "2d", **rule}), pod) for pod in range(3)}

    assert codes(2 * 86_400.0) == {Reason.OPTED_OUT}
    assert codes(2 * 86_400.0 + 1) == {None}
    # an old pod takes no other's place
    assert codes(2 * 86_400.0 + 1, maxPods=1) == {None}


# ---- names, levels and health


def test_a_service_identity_counts_where_the_label_is_trusted() -> None:
    safety = {"serviceIdentity": {"label": "example.com/service"}}
    made = snapshot({"labels": {"example.com/service": "bank/cart"}})
    trusted, not_trusted = policy(safety=safety), policy({"shields": ["Level"]}, safety=safety)
    assert identity_of(made.pod(0), trusted, made) == "bank/cart"
    assert identity_of(made.pod(0), not_trusted, made) == "team-a/web"
    assert a_door(made, not_trusted).traits(made.pod(0)).identity == "team-a/web"


def test_limits_and_costs_go_by_the_level_that_counts() -> None:
    levels = {"default": "usual", "levels": [{"name": "usual", "cost": 5}, {"name": "cheap", "cost": 0}]}
    made = snapshot({"labels": {"rebalancer.dev/level": "cheap"}})
    for rules, name, cost in (((), "cheap", 0.0), (({"shields": []},), "usual", 5.0)):
        admission = a_door(made, policy(*rules, serviceLevels=levels))
        pod = made.pod(0)
        assert (admission.traits(pod).level, admission.price(pod).level) == (name, cost)
        assert admission.rules.level_desired == {name: 3}


def test_a_service_that_is_never_healthy_keeps_its_ready_pods_only_while_few_are_ready() -> None:
    nobody = policy({"shields": []}, guards={"minReplicas": 2})
    rolling = [Owner(kind="ReplicaSet", namespace="team-a", name="web", uid="u", desired=9, ready=3, rolling_out=True)]
    made = snapshot({}, owners=rolling)
    assert refused(made, policy()) is Reason.ROLLOUT_IN_PROGRESS
    assert refused(made, nobody) is None
    few = [replace(rolling[0], ready=1)]
    assert refused(snapshot({}, owners=few), nobody) is Reason.ROLLOUT_IN_PROGRESS
    calm = [replace(few[0], rolling_out=False)]
    assert refused(snapshot({}, owners=calm), nobody) is Reason.OWNER_NOT_HEALTHY
    assert refused(snapshot({"ready": False}, owners=few), nobody) is None


# ---- a drain


def drained(made: ClusterSnapshot, policy: RebalancerPolicy) -> tuple[list[str], set[Reason]]:
    """Pods that a plan evicts from rack-1, and the codes of those that stay."""
    pods = [APod(name=name, used=10.0) for name in made.pods.names]
    nodes = [a_node(name, used=0.0) for name in made.nodes.names]
    planner = planner_for(made, usage_of(made, nodes, pods), policy)
    gone = carry_out(planner, made).pods
    return gone, {each.code for each in planner.outcome.refusals()}


def test_a_tenant_that_uses_every_shield_keeps_no_rack_from_being_drained_where_operators_say_so() -> None:
    pods = [
        pod
        for at, (_, _, fields) in enumerate(SHIELDED.values())
        for pod in replicas(f"s{at}", {"rack-1": 1, "other": 2}, namespace="team-a", cpu=100, **fields)
    ]
    nodes = [a_node("rack-1", unschedulable=True), a_node("other"), a_node("new")]
    made = cluster(nodes, pods, claims_known=True)
    gone, codes = drained(made, policy())
    assert gone == []
    assert codes == {code for _, code, _ in SHIELDED.values()}
    gone, codes = drained(made, policy({"namespaces": ["team-a"], "maintenanceShields": []}))
    assert codes == set()
    assert len(gone) == len(SHIELDED)


# ---- the policy


def test_mistakes_are_named() -> None:
    for rule, words in (
        ({"shields": ["Everything"]}, "OptOut"),
        ({"namespaces": []}, "at least 1"),
        ({"maxPods": -1}, "greater than or equal to 0"),
        ({"maxAge": "1s"}, "1m"),
        ({"pods": 1}, "Extra inputs"),
    ):
        with pytest.raises(ValidationError, match=words):
            policy(rule)


def test_the_trust_of_a_namespace_is_the_same_for_all_its_pods() -> None:
    made = snapshot({})
    trust = Trust(policy({"shields": ["Veto"]}).trust, made, now=NOW, own_namespace="own")
    assert trust.lifted_in("team-a") == frozenset(SHIELDS) - {"Veto"}
    assert trust.lifted_in("own") == frozenset()
