"""PodDisruptionBudgets: room, and what closes it."""

from typing import Any

import pytest

from rebalancer.constraints.moves.budgets import BudgetRoom
from rebalancer.model.cluster.objects import LabelSelector, Requirement
from rebalancer.model.cluster.pods import FAILED, PENDING, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.reason import Reason
from tests.builders import a_budget, a_node, a_pod, cluster, projection_of, replicas


def room_of(*budgets: DisruptionBudget, pods: int = 3) -> tuple[BudgetRoom, ClusterSnapshot]:
    snapshot = cluster([a_node("n1")], replicas("web", {"n1": pods}), budgets=budgets)
    return BudgetRoom(projection_of(snapshot)), snapshot


def code(room: BudgetRoom, snapshot: ClusterSnapshot, pod: int = 0) -> Reason | None:
    refusal = room.refuses(snapshot.pod(pod))
    return None if refusal is None else refusal.code


def a_selector(**fields: Any) -> DisruptionBudget:
    return DisruptionBudget(namespace="shop", name="pdb", disruptions_allowed=0, **fields)


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ([], None),
        ([a_budget("pdb", "web", 1)], None),
        ([a_budget("pdb", "web", 0)], Reason.BUDGET_EXHAUSTED),
        ([a_budget("pdb", "web", -1)], Reason.BUDGET_EXHAUSTED),
        ([a_budget("a", "web", 5), a_budget("b", "web", 5)], Reason.SEVERAL_BUDGETS),
        ([a_budget("a", "api", 0), a_budget("b", "web", 0, namespace="other")], None),
        ([a_budget("pdb", "web", 5, up_to_date=False)], Reason.BUDGET_OUTDATED),
    ],
    ids=["none", "room", "no room", "less than none", "several", "of another app or namespace", "outdated"],
)
def test_one_budget_of_the_pod_must_have_room_and_be_up_to_date(
    budgets: list[DisruptionBudget], expected: Reason | None
) -> None:
    assert code(*room_of(*budgets)) is expected


def test_what_the_plan_took_counts_and_what_the_server_refused_closes() -> None:
    room, snapshot = room_of(a_budget("pdb", "web", 2))
    room.take(snapshot.pod(0))
    assert code(room, snapshot, 1) is None
    room.take(snapshot.pod(1))
    refusal = room.refuses(snapshot.pod(2))
    assert refusal is not None
    assert refusal.code is Reason.BUDGET_EXHAUSTED
    assert refusal.message.endswith(": pdb allows 2 disruptions, 2 of them taken by this plan")
    other, snapshot = room_of(a_budget("pdb", "web", 2))
    other.close(snapshot.pod(0))
    assert code(other, snapshot, 1) is Reason.BUDGET_EXHAUSTED


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        (None, False),
        (LabelSelector(), True),
        (LabelSelector(match_expressions=(Requirement(key="app", operator="Exists"),)), True),
        (LabelSelector(match_expressions=(Requirement(key="app", operator="NotIn", values=("web",)),)), False),
        (LabelSelector(match_labels={"app": "web", "tier": "x"}), False),
    ],
    ids=["none", "empty", "expression", "not in", "two labels"],
)
def test_a_budget_selects_as_kubernetes_selects(selector: LabelSelector | None, selects: bool) -> None:
    assert (code(*room_of(a_selector(selector=selector))) is not None) is selects


def test_one_budget_over_two_services_is_shared() -> None:
    pods = [*replicas("web", {"n1": 1}, labels={"team": "x"}), *replicas("api", {"n1": 1}, labels={"team": "x"})]
    budget = DisruptionBudget(
        namespace="shop", name="pdb", selector=LabelSelector(match_labels={"team": "x"}), disruptions_allowed=1
    )
    snapshot = cluster([a_node("n1")], pods, budgets=[budget])
    room = BudgetRoom(projection_of(snapshot))
    room.take(snapshot.pod(0))
    assert code(room, snapshot, 1) is Reason.BUDGET_EXHAUSTED


