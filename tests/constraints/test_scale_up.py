"""A pool is left alone while it is being scaled up, and not because a node has joined it."""

from typing import Any

import pytest

from rebalancer.constraints.pauses.scale_up import scale_ups
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.reason import Reason
from rebalancer.policy.pools import NodePools
from tests.builders import NOW, ANode, APod, a_door, a_node, a_pod, a_policy, an_eviction, cluster, set_fields

YOUNG, YOUNGER = 300.0, 100.0
"""Seconds since a node joined."""


def nodes(size: int, *ages: float, **fields: Any) -> list[ANode]:
    """So many nodes, of which the first have joined recently; `fields` are of these."""
    young = [a_node(f"new{at}", age=age, **fields) for at, age in enumerate(ages)]
    return [*young, *(a_node(f"n{at}") for at in range(size - len(ages)))]


def waiting(**fields: Any) -> APod:
    given = {"phase": PENDING, "ready": False, "unschedulable": True, "age": 60.0, "owner": "batch"}
    return a_pod("w", **{**given, **fields})


def found(made: list[ANode], *pods: APod, **cooldowns: Any) -> tuple[float, str] | None:
    """When the pool's scale-up is over, in seconds, and what shows it; None where there is none."""
    policy = a_policy(safety={"cooldowns": cooldowns})
    snapshot = cluster(made, pods)
    scaled = scale_ups(policy, snapshot, NodePools.of(policy.pools, snapshot.nodes).of_node, NOW)
    return (scaled["general"].until - NOW, scaled["general"].detail) if "general" in scaled else None


def test_a_share_of_the_pool_that_joined_is_a_scale_up() -> None:
    assert found(nodes(10)) is None
    assert found(nodes(10, YOUNG)) is None
    assert found(nodes(10, YOUNGER, YOUNG)) == (300.0, "2 of 10 nodes joined within 10m")
    # over when fewer than a fifth are young
    assert found(nodes(10, 20.0, YOUNGER, YOUNG)) == (500.0, "3 of 10 nodes joined within 10m")
    assert found(nodes(10, YOUNGER, 601.0)) is None
    assert found(nodes(500, *[YOUNG] * 99)) is None
    assert found(nodes(500, *[YOUNG] * 100)) is not None


def test_the_share_and_the_time_are_the_policys() -> None:
    assert found(nodes(10, YOUNG), scaleUpShare=10) is not None
    assert found(nodes(10, YOUNG, YOUNG), scaleUpShare=30) is None
    assert found(nodes(10, YOUNG, YOUNG), poolAfterScaleUp="4m") is None


ZONE_B = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}],
}}}}  # fmt: skip
DEDICATED = (Taint(key="dedicated", effect="NoSchedule"),)


@pytest.mark.parametrize(
    ("node", "pod", "scales"),
    [
        ({}, {}, True),
        ({}, {"unschedulable": False}, False),
        ({}, {"gated": True}, False),
        ({}, {"terminating": True}, False),
        # no scale-up has helped it so far
        ({}, {"age": 601.0}, False),
        ({}, {"cpu": 16_001.0}, False),
        ({}, {"memory": 65 * 2.0**30}, False),
        ({}, {"template": {"nodeSelector": {"pool": "other"}}}, False),
        ({}, {"template": ZONE_B}, False),
        ({"labels": {"pool": "general", "zone": "b"}}, {"template": ZONE_B}, True),
        ({"taints": DEDICATED}, {}, False),
        ({"taints": DEDICATED}, {"template": {"tolerations": [{"operator": "Exists"}]}}, True),
        ({"taints": (Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),)}, {}, True),
    ],
)
def test_one_node_is_a_scale_up_while_pods_that_it_could_take_are_unschedulable(
    node: dict[str, Any], pod: dict[str, Any], scales: bool
) -> None:
    expected = (80.0, "1 of 10 nodes joined within 2m and shop/w is unschedulable") if scales else None
    assert found(nodes(10, 40.0, **node), waiting(**pod)) == expected
    # what it could take would be on it by then
    assert found(nodes(10, YOUNG, **node), waiting(**pod)) is None
    assert found(nodes(10), waiting(**pod)) is None


def test_only_moves_that_cool_wait_for_the_end_of_a_scale_up() -> None:
    policy = a_policy()
    door = a_door(cluster(nodes(10, YOUNG, YOUNG), [a_pod("gone", "n1", owner="web")]), policy)
    move = door.scope(an_eviction(pod_index=0, node_index=0, cools=False))
    assert door.refuses(move) is None
    set_fields(move, cools=True)
    refusal = door.refuses(move)
    assert refusal is not None
    assert refusal.code is Reason.COOLDOWN_POOL
    assert refusal.next_at == NOW + 300.0
    assert "general: 2 of 10 nodes joined within 10m, next at " in refusal.message


def test_of_pods_that_wait_alike_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("rebalancer.constraints.pauses.scale_up._takes", lambda snapshot, node, pod: asked.append(pod))
    jobs = [a_pod(f"j{at}", owner=f"j{at}", phase=PENDING, unschedulable=True, age=60.0) for at in range(50)]
    assert found(nodes(10, 40.0), *jobs, a_pod("z", cpu=900.0, phase=PENDING, unschedulable=True, age=60.0)) is None
    assert len(asked) == 2
