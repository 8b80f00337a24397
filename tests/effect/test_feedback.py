"""What outcomes teach: who stays, which pools rest, how much relief is believed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.effect.feedback import BREAKER_OPEN_SECONDS, TWICE_WITHIN_SECONDS, Feedback, feedback
from rebalancer.model.records.effect import Assessment, ChangeBreakdown, Outcome, PodBefore, Step
from rebalancer.policy.schema.safety import EffectivenessBreaker
from tests.builders import an_eviction
from tests.effect.builders import an_assessment

NOW = 1_790_000_000.0
CAPACITY = 10_000.0
BRAKE = EffectivenessBreaker.model_validate({"sampleSize": 4, "minEffectiveness": 50})


def an_account(*, evicted: float = 2000.0, **parts: float) -> ChangeBreakdown:
    """Everything that isn't named is nothing."""
    known = {"departed": 0.0, "arrived": 0.0, "returned": 0.0, "remaining_change": 0.0, "residual": 0.0, **parts}
    after = 8000.0 - evicted - known["departed"] + known["arrived"] + known["returned"] + known["remaining_change"]
    return ChangeBreakdown(before=8000.0, after=after + known["residual"], evicted=evicted, **known)


def made(
    number: int,
    outcome: Outcome | None = Outcome.COOLED,
    *,
    node: str = "a",
    pool: str = "p",
    account: ChangeBreakdown | None = None,
    **fields: Any,
) -> Assessment:
    """Of the cycle with that number, an hour after the one before; planned from 80% to 60%."""
    last_eviction_at = NOW - 86_400.0 + number * 3600.0
    ends = {"last_eviction_at": last_eviction_at, "due_at": last_eviction_at + 900.0}
    web = PodBefore(uid="uid-web", pod="shop/web-1", amount=2000.0, evicted=True)
    db = PodBefore(uid="uid-db", pod="shop/db-1", amount=500.0, evicted=False)
    of = {"cycle": f"c{number:03d}", "node": node, "pool": pool, "capacity": CAPACITY, "planned_share": 0.6, **ends}
    values = {"target": 0.65, "assessed_at": last_eviction_at + 910.0, "breakdown": account, **of, **fields}
    return an_assessment(web, db, outcome=outcome, **values)


def learned(
    new: Sequence[Assessment],
    earlier: Sequence[Assessment] = (),
    *,
    services: Sequence[str] = ("shop/web", "shop/web"),
    brake: EffectivenessBreaker = BRAKE,
    now: float = NOW,
) -> Feedback:
    """From each node all of the `services` were moved."""
    moved = [
        an_eviction(service=service, node=each.node, cycle=each.cycle, trigger=each.trigger)
        for each in (*new, *earlier)
        for service in services
    ]
    return feedback(new, earlier, moved=moved, breaker=brake, now=now)


# ---- giving up


@pytest.mark.parametrize("outcome", [Outcome.REMAINING_PODS_GREW, Outcome.NEW_PODS_ARRIVED, Outcome.UNEXPLAINED])
def test_a_service_that_left_twice_without_help_is_given_up_on_that_node(outcome: Outcome) -> None:
    found = learned([made(2, outcome)], [made(1, Outcome.REMAINING_PODS_GREW)]).ineffective
    assert [(each.service_identity, each.node) for each in found] == [("shop/web", "a")]
    assert found[0].reason.startswith("its node did not cool twice within a day after its eviction: remainingPodsGrew")


G = Outcome.REMAINING_PODS_GREW


@pytest.mark.parametrize("outcome", [Outcome.TOO_FEW_EVICTED, Outcome.REPLACEMENTS_RETURNED, Outcome.UNKNOWN, None])
def test_what_helped_a_little_what_came_back_and_what_is_not_known_are_no_reason_to_give_up(
    outcome: Outcome | None,
) -> None:
    assert learned([made(3, outcome)], [made(2, outcome), made(1, G)]).ineffective == ()


