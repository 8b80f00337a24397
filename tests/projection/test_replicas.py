"""Replicas that stay: guards and budgets count those, not the ones of the present."""

from collections.abc import Sequence
from typing import Any

import pytest

from rebalancer.constraints.moves.budgets import BudgetRoom
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import DisruptionBudget
from rebalancer.model.reason import Reason
from tests.builders import (
    CORDONED_LONG_AGO,
    NOW,
    ANode,
    a_budget,
    a_door,
    a_node,
    a_policy,
    cluster,
    projection_of,
    replicas,
)

SPOT_NOTICE: dict[str, Any] = {"taints": (Taint("aws-node-termination-handler/spot-itn", "", "NoSchedule"),)}


def refusal(nodes: Sequence[ANode], on: dict[str, int], pod: int = 0, **fields: Any) -> str:
    """Why one of the pods of `web` stays; empty where nothing keeps it."""
    snapshot = cluster(nodes, replicas("web", on), **fields)
    found = a_door(snapshot, a_policy()).stays(snapshot.pod(pod), pool="general")
    return "" if found is None else f"{found.code}: {found.message}"


@pytest.mark.parametrize(
    "leaving",
    [
        SPOT_NOTICE,
        {"taints": (Taint("ToBeDeletedByClusterAutoscaler", "1700000000", "NoSchedule"),)},
        {"taints": (Taint("karpenter.sh/disrupted", "", "NoSchedule"),)},
        {"taints": (Taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"),)},
        {"unschedulable": True},
        {"ready": False, "unready_since": NOW - 30.0},
        {"conditions": ("DrainInProgress",)},
    ],
    ids=["spot", "cluster-autoscaler", "karpenter", "out of service", "cordoned", "lost", "draining"],
)
def test_the_last_replica_that_will_stay_is_not_evicted(leaving: dict[str, Any]) -> None:
    found = refusal([a_node("hot"), a_node("away", **leaving)], {"hot": 1, "away": 1})
    assert found.startswith("OwnerNotHealthy: its owner has fewer ready pods that stay than desired: ")
    assert "1 of 2 ready pods of shop/web will stay; 1 on leaving nodes, such as away (" in found


def test_where_all_stay_it_may_go() -> None:
    assert refusal([a_node("hot"), a_node("here")], {"hot": 1, "here": 1}) == ""
    assert refusal([a_node("hot"), a_node("here", **CORDONED_LONG_AGO)], {"hot": 1, "here": 1}) == ""


def test_the_pod_on_the_leaving_node_may_go_ahead_of_the_drain() -> None:
    assert refusal([a_node("hot"), a_node("away", **SPOT_NOTICE)], {"hot": 1, "away": 1}, pod=1) == ""


def test_more_ready_pods_than_are_desired_make_up_for_it() -> None:
    owner = Owner(kind="ReplicaSet", namespace="shop", name="web", uid="u", desired=2, ready=3)
    nodes = [a_node("hot"), a_node("here"), a_node("away", **SPOT_NOTICE)]
    assert refusal(nodes, {"hot": 1, "here": 1, "away": 1}, owners=[owner]) == ""


@pytest.mark.parametrize(
    ("here", "away", "stays"),
    [(3, 1, True), (6, 1, True), (7, 1, False), (7, 2, True), (43, 5, False), (38, 12, True)],
    ids=["1 of 4", "1 of 7", "1 of 8", "2 of 9", "5 of 48", "12 of 50"],
)
def test_a_quarter_of_the_replicas_may_be_missing_with_the_evicted_one(here: int, away: int, stays: bool) -> None:
    nodes = [a_node("hot", pods=100), a_node("away", pods=100, **SPOT_NOTICE)]
    assert refusal(nodes, {"hot": here, "away": away}).startswith("OwnerNotHealthy") is stays
    assert stays or refusal(nodes, {"hot": here, "away": away}) == ""


def test_a_service_that_lacks_a_replica_now_may_lack_no_other() -> None:
    owner = Owner(kind="ReplicaSet", namespace="shop", name="web", uid="u", desired=20, ready=19)
    nodes = [a_node("hot", pods=100), a_node("away", **SPOT_NOTICE)]
    found = refusal(nodes, {"hot": 18, "away": 1}, owners=[owner])
    assert found.startswith("OwnerNotHealthy")


def of_budget(budget: DisruptionBudget, pod: int) -> str:
    nodes = [a_node("hot"), a_node("here"), a_node("away", **SPOT_NOTICE)]
    snapshot = cluster(nodes, replicas("web", {"hot": 1, "here": 1, "away": 1}), budgets=[budget])
    found = BudgetRoom(projection_of(snapshot)).refuses(snapshot.pod(pod))
    return "" if found is None else found.message


def test_a_budget_keeps_what_the_drain_needs() -> None:
    assert of_budget(a_budget("web", "web", 1), 0).endswith(
        "web allows 1 disruptions, 1 of them needed by leaving nodes"
    )
    assert of_budget(a_budget("web", "web", 2), 0) == ""
    assert of_budget(a_budget("web", "web", 1), 2) == "", "the drain's own pod"
    assert of_budget(a_budget("api", "api", 1), 0) == "", "another service's budget"


def test_what_the_drain_needs_and_the_plan_takes_is_counted_together() -> None:
    nodes = [a_node("hot"), a_node("here"), a_node("away", **SPOT_NOTICE)]
    snapshot = cluster(nodes, replicas("web", {"hot": 2, "here": 1, "away": 1}), budgets=[a_budget("web", "web", 2)])
    room = BudgetRoom(projection_of(snapshot))
    assert room.refuses(snapshot.pod(0)) is None
    room.take(snapshot.pod(0))
    found = room.refuses(snapshot.pod(1))
    assert found is not None
    assert found.code is Reason.BUDGET_EXHAUSTED
    assert found.message.endswith("2 disruptions, 1 of them taken by this plan, 1 of them needed by leaving nodes")


def test_pods_that_are_not_made_elsewhere_are_not_displaced() -> None:
    away = a_node("away", **SPOT_NOTICE)
    pods = [
        *replicas("web", {"away": 1}),
        *replicas("agent", {"away": 1}, owner_kind="DaemonSet"),
        *replicas("gone", {"away": 1}, terminating=True),
        *replicas("", {"away": 1}),
    ]
    assert projection_of(cluster([away], pods)).displaced.tolist() == [True, False, False, False]
