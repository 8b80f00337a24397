"""Each guard: what it protects, and the nearest thing that it doesn't."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rebalancer.constraints.guards import GUARDS, VETOES, GuardView, guarded, parse_flag
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import FAILED, PENDING, RUNNING, SUCCEEDED, UNKNOWN, ClusterSnapshot, Owner
from rebalancer.policy.schema import Guards
from tests.builders import NOW, APod, a_node, a_pod, cluster

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
EVICT = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
DISRUPT = "karpenter.sh/do-not-disrupt"
OPT = "rebalancer.dev/evict"


def view_of(snapshot: ClusterSnapshot, guards: Mapping[str, Any] | None = None, **fields: Any) -> GuardView:
    return GuardView.of(snapshot=snapshot, guards=Guards.model_validate(dict(guards or {})), now=NOW, **fields)


def asked(
    pod: Mapping[str, Any] | None = None,
    *,
    guards: Mapping[str, Any] | None = None,
    owner: Owner | None = None,
    siblings: int = 2,
    sibling: Mapping[str, Any] | None = None,
    own_pod: tuple[str, str] | None = None,
    node: Mapping[str, Any] | None = None,
    **snapshot: Any,
) -> Refusal | None:
    """What the guards say of one pod of a service with three, all healthy."""
    fields: dict[str, Any] = {"node": "n1", "owner": "web", **(pod or {})}
    its: APod = a_pod("web-0", **fields)
    others = [
        a_pod(f"web-{index}", **{**fields, "terminating": False, "phase": RUNNING, "ready": True, **(sibling or {})})
        for index in range(1, siblings + 1)
    ]
    made = cluster(
        [a_node("n1", **(node or {}))], [its, *others], owners=[owner] if owner is not None else [], **snapshot
    )
    return guarded(made.pod(0), view_of(made, guards, own_pod=own_pod))


def code(*args: Any, **fields: Any) -> Reason | None:
    refusal = asked(*args, **fields)
    return None if refusal is None else refusal.code


def noted(**annotations: str) -> dict[str, Any]:
    return {"shape": {"annotations": annotations}}


def volume(**fields: Any) -> dict[str, Any]:
    return {"shape": {"volumes": [fields]}}


def an_owner(kind: str = "ReplicaSet", **fields: Any) -> Owner:
    return Owner(kind=kind, namespace="shop", name="web", uid="u", **fields)


@dataclass(frozen=True, kw_only=True)
class Case:
    """`protected` is guarded with `reason`, `near` is the nearest miss; both are arguments of `asked`."""

    reason: Reason
    protected: Mapping[str, Any]
    near: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "mirror": Case(
        reason=Reason.MIRROR_POD,
        protected={"pod": noted(**{"kubernetes.io/config.mirror": ""})},
        near={"pod": noted(**{"kubernetes.io/config.hash": "x"})},
    ),
    "static, by its source": Case(
        reason=Reason.STATIC_POD,
        protected={"pod": noted(**{"kubernetes.io/config.source": "file"})},
        near={"pod": noted(**{"kubernetes.io/config.source": "api"})},
    ),
    "static, by its owner": Case(reason=Reason.STATIC_POD, protected={"pod": {"owner_kind": "Node"}}),
    "terminating": Case(
        reason=Reason.TERMINATING, protected={"pod": {"terminating": True}}, near={"pod": {"terminating": False}}
    ),
    "succeeded": Case(reason=Reason.FINISHED, protected={"pod": {"phase": SUCCEEDED}}),
    "failed": Case(reason=Reason.FINISHED, protected={"pod": {"phase": FAILED}}, near={"pod": {"phase": UNKNOWN}}),
    "not ready": Case(reason=Reason.NOT_READY, protected={"pod": {"ready": False}}),
    "pending": Case(reason=Reason.NOT_READY, protected={"pod": {"ready": False, "phase": PENDING, "node": ""}}),
    "bare": Case(reason=Reason.BARE_POD, protected={"pod": {"owner": ""}}),
    "of a pod": Case(reason=Reason.BARE_POD, protected={"pod": {"owner_kind": "Pod"}}),
    "of a pod, although named": Case(
        reason=Reason.BARE_POD, protected={"pod": {"owner_kind": "Pod"}, "guards": {"ownerKinds": ["Pod"]}}
    ),
    "of a daemon set": Case(reason=Reason.DAEMONSET_POD, protected={"pod": {"owner_kind": "DaemonSet"}}),
    "of a daemon set, although named": Case(
        reason=Reason.DAEMONSET_POD,
        protected={"pod": {"owner_kind": "DaemonSet"}, "guards": {"ownerKinds": ["DaemonSet"]}},
    ),
    "of an unknown kind": Case(
        reason=Reason.UNKNOWN_OWNER_KIND,
        protected={"pod": {"owner_kind": "CloneSet"}},
        near={"pod": {"owner_kind": "CloneSet"}, "guards": {"ownerKinds": ["CloneSet"]}},
    ),
    "a kind is named with its case": Case(
        reason=Reason.UNKNOWN_OWNER_KIND,
        protected={"pod": {"owner_kind": "CloneSet"}, "guards": {"ownerKinds": ["cloneset"]}},
    ),
    "of a job": Case(
        reason=Reason.JOB_POD,
        protected={"pod": {"owner_kind": "Job"}, "owner": an_owner("Job", spares_disruptions=True)},
        near={
            "pod": {"owner_kind": "Job"},
            "owner": an_owner("Job", spares_disruptions=True),
            "guards": {"jobPods": True},
        },
    ),
    "of a job that counts disruptions": Case(
        reason=Reason.JOB_POD,
        protected={"pod": {"owner_kind": "Job"}, "owner": an_owner("Job"), "guards": {"jobPods": True}},
    ),
    "of a job that is named as a kind": Case(
        reason=Reason.JOB_POD, protected={"pod": {"owner_kind": "Job"}, "guards": {"ownerKinds": ["Job"]}}
    ),
    "ourselves, by name": Case(
        reason=Reason.OURSELVES, protected={"own_pod": ("shop", "web-0")}, near={"own_pod": ("other", "web-0")}
    ),
    "ourselves, by label": Case(
        reason=Reason.OURSELVES,
        protected={"pod": {"labels": {"app.kubernetes.io/name": "rebalancer"}}},
        near={"pod": {"labels": {"app.kubernetes.io/name": "rebalancer-ui"}}},
    ),
    "our Prometheus": Case(
        reason=Reason.OUR_PROMETHEUS,
        protected={"pod": {"labels": {"app.kubernetes.io/name": "prometheus"}}},
        near={
            "pod": {"labels": {"app.kubernetes.io/name": "prometheus"}},
            "guards": {"ours": {"prometheus": {"matchLabels": {"app": "prom"}}}},
        },
    ),
    "our database": Case(
        reason=Reason.OUR_DATABASE,
        protected={"pod": {"labels": {"app.kubernetes.io/name": "postgresql"}}},
        near={"pod": {"labels": {"app.kubernetes.io/name": "mysql"}}},
    ),
    "system-cluster-critical": Case(
        reason=Reason.SYSTEM_CRITICAL,
        protected={"pod": {"priority": 2_000_000_000}},
        near={"pod": {"priority": 1_999_999_999}},
    ),
    "critical by its class": Case(
        reason=Reason.SYSTEM_CRITICAL,
        protected={"pod": {"shape": {"priorityClass": "system-node-critical"}}},
        near={"pod": {"shape": {"priorityClass": "my-system"}}},
    ),
    "priority": Case(
        reason=Reason.PRIORITY_THRESHOLD,
        protected={"pod": {"priority": 1000}, "guards": {"priorityBelow": 1000}},
        near={"pod": {"priority": 999}, "guards": {"priorityBelow": 1000}},
    ),
    "priority, by a class": Case(
        reason=Reason.PRIORITY_THRESHOLD,
        protected={
            "pod": {"priority": 1000},
            "guards": {"priorityClassBelow": "high"},
            "priority_classes": {"high": 1000},
        },
        near={"pod": {"priority": 999}, "guards": {"priorityClassBelow": "high"}, "priority_classes": {"high": 1000}},
    ),
    "a class that isn't there closes": Case(
        reason=Reason.PRIORITY_THRESHOLD,
        protected={"pod": {"priority": -(2**31)}, "guards": {"priorityClassBelow": "high"}},
    ),
    "hostPath": Case(
        reason=Reason.HOST_PATH,
        protected={"pod": volume(hostPath={"path": "/var"})},
        near={"pod": volume(hostPath={"path": "/var"}), "guards": {"hostPath": True}},
    ),
    "disk emptyDir": Case(
        reason=Reason.LOCAL_STORAGE,
        protected={"pod": volume(emptyDir={})},
        near={"pod": volume(emptyDir={"medium": "Memory"})},
    ),
    "disk emptyDir, spelled out": Case(
        reason=Reason.LOCAL_STORAGE,
        protected={"pod": volume(emptyDir={"medium": "", "sizeLimit": "1Gi"})},
        near={"pod": volume(emptyDir={}), "guards": {"diskEmptyDir": True}},
    ),
    "a claim": Case(
        reason=Reason.PERSISTENT_VOLUME,
        protected={"pod": volume(persistentVolumeClaim={"claimName": "data"})},
        near={"pod": volume(persistentVolumeClaim={"claimName": "data"}), "guards": {"persistentVolumes": True}},
    ),
    "a local claim, whatever the policy": Case(
        reason=Reason.LOCAL_VOLUME,
        protected={
            "pod": volume(persistentVolumeClaim={"claimName": "data"}),
            "guards": {"persistentVolumes": True},
            "local_claims": frozenset({("shop", "data")}),
        },
        near={
            "pod": volume(persistentVolumeClaim={"claimName": "data"}),
            "guards": {"persistentVolumes": True},
            "local_claims": frozenset({("other", "data"), ("shop", "data-2")}),
        },
    ),
    "claims that can't be read count as local": Case(
        reason=Reason.LOCAL_VOLUME,
        protected={
            "pod": volume(persistentVolumeClaim={"claimName": "data"}),
            "guards": {"persistentVolumes": True},
            "claims_known": False,
        },
        near={"claims_known": False},
    ),
    "an ephemeral volume": Case(reason=Reason.PERSISTENT_VOLUME, protected={"pod": volume(ephemeral={})}),
    "an ephemeral volume on one node": Case(
        reason=Reason.LOCAL_VOLUME,
        protected={
            "pod": volume(ephemeral={}),
            "guards": {"persistentVolumes": True},
            "local_claims": frozenset({("shop", "web-0-scratch")}),
        },
        near={
            "pod": volume(ephemeral={}),
            "guards": {"persistentVolumes": True},
            "local_claims": frozenset({("shop", "web-1-scratch")}),
        },
    ),
    "young": Case(reason=Reason.TOO_YOUNG, protected={"pod": {"age": 299.0}}, near={"pod": {"age": 300.0}}),
    "without a start": Case(
        reason=Reason.TOO_YOUNG,
        protected={"pod": {"started": False}},
        near={"pod": {"started": False}, "guards": {"minAge": "0s"}},
    ),
    "started in the future": Case(reason=Reason.TOO_YOUNG, protected={"pod": {"age": -60.0}}),
    "few replicas": Case(reason=Reason.MIN_REPLICAS, protected={"siblings": 0}, near={"siblings": 1}),
    "few wanted": Case(
        reason=Reason.MIN_REPLICAS,
        protected={"owner": an_owner(wanted=2), "guards": {"minReplicas": 3}},
        near={"owner": an_owner(wanted=3), "guards": {"minReplicas": 3}},
    ),
    "rolling out": Case(
        reason=Reason.ROLLOUT_IN_PROGRESS,
        protected={"owner": an_owner(rolling_out=True)},
        near={"owner": an_owner(rolling_out=False)},
    ),
    "one is missing": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"owner": an_owner(wanted=4)},
        near={"owner": an_owner(wanted=3)},
    ),
    "its controller counts one less": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"owner": an_owner(wanted=3, ready=2)},
        near={"owner": an_owner(wanted=3, ready=4)},
    ),
    "a sibling isn't ready": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"sibling": {"ready": False}},
        near={"sibling": {"age": 1.0}},
    ),
    "a sibling is terminating and not replaced": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"sibling": {"terminating": True}, "owner": an_owner(wanted=3), "siblings": 2},
        near={"sibling": {"terminating": True}, "owner": an_owner(wanted=1), "guards": {"minReplicas": 1}},
    ),
    "opted out by its label": Case(
        reason=Reason.OPTED_OUT, protected={"pod": {"labels": {OPT: "false"}}}, near={"pod": {"labels": {OPT: "true"}}}
    ),
    "opted out by its annotation": Case(
        reason=Reason.OPTED_OUT, protected={"pod": noted(**{OPT: "false"})}, near={"pod": noted(**{OPT: "true"})}
    ),
    "opted out by its namespace": Case(
        reason=Reason.OPTED_OUT,
        protected={"namespace_labels": {"shop": {OPT: "false"}}},
        near={"namespace_labels": {"other": {OPT: "false"}}},
    ),
    "opted out by its node": Case(
        reason=Reason.OPTED_OUT,
        protected={"node": {"labels": {OPT: "false"}}},
        near={"node": {"labels": {OPT: "true"}}},
    ),
    "out beats in": Case(
        reason=Reason.OPTED_OUT,
        protected={"pod": {"labels": {OPT: "true"}}, "namespace_labels": {"shop": {OPT: "false"}}},
        near={"pod": {"labels": {OPT: "true"}}, "namespace_labels": {"shop": {OPT: "true"}}},
    ),
    "garbage closes": Case(
        reason=Reason.OPTED_OUT, protected={"pod": {"labels": {OPT: "yes"}}}, near={"pod": {"labels": {OPT: "T"}}}
    ),
    "not opted in": Case(
        reason=Reason.NOT_OPTED_IN,
        protected={"guards": {"requireOptIn": True}},
        near={"guards": {"requireOptIn": True}, "pod": {"labels": {OPT: "true"}}},
    ),
    "opted in by its annotation": Case(
        reason=Reason.NOT_OPTED_IN,
        protected={"guards": {"requireOptIn": True}, "pod": noted(**{"example.com/evict": "true"})},
        near={"guards": {"requireOptIn": True}, "pod": noted(**{OPT: "true"})},
    ),
    "opted in by its namespace": Case(
        reason=Reason.NOT_OPTED_IN,
        protected={"guards": {"requireOptIn": True}, "namespace_labels": {"other": {OPT: "true"}}},
        near={"guards": {"requireOptIn": True}, "namespace_labels": {"shop": {OPT: "true"}}},
    ),
    "kube-system": Case(
        reason=Reason.NAMESPACE_EXCLUDED,
        protected={"pod": {"namespace": "kube-system"}},
        near={"pod": {"namespace": "kube-systems"}},
    ),
    "a namespace by a glob": Case(
        reason=Reason.NAMESPACE_EXCLUDED,
        protected={"pod": {"namespace": "kube-public"}, "guards": {"namespaces": {"exclude": ["kube-*"]}}},
        near={"pod": {"namespace": "kubernetes"}, "guards": {"namespaces": {"exclude": ["kube-*"]}}},
    ),
    "a namespace that isn't included": Case(
        reason=Reason.NAMESPACE_EXCLUDED,
        protected={"guards": {"namespaces": {"include": ["team-*"]}}},
        near={"pod": {"namespace": "team-a"}, "guards": {"namespaces": {"include": ["team-*"]}}},
    ),
    "a namespace that is both": Case(
        reason=Reason.NAMESPACE_EXCLUDED,
        protected={"guards": {"namespaces": {"include": ["sho*"], "exclude": ["shop"]}}},
        near={"guards": {"namespaces": {"include": ["sho*"], "exclude": ["shops"]}}},
    ),
    "a label": Case(
        reason=Reason.LABEL_EXCLUDED,
        protected={
            "pod": {"labels": {"tier": "db"}},
            "guards": {"labels": {"exclude": {"matchLabels": {"tier": "db"}}}},
        },
        near={"guards": {"labels": {"exclude": {"matchLabels": {"tier": "db"}}}}},
    ),
    "a label that isn't included": Case(
        reason=Reason.LABEL_EXCLUDED,
        protected={"guards": {"labels": {"include": {"matchLabels": {"movable": "yes"}}}}},
        near={
            "pod": {"labels": {"movable": "yes"}},
            "guards": {"labels": {"include": {"matchLabels": {"movable": "yes"}}}},
        },
    ),
    "a label that is both": Case(
        reason=Reason.LABEL_EXCLUDED,
        protected={
            "guards": {
                "labels": {"include": {"matchLabels": {"app": "web"}}, "exclude": {"matchLabels": {"app": "web"}}}
            }
        },
    ),
}


def test_a_healthy_pod_of_a_healthy_service_may_go() -> None:
    assert asked() is None


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController"])
def test_controllers_that_recreate_their_pods_do_not_protect_them(kind: str) -> None:
    assert asked({"owner_kind": kind}) is None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_guard_protects_with_its_reason(case: Case) -> None:
    assert code(**case.protected) is case.reason


@pytest.mark.parametrize(
    "case", [each for each in CASES.values() if each.near], ids=[k for k, v in CASES.items() if v.near]
)
def test_the_nearest_miss_may_go(case: Case) -> None:
    assert code(**case.near) is None


def test_every_guard_reason_has_a_case() -> None:
    upto = list(Reason).index(Reason.LABEL_EXCLUDED) + 1
    budgets = {Reason.BUDGET_EXHAUSTED, Reason.BUDGET_OUTDATED, Reason.SEVERAL_BUDGETS}  # see test_budgets
    vetoes = {Reason.ANNOTATION_VETO}  # below
    assert set(list(Reason)[:upto]) == {case.reason for case in CASES.values()} | budgets | vetoes


# ---- annotations of others, by their value


@pytest.mark.parametrize(
    ("annotation", "value", "vetoed"),
    [
        *((SAFE, value, vetoed) for value, vetoed in [("false", True), ("true", False), ("0", True), ("1", False)]),
        *((SAFE, value, True) for value in ("", "no", "False ", "nope", "fALSE")),
        *((EVICT, value, vetoed) for value, vetoed in [("false", True), ("true", False), ("", True), ("never", True)]),
        *((PREFER_NO, value, vetoed) for value, vetoed in [("true", True), ("false", False), ("", True), ("x", True)]),
        *((DISRUPT, value, vetoed) for value, vetoed in [("true", True), ("false", False), ("", True), ("10m", True)]),
    ],
)  # fmt: skip
def test_an_annotation_is_read_by_its_value_and_garbage_closes(annotation: str, value: str, vetoed: bool) -> None:
    refusal = asked(noted(**{annotation: value}))
    assert (refusal is not None) is vetoed
    if refusal is not None:
        assert refusal.code is Reason.ANNOTATION_VETO
        assert annotation in refusal.message
        assert f'"{value}"' in refusal.message


@pytest.mark.parametrize("annotation", [name for name, _ in VETOES])
def test_no_annotation_lifts_a_protection(annotation: str) -> None:
    lifting = {SAFE: "true", EVICT: "true", PREFER_NO: "false", DISRUPT: "false", OPT: "true"}
    assert annotation in lifting
    for fields, reason in (
        ({"owner_kind": "DaemonSet"}, Reason.DAEMONSET_POD),
        ({"terminating": True}, Reason.TERMINATING),
        ({"ready": False}, Reason.NOT_READY),
        ({"owner": ""}, Reason.BARE_POD),
    ):
        assert code({**fields, **noted(**lifting)}) is reason
    mirrored = noted(**lifting, **{"kubernetes.io/config.mirror": "x"})
    assert code(mirrored) is Reason.MIRROR_POD


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        *((text, True) for text in ("1", "t", "T", "TRUE", "true", "True")),
        *((text, False) for text in ("0", "f", "F", "FALSE", "false", "False")),
        *((text, None) for text in ("", "yes", "no", "on", " true", "tRue", "2", "null")),
    ],
)
def test_flags_are_read_as_go_reads_them(text: str, flag: bool | None) -> None:
    assert parse_flag(text) is flag


# ---- replicas


def deployment(**fields: Any) -> list[Owner]:
    return [
        Owner(kind="Deployment", namespace="shop", name="web", uid="d", **fields),
        Owner(kind="ReplicaSet", namespace="shop", name="web-1", uid="r1", parent=0, wanted=9, ready=9),
        Owner(kind="ReplicaSet", namespace="shop", name="web-2", uid="r2", parent=0, wanted=0, ready=0),
    ]


def of_deployment(pods: list[APod], guards: Mapping[str, Any] | None = None, **fields: Any) -> Reason | None:
    made = cluster([a_node("n1")], pods, owners=deployment(**fields))
    refusal = guarded(made.pod(0), view_of(made, guards))
    return None if refusal is None else refusal.code


TWO = [a_pod("a", "n1", owner="web-1"), a_pod("b", "n1", owner="web-1")]


def test_the_deployment_decides_not_its_replica_set() -> None:
    assert of_deployment(TWO, wanted=2, ready=2) is None
    assert of_deployment(TWO, wanted=3, ready=3) is Reason.OWNER_NOT_HEALTHY
    assert of_deployment(TWO, wanted=2, ready=1) is Reason.OWNER_NOT_HEALTHY
    assert of_deployment(TWO, wanted=1, ready=1) is Reason.MIN_REPLICAS
    assert of_deployment(TWO, wanted=2, ready=2, rolling_out=True) is Reason.ROLLOUT_IN_PROGRESS


def test_pods_of_all_its_replica_sets_count_for_a_deployment() -> None:
    pods = [a_pod("a", "n1", owner="web-1"), a_pod("b", "n1", owner="web-2")]
    assert of_deployment(pods, {"minReplicas": 2}) is None
    assert of_deployment(pods, {"minReplicas": 3}) is Reason.MIN_REPLICAS


def test_finished_pods_are_no_replicas() -> None:
    gone = [a_pod("d", "n1", owner="web-1", phase=FAILED, ready=False)]
    assert of_deployment(TWO[:1] + gone, {"minReplicas": 2}) is Reason.MIN_REPLICAS
    assert of_deployment(TWO + gone, {"minReplicas": 2}) is None


def test_a_terminating_sibling_is_missing_until_somebody_took_its_place() -> None:
    leaving = [a_pod("c", "n1", owner="web-1", terminating=True)]
    assert of_deployment(TWO + leaving, {"minReplicas": 2}) is Reason.OWNER_NOT_HEALTHY


def test_what_is_seen_missing_counts_before_the_controller_noticed() -> None:
    # the Deployment's status still says three ready, but only two are
    pods = [*TWO, a_pod("c", "n1", owner="web-1", ready=False)]
    assert of_deployment(pods, wanted=3, ready=3) is Reason.OWNER_NOT_HEALTHY


def test_the_replica_set_of_an_unknown_kind_is_a_known_kind() -> None:
    owners = [
        Owner(kind="Rollout", namespace="shop", name="web", uid="r"),
        Owner(kind="ReplicaSet", namespace="shop", name="web-1", uid="r1", parent=0),
    ]
    made = cluster([a_node("n1")], TWO, owners=owners)
    assert guarded(made.pod(0), view_of(made)) is None
    assert str(made.pod(0).service) == "shop/web"


def test_a_refusal_carries_the_numbers() -> None:
    young, few = asked({"age": 90.0}), asked(siblings=0)
    assert young is not None
    assert young.message.endswith(": 1m30s of 5m")
    assert few is not None
    assert few.message.endswith(": shop/web wants 1 of at least 2")


def test_guards_are_asked_in_an_order_that_names_the_hardest_reason_first() -> None:
    everything: dict[str, Any] = {
        "owner_kind": "DaemonSet",
        "terminating": True,
        "priority": 2_000_000_000,
        "namespace": "kube-system",
        "ready": False,
    }
    assert code({**everything, **noted(**{"kubernetes.io/config.mirror": "x"})}) is Reason.MIRROR_POD
    assert code(everything) is Reason.TERMINATING
    assert len(GUARDS) == len(set(GUARDS))


def test_naming_what_is_included_keeps_kube_system_excluded() -> None:
    guards = {"namespaces": {"include": ["*"]}}
    assert code({"namespace": "kube-system"}, guards=guards) is Reason.NAMESPACE_EXCLUDED


def test_a_terminating_sibling_counts_as_missing_also_where_the_kind_tells_nothing() -> None:
    pods = [
        a_pod(f"web-{index}", "n1", owner="web", owner_kind="CloneSet", terminating=index == 2) for index in range(3)
    ]
    made = cluster([a_node("n1")], pods)
    refusal = guarded(made.pod(0), view_of(made, {"ownerKinds": ["CloneSet"]}))
    assert refusal is not None
    assert refusal.code is Reason.OWNER_NOT_HEALTHY
