"""Large disturbances: evictions stop where many nodes or services turned unready within minutes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason, Refusal
from rebalancer.projection.projection import Projection
from tests.builders import NOW, ANode, APod, a_node, a_pod, a_policy, cluster, plan_all, replicas

ZONE = "topology.kubernetes.io/zone"


def nodes_of(zones: dict[str, int], **lost: float) -> list[ANode]:
    """So many nodes of each zone; of some zones all were lost so many seconds ago."""
    return [
        a_node(
            f"{zone}{n}",
            labels={"pool": "general", ZONE: zone},
            ready=zone not in lost,
            unready_since=NOW - lost.get(zone, float("nan")),
        )
        for zone, count in zones.items()
        for n in range(count)
    ]


def seen(snapshot: ClusterSnapshot, *, urgent: Sequence[str] = (), **disturbance: Any) -> Projection:
    policy = a_policy(safety={"disturbance": disturbance})
    return Projection.of(
        snapshot,
        policy.safety,
        now=NOW,
        pools=["general"] * len(snapshot.nodes),
        urgent=np.array([name in urgent for name in snapshot.nodes.names]),
    )


def scopes(nodes: Sequence[ANode], pods: Sequence[APod] = (), **fields: Any) -> list[str]:
    return [each.scope for each in seen(cluster(nodes, pods), **fields).disturbances]


def of_node(projection: Projection, name: str) -> Refusal | None:
    return projection.disturbed(projection.snapshot.node_index[name])


def test_a_lost_zone_of_three_disturbs_the_cluster() -> None:
    nodes = nodes_of({"a": 3, "b": 3, "c": 3}, a=50.0)
    assert scopes(nodes) == ["the cluster", "zone a", "pool general"]
    found = of_node(seen(cluster(nodes, [])), "b0")
    assert found is not None
    assert (found.code, found.next_at) == (Reason.DISTURBANCE, NOW + 550.0)
    assert found.message.endswith("within minutes: 3 of 9 nodes in the cluster, 25% stop evictions")


def test_a_small_zone_disturbs_itself_alone() -> None:
    projection = seen(cluster(nodes_of({"a": 3, "b": 20}, a=50.0), []))
    assert [each.scope for each in projection.disturbances] == ["zone a"]
    assert of_node(projection, "b0") is None
    assert of_node(projection, "a0") is not None


@pytest.mark.parametrize(("seconds_ago", "disturbs"), [(599.0, True), (601.0, False)])
def test_what_was_lost_ten_minutes_ago_is_a_state(seconds_ago: float, disturbs: bool) -> None:
    assert bool(scopes(nodes_of({"a": 3, "b": 3}, a=seconds_ago))) is disturbs


def test_two_nodes_are_no_outage() -> None:
    assert scopes(nodes_of({"a": 2, "b": 2}, a=50.0)) == []


def test_the_policy_has_the_share() -> None:
    nodes = nodes_of({"a": 3, "b": 7}, a=50.0)
    assert scopes(nodes, share="31%") == ["zone a"]
    assert scopes(nodes, share="30%") == ["the cluster", "zone a", "pool general"]


def services(count: int, ill: int, *, namespace: str = "", **fields: Any) -> list[APod]:
    """So many services of two pods; of the first `ill` one turned unready. Each in a namespace of its own, unless they
    are all of one."""
    changed = {"ready": False, "unready_since": NOW - 60.0, **fields}
    return [
        a_pod(
            f"s{n}-{at}",
            f"a{(n + at) % 3}",
            owner=f"s{n}",
            namespace=namespace or f"space-{n}",
            **(changed if n < ill and at == 0 else {}),
        )
        for n in range(count)
        for at in range(2)
    ]


def test_services_that_turn_unready_disturb() -> None:
    """Of them one is left out: any namespace may be the tenant's that has most of them."""
    nodes = nodes_of({"a": 3})
    assert scopes(nodes, services(21, 6)) == ["the cluster", "zone a", "pool general"]
    assert scopes(nodes, services(22, 6)) == []
    assert scopes(nodes, services(8, 5)) == [], "too few to be one"
    assert scopes(nodes, services(8, 6)) != []
    found = of_node(seen(cluster(nodes, services(21, 6))), "a0")
    assert found is not None
    assert found.message.endswith("within minutes: 6 of 21 services in the cluster, 25% stop evictions")


def test_the_services_of_one_namespace_stop_nothing() -> None:
    """Its owner could make them unready again and again."""
    nodes, theirs = nodes_of({"a": 3}), services(100, 100, namespace="tenant")
    assert scopes(nodes, [*theirs, *services(10, 0)]) == []
    assert scopes(nodes, [*theirs, *services(20, 4)]) == []
    assert scopes(nodes, [*theirs, *services(20, 5)]) != []


@pytest.mark.parametrize(
    "fields",
    [
        {"age": 90.0, "unready_since": NOW - 89.0},
        {"unready_since": NOW - 601.0},
        {"unready_since": float("nan")},
        {"terminating": True},
        {"ready": True},
    ],
    ids=["starts", "long ago", "unknown", "terminates", "ready again"],
)
def test_pods_that_start_or_end_are_none(fields: dict[str, Any]) -> None:
    assert scopes(nodes_of({"a": 3}), services(5, 5, **fields)) == []


def test_one_bad_rollout_is_no_disturbance() -> None:
    many = replicas("bad", {"a0": 40}, ready=False, unready_since=NOW - 60.0)
    assert scopes(nodes_of({"a": 3}), [*many, *services(10, 0)]) == []


def hot_beside_an_outage(used: float) -> tuple[list[ANode], list[APod]]:
    nodes = [a_node("hot", used=used), a_node("cool", used=1_000.0)]
    nodes += [a_node(f"lost-{n}", ready=False, unready_since=NOW - 50.0) for n in range(3)]
    return nodes, [a_pod(f"web-{n}", "hot", owner="web", used=3_000.0) for n in range(4)]


def test_nothing_is_evicted_meanwhile_and_the_refusal_says_when_it_ends() -> None:
    outcome = plan_all(*hot_beside_an_outage(13_000.0))
    assert outcome.moves == []
    assert set(outcome.refusals.values()) == {"Disturbance"}
    assert {each.next_at for each in outcome.planner.outcome.refusals()} == {NOW + 550.0}


def test_a_node_in_danger_is_relieved() -> None:
    nodes, pods = hot_beside_an_outage(13_000.0)
    projection = seen(cluster(nodes, pods), urgent=["hot"])
    assert of_node(projection, "hot") is None
    assert of_node(projection, "cool") is not None
