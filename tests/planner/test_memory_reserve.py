"""Real memory of target nodes: a share of it stays available, whatever the thresholds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.model.decisions.eviction import PodAmount
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.model.reason import Reason
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.guards import Guards
from rebalancer.strategies.interface.resources import (
    expected_amounts,
    expected_by_resource,
    expected_on_nodes,
    memory_reserve,
)
from tests.builders import (
    GIB,
    NOW,
    APod,
    Outcome,
    a_node,
    a_policy,
    an_eviction,
    cluster,
    plan_all,
    replicas,
    usage_of,
)
from tests.planner.builders.plans import ANY_REPLICAS, cold, hot, single

NAN = float("nan")


def memory_of(nodes: Sequence[float], pods: Sequence[float], *, capacity: float = 20.0) -> dict[str, Any]:
    """Fields of a usage: real memory in GiB."""
    return {
        "resources": {
            MEMORY: ResourceUsage(
                node=np.array(nodes) * GIB,
                capacity=np.full(len(nodes), capacity * GIB),
                pod=np.array(pods) * GIB,
                samples=np.array(nodes)[None, :] * GIB,
            )
        }
    }


def planned(nodes: Sequence[float], pods: Sequence[float], **policy: Any) -> Outcome:
    """A hot node and one pod that a cold node would take; real memory in GiB, of 20 on each node."""
    return plan_all(
        [hot(), cold()],
        [single("a", used=3_000.0)],
        a_policy(**{**ANY_REPLICAS, **policy}),
        usage=memory_of(nodes, pods),
    )


def test_nothing_lands_where_too_little_memory_would_stay_available() -> None:
    assert planned([5, 15.9], [2]).pods == ["a"]
    outcome = planned([5, 16.5], [2])
    assert outcome.refusals == {"a": "NoNodeWithMemory"}
    (refusal,) = outcome.planner.outcome.refusals()
    assert "cold would keep 7.5% of its memory (1.5Gi of 20Gi), at least 10% must stay available" in refusal.message


def test_the_least_that_stays_available_is_the_policys() -> None:
    assert Guards().min_memory_available == 10.0
    assert planned([5, 16.5], [2], guards={"minReplicas": 1, "minMemoryAvailable": 5}).pods == ["a"]
    assert planned([5, 15.9], [2], guards={"minReplicas": 1, "minMemoryAvailable": 20}).pods == []
    assert planned([5, 19.0], [1], guards={"minReplicas": 1, "minMemoryAvailable": 0}).pods == ["a"]


def test_a_pod_of_unknown_memory_counts_with_its_request() -> None:
    """It requests a GiB."""
    assert planned([5, 16.9], [NAN]).pods == ["a"]
    assert planned([5, 17.1], [NAN]).pods == []


def test_a_node_of_unknown_memory_is_judged_by_all_else() -> None:
    assert planned([5, NAN], [2]).pods == ["a"]


def test_memory_is_checked_without_any_thresholds() -> None:
    """RemoveDuplicates balances nothing, and its pool has no thresholds."""
    policy = a_policy(
        pools=[{"name": "general", "selector": {"matchLabels": {"pool": "general"}}}],
        strategies=[{"name": "RemoveDuplicates"}],
    )
    pods = replicas("web", {"n1": 2}, used=100.0)

    def moved(on_target: float) -> int:
        usage = memory_of([4, on_target], [2, 2])
        return len(plan_all([a_node("n1"), a_node("n2")], pods, policy, usage=usage).moves)

    assert (moved(10), moved(17)) == (1, 0)


def test_replacements_of_one_plan_are_added_up() -> None:
    """Two of three pods fill the node to nine tenths."""
    pods = [single(name, used=1_300.0) for name in "abc"]
    outcome = plan_all([hot(), cold()], pods, a_policy(**ANY_REPLICAS), usage=memory_of([10, 13], [2.5, 2.5, 2.5]))
    assert len(outcome.moves) == 2
    assert set(outcome.refusals.values()) == {"NoNodeWithMemory"}


def test_a_landing_that_is_not_certain_names_the_node_without_memory() -> None:
    nodes = [hot(), cold(), cold("full", labels={"pool": "general"})]
    pods = [single("a", used=3_000.0)]
    outcome = plan_all(nodes, pods, a_policy(**ANY_REPLICAS), usage=memory_of([5, 5, 19], [2]))
    (refusal,) = outcome.planner.outcome.refusals()
    assert refusal.code == Reason.TARGET_NODE_WITHOUT_MEMORY
    assert "full would keep 0% of its memory (0 of 20Gi), at least 10%" in refusal.message


def test_both_reasons_name_the_setting_that_lifts_them() -> None:
    for reason in (Reason.NO_NODE_WITH_MEMORY, Reason.TARGET_NODE_WITHOUT_MEMORY):
        assert "guards.minMemoryAvailable" in reason.lifted_by


# ---- what a pod uses elsewhere


def expected(ages: Sequence[float], amounts: Sequence[float]) -> list[float]:
    pods = [APod(name=f"web-{at}", node="n", owner="web", age=age, memory=7.0) for at, age in enumerate(ages)]
    snapshot = cluster([a_node("n")], pods)
    found: list[float] = expected_amounts(
        snapshot, np.array(amounts, dtype=float), unknown=snapshot.pods.memory_request_bytes
    ).tolist()
    return found


@pytest.mark.parametrize(
    ("ages", "amounts", "wanted"),
    [
        ([9000, 60], [100, 5], [100, 100]),  # a young pod grows to what the older one uses
        ([9000, 9000, 9000, 60], [100, 300, 200, 5], [250, 300, 200, 200]),
        ([9000, 60], [5, 100], [5, 100]),  # an old one doesn't grow to a younger one's
        ([9000, 8900], [5, 100], [100, 100]),  # about of one age
        ([9000, 60], [NAN, 5], [7, 5]),
        ([9000, 60], [NAN, NAN], [7, 7]),
        ([9000], [30], [30]),
    ],
)
def test_a_pod_uses_what_its_siblings_of_that_age_or_older_use(
    ages: list[float], amounts: list[float], wanted: list[float]
) -> None:
    assert expected(ages, amounts) == wanted


def test_pods_that_are_still_growing_fill_their_node() -> None:
    pods = [
        APod(name="old", node="n", owner="web", age=86_400.0),
        APod(name="young", node="m", owner="web", age=600.0),
    ]
    nodes = [a_node("n"), a_node("m")]
    snapshot = cluster(nodes, pods)
    usage = usage_of(snapshot, nodes, pods, **memory_of([8, 1], [8, 1]))
    memory = usage.resources[MEMORY]
    grown = expected_amounts(snapshot, memory.pod, unknown=memory.pod)
    assert (expected_on_nodes(snapshot, memory, grown, now=NOW) / GIB).tolist() == [8, 8]
    reserve = memory_reserve(snapshot, usage, {MEMORY: grown}, least=0.1, now=NOW)
    assert reserve is not None
    assert (reserve.node / GIB).ravel().tolist() == [8, 8]


def test_a_large_shard_that_has_landed_keeps_the_memory_of_its_predecessor() -> None:
    """Of 64 GiB it will use 48, and shows one; its siblings use one each."""
    nodes = [a_node("n"), a_node("m")]
    move = an_eviction(
        node="n",
        uid="gone",
        amounts={MEMORY: PodAmount(48 * GIB, 0.75)},
        replacement_uid="uid-shop-shard",
        replaced_at=NOW - 90.0,
        planned_at=NOW - 120.0,
    )
    for age, ready, shown in ((90.0, True, 48), (3_599.0, True, 48), (3_600.0, True, 1), (9_000.0, False, 48)):
        pods = [
            APod(name="shard", node="n", owner="db", age=age, ready=ready),
            APod(name="other", node="m", owner="db", age=86_400.0),
        ]
        snapshot = cluster(nodes, pods)
        usage = usage_of(snapshot, nodes, pods, **memory_of([1, 1], [1, 1], capacity=64))
        pools = NodePools.of(a_policy().pools, snapshot.nodes)
        grown = expected_by_resource(snapshot, pools, usage, [move])
        assert (grown[MEMORY] / GIB).tolist() == [shown, 1], age
        reserve = memory_reserve(snapshot, usage, grown, least=0.1, now=NOW)
        assert reserve is not None
        assert (reserve.node / GIB).ravel().tolist() == [shown, 1], age
