"""Guards: annotations by their value, replicas by their top owner, and the order in which reasons are named."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import pytest

from rebalancer.constraints.pods.guards import GUARDS, guarded
from rebalancer.model.cluster.annotations import (
    DELETION_COST,
    KEPT,
    OWN_PREFIX,
    VETOES,
    is_kept,
    parse_flag,
    protected_for,
)
from rebalancer.model.cluster.autoscaling import VPA_UPDATES
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.reason import Reason
from tests.builders import APod, a_node, a_pod, cluster, replicas
from tests.constraints.builders import OPT, an_owner, asked, code, noted, view_of

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
EVICT = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
DISRUPT = "karpenter.sh/do-not-disrupt"
NOT_EVICT = "karpenter.sh/do-not-evict"
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"


# ---- annotations of others, by their value


@pytest.mark.parametrize(
    ("annotation", "value", "vetoed"),
    [
        *((SAFE, value, vetoed) for value, vetoed in [("false", True), ("true", False), ("0", True), ("1", False)]),
        *((SAFE, value, True) for value in ("", "no", "False ", "nope", "fALSE")),
        *((EVICT, value, vetoed) for value, vetoed in [("false", True), ("true", False), ("", True), ("never", True)]),
        *((PREFER_NO, value, vetoed) for value, vetoed in [("true", True), ("false", False), ("", True), ("x", True)]),
        *((DISRUPT, value, vetoed) for value, vetoed in [("true", True), ("false", False), ("", True), ("ten", True)]),
        *((NOT_EVICT, value, vetoed) for value, vetoed in [("true", True), ("false", False), ("", True)]),
    ],
)  # fmt: skip
def test_an_annotation_is_read_by_its_value_and_garbage_closes(annotation: str, value: str, vetoed: bool) -> None:
    refusal = asked(noted(**{annotation: value}))
    assert (refusal is not None) is vetoed
    if refusal is not None:
        assert refusal.code is Reason.ANNOTATION_VETO
        assert annotation in refusal.message
        assert f'"{value}"' in refusal.message


@pytest.mark.parametrize("value", ["", "kubevirt", "false"])
def test_a_pod_whose_eviction_is_in_progress_is_not_evicted_again(value: str) -> None:
    """As in the descheduler the annotation's presence counts, not its value."""
    assert code(noted(**{IN_PROGRESS: value})) is Reason.EVICTION_IN_PROGRESS


@pytest.mark.parametrize("annotation", VETOES)
def test_no_annotation_lifts_a_protection(annotation: str) -> None:
    lifting = {SAFE: "true", EVICT: "true", PREFER_NO: "false", DISRUPT: "false", NOT_EVICT: "false", OPT: "true"}
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


@pytest.mark.parametrize(
    ("value", "age", "until"),
    [
        ("4h", 4 * 3_600.0 - 1.0, True),
        ("4h", 4 * 3_600.0, None),
        ("1h30m45.5s", 3_600.0, True),
        ("1h30m45.5s", 5_446.0, None),
        ("0s", 600.0, None),
        ("true", 1e9, False),
        # not as Go reads durations
        ("4 h", 1e9, False),
        ("4d", 1e9, False),
        ("h", 1e9, False),
        ("1" * 100 + "ns", 1e9, False),
    ],
)
def test_karpenters_annotation_protects_for_a_duration_from_the_start_of_the_pod(
    value: str, age: float, until: bool | None
) -> None:
    snapshot = cluster(
        [a_node("n1")], [a_pod(f"p{at}", "n1", owner="web", age=age, **noted(**{DISRUPT: value})) for at in range(3)]
    )
    refusal = guarded(snapshot.pod(0), view_of(snapshot))
    assert (refusal is None) is (until is None)
    if refusal is not None:
        assert refusal.code is Reason.ANNOTATION_VETO
        assert (refusal.next_at is not None) is until
        assert (", until " in refusal.message) is until
    if until:
        assert refusal is not None
        assert refusal.next_at == pytest.approx(float(snapshot.pods.started[0]) + protected_for(value))


# ---- replicas


def deployment(**fields: Any) -> list[Owner]:
    return [
        Owner(kind="Deployment", namespace="shop", name="web", uid="d", **fields),
        Owner(kind="ReplicaSet", namespace="shop", name="web-1", uid="r1", parent=0, desired=9, ready=9),
        Owner(kind="ReplicaSet", namespace="shop", name="web-2", uid="r2", parent=0, desired=0, ready=0),
    ]


def of_deployment(pods: list[APod], guards: Mapping[str, Any] | None = None, **fields: Any) -> Reason | None:
    made = cluster([a_node("n1")], pods, owners=deployment(**fields))
    refusal = guarded(made.pod(0), view_of(made, guards))
    return None if refusal is None else refusal.code


TWO = [a_pod("a", "n1", owner="web-1"), a_pod("b", "n1", owner="web-1")]


def test_the_deployment_decides_not_its_replica_set() -> None:
    assert of_deployment(TWO, desired=2, ready=2) is None
    assert of_deployment(TWO, desired=3, ready=3) is Reason.OWNER_NOT_HEALTHY
    assert of_deployment(TWO, desired=2, ready=1) is Reason.OWNER_NOT_HEALTHY
    assert of_deployment(TWO, desired=1, ready=1) is Reason.MIN_REPLICAS
    assert of_deployment(TWO, desired=2, ready=2, rolling_out=True) is Reason.ROLLOUT_IN_PROGRESS


