"""Nodes that are about to go: by taint, condition, cordon, and the loss of a node."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.steering import DRAINING, SOFT_TAINT, UNSCHEDULABLE
from tests.builders import NOW, a_node, a_policy, cluster, projection_of


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat()


def cordoned(seconds_ago: float | None) -> dict[str, Any]:
    added = "" if seconds_ago is None else rfc3339(NOW - seconds_ago)
    return {"unschedulable": True, "taints": (Taint(UNSCHEDULABLE.key, "", "NoSchedule", added),)}


def why(fields: dict[str, Any], **safety: Any) -> tuple[str | None, str | None]:
    """(why its pods are about to go, why it is no target node)."""
    projection = projection_of(cluster([a_node("n", **fields)], []), a_policy(safety={"leavingNodes": safety}))
    return projection.leaving.get(0), projection.closed.get(0)


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "cloud.google.com/impending-node-termination",
        "remediator.aks.microsoft.com/unschedulable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
    ],
)
def test_the_taints_of_clouds_and_autoscalers_are_built_in(key: str) -> None:
    assert why({"taints": (Taint(key, "", "NoSchedule"),)}) == (f"taint {key}", f"about to go: taint {key}")


@pytest.mark.parametrize("type_", ["NodeMaintenance", "DrainInProgress", "GracefulNodeShutdown", "VMEventScheduled"])
def test_the_conditions_of_drains_and_shutdowns_are_built_in(type_: str) -> None:
    assert why({"conditions": ("DiskPressure", type_)})[0] == f"condition {type_}"


def test_a_candidate_of_cluster_autoscaler_is_no_target_and_its_pods_stay() -> None:
    candidate = {"taints": (Taint("DeletionCandidateOfClusterAutoscaler", "", "PreferNoSchedule"),)}
    assert why(candidate) == (None, "cluster-autoscaler may remove it")


@pytest.mark.parametrize(
    "fields",
    [{}, {"taints": (Taint("dedicated", "db", "NoSchedule"),)}, {"conditions": ("DiskPressure", "KernelDeadlock")}],
)
def test_other_taints_and_conditions_say_nothing(fields: dict[str, Any]) -> None:
    assert why(fields) == (None, None)


def test_the_policy_adds_taints_by_pattern_and_conditions() -> None:
    rules: dict[str, Any] = {"taints": ["example.com/going-*"], "conditions": ["KernelDeadlock"]}
    assert why({"taints": (Taint("example.com/going-soon", "", "NoSchedule"),)}, **rules)[0]
    assert why({"conditions": ("KernelDeadlock",)}, **rules)[0]
    assert why({"taints": (Taint("karpenter.sh/disrupted", "", "NoSchedule"),)}, **rules)[0]
    assert why({"taints": (Taint("example.com/stays", "", "NoSchedule"),)}, **rules) == (None, None)


@pytest.mark.parametrize(
    ("seconds_ago", "rules", "leaves"),
    [
        (0.0, {}, True),
        (3599.0, {}, True),
        (3601.0, {}, False),
        (None, {}, True),
        (61.0, {"cordon": "1m"}, False),
        (59.0, {"cordon": "1m"}, True),
        (None, {"cordon": "0s"}, False),
    ],
)
def test_a_cordon_counts_for_an_hour(seconds_ago: float | None, rules: dict[str, Any], leaves: bool) -> None:
    # kube-scheduler knows that it is closed
    assert why(cordoned(seconds_ago), **rules) == ("cordoned" if leaves else None, None)


def test_our_own_cordon_says_nothing() -> None:
    ours = (Taint(UNSCHEDULABLE.key, "", "NoSchedule"), Taint(SOFT_TAINT, DRAINING, "PreferNoSchedule"))
    assert why({"unschedulable": True, "taints": ours}) == (None, None)


@pytest.mark.parametrize(("seconds_ago", "leaves"), [(0.0, True), (599.0, True), (601.0, False), (float("nan"), False)])
def test_the_pods_of_a_lost_node_are_about_to_go_for_10_minutes(seconds_ago: float, leaves: bool) -> None:
    lost = {"ready": False, "unready_since": NOW - seconds_ago}
    assert why(lost) == ("not Ready" if leaves else None, None)
