"""The search for the best plan, on random clusters where the order of the moves matters."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.reason import Reason
from rebalancer.planner.plan import search as searching
from rebalancer.planner.plan.search import Score, carry_out
from tests.planner.builders.plans import carried, codes_of
from tests.planner.builders.searches import Found, Searched
from tests.planner.oracles.validity import check_plan
from tests.planner.scenarios.contested import contested

EXAMPLES = 10


def on_clusters(check: Callable[[int], bool], *, draw_seed: int, examples: int = EXAMPLES) -> None:
    """Run `check` on random numbers of clusters, always the same; it returns whether there was anything to see."""
    seen = []

    @seed(draw_seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(number=st.integers(0, 9_999))
    def run(number: int) -> None:
        seen.append(check(number))

    run()
    assert sum(seen) >= 0.3 * len(seen), f"{sum(seen)} of {len(seen)} clusters had anything to see"


def after(calls: int) -> Callable[[], bool]:
    """A time limit that is spent after so many questions."""
    left = [calls]

    def spent() -> bool:
        left[0] -= 1
        return left[0] < 0

    return spent


def described(moves: tuple[Eviction, ...] | list[Eviction]) -> list[tuple[object, ...]]:
    return [(move.pod, move.node, move.target_nodes, move.reason, move.target_pool) for move in moves]


def candidates_of(world: Searched) -> set[str]:
    """Pods of all findings."""
    names = world.snapshot.pods.names
    return {names[at] for found in world.found for each in found.findings for at in each.candidates.tolist()}


def reached(score: Score) -> tuple[float, ...]:
    """What a score says of the nodes and of other goals, costs apart."""
    return (score.hot, score.over_high, score.over_target, score.left)


# ---- more time


def test_each_plan_of_a_search_is_better_than_the_one_before() -> None:
    def check(number: int) -> bool:
        scores = [found.plan.score for found in contested(number).plans()]
        assert scores == sorted(set(scores), reverse=True)
        return bool(contested(number).best().moves)

    on_clusters(check, draw_seed=1)


def test_more_time_never_gives_a_worse_plan() -> None:
    def check(number: int) -> bool:
        world = contested(number)
        scores = [world.best(out_of_time=after(calls)).plan.score for calls in (0, 1, 3, 8, 20, 50, 120, 10_000)]
        assert scores == sorted(scores, reverse=True), f"contested({number})"
        return scores[-1] < scores[0]

    on_clusters(check, draw_seed=2, examples=8)


@pytest.mark.parametrize("name", ["MAX_EFFORT", "RESTARTS"])
def test_more_effort_and_more_restarts_never_give_a_worse_plan(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def check(number: int) -> bool:
        world, scores = contested(number), []
        for value in {"MAX_EFFORT": (0, 5_000, 20_000, 1_000_000), "RESTARTS": (0, 2, 6)}[name]:
            monkeypatch.setattr(searching, name, value)
            scores.append(world.best().plan.score)
        assert scores == sorted(scores, reverse=True), f"contested({number})"
        return world.best().moves != ()

    on_clusters(check, draw_seed=3, examples=8)


def test_somewhere_a_later_plan_is_better_than_the_first() -> None:
    improved = [number for number in range(40) if len(contested(number).plans()) > 1]
    print(f"{len(improved)} of 40 searches find a better plan than their first: {improved}")
    assert improved


def test_a_plan_that_was_stopped_early_is_valid() -> None:
    def check(number: int) -> bool:
        world, moves = contested(number), 0
        for calls in (0, 1, 2, 4, 9, 30):
            found = world.best(out_of_time=after(calls))
            check_plan(world, found.moves, found.resumed)
            moves += len(found.moves)
        return moves > 0

    on_clusters(check, draw_seed=4)


def test_every_pod_that_a_stopped_plan_leaves_has_a_reason() -> None:
    def check(number: int) -> bool:
        world = contested(number)
        stopped = 0
        for calls in (0, 2, 5):
            found = world.best(out_of_time=after(calls))
            refused = codes_of(found.plan.planner)
            assert refused.keys() == candidates_of(world) - {move.pod for move in found.moves}
            stopped += Reason.PLANNING_TIMEOUT in refused.values()
        return stopped > 0

    on_clusters(check, draw_seed=5)


# ---- the plan


def test_every_plan_of_a_search_is_valid() -> None:
    def check(number: int) -> bool:
        world = contested(number)
        plans = world.plans()
        for found in plans:
            check_plan(world, found.moves, found.resumed)
        return bool(plans[-1].moves)

    on_clusters(check, draw_seed=6, examples=8)


@pytest.mark.parametrize("order", [1, 2])
def test_the_plan_is_the_same_in_whatever_order_the_cluster_is_listed(order: int) -> None:
    def check(number: int) -> bool:
        one, other = contested(number).best(), contested(number, order=order).best()
        assert described(one.moves) == described(other.moves), f"contested({number}, order={order})"
        assert one.waits == other.waits
        assert one.plan.score == pytest.approx(other.plan.score)
        return bool(one.moves)

    on_clusters(check, draw_seed=7 + order)


def test_a_search_twice_over_the_same_model_gives_the_same_plan() -> None:
    def check(number: int) -> bool:
        world = contested(number)
        one, other = world.best(), world.best()
        assert described(one.moves) == described(other.moves)
        assert (one.plan.score, one.taints) == (other.plan.score, other.taints)
        return bool(one.moves)

    on_clusters(check, draw_seed=10)


# ---- patience


def test_with_patience_never_more_evictions_for_as_many_cool_nodes() -> None:
    """A plan that waits may make more evictions than one that doesn't only where they cool more."""

    def check(number: int) -> bool:
        world = contested(number)
        patient, hasty = world.best().plan.score, world.best(patience=0.0).plan.score
        assert reached(patient) <= reached(hasty), f"contested({number}): {patient} against {hasty}"
        if reached(patient) == reached(hasty):
            assert patient.price <= hasty.price, f"contested({number})"
            assert patient.evictions <= hasty.evictions, f"contested({number})"
        return patient.evictions > 0

    on_clusters(check, draw_seed=11, examples=8)