@pytest.mark.parametrize(
    ("new", "earlier", "count"),
    [
        (made(1, G), [], 0),
        (made(3, G), [made(1, G), made(2, Outcome.COOLED)], 0),
        (made(3, G), [made(1, G), made(2, Outcome.TOO_FEW_EVICTED)], 1),
        (made(2, G, node="b"), [made(1, G)], 0),
        (made(3, Outcome.COOLED, node="b"), [made(1, G), made(2, G)], 0),
        (made(1, G), [made(1, G)], 0),
    ],
    ids=[
        "once",
        "help in between begins anew",
        "what says nothing in between does not",
        "two nodes",
        "learned before",
        "read back with the others",
    ],
)
def test_what_is_twice(new: Assessment, earlier: list[Assessment], count: int) -> None:
    assert len(learned([new], earlier).ineffective) == count


def test_two_services_are_not_twice_and_all_that_left_both_times_are_given_up() -> None:
    one, two = made(1, G), made(2, G)
    moved = [
        an_eviction(service="shop/web", node="a", cycle=one.cycle, trigger="periodic"),
        an_eviction(service="shop/db", node="a", cycle=two.cycle, trigger="periodic"),
    ]
    assert feedback([two], [one], moved=moved, breaker=BRAKE, now=NOW).ineffective == ()
    found = learned([two], [one], services=("shop/web", "shop/db")).ineffective
    assert [each.service_identity for each in found] == ["shop/db", "shop/web"]


@pytest.mark.parametrize(("apart", "backoffs"), [(0.0, 1), (1.0, 0)])
def test_more_than_a_day_apart_is_not_twice(apart: float, backoffs: int) -> None:
    second = made(2, G)
    first = replace(made(1, G), last_eviction_at=second.last_eviction_at - TWICE_WITHIN_SECONDS - apart)
    assert len(learned([second], [first]).ineffective) == backoffs


@pytest.mark.parametrize("fields", [{"late": True}, {"step": Step.HOUR}, {"step": Step.DAY}, {"assessed_at": None}])
def test_only_what_was_measured_in_time_after_settling_teaches(fields: dict[str, Any]) -> None:
    wrong = [
        made(number, Outcome.REMAINING_PODS_GREW, breakdown=an_account(remaining_change=1900.0), **fields)
        for number in range(1, 11)
    ]
    found = learned(wrong[-1:], wrong, now=NOW - 86_400.0 + 10 * 3600.0 + 950.0)
    assert found == Feedback(ineffective=(), open_breakers={}, relief_factor={})


# ---- the brake


def the_last(*outcomes: Outcome, pool: str = "p") -> list[Assessment]:
    return [made(number, outcome, pool=pool, node=f"{pool}-{number}") for number, outcome in enumerate(outcomes)]


C, A = Outcome.COOLED, Outcome.NEW_PODS_ARRIVED


@pytest.mark.parametrize(
    ("outcomes", "braked"),
    [
        ((C, A, A, A), True),
        ((C, C, A, A), False),  # half of them is enough
        ((A, A, A), False),  # too few to tell
        ((C, C, C, C, A, A, A, C), True),  # the last four
        ((A, A, A, A, C, C, A, A), False),
        ((C, A, A, Outcome.UNEXPLAINED), True),
        # loads that grew by themselves, and evictions that did help, are no failure
        ((C, A, A, Outcome.TOO_FEW_EVICTED), False),
        ((C, A, A, G, G, G), False),
        ((C, A, A, Outcome.UNKNOWN), False),
    ],
)
def test_a_pool_rests_when_too_few_of_its_last_nodes_have_cooled(outcomes: tuple[Outcome, ...], braked: bool) -> None:
    known = the_last(*outcomes)
    last = max(each.assessed_at or 0.0 for each in known)
    found = learned([], known, now=last + 1.0).open_breakers
    assert ("p" in found) is braked
    if braked:
        assert found["p"].until == last + BREAKER_OPEN_SECONDS
        said = "1 of the last 4 relieved nodes of pool p have cooled, at least 50% must; not cooled: "
        assert found["p"].reason.startswith(said)