def test_pods_of_all_its_replica_sets_count_for_a_deployment_and_finished_ones_for_none() -> None:
    pods = [a_pod("a", "n1", owner="web-1"), a_pod("b", "n1", owner="web-2")]
    assert of_deployment(pods, {"minReplicas": 2}) is None
    assert of_deployment(pods, {"minReplicas": 3}) is Reason.MIN_REPLICAS
    gone = [a_pod("d", "n1", owner="web-1", phase=FAILED, ready=False)]
    assert of_deployment(TWO[:1] + gone, {"minReplicas": 2}) is Reason.MIN_REPLICAS
    assert of_deployment(TWO + gone, {"minReplicas": 2}) is None


def test_a_sibling_that_terminates_or_is_not_ready_is_missing_before_the_controller_notices() -> None:
    leaving = [a_pod("c", "n1", owner="web-1", terminating=True)]
    assert of_deployment(TWO + leaving, {"minReplicas": 2}) is Reason.OWNER_NOT_HEALTHY
    # the Deployment's status still says three ready, but only two are
    pods = [*TWO, a_pod("c", "n1", owner="web-1", ready=False)]
    assert of_deployment(pods, desired=3, ready=3) is Reason.OWNER_NOT_HEALTHY


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
    assert few.message.endswith(": shop/web has 1, guards.minReplicas is 2")


def test_guards_are_asked_in_an_order_that_names_the_hardest_reason_first() -> None:
    everything: dict[str, Any] = {"owner_kind": "DaemonSet", "terminating": True, "ready": False}
    everything |= {"priority": 2_000_000_000, "namespace": "kube-system"}
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


# ---- pods that do no work as they are


@pytest.mark.parametrize(
    ("pod", "fields", "reason"),
    [
        ({"phase": FAILED, "ready": False}, {}, Reason.FINISHED),
        ({"phase": SUCCEEDED, "ready": False}, {}, Reason.FINISHED),
        ({"ready": False}, {}, Reason.NOT_READY),
        ({}, {"siblings": 0}, Reason.MIN_REPLICAS),
        ({}, {"owner": an_owner(desired=5, ready=3)}, Reason.OWNER_NOT_HEALTHY),
    ],
)
def test_what_protects_a_pods_work_does_not_protect_a_broken_one(
    pod: dict[str, Any], fields: dict[str, Any], reason: Reason
) -> None:
    assert code(pod, **fields) is reason
    assert code(pod, **fields, broken=True) is None


@pytest.mark.parametrize(
    ("pod", "fields", "reason"),
    [
        ({"terminating": True, "ready": False}, {}, Reason.TERMINATING),
        ({"owner": ""}, {}, Reason.BARE_POD),
        ({"owner_kind": "DaemonSet"}, {}, Reason.DAEMONSET_POD),
        ({"priority": 2_000_000_000}, {}, Reason.SYSTEM_CRITICAL),
        ({"namespace": "kube-system"}, {}, Reason.NAMESPACE_EXCLUDED),
        (noted(**{SAFE: "false"}), {}, Reason.ANNOTATION_VETO),
        ({}, {"owner": an_owner(desired=1, ready=0, rolling_out=True)}, Reason.ROLLOUT_IN_PROGRESS),
        ({"age": 10.0}, {"guards": {"minAge": "1m"}}, Reason.TOO_YOUNG),
    ],
)
def test_everything_else_protects_a_broken_pod_too(pod: dict[str, Any], fields: dict[str, Any], reason: Reason) -> None:
    broken = {"phase": FAILED, "ready": False, **pod}
    assert code(broken, **{"siblings": 0, **fields}, broken=True) is reason


class Recording(dict[str, str]):
    """Annotations that note which keys are read."""

    keys_read: ClassVar[set[str]] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_read.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.keys_read.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> str:
        self.keys_read.add(key)
        return super().__getitem__(key)


def test_guards_read_only_annotations_that_readers_of_the_cluster_keep() -> None:
    made = cluster([a_node("n1")], [a_pod("web-0", "n1", owner="web")])
    pod = made.pod(0)
    pod = replace(pod, template=msgspec.structs.replace(pod.template, annotations=Recording()))
    for guard in GUARDS:
        guard(pod, view_of(made))
    of_siblings = {VPA_UPDATES, DELETION_COST}  # see test_autoscalers, test_replacement_first
    assert Recording.keys_read | of_siblings == {*KEPT, f"{OWN_PREFIX}evict"}
    assert all(is_kept(key) for key in Recording.keys_read)


# ---- issue 16, C11: rollouts of controllers that are not listed


@pytest.mark.parametrize(
    ("kind", "canary", "refused"),
    [
        ("Rollout", {}, Reason.ROLLOUT_IN_PROGRESS),
        # a pod that is leaving is of no revision; its owner is one short for another reason
        ("Rollout", {"terminating": True}, Reason.OWNER_NOT_HEALTHY),
        ("Rollout", {"phase": SUCCEEDED}, None),
        # kube-controller-manager's own kinds say themselves whether they roll out
        ("Deployment", {}, None),
    ],
    ids=["a canary", "its pod is leaving", "its pod has finished", "a Deployment"],
)
def test_a_canary_of_two_replicasets_is_a_rollout(kind: str, canary: dict[str, Any], refused: Any) -> None:
    desired = 3 if kind == "Deployment" else None
    owners = [
        Owner(kind=kind, namespace="shop", name="web", uid="top", desired=desired, ready=desired),
        Owner(kind="ReplicaSet", namespace="shop", name="web-1", uid="one", parent=0),
        Owner(kind="ReplicaSet", namespace="shop", name="web-2", uid="two", parent=0),
    ]
    pods = [*replicas("web-1", {"n1": 3}), a_pod("new", "n1", owner="web-2", **canary)]
    made = cluster([a_node("n1")], pods, owners=owners)
    refusal = guarded(made.pod(0), view_of(made))
    assert (None if refusal is None else refusal.code) is refused
