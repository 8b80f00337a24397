"""A doubt stops what it is about, and nothing else: pending pods, nodes that have just joined, loads that stay."""

from dataclasses import replace
from typing import Any

import pytest

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.reason import Reason
from tests.builders import (
    APod,
    a_budget,
    a_node,
    a_pod,
    a_policy,
    cluster,
    plan_all,
    planner_for,
    replicas,
    usage_of,
)
from tests.planner.builders.plans import ANY_REPLICAS, carried, codes_of, cold, heavy, hot, plan_for, planned, single

FOUR = [single(f"p{number}", used=750.0, cpu=500) for number in range(4)]
HOT = [heavy("hot", 13_000), *FOUR]
"""Cooled by these four."""
HERE = {"nodeSelector": {"kubernetes.io/hostname": "hot"}}


def pending(name: str, **fields: Any) -> APod:
    return a_pod(name, **{"owner": "batch", "phase": PENDING, "ready": False, "memory": 0.0, **fields})


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("fields", [{"template": {"schedulerName": "volcano"}}, {"unschedulable": True}])
def test_a_pod_that_waits_for_something_else_stops_no_move(fields: dict[str, Any], count: int) -> None:
    waiting = [pending(f"w{number}", cpu=1_500, **fields) for number in range(count)]
    assert plan_for([hot(), cold()], [*HOT, *waiting]).pods == ["p0", "p1", "p2", "p3"]


def test_a_pod_that_would_take_the_room_stops_the_moves_of_its_node_only() -> None:
    waiting = pending("w", cpu=1_400, template={"schedulerName": "volcano", **HERE})
    nodes = [hot(), a_node("other", used=13_400.0), cold()]
    other = [heavy("other", 13_000), *(single(f"q{number}", "other", used=750.0, cpu=500) for number in range(4))]
    outcome = plan_for(nodes, [*HOT, waiting, *other])
    assert outcome.pods == ["q0", "q1", "q2", "q3"]
    (message,) = {each.message for each in outcome.planner.outcome.refusals() if each.code == "PendingTakesRoom"}
    assert "shop/w (schedulerName volcano) fits nowhere else; until it is bound or deleted" in message


def agent(used: float) -> APod:
    """A DaemonSet's pod that uses so much of the hot node."""
    return replace(heavy("hot", 13_000), used=used)


STAYS = [agent(12_000.0), single("a", used=500.0), single("b", used=400.0), single("c", used=300.0)]
"""On a node with 13,400 in use: without these three 12,200, over its high of 12,000."""
TINY = [single(f"t{number}", used=110.0) for number in range(6)]
"""On a node with 15,400 in use they are 4% of it."""
NEARLY = a_policy(
    **ANY_REPLICAS,
    planner={"worth": "Conservative"},
    serviceLevels={"default": "web", "levels": [{"name": "web", "cost": 0.4}]},
)
"""STAYS are worth their price only where more goes than these."""


def test_a_node_that_stays_over_high_is_relieved_where_that_is_worth_the_evictions() -> None:
    """Three moves bring it from 83.75% to 76.25%: 9 hot node-minutes of the next hour, at a price of 2.05 each."""
    outcome = plan_all([hot(), cold()], STAYS, a_policy(**ANY_REPLICAS, planner={"worth": "Active"}))
    assert outcome.pods == ["a", "b", "c"]
    score = outcome.planner.outcome.score(outcome.accepted)
    assert (score.hot_node_minutes, score.price) == (pytest.approx(9.0), pytest.approx(3 * 2.05))
    outcome = plan_all([hot(), cold()], STAYS, a_policy(**ANY_REPLICAS, planner={"worth": "Conservative"}))
    assert outcome.pods == []
    assert outcome.refusals == {"agent-hot": "DaemonSetPod", **dict.fromkeys("abc", "NotWorthItsPrice")}
    messages = [each.message for each in outcome.planner.outcome.refusals() if each.name == "a"]
    assert messages == [
        "its eviction would remove too little heat for its price: 3.7 hot node-minutes of the next hour, with all that "
        "may go 76.2% of the node stay in use; its price is 2 = 1 + 1 for 1 of 1 replica + 0.05 for a grace period of "
        "30s; Conservative asks for 6 minutes for each ordinary eviction"
    ]


def test_tiny_pods_of_a_node_that_stays_hot_are_not_worth_their_evictions() -> None:
    nodes, pods = [hot(15_400.0), cold()], [agent(14_500.0), *TINY]
    assert plan_for(nodes, pods).refusals["t0"] == "NotWorthItsPrice"
    assert len(plan_all(nodes, pods, a_policy(**ANY_REPLICAS, planner={"worth": "Aggressive"})).pods) == len(TINY)


