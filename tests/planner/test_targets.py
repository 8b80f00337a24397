"""What is free until the target of each node, with uncertain landings counted in; two resources where it matters."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rebalancer.model.plan import Loads
from rebalancer.placement.landing import Distribution
from rebalancer.planner.targets import FEW_DRAWS, TargetHeadroom, percentile

Floats = NDArray[np.float64]

HOT, A, B, C = range(4)


def a_room(
    target: Any = 1_000.0, *, load: Any = 0.0, nodes: int = 4, closed: tuple[int, ...] = (), **marks: Any
) -> TargetHeadroom:
    """Nodes of one resource, or of as many as `target` has; the first is hot."""
    targets = np.broadcast_to(np.atleast_1d(np.asarray(target, dtype=float)), (nodes, np.size(target))).copy()
    loads = np.broadcast_to(np.atleast_1d(np.asarray(load, dtype=float)), targets.shape).copy()
    loads[HOT] = 2 * np.nan_to_num(targets[HOT])
    return TargetHeadroom(
        Loads(
            resources=tuple(f"r{index}" for index in range(targets.shape[1])),
            node=loads,
            room=targets * 2,
            target=targets,
            pod=np.zeros((0, targets.shape[1])),
            high=targets * 1.2,
            low=targets * 0.8,
        ),
        np.isin(np.arange(nodes), closed),
    )


def to(*nodes: int, shares: tuple[float, ...] = (), exclusive: bool = False) -> Distribution:
    """Equal shares unless told."""
    return Distribution(
        nodes=np.array(nodes),
        shares=np.array(shares or [1 / len(nodes)] * len(nodes)),
        exclusive=np.full(len(nodes), exclusive),
        feasible=len(nodes),
    )


def pod(*load: float) -> Floats:
    return np.array(load, dtype=float)


def free(room: TargetHeadroom, node: int, kind: object = None) -> float:
    """How large a pod of one resource may still be, in whole numbers."""
    fitting = [size for size in range(2_001) if room.takes(pod(size), np.array([node]), kind=kind)[0]]
    return max(fitting, default=-1)


# ---- sure landings


def test_a_sure_landing_leaves_the_source_and_fills_the_node() -> None:
    room = a_room()
    room.shift(pod(300), HOT, to(A))
    assert (free(room, A), free(room, B)) == (700, 1_000)
    assert room.excess(HOT) == [700]
    assert room.expected[:, 0].tolist() == [1_700, 300, 0, 0]


def test_a_node_may_be_filled_to_exactly_its_target_and_no_further() -> None:
    room = a_room(0.3)
    room.shift(pod(0.1), HOT, to(A))
    assert room.takes(pod(0.2))[A]
    assert not room.takes(pod(0.2 + 1e-6))[A]


def test_the_goal_is_reached_at_the_target_and_not_before() -> None:
    room = a_room()
    room.shift(pod(999), HOT, to(A))
    assert not room.reached(HOT)
    room.shift(pod(1), HOT, to(A))
    assert room.reached(HOT)


# ---- pods of one kind that take turns


def test_two_equal_nodes_need_room_for_one_of_two_equal_pods_each() -> None:
    room = a_room()
    room.shift(pod(600), HOT, to(A, B, exclusive=True), kind="web")
    assert (free(room, A, "web"), free(room, B, "web")) == (1_000, 1_000)
    room.shift(pod(600), HOT, to(A, B, exclusive=True), kind="web")
    # the third finds one of them on each
    assert (free(room, A, "web"), free(room, B, "web")) == (400, 400)
    assert room.expected[:, 0].tolist() == [800, 600, 600, 0]


def test_a_third_pod_on_two_nodes_needs_room_for_two_on_either() -> None:
    room = a_room(1_100)
    for _ in range(2):
        assert room.takes(pod(550), np.array([A, B]), kind="web").all()
        room.shift(pod(550), HOT, to(A, B, exclusive=True), kind="web")
    assert room.takes(pod(550), np.array([A, B]), kind="web").all()
    assert not room.takes(pod(551), np.array([A, B]), kind="web").any()


def test_of_equal_pods_to_the_scheduler_the_largest_is_counted_where_one_is() -> None:
    room = a_room()
    for load in (100, 700):
        room.shift(pod(load), HOT, to(A, B, exclusive=True), kind="web")
    assert (free(room, A, "web"), free(room, B, "web")) == (300, 300)


def test_three_nodes_stay_free_until_each_has_one() -> None:
    room = a_room()
    for _ in range(2):
        room.shift(pod(800), HOT, to(A, B, C, exclusive=True), kind="web")
        assert [free(room, node, "web") for node in (A, B, C)] == [1_000] * 3
    room.shift(pod(800), HOT, to(A, B, C, exclusive=True), kind="web")
    assert [free(room, node, "web") for node in (A, B, C)] == [200] * 3


def test_a_pod_of_another_kind_finds_whatever_may_be_there() -> None:
    # what keeps the next pod of "web" away is nothing to "api"
    room = a_room()
    room.shift(pod(600), HOT, to(A, B, exclusive=True), kind="web")
    assert (free(room, A, "api"), free(room, A), free(room, A, "web")) == (400, 400, 1_000)
    room.shift(pod(300), HOT, to(A, B, exclusive=True), kind="api")
    # "web" meets "api", never itself
    assert (free(room, A, "api"), free(room, A), free(room, A, "web")) == (400, 100, 700)


def test_pods_that_take_turns_are_never_counted_twice_on_a_node_that_has_one() -> None:
    room = a_room()
    for _ in range(2):
        room.shift(pod(300), HOT, to(A, B, exclusive=True), kind="web")
    assert free(room, A, "api") == 700
    # drawn independently, both may be there
    drawn = a_room()
    for _ in range(2):
        drawn.shift(pod(300), HOT, to(A, B), kind="web")
    assert free(drawn, A, "api") == 400


def test_a_pod_of_no_known_kind_takes_turns_with_nobody() -> None:
    room = a_room()
    room.shift(pod(600), HOT, to(A, B, exclusive=True))
    assert (free(room, A), free(room, A, "web")) == (400, 400)


# ---- independent draws


def exact_percentile(draws: list[tuple[float, int]]) -> int:
    """The 99th percentile of a sum of independent draws (probability, whole load)."""
    odds = np.ones(1)
    for chance, load in draws:
        more = np.zeros(len(odds) + load)
        more[: len(odds)] += odds * (1 - chance)
        more[load:] += odds * chance
        odds = more
    return int(np.searchsorted(np.cumsum(odds), 0.99 - 1e-9))


def counted(draws: list[tuple[float, int]]) -> float:
    return float(percentile([(chance, pod(load)) for chance, load in draws], 1)[0])


@pytest.mark.parametrize("chance", [0.5, 1 / 3, 0.1, 0.02, 0.01, 0.001])
def test_what_may_come_is_never_less_than_the_exact_percentile_of_the_binomial(chance: float) -> None:
    for count in [*range(1, 40), 100, 400]:
        exact, ours = exact_percentile([(chance, 1)] * count), counted([(chance, 1)] * count)
        assert exact - 1e-9 <= ours
        if count <= FEW_DRAWS:
            assert ours == exact
        # a plan that counts far more than can come makes no moves
        assert ours <= min(count, exact + 2)


def test_it_is_not_less_for_pods_of_different_sizes_and_chances_either() -> None:
    rng = np.random.default_rng(7)
    short = []
    for _ in range(300):
        count = int(rng.integers(1, 50))
        chances = rng.choice([0.5, 1 / 3, 0.25, 0.1, 0.05, 0.01, 0.002], count).tolist()
        draws = list(zip(chances, rng.integers(1, 20, count).tolist(), strict=True))
        short += [draws] if counted(draws) < exact_percentile(draws) - 1e-9 else []
    assert short == []


def test_few_draws_are_counted_out_course_by_course() -> None:
    draws = [(0.5, 300), (0.2, 500), (0.05, 100), (0.004, 900)]
    odds: dict[int, float] = {}
    for course in itertools.product((0, 1), repeat=len(draws)):
        total = sum(load * here for (_, load), here in zip(draws, course, strict=True))
        chance = math.prod(share if here else 1 - share for (share, _), here in zip(draws, course, strict=True))
        odds[total] = odds.get(total, 0.0) + chance
    above = {total: sum(chance for other, chance in odds.items() if other > total) for total in odds}
    assert counted(draws) == min(total for total, chance in above.items() if chance <= 0.01) == 800


def test_a_node_has_room_for_all_that_may_land_there_in_99_of_100_cases() -> None:
    room = a_room(nodes=2 + 20)
    everywhere = tuple(range(1, 21))
    for number in range(4):
        assert free(room, A) == 1_000 - 100 * exact_percentile([(0.05, 1)] * number)
        room.shift(pod(100), HOT, to(*everywhere))


# ---- marks


def test_every_resource_counts_by_itself() -> None:
    room = a_room([1_000, 10])
    room.shift(pod(100, 8), HOT, to(A))
    room.shift(pod(500, 1), HOT, to(A, B))
    assert room.takes(pod(400, 1))[[A, B]].tolist() == [True, True]
    assert room.takes(pod(401, 1))[[A, B]].tolist() == [False, True]
    assert room.takes(pod(1, 2))[[A, B]].tolist() == [False, True]


def test_the_percentile_of_one_resource_is_not_that_of_another() -> None:
    # in 99 of 100 cases the first pod may come, and the second doesn't
    out = percentile([(0.5, pod(100, 1)), (0.005, pod(10, 50))], 2)
    assert out.tolist() == [100, 1]


def test_a_resource_without_a_mark_is_not_judged() -> None:
    room = a_room([1_000, np.nan])
    assert room.takes(pod(1_000, 1e12))[A]
    assert not room.takes(pod(1_001, 0))[A]
    room.shift(pod(1_000, 1e12), HOT, to(A))
    assert room.reached(HOT)


def test_a_node_without_any_mark_or_whose_load_is_not_known_takes_nothing() -> None:
    assert not a_room(np.nan).takes(pod(0)).any()
    assert a_room(load=[[0], [np.nan], [0], [0]]).takes(pod(1)).tolist() == [False, False, True, True]


def test_a_closed_node_takes_nothing_and_is_no_landing_of_choice() -> None:
    room = a_room(closed=(B,))
    assert room.takes(pod(1)).tolist() == [False, True, False, True]
    assert room.low.tolist() == [False, True, False, True]


def test_a_hot_node_takes_nothing_even_when_it_is_cooled() -> None:
    room = a_room()
    room.shift(pod(1_999), HOT, to(A))
    assert room.reached(HOT)
    assert not room.takes(pod(0))[HOT]


def test_low_is_under_its_mark_in_every_resource_that_has_one() -> None:
    room = a_room([1_000, 10], load=[[0, 0], [799, 7.9], [800, 7.9], [799, 8]])
    assert room.low.tolist() == [False, True, False, False]


# ---- nodes without marks, trying


def test_a_node_without_marks_is_a_landing_for_others_and_none_for_its_own_strategy() -> None:
    room = a_room([[1_000.0], [1_000.0], [np.nan], [np.nan]], nodes=4, closed=(C,))
    assert room.takes(pod(500.0)).tolist() == [False, True, False, False]
    assert room.takes(pod(500.0), strict=False).tolist() == [False, True, True, False]
    assert room.takes(pod(5_000.0), np.array([A, B]), strict=False).tolist() == [False, True]
    assert room.low.tolist() == [False, True, False, False]


def test_the_load_that_comes_may_be_another_than_the_pods_own() -> None:
    room = a_room()
    given = TargetHeadroom(room.loads, np.zeros(4, dtype=bool), coming=np.array([[7.0]]))
    assert given.coming.tolist() == [[7.0]]
    assert room.coming is room.loads.pod


def test_what_is_tried_is_undone_to_the_last_bit() -> None:
    room, same = a_room(), a_room()
    for each in (room, same):
        each.shift(pod(33.3), HOT, to(A, B), kind="k")
        each.shift(pod(11.1), HOT, to(A, B, C, exclusive=True), kind="k")
    kept = _all_of_it(room)
    with room.tentatively():
        room.shift(pod(77.7), HOT, to(A))
        room.shift(pod(0.1), A, to(B, C, exclusive=True), kind="k")
        room.shift(pod(0.3), A, to(B, C, exclusive=True), kind="new")
        assert _all_of_it(room) != kept
    assert _all_of_it(room) == kept
    for each in (room, same):
        each.shift(pod(5.5), HOT, to(B, C, exclusive=True), kind="new")
        each.shift(pod(5.5), HOT, to(A, B, exclusive=True), kind="k")
    assert _all_of_it(room) == _all_of_it(same)


def _all_of_it(room: TargetHeadroom) -> object:
    free_for = [[free(room, node, kind) for node in (A, B, C)] for kind in (None, "k", "new")]
    return room.expected.tolist(), room.excess(HOT).tolist(), free_for
