"""The price of an eviction: of pods that relieve a node alike the cheapest goes, term by term."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.constraints.admission import LedgerState
from rebalancer.model.decisions.limits import LedgerEntry, ReplacementLineage, Scope
from tests.builders import NOW, a_door, a_node, a_pod, a_policy, cluster, replicas
from tests.planner.builders.plans import cold, heavy, hot, plan_for, single

GPUS = {"nvidia.com/gpu": 8.0}


def first_of(dear: Any, cheap: Any, **fields: Any) -> str:
    """The pod that goes; either would cool the node."""
    nodes = [hot(extended=GPUS), cold(extended=GPUS)]
    (pod,) = plan_for(nodes, [heavy("hot"), dear, cheap], **fields).pods
    return pod


@pytest.mark.parametrize(
    "dear",
    [
        {"template": {"graceSeconds": 3_600}},
        {"template": {"extendedRequests": GPUS}},
        {"priority": 1_000_000},
    ],
    ids=["an hour of grace", "eight GPUs", "priority"],
)
def test_a_dear_pod_stays_where_a_cheap_one_relieves_the_node_a_little_more_than_needed(dear: dict[str, Any]) -> None:
    # the name and the smaller overshoot speak for the dear one
    assert first_of(single("a", used=3_000.0, **dear), single("b", used=4_000.0)) == "b"


def test_one_of_many_replicas_goes_before_one_of_two() -> None:
    few = replicas("few", {"hot": 1, "other": 1}, used=3_000.0)
    many = replicas("many", {"hot": 1, "other": 9}, used=3_000.0, cpu=100)
    outcome = plan_for([hot(), cold(), a_node("other", used=2_000.0)], [heavy("hot"), *few, *many])
    assert [str(move.service) for move in outcome.accepted] == ["shop/many"]


def test_a_service_that_was_evicted_often_goes_last() -> None:
    scope = Scope.of("service", name="shop/own-a")
    entries = tuple(LedgerEntry(scope=scope, at=NOW - 3_600.0 * at, in_flight=False) for at in range(1, 21))
    often, never = single("a", used=3_000.0), single("b", used=4_000.0)
    assert first_of(often, never) == "a"
    assert first_of(often, never, standing=LedgerState(entries=entries)) == "b"


def test_a_replica_whose_predecessors_were_evicted_goes_after_its_siblings() -> None:
    pods = replicas("web", {"hot": 2, "other": 2}, used=3_000.0)
    nodes = [hot(), cold(), a_node("other", used=8_000.0)]
    moved = ReplacementLineage(uids=frozenset({"old"}), moved={"LowNodeUtilization": NOW - 86_400.0})
    names = [pod.name for pod in pods[:2]]
    for lineages in ({}, {f"uid-shop-{names[0]}": moved}):
        (gone,) = plan_for(nodes, [heavy("hot"), *pods], standing=LedgerState(lineages=lineages)).pods
        assert gone == names[bool(lineages)]


def test_two_cheap_pods_go_before_one_that_costs_more_than_both() -> None:
    dear = single("dear", used=3_000.0, template={"extendedRequests": GPUS})
    web = [pod for name in ("api", "web") for pod in replicas(name, {"hot": 1, "other": 9}, used=1_500.0, cpu=100)]
    nodes = [hot(extended=GPUS), cold(extended=GPUS), a_node("other", used=2_000.0)]
    outcome = plan_for(nodes, [heavy("hot"), dear, *web])
    assert [str(move.service) for move in outcome.accepted] == ["shop/api", "shop/web"]


def test_the_terms_are_printed_with_what_they_are_of() -> None:
    template = {"extendedRequests": {"nvidia.com/gpu": 4.0}, "graceSeconds": 60}
    pods = [a_pod(f"p{at}", "hot", owner="web", template=template, priority=250_000) for at in range(4)]
    policy = a_policy(serviceLevels={"default": "gold", "levels": [{"name": "gold", "cost": 2}]})
    made = cluster([a_node("hot", extended=GPUS)], pods)
    entry = LedgerEntry(scope=Scope.of("service", name="shop/web"), at=NOW - 60.0, in_flight=False)
    price = a_door(made, policy, LedgerState(entries=(entry,))).price(made.pod(0))
    assert np.isclose(price.total, 2 * (1 + 0.25 + 0.1 + 0.25 + 1.0 + 0.25))
    assert str(price) == (
        "5.7 = 2 by service level x (1 + 0.25 for 1 of 4 replicas + 0.1 for a grace period of 1m + 0.25 for priority "
        "250000 + 1 for nvidia.com/gpu + 0.25 for 1 recent eviction of its service, 0 of its predecessors)"
    )


def test_no_grace_period_keeps_a_pod_in_place() -> None:
    long = single("a", used=3_000.0, template={"graceSeconds": 10 * 86_400})
    assert plan_for([hot(), cold()], [heavy("hot"), long]).pods == ["a"]


def test_a_node_whose_unmovable_part_is_over_high_is_relieved() -> None:
    """Its DaemonSet uses 78%, three pods the rest; four nodes are idle."""
    nodes = [a_node("hot", used=15_360.0), *(cold(f"cold{at}", used=500.0) for at in range(4))]
    pods = [replace(heavy("hot", 13_000), used=12_480.0), *(single(f"p{at}", used=960.0) for at in range(3))]
    assert plan_for(nodes, pods).pods == ["p0", "p1", "p2"]