# ---- carried out


def replayed(world: Searched, found: Found) -> searching.Simulated:
    return carry_out(world.followed(found.plan), found.plan.followed)


def test_the_plan_that_is_carried_out_has_the_moves_and_landings_of_the_simulated_one() -> None:
    def check(number: int) -> bool:
        world = contested(number)
        found = world.best()
        real = replayed(world, found)
        assert described(real.moves) == described(found.moves), f"contested({number})"
        # a move that needn't wait when its turn comes goes at once
        assert real.score._replace(waits=0) == found.plan.score._replace(waits=0)
        assert real.score.waits <= found.plan.score.waits
        assert codes_of(real.planner) == codes_of(found.plan.planner)
        return len(found.moves) > 1

    on_clusters(check, draw_seed=12, examples=8)


def test_the_moves_of_a_plan_ask_for_the_taints_that_its_simulation_chose() -> None:
    def check(number: int) -> bool:
        world = contested(number)
        found = world.best()
        planner = world.followed(found.plan)
        needed = carried(planner).taints
        names = world.snapshot.nodes.names
        # a node that no accepted move needs isn't tainted
        assert needed.items() <= {names[node]: value for node, value in found.taints.items()}.items()
        return bool(needed)

    on_clusters(check, draw_seed=13, examples=8)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("code", [Reason.SERVER_BUDGET, Reason.SERVER_ERROR])
def test_after_a_rejection_the_plan_goes_on_and_stays_valid(at: int, code: Reason) -> None:
    def check(number: int) -> bool:
        world = contested(number)
        found = world.best()
        if len(found.moves) <= at:
            return False
        planner = world.followed(found.plan)
        plan, refused = carried(planner, reject_at=at, code=code), codes_of(planner)
        check_plan(world, plan.moves, planner.resumed)
        assert described(plan.moves[:at]) == described(found.moves[:at])
        assert not set(plan.rejected) & set(plan.pods)
        assert [refused[pod] for pod in plan.rejected] == [code]
        assert refused.keys() == candidates_of(world) - set(plan.pods)
        return len(plan.moves) > at

    on_clusters(check, draw_seed=14, examples=8)