def test_the_levels_of_worth_evict_more_and_more() -> None:
    small = [single(f"s{number}", used=60.0) for number in range(4)]
    counts = [
        len(
            plan_all([hot(12_900.0), cold()], [*STAYS, *small], a_policy(**ANY_REPLICAS, planner={"worth": worth})).pods
        )
        for worth in ("Minimal", "Conservative", "Balanced", "Active", "Aggressive")
    ]
    assert counts == sorted(counts)
    assert counts[0] == 0 < counts[1]


def test_a_node_stays_as_it_is_that_is_over_high_by_load_of_no_pod() -> None:
    pods = [heavy("hot", 13_000), *STAYS[1:]]
    outcome = plan_for([hot(), cold()], pods)
    assert outcome.refusals == {"agent-hot": "DaemonSetPod", **dict.fromkeys("abc", "HighUnreachable")}
    (message,) = {each.message for each in outcome.planner.outcome.refusals() if each.code == "HighUnreachable"}
    assert message.endswith("76.2% of the node are used by no pod that is measured")
    anyhow = a_policy(**ANY_REPLICAS, planner={"worth": "Aggressive"})
    assert plan_all([hot(), cold()], pods, anyhow).pods == ["a", "b", "c"]


def test_everything_goes_that_together_brings_a_node_under_high() -> None:
    assert plan_for([hot(), cold()], [*STAYS, single("d", used=200.0)]).pods == ["a", "b", "c", "d"]
    # each too small to be worth an eviction now
    small = [single(f"s{number}", used=50.0) for number in range(4)]
    assert plan_for([hot(), cold()], [*STAYS, *small]).pods == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("fields", "goes"),
    [
        # what passes
        ({"ready": False}, True),
        ({"age": 60.0}, True),
        ({"used": float("nan")}, True),
        ({"template": {"annotations": {"rebalancer.dev/change-window": "allow 0 22 * * * 1h UTC"}}}, True),
        # what holds whatever happens
        ({"owner_kind": "DaemonSet"}, False),
        ({"priority": 2_000_000_000}, False),
        ({"template": HERE}, False),
        ({"template": {"schedulerName": "volcano"}}, False),
        # its load has left already
        ({"terminating": True, "used": 100.0}, False),
    ],
)
def test_a_pod_counts_that_is_kept_for_a_time_only(fields: dict[str, Any], goes: bool) -> None:
    last = a_pod("d", "hot", **{"owner": "d", "used": 2_000.0, **fields})
    outcome = plan_all([hot(), cold()], [*STAYS, last], NEARLY)
    assert bool(outcome.pods) == goes
    assert outcome.refusals["d"] not in ("NotWorthItsPrice", "GoalReached")


@pytest.mark.parametrize(
    "limits", [{"cycle": 1}, {"node": 1}, {"service": 0}], ids=["of the cycle", "of the node", "in flight"]
)
def test_limits_are_no_reason_to_leave_it_alone(limits: dict[str, int]) -> None:
    planner, snapshot = planned([hot(), cold()], [*STAYS, single("d", used=200.0)], **limits)
    assert len(carried(planner).moves) == min(limits.values())
    assert "NotWorthItsPrice" not in codes_of(planner).values()
    assert len(snapshot.pods) == 5


def test_a_refusal_in_the_middle_of_the_plan_does_not_end_the_relief_of_its_node() -> None:
    """A budget without room keeps the large pods now: what is left alone would not do, but all together does."""
    nodes, others = [hot(), cold()], [single(name, used=300.0) for name in "bcd"]
    pods = [heavy("hot", 13_000), *replicas("large", {"hot": 2}, used=500.0), *others]
    snapshot = cluster(nodes, pods, budgets=[a_budget("large", "large", 0)])
    planner = planner_for(snapshot, usage_of(snapshot, nodes, pods), a_policy(**ANY_REPLICAS))
    plan, codes = carried(planner, reject_at=1), codes_of(planner)
    assert [codes[pod] for pod in plan.rejected] == [Reason.SERVER_BUDGET]
    assert len(plan.moves) == 2
    assert Reason.NOT_WORTH_ITS_PRICE not in codes.values()


def test_one_node_that_stays_hot_leaves_the_others_plan_as_it_is() -> None:
    other = [heavy("other", 13_000), *(single(f"q{number}", "other", used=750.0, cpu=500) for number in range(4))]
    alone = plan_for([a_node("other", used=13_400.0), cold()], other)
    stays = [agent(14_500.0), *TINY]
    both = plan_for([hot(15_400.0), a_node("other", used=13_400.0), cold()], [*stays, *other])
    assert both.moves == alone.moves
    assert len(both.moves) == 4
