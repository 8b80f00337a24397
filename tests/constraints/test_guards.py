"""Each guard: what it protects, and the nearest thing that it doesn't."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from rebalancer.model.cluster.annotations import EVICT_JOB
from rebalancer.model.cluster.pods import FAILED, PENDING, SUCCEEDED, UNKNOWN
from rebalancer.model.reason import Reason
from tests.constraints.builders import OPT, an_owner, asked, code, noted, volume


@dataclass(frozen=True)
class Case:
    """`protected` is guarded with `reason`, `near` is the nearest miss; both are arguments of `asked`."""

    reason: Reason
    protected: Mapping[str, Any]
    near: Mapping[str, Any]


def a_case(reason: Reason, protected: Mapping[str, Any], near: Mapping[str, Any] | None = None, **both: Any) -> Case:
    """`both` are arguments of the two; without `near` there is no nearest miss."""
    return Case(reason, {**both, **protected}, {} if near is None else {**both, **near})


def of(**pod: Any) -> dict[str, Any]:
    """Arguments about the pod."""
    return {"pod": pod}


CLAIM = volume(persistentVolumeClaim={"claimName": "data"})
DATA = frozenset({("shop", "data")})

CASES = {
    "mirror": a_case(
        Reason.MIRROR_POD,
        {"pod": noted(**{"kubernetes.io/config.mirror": ""})},
        {"pod": noted(**{"kubernetes.io/config.hash": "x"})},
    ),
    "static, by its source": a_case(
        Reason.STATIC_POD,
        {"pod": noted(**{"kubernetes.io/config.source": "file"})},
        {"pod": noted(**{"kubernetes.io/config.source": "api"})},
    ),
    "static, by its owner": a_case(Reason.STATIC_POD, of(owner_kind="Node")),
    "terminating": a_case(Reason.TERMINATING, of(terminating=True), of(terminating=False)),
    "succeeded": a_case(Reason.FINISHED, of(phase=SUCCEEDED)),
    "failed": a_case(Reason.FINISHED, of(phase=FAILED), of(phase=UNKNOWN)),
    "not ready": a_case(Reason.NOT_READY, of(ready=False)),
    "pending": a_case(Reason.NOT_READY, of(ready=False, phase=PENDING, node="")),
    "bare": a_case(Reason.BARE_POD, of(owner="")),
    "of a pod": a_case(Reason.BARE_POD, of(owner_kind="Pod")),
    "of a pod, although named": a_case(Reason.BARE_POD, of(owner_kind="Pod") | {"guards": {"ownerKinds": ["Pod"]}}),
    "of a daemon set": a_case(Reason.DAEMONSET_POD, of(owner_kind="DaemonSet")),
    "of a daemon set, although named": a_case(
        Reason.DAEMONSET_POD, of(owner_kind="DaemonSet") | {"guards": {"ownerKinds": ["DaemonSet"]}}
    ),
    "of an unknown kind": a_case(
        Reason.UNKNOWN_OWNER_KIND, {}, {"guards": {"ownerKinds": ["CloneSet"]}}, pod={"owner_kind": "CloneSet"}
    ),
    "a kind is named with its case": a_case(
        Reason.UNKNOWN_OWNER_KIND, of(owner_kind="CloneSet") | {"guards": {"ownerKinds": ["cloneset"]}}
    ),
    "of a job": a_case(
        Reason.JOB_POD,
        {},
        {"guards": {"jobPods": True}},
        pod={"owner_kind": "Job"},
        owner=an_owner("Job", spares_disruptions=True),
    ),
    "of a job that counts disruptions": a_case(
        Reason.JOB_POD, of(owner_kind="Job") | {"owner": an_owner("Job"), "guards": {"jobPods": True}}
    ),
    "of a job that doesn't opt in": a_case(
        Reason.JOB_POD,
        {"pod": {**noted(**{EVICT_JOB: "yes"}), "owner_kind": "Job"}},
        {"pod": {**noted(**{EVICT_JOB: "true"}), "owner_kind": "Job"}, "siblings": 0},
        owner=an_owner("Job", spares_disruptions=True),
    ),
    "of a job that opts in and counts disruptions": a_case(
        Reason.JOB_POD, {"pod": {**noted(**{EVICT_JOB: "true"}), "owner_kind": "Job"}}
    ),
    "of a service with the annotation of a job": a_case(
        Reason.MIN_REPLICAS, {"pod": noted(**{EVICT_JOB: "true"}), "siblings": 0}, {"siblings": 1}
    ),
    "of a job that is named as a kind": a_case(
        Reason.JOB_POD, of(owner_kind="Job") | {"guards": {"ownerKinds": ["Job"]}}
    ),
    "ourselves, by name": a_case(Reason.OURSELVES, {"own_pod": ("shop", "web-0")}, {"own_pod": ("other", "web-0")}),
    "ourselves, by label": a_case(
        Reason.OURSELVES,
        of(labels={"app.kubernetes.io/name": "rebalancer"}),
        of(labels={"app.kubernetes.io/name": "rebalancer-ui"}),
    ),
    "our Prometheus": a_case(
        Reason.OUR_PROMETHEUS,
        {},
        {"guards": {"ours": {"prometheus": {"matchLabels": {"app": "prom"}}}}},
        pod={"labels": {"app.kubernetes.io/name": "prometheus"}},
    ),
    "our database": a_case(
        Reason.OUR_DATABASE,
        of(labels={"app.kubernetes.io/name": "postgresql"}),
        of(labels={"app.kubernetes.io/name": "mysql"}),
    ),
    "system-cluster-critical": a_case(Reason.SYSTEM_CRITICAL, of(priority=2000000000), of(priority=1999999999)),
    "critical by its class": a_case(
        Reason.SYSTEM_CRITICAL,
        of(template={"priorityClass": "system-node-critical"}),
        of(template={"priorityClass": "my-system"}),
    ),
    "priority": a_case(Reason.PRIORITY_THRESHOLD, of(priority=1000), of(priority=999), guards={"priorityBelow": 1000}),
    "priority, by a class": a_case(
        Reason.PRIORITY_THRESHOLD,
        of(priority=1000),
        of(priority=999),
        guards={"priorityClassBelow": "high"},
        priority_classes={"high": 1000},
    ),
    "a class that isn't there closes": a_case(
        Reason.PRIORITY_THRESHOLD, of(priority=-(2**31)) | {"guards": {"priorityClassBelow": "high"}}
    ),
    "hostPath": a_case(Reason.HOST_PATH, {}, {"guards": {"hostPath": True}}, pod=volume(hostPath={"path": "/var"})),
    "disk emptyDir": a_case(
        Reason.LOCAL_STORAGE, {"pod": volume(emptyDir={})}, {"pod": volume(emptyDir={"medium": "Memory"})}
    ),
    "disk emptyDir, spelled out": a_case(
        Reason.LOCAL_STORAGE,
        {"pod": volume(emptyDir={"medium": "", "sizeLimit": "1Gi"})},
        {"pod": volume(emptyDir={}), "guards": {"diskEmptyDir": True}},
    ),
    "a claim": a_case(
        Reason.PERSISTENT_VOLUME,
        {},
        {"guards": {"persistentVolumes": True}},
        pod=volume(persistentVolumeClaim={"claimName": "data"}),
    ),
    "a local claim, whatever the policy": a_case(
        Reason.LOCAL_VOLUME,
        {"local_claims": frozenset({("shop", "data")})},
        {"local_claims": frozenset({("other", "data"), ("shop", "data-2")})},
        pod=volume(persistentVolumeClaim={"claimName": "data"}),
        guards={"persistentVolumes": True},
    ),
    "claims that can't be read count as local": a_case(
        Reason.LOCAL_VOLUME,
        {"pod": volume(persistentVolumeClaim={"claimName": "data"}), "guards": {"persistentVolumes": True}},
        {},
        claims_known=False,
    ),
    "10: a ReadWriteOnce claim that another pod on the node uses": a_case(
        Reason.VOLUME_IN_USE,
        {},
        {"sibling": {"template": {}}},
        pod=CLAIM,
        guards={"persistentVolumes": True},
        one_node_claims=DATA,
    ),
    "10: a claim that is not bound": a_case(
        Reason.PLACEMENT_NOT_MODELLED,
        {"bound_claims": frozenset({("other", "data")})},
        {"bound_claims": DATA},
        pod=CLAIM,
        guards={"persistentVolumes": True},
    ),
    "10: claims of dynamic resource allocation": a_case(
        Reason.PLACEMENT_NOT_MODELLED, of(template={"notModelled": "DRA"}), of(template={"notModelled": ""})
    ),
    "10: volume limits that can't be read": a_case(
        Reason.PLACEMENT_NOT_MODELLED,
        {"claim_drivers": {("shop", "data"): "disk.example"}},
        {},
        pod=CLAIM,
        guards={"persistentVolumes": True},
        volume_limits=None,
    ),
    "an ephemeral volume": a_case(Reason.PERSISTENT_VOLUME, {"pod": volume(ephemeral={})}),
    "an ephemeral volume on one node": a_case(
        Reason.LOCAL_VOLUME,
        {"local_claims": frozenset({("shop", "web-0-scratch")})},
        {"local_claims": frozenset({("shop", "web-1-scratch")})},
        pod=volume(ephemeral={}),
        guards={"persistentVolumes": True},
    ),
    "young": a_case(Reason.TOO_YOUNG, of(age=299.0), of(age=300.0)),
    "without a start": a_case(Reason.TOO_YOUNG, {}, {"guards": {"minAge": "0s"}}, pod={"started": False}),
    "started in the future": a_case(Reason.TOO_YOUNG, of(age=-60.0)),
    "few replicas": a_case(Reason.MIN_REPLICAS, {"siblings": 0}, {"siblings": 1}),
    "few wanted": a_case(
        Reason.MIN_REPLICAS, {"owner": an_owner(desired=2)}, {"owner": an_owner(desired=3)}, guards={"minReplicas": 3}
    ),
    "one of a group (issue 16, C11)": a_case(
        Reason.POD_GROUP,
        {},
        {"guards": {"groupLabels": []}},
        pod={"labels": {"leaderworkerset.sigs.k8s.io/name": "llm"}},
    ),
    "one of a group by a label of the policy (issue 16, C11)": a_case(
        Reason.POD_GROUP, of(labels={"gang": "llm"}), of(labels={"band": "llm"}), guards={"groupLabels": ["gang"]}
    ),
    "of an old revision of a StatefulSet that is updated by hand (issue 16, C11)": a_case(
        Reason.ROLLOUT_IN_PROGRESS,
        of(owner_kind="StatefulSet", labels={"controller-revision-hash": "web-1"}),
        of(owner_kind="StatefulSet", labels={"controller-revision-hash": "web-2"}),
        owner=an_owner("StatefulSet", desired=3, ready=3, next_revision="web-2"),
    ),
    "of an unlisted kind with pods of two revisions (issue 16, C11)": a_case(
        Reason.ROLLOUT_IN_PROGRESS,
        {"sibling": {"labels": {"controller-revision-hash": "web-2"}}},
        {"sibling": {"labels": {"controller-revision-hash": "web-1"}}},
        pod={"owner_kind": "CloneSet", "labels": {"controller-revision-hash": "web-1"}},
        guards={"ownerKinds": ["CloneSet"]},
    ),
    "rolling out": a_case(
        Reason.ROLLOUT_IN_PROGRESS, {"owner": an_owner(rolling_out=True)}, {"owner": an_owner(rolling_out=False)}
    ),
    "one is missing": a_case(Reason.OWNER_NOT_HEALTHY, {"owner": an_owner(desired=4)}, {"owner": an_owner(desired=3)}),
    "its controller counts one less": a_case(
        Reason.OWNER_NOT_HEALTHY, {"owner": an_owner(desired=3, ready=2)}, {"owner": an_owner(desired=3, ready=4)}
    ),
    "a sibling isn't ready": a_case(Reason.OWNER_NOT_HEALTHY, {"sibling": {"ready": False}}, {"sibling": {"age": 1.0}}),
    "a sibling is terminating and not replaced": a_case(
        Reason.OWNER_NOT_HEALTHY,
        {"owner": an_owner(desired=3), "siblings": 2},
        {"owner": an_owner(desired=1), "guards": {"minReplicas": 1}},
        sibling={"terminating": True},
    ),
    "opted out by its label": a_case(Reason.OPTED_OUT, of(labels={OPT: "false"}), of(labels={OPT: "true"})),
    "opted out by its annotation": a_case(
        Reason.OPTED_OUT, {"pod": noted(**{OPT: "false"})}, {"pod": noted(**{OPT: "true"})}
    ),
    "opted out by its namespace": a_case(
        Reason.OPTED_OUT,
        {"namespace_labels": {"shop": {OPT: "false"}}},
        {"namespace_labels": {"other": {OPT: "false"}}},
    ),
    "opted out by its node": a_case(
        Reason.OPTED_OUT, {"node": {"labels": {OPT: "false"}}}, {"node": {"labels": {OPT: "true"}}}
    ),
    "out beats in": a_case(
        Reason.OPTED_OUT,
        {"namespace_labels": {"shop": {OPT: "false"}}},
        {"namespace_labels": {"shop": {OPT: "true"}}},
        pod={"labels": {OPT: "true"}},
    ),
    "garbage closes": a_case(Reason.INVALID_OPT_OUT, of(labels={OPT: "yes"}), of(labels={OPT: "T"})),
    "not opted in": a_case(Reason.NOT_OPTED_IN, {}, of(labels={OPT: "true"}), guards={"requireOptIn": True}),
    "opted in by its annotation": a_case(
        Reason.NOT_OPTED_IN,
        {"pod": noted(**{"example.com/evict": "true"})},
        {"pod": noted(**{OPT: "true"})},
        guards={"requireOptIn": True},
    ),
    "opted in by its namespace": a_case(
        Reason.NOT_OPTED_IN,
        {"namespace_labels": {"other": {OPT: "true"}}},
        {"namespace_labels": {"shop": {OPT: "true"}}},
        guards={"requireOptIn": True},
    ),
    "kube-system": a_case(Reason.NAMESPACE_EXCLUDED, of(namespace="kube-system"), of(namespace="kube-systems")),
    "a namespace by a glob": a_case(
        Reason.NAMESPACE_EXCLUDED,
        of(namespace="kube-public"),
        of(namespace="kubernetes"),
        guards={"namespaces": {"exclude": ["kube-*"]}},
    ),
    "a namespace that isn't included": a_case(
        Reason.NAMESPACE_EXCLUDED, {}, of(namespace="team-a"), guards={"namespaces": {"include": ["team-*"]}}
    ),
    "a namespace that is both": a_case(
        Reason.NAMESPACE_EXCLUDED,
        {"guards": {"namespaces": {"include": ["sho*"], "exclude": ["shop"]}}},
        {"guards": {"namespaces": {"include": ["sho*"], "exclude": ["shops"]}}},
    ),
    "a label": a_case(
        Reason.LABEL_EXCLUDED,
        of(labels={"tier": "db"}),
        {},
        guards={"labels": {"exclude": {"matchLabels": {"tier": "db"}}}},
    ),
    "a label that isn't included": a_case(
        Reason.LABEL_EXCLUDED,
        {},
        of(labels={"movable": "yes"}),
        guards={"labels": {"include": {"matchLabels": {"movable": "yes"}}}},
    ),
    "a label that is both": a_case(
        Reason.LABEL_EXCLUDED,
        {
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
    vetoes = {Reason.ANNOTATION_VETO, Reason.EVICTION_IN_PROGRESS}  # see test_guard_rules
    scaled = {Reason.AUTOSCALING}  # see test_autoscalers
    followers = {Reason.NEEDED_BY_OTHERS}  # see planner/test_followers
    first = {each for each in Reason if each.startswith("Surge")}  # see test_replacement_first
    covered = {case.reason for case in CASES.values()} - {Reason.PLACEMENT_NOT_MODELLED}  # also the placement model's
    assert set(list(Reason)[:upto]) == covered | budgets | vetoes | scaled | followers | first
