"""Effective CPU: measured, less what left, plus what arrived and isn't measured yet. The rate window is 300 s."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.owners import Owner, Service
from rebalancer.model.cluster.pods import FAILED, PENDING
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from rebalancer.strategies.interface.loads import CpuLoads, effective_cpu, gone, requested
from tests.builders import GIB, NOW, ANode, APod, a_node, a_pod, an_eviction, changed, cluster, replicas, usage_of

NAN = float("nan")


def effective(
    pods: list[APod], *, nodes: list[ANode] | None = None, recent: tuple[Eviction, ...] = (), **usage: Any
) -> CpuLoads:
    """Of a node n with 10,000 millicores measured, and an idle node m."""
    nodes = nodes or [a_node("n", used=10_000.0), a_node("m", used=0.0)]
    made = cluster(nodes, pods)
    return effective_cpu(made, usage_of(made, nodes, pods, **usage), recent, NOW)


def on_n(*args: Any, **fields: Any) -> float:
    return float(effective(*args, **fields).node[0])


def a_move(age: float, cpu: float = 1_000.0, node: str = "n", uid: str = "gone") -> Eviction:
    return an_eviction(node=node, cpu_millicores=cpu, planned_at=NOW - age, service="shop/web", uid=uid)


def test_without_moves_it_is_what_was_measured() -> None:
    loads = effective(replicas("web", {"n": 3}, used=500.0))
    assert loads.node.tolist() == [10_000.0, 0.0]
    assert loads.pod.tolist() == [500.0] * 3


def test_a_pod_whose_eviction_goes_on_in_the_background_counts_as_leaving() -> None:
    nodes, pods = [a_node("n", used=10_000.0), a_node("m", used=0.0)], replicas("vm", {"n": 2}, used=3_000.0)
    made = cluster(nodes, pods)
    usage = usage_of(made, nodes, pods)
    assert effective_cpu(made, usage, (), NOW, in_background={"uid-shop-vm-0"}).node[0] == 7_000.0
    assert effective_cpu(made, usage, (), NOW, in_background={"uid-shop-other"}).node[0] == 10_000.0
    # it has left when its virtual machine has moved, not when that was asked for
    move = changed(a_move(200.0), in_background=True, replaced_at=NOW - 10.0)
    assert move.at == NOW - 10.0


# ---- pods that arrived


ON_M = replicas("web", {"m": 1}, used=600.0)
"""One settled sibling."""


def new(node: str = "n", **fields: Any) -> APod:
    return a_pod("new", node, **{"owner": "web", "age": 10.0, **fields})


def test_a_pod_that_arrived_stands_at_its_settled_siblings_mean() -> None:
    pods = [*replicas("web", {"m": 2}), new(used=100.0, age=60.0)]
    pods[0].used, pods[1].used = 600.0, 1_000.0
    loads = effective(pods)
    assert loads.pod.tolist() == [600.0, 1_000.0, 800.0]
    assert loads.node[0] == 10_000.0 + 800.0 - 100.0


@pytest.mark.parametrize(
    ("pods", "load"),
    [
        ([*ON_M, new()], 10_600.0),
        ([*ON_M, new(phase=PENDING, started=False, age=5.0)], 10_600.0),
        ([new(owner="", cpu=250)], 10_250.0),
        ([new(phase=FAILED), a_pod("waiting", "", owner="web", phase=PENDING)], 10_000.0),
        (
            [
                a_pod("leaving", "m", owner="web", used=5_000.0, terminating=True),
                a_pod("unknown", "m", owner="web", used=NAN),
                a_pod("known", "m", owner="web", used=300.0),
                new(),
            ],
            10_300.0,
        ),
    ],
    ids=[
        "not measured at all: counts in full",
        "bound but not started: has arrived",
        "bare: stands at what it requests",
        "finished and unbound ones count nowhere",
        "terminating and unknown siblings do not count",
    ],
)
def test_what_an_arrived_pod_adds_to_its_node(pods: list[APod], load: float) -> None:
    assert on_n(pods) == load


def test_an_arrived_pod_without_settled_siblings_stands_at_what_it_requests() -> None:
    loads = effective([new(cpu=700, age=60.0), a_pod("twin", "n", owner="web", cpu=700, used=9.0, age=90.0)])
    assert loads.pod.tolist() == [700.0, 700.0]
    assert loads.node[0] == 10_000.0 + 700.0 + 691.0


def test_a_pod_that_already_shows_more_than_usual_is_believed() -> None:
    loads = effective([*ON_M, new(used=900.0, age=60.0)])
    assert loads.pod[1] == 900.0
    assert loads.node[0] == 10_000.0


@pytest.mark.parametrize(
    ("age", "window", "load"),
    [(299.0, 300.0, 10_500.0), (300.0, 300.0, 10_000.0), (301.0, 300.0, 10_000.0), (250.0, 200.0, 10_000.0)],
)
def test_a_pod_is_new_for_one_rate_window_of_the_source(age: float, window: float, load: float) -> None:
    pods = [*replicas("web", {"m": 1}, used=600.0, age=9_999.0), new(used=100.0, age=age)]
    assert on_n(pods, window=window) == load


def test_siblings_are_those_of_the_top_owner() -> None:
    owners = [
        Owner(kind="Deployment", namespace="shop", name="web", uid="d"),
        Owner(kind="ReplicaSet", namespace="shop", name="web-1", uid="r1", parent=0),
        Owner(kind="ReplicaSet", namespace="shop", name="web-2", uid="r2", parent=0),
    ]
    nodes = [a_node("n", used=10_000.0), a_node("m", used=0.0)]
    pods = [a_pod("old", "m", owner="web-1", used=800.0), new(owner="web-2", cpu=1)]
    made = cluster(nodes, pods, owners=owners)
    assert effective_cpu(made, usage_of(made, nodes, pods), (), NOW).node[0] == 10_800.0


# ---- pods that leave or left


@pytest.mark.parametrize(
    ("pods", "load"),
    [
        (
            [*replicas("web", {"n": 1}, used=500.0, terminating=True), a_pod("stays", "n", owner="web", used=500.0)],
            9_500.0,
        ),
        ([a_pod("x", "n", owner="web", terminating=True)], 10_000.0),
        ([*ON_M, a_pod("x", "n", owner="web", used=50.0, age=9.0, terminating=True)], 9_950.0),
    ],
    ids=["measured", "without usage: takes off nothing", "new: leaves and does not arrive"],
)
def test_a_terminating_pod_is_taken_off_its_node(pods: list[APod], load: float) -> None:
    assert on_n(pods) == load


@pytest.mark.parametrize(
    ("age", "load"), [(0.0, 9_000.0), (150.0, 9_500.0), (299.0, 9_996.7), (300.0, 10_000.0), (900.0, 10_000.0)]
)
def test_a_pod_known_from_the_records_fades_out_over_the_window(age: float, load: float) -> None:
    assert on_n([], recent=(a_move(age),)) == pytest.approx(load, abs=0.1)


@pytest.mark.parametrize(
    ("move", "load", "usage"),
    [
        (a_move(10.0, node="unknown"), 10_000.0, {}),
        (a_move(10.0, cpu=NAN), 10_000.0, {}),
        (a_move(-50.0), 10_000.0, {}),
        (a_move(0.0, cpu=99_999.0), 0.0, {}),
        (a_move(0.0), 9_700.0, {"departed_millicores": np.array([300.0, 0.0])}),
    ],
    ids=["unknown node", "unknown CPU", "from the future", "never negative", "departed pods of the source come first"],
)
def test_what_a_record_takes_off(move: Eviction, load: float, usage: dict[str, Any]) -> None:
    assert on_n([], recent=(move,), **usage) == load


@pytest.mark.parametrize(("terminating", "load"), [(False, 10_000.0), (True, 9_000.0)])
def test_a_recorded_pod_that_is_alive_did_not_leave_and_one_that_terminates_is_taken_off_once(
    terminating: bool, load: float
) -> None:
    pods = replicas("web", {"n": 1}, used=1_000.0, terminating=terminating)
    assert on_n(pods, recent=(a_move(0.0, uid="uid-shop-web-0"),)) == load


def test_a_node_that_is_not_known_stays_unknown() -> None:
    assert np.isnan(on_n([new()], nodes=[a_node("n", used=NAN), a_node("m", used=0.0)]))


def test_a_move_is_counted_on_both_ends() -> None:
    # one pod of 1,000 left n at once and is back on m, not measured yet
    pods = [*replicas("web", {"m": 1}, used=1_000.0), new("m", age=5.0)]
    assert effective(pods, recent=(a_move(0.0),)).node.tolist() == [9_000.0, 1_000.0]


# ---- which moves are over


def test_moves_whose_pod_is_there_are_not_gone() -> None:
    made = cluster([a_node("n")], [a_pod("a", "n", owner="web"), a_pod("b", "n", owner="web", terminating=True)])
    moves = [a_move(1.0, uid="uid-shop-a"), a_move(1.0, uid="uid-shop-b"), a_move(1.0), a_move(1.0, uid="")]
    assert gone(made, moves, leaving=False) == moves[2:]
    assert gone(made, moves, leaving=True) == moves[1:]
    assert gone(made, moves[3:], leaving=False) == moves[3:]


# ---- requests


def test_requested_loads_are_sums_of_requests_without_terminating_pods() -> None:
    pods = [
        *replicas("web", {"n": 2}, cpu=500, memory=1 * GIB),
        a_pod("leaving", "n", owner="web", cpu=100, terminating=True),
        a_pod("done", "n", owner="web", cpu=100, phase=FAILED),
        a_pod("waiting", "", owner="web", cpu=100),
    ]
    node, room, pod = requested(
        cluster([a_node("n", cpu=4_000, memory=8 * GIB, pods=10)], pods), ("cpu", "memory", "pods")
    )
    assert node.tolist() == [[1_000.0, 2 * GIB, 2.0]]
    assert room.tolist() == [[4_000.0, 8 * GIB, 10.0]]
    assert pod[0].tolist() == [500.0, 1 * GIB, 1.0]


# ---- siblings that carry more


def in_flight(uid: str) -> Eviction:
    move = a_move(1_000.0, 600.0, uid=uid)
    move.service = Service(kind="ReplicaSet", namespace="shop", name="web")
    move.target_nodes = (TargetNode("m", 1.0),)
    return move


def test_the_surplus_of_siblings_is_taken_off_their_node_and_stays_for_landings() -> None:
    nodes = [a_node("n", used=10_000.0), a_node("m", used=900.0)]
    pods = replicas("web", {"n": 1, "m": 1}, used=900.0)
    made = cluster(nodes, pods)
    usage = usage_of(made, nodes, pods)
    loads = effective_cpu(made, usage, (), NOW, in_flight=[in_flight("gone")])
    assert loads.node.tolist() == [9_700.0, 600.0]
    assert loads.occupied.tolist() == [10_000.0, 900.0]
    # an eviction whose pod still runs, such as one in the background, leaves nothing to carry
    still = effective_cpu(made, usage, (), NOW, in_flight=[in_flight(made.pods.uids[0])])
    assert still.node.tolist() == [10_000.0, 900.0]


@pytest.mark.parametrize(("late_for", "surplus"), [(30.0, 270.0), (300.0, 0.0), (900.0, 0.0)])
def test_what_siblings_carry_for_a_late_replacement_is_their_own_load_from_its_deadline_on(
    late_for: float, surplus: float
) -> None:
    """It may never be Ready, and their node is hot."""
    nodes = [a_node("n", used=10_000.0), a_node("m", used=900.0)]
    pods = [*replicas("web", {"n": 1, "m": 1}, used=900.0), a_pod("web-new", "m", owner="web", ready=False, used=20.0)]
    made = cluster(nodes, pods)
    late = changed(in_flight("gone"), late=True, deadline_at=NOW - late_for)
    loads = effective_cpu(made, usage_of(made, nodes, pods), (), NOW, in_flight=[late])
    assert loads.node[0] == pytest.approx(10_000.0 - surplus)
    # the replacement still counts with its siblings' usual CPU
    assert loads.pods.arrived.tolist() == [False, False, True]