def test_pods_of_one_service_with_different_labels_have_different_budgets() -> None:
    pods = [a_pod("a", "n1", owner="web"), a_pod("b", "n1", owner="web", labels={"app": "canary"})]
    snapshot = cluster([a_node("n1")], pods, budgets=[a_budget("pdb", "web", 0)])
    room = BudgetRoom(projection_of(snapshot))
    assert [code(room, snapshot, 0), code(room, snapshot, 1)] == [Reason.BUDGET_EXHAUSTED, None]


def test_several_budgets_are_named_in_one_order_however_they_are_listed() -> None:
    a, b = a_budget("a", "web", 1), a_budget("b", "web", 1)
    messages = set()
    for listed in ((a, b), (b, a)):
        room, snapshot = room_of(*listed)
        refusal = room.refuses(snapshot.pod(0))
        assert refusal is not None
        messages.add(refusal.message)
    assert len(messages) == 1


# ---- pods that the API server doesn't count


@pytest.mark.parametrize("phase", [PENDING, SUCCEEDED, FAILED])
def test_no_budget_is_asked_about_a_pod_that_waits_or_has_finished(phase: int) -> None:
    pods = [a_pod("web-0", "n1", owner="web", phase=phase, ready=False), *replicas("web", {"n1": 3})[1:]]
    snapshot = cluster([a_node("n1")], pods, budgets=[a_budget("pdb", "web", 1)])
    room = BudgetRoom(projection_of(snapshot))
    room.take(snapshot.pod(0))
    assert code(room, snapshot, 1) is None  # nothing was taken
    room.take(snapshot.pod(1))
    assert code(room, snapshot, 0) is None
    assert code(room, snapshot, 2) is Reason.BUDGET_EXHAUSTED


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"current_healthy": 2, "desired_healthy": 2}, None),
        ({"current_healthy": 1, "desired_healthy": 2}, Reason.BUDGET_EXHAUSTED),
        ({"current_healthy": 0, "desired_healthy": 0}, Reason.BUDGET_EXHAUSTED),
        ({"current_healthy": 0, "desired_healthy": 2, "evicts_unhealthy": True}, None),
        ({"current_healthy": 2, "desired_healthy": 2, "up_to_date": False}, Reason.BUDGET_OUTDATED),
    ],
    ids=["enough healthy", "too few healthy", "nothing desired", "AlwaysAllow", "outdated"],
)
def test_a_pod_that_is_not_ready_goes_when_enough_others_are_healthy(
    fields: dict[str, Any], expected: Reason | None
) -> None:
    pods = [a_pod("web-0", "n1", owner="web", ready=False), *replicas("web", {"n1": 3})[1:]]
    snapshot = cluster([a_node("n1")], pods, budgets=[a_budget("pdb", "web", 0, **fields)])
    assert code(BudgetRoom(projection_of(snapshot)), snapshot) is expected


def test_healthy_ones_that_this_plan_takes_are_no_longer_healthy() -> None:
    pods = [a_pod("web-0", "n1", owner="web", ready=False), *replicas("web", {"n1": 4})[1:]]
    budget = a_budget("pdb", "web", 1, current_healthy=3, desired_healthy=2)
    snapshot = cluster([a_node("n1")], pods, budgets=[budget])
    room = BudgetRoom(projection_of(snapshot))
    room.take(snapshot.pod(0))
    assert code(room, snapshot, 1) is None
    room.take(snapshot.pod(1))
    assert code(room, snapshot, 0) is None
    assert code(room, snapshot, 2) is Reason.BUDGET_EXHAUSTED
    refusal = room.refuses(snapshot.pod(2), alone=True)
    assert refusal is None  # if nothing else went


def test_budgets_are_sorted_only_when_a_pod_is_asked_about() -> None:
    snapshot = cluster([a_node("n1")], [])
    BudgetRoom(projection_of(snapshot))
    assert "budgets_near" not in vars(snapshot)
