"""Which pods are moved by replacement first: those that the policy chooses, of services without a replica to spare."""

from typing import Any

import pytest

from rebalancer.constraints.admission import LedgerState
from rebalancer.constraints.moves.budgets import BudgetRoom
from rebalancer.model.cluster.annotations import DELETION_COST
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason
from rebalancer.planner.plan.moves import new_eviction
from tests.builders import NO_LIMITS, a_budget, a_door, a_node, a_pod, a_policy, an_eviction, cluster

EVERYWHERE: list[dict[str, Any]] = [{"namespaces": ["*"]}]


def a_shop(count: int = 1, *, kind: str = "Deployment", budgets: Any = (), **fields: Any) -> ClusterSnapshot:
    pods = [
        a_pod(f"web-{number}", "n1", owner="web", owner_kind=kind, **{"labels": {"app": "web"}, **fields})
        for number in range(count)
    ]
    owner = Owner(kind=kind, namespace="shop", name="web", uid="uid-web", desired=count, ready=count)
    return cluster([a_node("n1")], pods, owners=[owner], budgets=budgets, listed_kinds=frozenset({kind}))


def applies(made: ClusterSnapshot, rules: Any = EVERYWHERE, **sections: Any) -> bool:
    guards = {"replacementFirst": rules, **sections.pop("guards", {})}
    return a_door(made, a_policy(guards=guards, **sections)).first.applies(made.pod(0))


LEVELS = {"default": "bronze", "services": {"gold": ["shop/web"]}, "levels": [{"name": "gold"}, {"name": "bronze"}]}


@pytest.mark.parametrize(
    ("rules", "chosen"),
    [
        ([], False),
        (EVERYWHERE, True),
        ([{"namespaces": ["shop"]}], True),
        ([{"namespaces": ["other"]}, {"services": ["shop/w*"]}], True),
        ([{"namespaces": ["shop"], "services": ["*/api"]}], False),
        ([{"selector": {"matchLabels": {"app": "web"}}}], True),
        ([{"selector": {"matchLabels": {"app": "api"}}}], False),
        ([{"levels": ["gold"]}], True),
        ([{"levels": ["bronze"]}], False),
    ],
)
def test_the_policy_chooses_by_namespace_service_labels_or_level(rules: Any, chosen: bool) -> None:
    assert applies(a_shop(), rules, serviceLevels=LEVELS) is chosen


@pytest.mark.parametrize(
    ("count", "guards", "budget", "needed"),
    [
        (1, {}, None, True),
        (1, {"minReplicas": 1}, None, True),
        (2, {}, None, False),
        (2, {"minReplicas": 3}, None, True),
        (2, {"overrides": [{"pools": ["general"], "minReplicas": 3}]}, None, True),
        # a budget that allows none at this size, and one that allows none just now
        (3, {}, {"allowed": 0, "desired_healthy": 3, "current_healthy": 3}, True),
        (3, {}, {"allowed": 0, "desired_healthy": 2, "current_healthy": 2}, False),
        (3, {}, {"allowed": 1, "desired_healthy": 2, "current_healthy": 3}, False),
    ],
)
def test_it_is_used_only_where_an_eviction_would_leave_the_service_short(
    count: int, guards: Any, budget: Any, needed: bool
) -> None:
    budgets = () if budget is None else (a_budget("pdb", "web", budget.pop("allowed"), **budget),)
    assert applies(a_shop(count, budgets=budgets), guards=guards) is needed


def test_a_pod_that_is_not_ready_or_of_a_job_is_evicted_as_ever() -> None:
    assert not applies(a_shop(ready=False))
    assert not applies(a_shop(kind="Job"))


def test_it_uses_no_budget() -> None:
    made = a_shop(budgets=(a_budget("pdb", "web", 0, desired_healthy=1, current_healthy=1),))
    door = a_door(made, a_policy(guards={"replacementFirst": EVERYWHERE}))
    assert BudgetRoom(door.projection).refuses(made.pod(0)) is not None
    room = BudgetRoom(door.projection, apart=door.first.applies)
    for _ in range(2):
        assert room.refuses(made.pod(0)) is None
        room.take(made.pod(0))


def test_the_other_guards_hold_as_ever() -> None:
    def asked(made: ClusterSnapshot) -> Reason | None:
        refusal = a_door(made, a_policy(guards={"replacementFirst": EVERYWHERE})).stays(made.pod(0), pool="general")
        return None if refusal is None else refusal.code

    # a pod of an owner that can't surge stays with that reason, and not with the number of its replicas
    assert asked(a_shop(kind="StatefulSet")) is Reason.SURGE_OWNER
    assert (
        asked(a_shop(kind="StatefulSet", template={"annotations": {"rebalancer.dev/evict": "false"}}))
        is Reason.OPTED_OUT
    )


def test_a_service_with_a_surge_keeps_its_other_pods_for_the_whole_cycle() -> None:
    made = a_shop(2)

    def refusals(standing: LedgerState) -> list[Reason | None]:
        door = a_door(made, a_policy(limits=NO_LIMITS), standing)
        moves = [
            new_eviction(made.pod(index), made, door, node=0, pool="general", cpu_millicores=100.0, cools=True)
            for index in range(2)
        ]
        found = [door.refuses(each) for each in moves]
        # whatever lands meanwhile
        assert [door.passes(each, within=3600.0) for each in moves] == [each is None for each in found]
        return [each and each.code for each in found]

    in_progress = Reason.EVICTION_IN_PROGRESS
    assert refusals(LedgerState(surging=frozenset({"uid-web"}))) == [in_progress, in_progress]
    assert refusals(LedgerState(surging=frozenset({"uid-other"}))) == [None, None]
    # one that another component carries out leaves no pod more behind
    migrated = an_eviction(pod="web-0", uid=made.pod(0).uid, owner_uid="uid-web", in_background=True)
    assert refusals(LedgerState(open_evictions=(migrated,))) == [in_progress, None]


@pytest.mark.parametrize("terminating", [False, True])
def test_the_deletion_cost_of_a_terminating_pod_does_not_count(terminating: bool) -> None:
    noted = {"template": {"annotations": {DELETION_COST: "7"}}}
    pods = [
        a_pod("web-0", "n1", owner="web-1", owner_kind="ReplicaSet"),
        a_pod("web-1", "n1", owner="web-1", owner_kind="ReplicaSet", terminating=terminating, **noted),
    ]
    owners = [
        Owner(kind="Deployment", namespace="shop", name="web", uid="d", desired=1, ready=1),
        Owner(kind="ReplicaSet", namespace="shop", name="web-1", uid="r", parent=0, desired=1, ready=1),
    ]
    made = cluster([a_node("n1")], pods, owners=owners)
    refusal = a_door(made, a_policy(guards={"replacementFirst": EVERYWHERE})).first.refuses(made.pod(0))
    assert (refusal and refusal.code) == (None if terminating else Reason.SURGE_DELETION_COST)
