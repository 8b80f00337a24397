"""Each guard: what it protects, and the nearest thing that it doesn't."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rebalancer.model.cluster.pods import FAILED, PENDING, SUCCEEDED, UNKNOWN
from rebalancer.model.reason import Reason
from tests.constraints.builders import OPT, an_owner, asked, code, noted, volume


@dataclass(frozen=True, kw_only=True)
class Case:
    """`protected` is guarded with `reason`, `near` is the nearest miss; both are arguments of `asked`."""

    reason: Reason
    protected: Mapping[str, Any]
    near: Mapping[str, Any] = field(default_factory=dict)


CLAIM = volume(persistentVolumeClaim={"claimName": "data"})
DATA = frozenset({("shop", "data")})

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
        protected={"pod": {"template": {"priorityClass": "system-node-critical"}}},
        near={"pod": {"template": {"priorityClass": "my-system"}}},
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
    "10: a ReadWriteOnce claim that another pod on the node uses": Case(
        reason=Reason.VOLUME_IN_USE,
        protected={"pod": CLAIM, "guards": {"persistentVolumes": True}, "one_node_claims": DATA},
        near={
            "pod": CLAIM,
            "sibling": {"template": {}},
            "guards": {"persistentVolumes": True},
            "one_node_claims": DATA,
        },
    ),
    "10: a claim that is not bound": Case(
        reason=Reason.PLACEMENT_NOT_MODELLED,
        protected={"pod": CLAIM, "guards": {"persistentVolumes": True}, "bound_claims": frozenset({("other", "data")})},
        near={"pod": CLAIM, "guards": {"persistentVolumes": True}, "bound_claims": DATA},
    ),
    "10: claims of dynamic resource allocation": Case(
        reason=Reason.PLACEMENT_NOT_MODELLED,
        protected={"pod": {"template": {"resourceClaims": True}}},
        near={"pod": {"template": {"resourceClaims": False}}},
    ),
    "10: volume limits that can't be read": Case(
        reason=Reason.PLACEMENT_NOT_MODELLED,
        protected={
            "pod": CLAIM,
            "guards": {"persistentVolumes": True},
            "claim_drivers": {("shop", "data"): "disk.example"},
            "volume_limits": None,
        },
        near={"pod": CLAIM, "guards": {"persistentVolumes": True}, "volume_limits": None},
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
        protected={"owner": an_owner(desired=2), "guards": {"minReplicas": 3}},
        near={"owner": an_owner(desired=3), "guards": {"minReplicas": 3}},
    ),
    "one of a group (issue 16, C11)": Case(
        reason=Reason.POD_GROUP,
        protected={"pod": {"labels": {"leaderworkerset.sigs.k8s.io/name": "llm"}}},
        near={"pod": {"labels": {"leaderworkerset.sigs.k8s.io/name": "llm"}}, "guards": {"groupLabels": []}},
    ),
    "one of a group by a label of the policy (issue 16, C11)": Case(
        reason=Reason.POD_GROUP,
        protected={"pod": {"labels": {"gang": "llm"}}, "guards": {"groupLabels": ["gang"]}},
        near={"pod": {"labels": {"band": "llm"}}, "guards": {"groupLabels": ["gang"]}},
    ),
    "of an old revision of a StatefulSet that is updated by hand (issue 16, C11)": Case(
        reason=Reason.ROLLOUT_IN_PROGRESS,
        protected={
            "pod": {"owner_kind": "StatefulSet", "labels": {"controller-revision-hash": "web-1"}},
            "owner": an_owner("StatefulSet", desired=3, ready=3, next_revision="web-2"),
        },
        near={
            "pod": {"owner_kind": "StatefulSet", "labels": {"controller-revision-hash": "web-2"}},
            "owner": an_owner("StatefulSet", desired=3, ready=3, next_revision="web-2"),
        },
    ),
    "of an unlisted kind with pods of two revisions (issue 16, C11)": Case(
        reason=Reason.ROLLOUT_IN_PROGRESS,
        protected={
            "pod": {"owner_kind": "CloneSet", "labels": {"controller-revision-hash": "web-1"}},
            "sibling": {"labels": {"controller-revision-hash": "web-2"}},
            "guards": {"ownerKinds": ["CloneSet"]},
        },
        near={
            "pod": {"owner_kind": "CloneSet", "labels": {"controller-revision-hash": "web-1"}},
            "sibling": {"labels": {"controller-revision-hash": "web-1"}},
            "guards": {"ownerKinds": ["CloneSet"]},
        },
    ),
    "rolling out": Case(
        reason=Reason.ROLLOUT_IN_PROGRESS,
        protected={"owner": an_owner(rolling_out=True)},
        near={"owner": an_owner(rolling_out=False)},
    ),
    "one is missing": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"owner": an_owner(desired=4)},
        near={"owner": an_owner(desired=3)},
    ),
    "its controller counts one less": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"owner": an_owner(desired=3, ready=2)},
        near={"owner": an_owner(desired=3, ready=4)},
    ),
    "a sibling isn't ready": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"sibling": {"ready": False}},
        near={"sibling": {"age": 1.0}},
    ),
    "a sibling is terminating and not replaced": Case(
        reason=Reason.OWNER_NOT_HEALTHY,
        protected={"sibling": {"terminating": True}, "owner": an_owner(desired=3), "siblings": 2},
        near={"sibling": {"terminating": True}, "owner": an_owner(desired=1), "guards": {"minReplicas": 1}},
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
    vetoes = {Reason.ANNOTATION_VETO, Reason.EVICTION_IN_PROGRESS}  # see test_guard_rules
    scaled = {Reason.AUTOSCALING}  # see test_autoscalers
    told = {case.reason for case in CASES.values()} - {Reason.PLACEMENT_NOT_MODELLED}  # also the placement model's
    assert set(list(Reason)[:upto]) == told | budgets | vetoes | scaled
