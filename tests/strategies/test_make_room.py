"""MakeRoom: which pods get room, on which nodes, and who may go for them."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.steering import ROOM, SOFT_TAINT
from rebalancer.model.decisions.plan import Goal
from rebalancer.strategies import Findings
from tests.builders import NOW, ANode, APod, a_node, a_pod, replicas
from tests.strategies.builders.finding import found_by, names_of

NAME = "MakeRoom"


def waiting(name: str = "big", *, cpu: float = 6_000.0, age: float = 300.0, **fields: Any) -> APod:
    """A pod that its scheduler found no node for."""
    given = {"owner": name, "phase": PENDING, "ready": False, "started": False, "unschedulable": True, **fields}
    return a_pod(name, cpu=cpu, age=age, **given)


def full(node: str, *sizes: float, owner: str = "web", **fields: Any) -> list[APod]:
    """Pods of these sizes, none of which uses CPU."""
    return [
        a_pod(f"{node}-{at}", node, owner=f"{owner}-{node}-{at}", cpu=cpu, used=10.0, **fields)
        for at, cpu in enumerate(sizes)
    ]


def found(nodes: list[ANode], pods: list[APod], args: dict[str, Any] | None = None) -> tuple[Findings, dict[str, Any]]:
    """With each finding as (node, pending pod) -> names of its candidates."""
    result, made = found_by(NAME, nodes, pods, args)
    return result, {
        (made.nodes.names[each.node], made.pods.names[each.room_for or 0]): names_of(each, made)
        for each in result.findings
    }


NODES = [a_node("a"), a_node("b")]
FILLED = [*full("a", 4_000.0, 4_000.0, 4_000.0), *full("b", 4_000.0, 8_000.0)]


def test_a_node_is_found_where_pods_may_leave_enough() -> None:
    result, by = found(NODES, [*FILLED, waiting()])
    assert list(by) == [("a", "big"), ("b", "big")]
    (first, second) = result.findings
    assert (first.goal, first.wanted, first.makes_room, first.pool) == (Goal.ROOM, 5, True, "general")
    assert first.reason == "room for shop/big, pending for 5m: cpu of 1 pod or more"
    assert sorted(by["a", "big"]) == ["a-0", "a-1", "a-2"]
    assert second.room_for == first.room_for


def test_the_nodes_with_the_fewest_moves_come_first() -> None:
    pods = [*full("a", *[2_000.0] * 8), *full("b", 8_000.0, 8_000.0), waiting()]
    assert list(found(NODES, pods)[1]) == [("b", "big"), ("a", "big")]
    assert list(found(NODES, pods, {"maxMoves": 2})[1]) == [("b", "big")]


@pytest.mark.parametrize(
    "pod",
    [
        waiting(age=100.0),
        waiting(gated=True),
        waiting(unschedulable=False),
        waiting(nominated="a"),
        waiting(terminating=True),
        waiting(namespace="other"),
        waiting(cpu=20_000.0),
        waiting(template={"nodeSelector": {"zone": "none"}}),
    ],
    ids=["young", "gated", "not tried", "nominated", "terminating", "other namespace", "too large", "selects none"],
)
def test_for_these_nothing_is_found(pod: APod) -> None:
    assert found(NODES, [*FILLED, pod], {"namespaces": {"include": ["shop"]}})[1] == {}


def test_a_pod_that_no_node_takes_is_named() -> None:
    result, _ = found(NODES, [*FILLED, waiting(cpu=20_000.0)])
    assert result.notes == ("MakeRoom: 5 moves or fewer make room on no node for shop/big",)


def test_no_pod_goes_for_one_of_lower_priority() -> None:
    pods = [*full("a", 16_000.0, priority=10), *full("b", 8_000.0, 8_000.0, priority=9)]
    assert list(found(NODES, [*pods, waiting(priority=8)])[1]) == []
    assert list(found(NODES, [*pods, waiting(priority=9)])[1]) == [("b", "big")]
    assert list(found(NODES, [*pods, waiting(priority=10)])[1]) == [("a", "big"), ("b", "big")]


def test_daemons_bare_and_terminating_pods_are_no_candidates() -> None:
    pods = [
        a_pod("agent", "a", owner="agent", owner_kind="DaemonSet", cpu=5_000.0),
        a_pod("bare", "a", cpu=5_000.0),
        a_pod("going", "a", owner="going", cpu=1_000.0, terminating=True),
        a_pod("web", "a", owner="web", cpu=5_000.0),
    ]
    assert found([a_node("a")], [*pods, waiting(cpu=5_000.0)])[1] == {("a", "big"): ["web"]}
    assert found([a_node("a")], [*pods, waiting(cpu=6_000.0)])[1] == {}


def test_every_resource_that_lacks_counts() -> None:
    gpu = {"extendedRequests": {"nvidia.com/gpu": 2.0}}
    nodes = [a_node("a", extended={"nvidia.com/gpu": 2.0}), a_node("b")]
    pods = [*replicas("train", {"a": 2}, template={"extendedRequests": {"nvidia.com/gpu": 1.0}}), *full("b", 1_000.0)]
    result, by = found(nodes, [*pods, waiting(cpu=100.0, template=gpu)])
    assert by == {("a", "big"): ["train-0", "train-1"]}
    assert "nvidia.com/gpu of 2 pods or more" in result.findings[0].reason


def test_nodes_that_are_hot_cordoned_or_of_no_pool_get_no_pod() -> None:
    nodes = [a_node("hot", used=15_000.0), a_node("shut", unschedulable=True), a_node("far", labels={})]
    pods = [pod for node in nodes for pod in full(node.name, 8_000.0, 8_000.0)]
    assert found(nodes, [*pods, waiting()])[1] == {}


def held(since: float, value: str = ROOM) -> ANode:
    """A node with our soft taint for so many seconds."""
    at = np.datetime_as_string(np.datetime64(int(NOW - since), "s")) + "Z"
    return a_node("a", taints=(Taint(key=SOFT_TAINT, value=value, effect="PreferNoSchedule", time_added=str(at)),))


def test_while_its_room_is_held_nothing_moves_for_the_pod() -> None:
    pods = [*full("a", 8_000.0, 1_000.0), *full("b", 8_000.0, 8_000.0), waiting("first"), waiting("second", age=200.0)]
    result, by = found([held(60.0), a_node("b")], pods)
    assert list(result.rooms.values()) == [0]
    assert list(by) == [("b", "second")]
    result, by = found([held(700.0), a_node("b")], pods)
    assert result.rooms == {}
    assert {pod for _, pod in by} == {"first", "second"}


def test_room_that_is_still_being_made_is_held_too() -> None:
    going = full("a", 8_000.0, 2_000.0)
    going[0].terminating = True
    nodes = [held(60.0), a_node("b")]
    assert list(found(nodes, [*going, *full("b", 16_000.0), waiting(cpu=14_000.0)])[0].rooms.values()) == [0]
    assert found(nodes, [*going, *full("b", 16_000.0), waiting(cpu=14_100.0)])[0].rooms == {}
