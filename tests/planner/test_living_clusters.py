"""A doubt stops what it is about, and nothing else: pending pods, nodes that have just joined, loads that stay."""

from typing import Any

import pytest

from rebalancer.model.snapshot import PENDING
from tests.builders import APod, a_node, a_pod
from tests.planner.builders.plans import cold, heavy, hot, plan_for, single

FOUR = [single(f"p{number}", used=750.0, cpu=500) for number in range(4)]
HOT = [heavy("hot", 13_000), *FOUR]
"""Cooled by these four."""
HERE = {"nodeSelector": {"kubernetes.io/hostname": "hot"}}


def pending(name: str, **fields: Any) -> APod:
    return a_pod(name, **{"owner": "batch", "phase": PENDING, "ready": False, "memory": 0.0, **fields})


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("fields", [{"template": {"schedulerName": "volcano"}}, {"unschedulable": True}])
def test_16_a1_a_pod_that_waits_for_something_else_stops_no_move(fields: dict[str, Any], count: int) -> None:
    waiting = [pending(f"w{number}", cpu=1_500, **fields) for number in range(count)]
    assert plan_for([hot(), cold()], [*HOT, *waiting]).pods == ["p0", "p1", "p2", "p3"]


def test_16_a1_a_pod_that_would_take_the_room_stops_the_moves_of_its_node_only() -> None:
    waiting = pending("w", cpu=1_400, template={"schedulerName": "volcano", **HERE})
    nodes = [hot(), a_node("other", used=13_400.0), cold()]
    other = [heavy("other", 13_000), *(single(f"q{number}", "other", used=750.0, cpu=500) for number in range(4))]
    outcome = plan_for(nodes, [*HOT, waiting, *other])
    assert outcome.pods == ["q0", "q1", "q2", "q3"]
    (message,) = {each.message for each in outcome.planner.refusals() if each.code == "PendingTakesRoom"}
    assert "shop/w (schedulerName volcano) fits nowhere else; until it is bound or deleted" in message
