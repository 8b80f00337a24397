"""Pods on leaving nodes will land before the replacements of a plan: they take room and headroom."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Refusal
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.placement.landing.pending import SAMPLE
from tests.builders import (
    Outcome,
    a_model,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    planner_for,
    projection_of,
    replicas,
    usage_of,
    view_of,
)

LEAVING: dict[str, Any] = {"taints": (Taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule"),)}


def planned(*, leaving: bool, used: float) -> Outcome:
    """A hot node, three nodes at 25 %, and three that leave or stay, each with four pods that use `used` each."""
    fields = LEAVING if leaving else {}
    nodes = [
        a_node("hot"),
        *(a_node(f"cool-{n}") for n in range(3)),
        *(a_node(f"away-{n}", **fields) for n in range(3)),
    ]
    pods = [
        *(a_pod(f"web-{n}", "hot", owner=f"web-{n}", used=2_800.0) for n in range(5)),
        *(a_pod(f"other-{n}", f"cool-{n}", owner=f"web-{n}", used=4_000.0) for n in range(3)),
        *(pod for n in range(3) for pod in replicas(f"app-{n}", {f"away-{n}": 4}, used=used)),
    ]
    policy = a_policy(guards={"minReplicas": 1})
    snapshot = cluster(nodes, pods)
    usage = usage_of(snapshot, nodes, pods)
    base = view_of(snapshot, usage, policy).base
    return carry_out(planner_for(snapshot, usage, policy, base=base), snapshot)


def test_displaced_pods_take_the_headroom_that_they_will_need() -> None:
    # 12 pods of 1,500m on three nodes of 16,000m: 37 points more on each
    assert len(planned(leaving=False, used=1_500.0).moves) == 2
    outcome = planned(leaving=True, used=1_500.0)
    assert outcome.moves == []
    assert set(outcome.refusals.values()) <= {"NoNodeWithHeadroom", "TargetNodeWithoutHeadroom"}


def test_small_ones_leave_enough() -> None:
    assert len(planned(leaving=True, used=100.0).moves) == 2


def test_what_is_displaced_is_no_reason_to_relieve_a_node() -> None:
    outcome = planned(leaving=True, used=1_500.0)
    headroom = outcome.planner.state.landings.headrooms[0]
    assert headroom is not None
    cool = outcome.planner.state.snapshot.node_index["cool-0"]
    assert headroom.excess(cool)[0] < 0
    assert headroom.overshoot(np.array([0.0]))[cool, 0] > headroom.excess(cool)[0] / 16_000.0


def test_a_displaced_pod_that_fits_nowhere_else_gets_the_room_that_a_move_frees() -> None:
    """It would take the place of the pod that leaves: the node would be as hot as before."""
    nodes = [a_node("hot", cpu=4_000, used=3_600.0), a_node("cool", cpu=4_000, used=0.0), a_node("away", **LEAVING)]
    pods = [
        *(a_pod(f"web-{n}", "hot", owner="web", used=800.0, cpu=1_900.0) for n in range(2)),
        a_pod("big", "away", owner="big", used=1_800.0, cpu=2_000.0),
        a_pod("fills", "cool", owner="fills", used=100.0, cpu=2_100.0),
    ]
    policy = a_policy(guards={"minReplicas": 1})
    snapshot = cluster(nodes, pods)
    outcome = carry_out(planner_for(snapshot, usage_of(snapshot, nodes, pods), policy), snapshot)
    assert outcome.refusals["web-0"] == "PendingTakesRoom"
    (refusal,) = (each for each in outcome.planner.outcome.refusals() if each.name == "web-0")
    assert refusal.message.endswith("shop/big fits nowhere else; its node away is about to go")


def many_displaced() -> tuple[PlacementModel, ClusterSnapshot]:
    """3,000 of one node, and ten others that take them all."""
    nodes = [a_node("away", pods=9_000, **LEAVING), *(a_node(f"n{at}", pods=9_000) for at in range(10))]
    snapshot = cluster(nodes, replicas("app", {"away": 3_000}, cpu=10.0, memory=1.0))
    return a_model(snapshot), snapshot


def expected_on(model: PlacementModel) -> np.ndarray:
    """(nodes,) number of displaced pods."""
    due = model.due
    landed = np.bincount(due.nodes, weights=due.expected)
    return landed + sum(len(pods) * number * share for pods, number, share in due.others)


def test_of_thousands_a_sample_is_landed_and_the_others_go_where_cpu_is_free() -> None:
    model, _ = many_displaced()
    assert len(np.unique(model.due.pods)) == SAMPLE
    expected = expected_on(model)[1:]
    assert expected.sum() == pytest.approx(3_000.0)
    assert expected.max() - expected.min() < 30.0


def test_soft_taints_keep_displaced_pods_off_the_nodes_that_a_plan_relieves() -> None:
    nodes = [a_node("away", **LEAVING), *(a_node(f"n{at}") for at in range(3))]
    snapshot = cluster(nodes, replicas("app", {"away": 6}, cpu=10.0))
    displaced = projection_of(snapshot).displaced
    without, relieved = (
        expected_on(PlacementModel(snapshot, removed={0: "leaves"}, displaced=displaced, relieved=chosen))
        for chosen in ((), (1,))
    )
    assert without.tolist() == pytest.approx([0.0, 2.0, 2.0, 2.0])
    assert relieved.tolist() == pytest.approx([0.0, 0.0, 3.0, 3.0])


def test_where_the_time_ends_what_was_landed_stands_for_all_and_no_plan_ends() -> None:
    _, snapshot = many_displaced()
    asked = iter(range(10_000))
    model = a_model(snapshot, out_of_time=lambda: 40 <= next(asked) < 9_000)
    assert len(np.unique(model.due.pods)) == 40
    assert expected_on(model).sum() == pytest.approx(3_000.0)
    assert not isinstance(model.landings(snapshot.pod(0)), Refusal)