def test_a_pool_that_rests_says_by_which_causes() -> None:
    known = the_last(G, A, Outcome.REPLACEMENTS_RETURNED, A, C, C)
    brake = EffectivenessBreaker.model_validate({"sampleSize": 5, "minEffectiveness": 50})
    found = learned([], known, brake=brake, now=(known[-1].assessed_at or 0.0) + 1.0).open_breakers["p"]
    causes = "other pods arrived and took the headroom (2), replacements returned to the node (1)"
    assert found.reason.endswith(f"not cooled: {causes}")


@pytest.mark.parametrize(("after", "braked"), [(BREAKER_OPEN_SECONDS - 1.0, True), (BREAKER_OPEN_SECONDS, False)])
def test_it_goes_on_after_an_hour(after: float, braked: bool) -> None:
    known = the_last(A, A, A, A)
    now = (known[-1].assessed_at or 0.0) + after
    assert bool(learned([], known, now=now).open_breakers) is braked


def test_other_pools_do_not_rest() -> None:
    known = [*the_last(A, A, A, A), *the_last(C, C, C, C, pool="q"), *the_last(A, C, A, pool="r")]
    assert set(learned([], known, now=(known[3].assessed_at or 0.0) + 1.0).open_breakers) == {"p"}


def test_nodes_that_were_relieved_ahead_of_their_peak_say_nothing_of_cooling() -> None:
    ahead = [made(number, C, node=f"cool-{number}", before_share=0.5) for number in range(10, 20)]
    known = [*the_last(A, A, A, A), *ahead]
    assert set(learned([], known, now=(known[3].assessed_at or 0.0) + 1.0).open_breakers) == {"p"}
    between = made(2, C, before_share=0.5)
    assert len(learned([made(3, G)], [made(1, G), between]).ineffective) == 1


def test_what_a_policy_says_by_itself_is_ten_and_thirty_percent() -> None:
    brake = EffectivenessBreaker()
    assert (brake.sample_size, brake.min_effectiveness) == (10, 30.0)


# ---- relief


def test_relief_is_what_left_for_good_and_not_what_came_and_went_by_itself() -> None:
    account = an_account(
        evicted=2000.0, returned=200.0, remaining_change=300.0, residual=100.0, arrived=5000.0, departed=900.0
    )
    known = [made(number, breakdown=account) for number in range(5)]
    assert learned([], known).relief_factor == {"p": pytest.approx(0.7)}


def test_it_is_the_median() -> None:
    known = [
        made(number, breakdown=an_account(remaining_change=grew))
        for number, grew in enumerate((-9000.0, 200.0, 400.0, 0.0, 9e9))
    ]
    assert learned([], known).relief_factor == {"p": pytest.approx(0.9)}


@pytest.mark.parametrize(("grew", "factor"), [(1900.0, 0.5), (-8000.0, 1.5)])
def test_it_stays_within_bounds(grew: float, factor: float) -> None:
    known = [made(number, breakdown=an_account(remaining_change=grew)) for number in range(5)]
    assert learned([], known).relief_factor == {"p": factor}


def test_too_few_say_nothing() -> None:
    known = [made(number, breakdown=an_account(remaining_change=1000.0)) for number in range(4)]
    unknown = [
        made(10, breakdown=None),
        made(11, breakdown=an_account(residual=float("nan"))),
        made(12, breakdown=an_account(), planned_share=float("nan")),
        made(13, breakdown=an_account(), planned_share=0.8),
        made(14, Outcome.UNKNOWN, breakdown=an_account()),
    ]
    assert learned([], [*known, *unknown]).relief_factor == {}


def test_only_the_newest_fifty_count() -> None:
    def several(count: int, first: int, grew: float) -> list[Assessment]:
        return [made(first + number, breakdown=an_account(remaining_change=grew)) for number in range(count)]

    known = [*several(100, 0, 1000.0), *several(26, 100, 0.0), *several(24, 126, 1000.0)]
    assert learned([], known).relief_factor == {"p": pytest.approx(1.0)}


def test_each_pool_has_its_own() -> None:
    known = [made(number, breakdown=an_account(remaining_change=1000.0)) for number in range(5)]
    known += [made(number, pool="q", node="b", breakdown=an_account()) for number in range(5)]
    assert learned([], known).relief_factor == {"p": pytest.approx(0.5), "q": pytest.approx(1.0)}
