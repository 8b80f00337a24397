"""Moves that only a short wait bars, against several smaller ones now."""

from typing import Any

import pytest

from rebalancer.constraints.admission import LedgerState
from rebalancer.model.decisions.limits import LedgerEntry, Scope
from rebalancer.model.reason import Reason
from rebalancer.policy import RebalancerPolicy
from tests.builders import NOW, a_budget, a_policy, an_eviction, replicas, some_limits
from tests.planner.builders.plans import ANY_REPLICAS, carried, codes_of, cold, heavy, hot, single
from tests.planner.builders.searches import PATIENCE, Searched, searched

LARGE, SMALL = 3_100.0, 800.0
SERVICE = Scope.of("service", name="shop/large")
IN_FLIGHT = "service shop/large: 1 of 1 in flight"


def one_at_a_time(limits: dict[str, Any] | None = None, **safety: Any) -> RebalancerPolicy:
    """One pod of a service in flight, and no cooldowns: they last longer than the patience."""
    safety = {"cooldowns": {"service": "0s", "serviceNode": "0s"}, **safety}
    return a_policy(**ANY_REPLICAS, limits=limits or some_limits(service=1), safety=safety)


def one_large_and_four_small(used: float = 13_400.0, *, replaces: int = 1, **fields: Any) -> Searched:
    """3,000 millicores over the target; by default the large pod's service has one eviction in flight."""
    nodes = [hot(used), cold("c1"), cold("c2")]
    large = replicas("large", {"hot": 1, "c1": replaces}, used=LARGE, cpu=500.0)
    small = [single(f"small{at}", used=SMALL, cpu=200.0) for at in range(4)]
    return searched(
        nodes, [heavy("hot"), *large, *small], policy=fields.pop("policy", None) or one_at_a_time(), **fields
    )


def in_flight(scope: Scope = SERVICE, *, ago: float = 50.0) -> LedgerState:
    """One eviction of the large pod's service, whose replacement isn't Ready."""
    gone = an_eviction(service="shop/large", node="c2", scopes=(scope,))
    return LedgerState(entries=(LedgerEntry(scope, NOW - ago, True),), open_evictions=(gone,))


def test_a_large_pod_whose_service_has_one_in_flight_is_waited_for_instead_of_four_small_ones() -> None:
    world = one_large_and_four_small(standing=in_flight())
    patient, hasty = world.best(), world.best(patience=0.0)
    assert (patient.pods, patient.waits) == (["large-0"], {"large-0": IN_FLIGHT})
    assert sorted(hasty.pods) == ["small0", "small1", "small2", "small3"]
    assert hasty.waits == {}
    assert patient.plan.score.waits == 1


def test_before_the_replacement_is_ready_nothing_goes_and_the_plan_says_what_it_waits_for() -> None:
    world = one_large_and_four_small(standing=in_flight())
    planner = world.followed(world.best().plan)
    assert planner.next_move() is None
    assert planner.waits == [IN_FLIGHT]
    planner.admission.landed_earlier(planner.admission.open_evictions)
    planner.resume(())
    move = planner.next_move()
    assert move is not None
    assert (move.pod, move.waits_for) == ("large-0", IN_FLIGHT)


def test_a_plan_that_gives_up_lets_the_small_ones_go() -> None:
    world = one_large_and_four_small(standing=in_flight())
    planner = world.followed(world.best().plan)
    assert planner.next_move() is None
    planner.give_up()
    assert sorted(carried(planner).pods) == ["small0", "small1", "small2", "small3"]
    assert list(planner.waits) == []
    assert codes_of(planner)["large-0"] is Reason.LIMIT_SERVICE


@pytest.mark.parametrize("used", [0.95 * 16_000, 15_900.0], ids=["urgent", "saturated"])
def test_a_node_at_or_over_urgent_does_not_wait(used: float) -> None:
    found = one_large_and_four_small(used, standing=in_flight()).best()
    assert found.waits == {}
    assert sorted(found.pods) == ["small0", "small1", "small2", "small3"]


def test_just_below_urgent_it_waits() -> None:
    found = one_large_and_four_small(0.95 * 16_000 - 1.0, standing=in_flight()).best()
    assert found.waits.get("large-0") == IN_FLIGHT


def test_nothing_waits_where_what_may_go_now_takes_no_more_evictions() -> None:
    nodes = [hot(), cold("c1"), cold("c2")]
    large = replicas("large", {"hot": 1, "c1": 1}, used=LARGE + 500.0, cpu=500.0)
    pods = [heavy("hot"), *large, single("other", used=LARGE, cpu=500.0)]
    found = searched(nodes, pods, policy=one_at_a_time(), standing=in_flight()).best()
    assert (found.pods, found.waits) == (["other"], {})


@pytest.mark.parametrize(
    ("left", "waits"),
    [(PATIENCE - 20.0, True), (PATIENCE + 20.0, False)],
    ids=["within", "beyond"],
)
def test_spacing_is_waited_for_only_within_the_patience(left: float, waits: bool) -> None:
    limits = {**some_limits(), "service": {"inFlight": 1000, "spacing": "10m"}}
    standing = LedgerState(entries=(LedgerEntry(SERVICE, NOW - 600.0 + left, False),))
    # a shorter wait than `safety.maxWait` is made by the move itself
    world = one_large_and_four_small(policy=one_at_a_time(limits, maxWait="10s"), standing=standing)
    found = world.best()
    assert ("large-0" in found.pods) == waits


# ---- what this plan itself has taken


def two_large(**fields: Any) -> Searched:
    """The target takes both of them, or one and three small ones."""
    nodes = [hot(), cold("c1"), cold("c2")]
    large = replicas("large", {"hot": 2}, used=1_600.0, cpu=500.0)
    small = [single(f"small{at}", used=500.0, cpu=200.0) for at in range(6)]
    return searched(nodes, [heavy("hot"), *large, *small], **fields)


def test_a_budget_that_this_plan_has_taken_is_waited_for() -> None:
    world = two_large(budgets=[a_budget("pdb", "large", 1)])
    patient, hasty = world.best(), world.best(patience=0.0)
    assert patient.pods == ["large-0", "large-1"]
    assert list(patient.waits) == ["large-1"]
    assert "pdb allows 1 disruptions, 1 of them taken by this plan" in patient.waits["large-1"]
    assert [pod for pod in hasty.pods if pod.startswith("large")] == ["large-0"]
    assert len(hasty.pods) == 4


def test_a_cooldown_that_lasts_longer_than_the_patience_is_not_waited_for() -> None:
    policy = one_at_a_time(cooldowns={"service": "5m"})
    found = one_large_and_four_small(policy=policy, standing=in_flight()).best()
    assert found.waits == {}
    assert codes_of(found.plan.planner)["large-0"] is Reason.COOLDOWN_SERVICE


def test_a_budget_without_any_room_is_not_waited_for() -> None:
    found = two_large(budgets=[a_budget("pdb", "large", 0)]).best()
    assert found.waits == {}
    assert {pod[:5] for pod in found.pods} == {"small"}


def test_a_limit_of_the_cycle_is_not_waited_for() -> None:
    policy = a_policy(**ANY_REPLICAS, limits=some_limits(cycle=1))
    found = two_large(policy=policy).best()
    assert (found.pods, found.waits) == (["large-0"], {})


def test_a_rate_that_lasts_longer_than_the_patience_is_not_waited_for() -> None:
    policy = a_policy(**ANY_REPLICAS, limits=some_limits(node=1))
    found = two_large(policy=policy).best()
    assert (len(found.pods), found.waits) == (1, {})
