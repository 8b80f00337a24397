"""What is free until the target of each node, with the landings of every draw counted in; two resources where it
matters."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.decisions.plan import Loads
from rebalancer.model.notation.arrays import Floats
from rebalancer.placement.draws.draws import COLUMNS, Draws
from rebalancer.placement.landing.landing import Placed
from rebalancer.planner.landings.targets import TargetHeadroom

HOT, A, B, C = range(4)


class Room:
    """Headroom with the draws that its landings are counted in."""

    def __init__(
        self, target: Any = 1_000.0, *, load: Any = 0.0, nodes: int = 4, closed: tuple[int, ...] = (), pods: Any = ((),)
    ) -> None:
        """Nodes of one resource, or of as many as `target` has; the first is hot. `pods` (pods, resources)."""
        targets = np.broadcast_to(np.atleast_1d(np.asarray(target, dtype=float)), (nodes, np.size(target))).copy()
        if np.ndim(target) == 2:
            targets = np.array(target, dtype=float)
        loads = np.broadcast_to(np.atleast_1d(np.asarray(load, dtype=float)), targets.shape).copy()
        loads[HOT] = 2 * np.nan_to_num(targets[HOT])
        self.headroom = TargetHeadroom(
            Loads(
                resources=tuple(f"r{index}" for index in range(targets.shape[1])),
                node=loads,
                room=targets * 2,
                target=targets,
                pod=np.array(pods, dtype=float).reshape(-1, targets.shape[1]),
                high=targets * 1.2,
                low=targets * 0.8,
            ),
            np.isin(np.arange(nodes), closed),
        )
        self.draws = Draws(nodes)

    def move(self, pod: int, *nodes: int, source: int = HOT) -> None:
        """To one node for sure, or to these in turn from draw to draw."""
        winners = np.resize(np.array(nodes), self.draws.count)
        slots = np.zeros(0, dtype=np.int64)
        if len(set(nodes)) > 1:
            slots = self.draws.land(pod, winners, np.zeros(COLUMNS), stamp=1)
        self.headroom.shift(pod, source, Placed(nodes[0] if not len(slots) else -1, winners, slots))

    @property
    def expected(self) -> list[list[float]]:
        """Mean loads, rounded."""
        rounded: list[list[float]] = np.round(self.headroom.expected(self.draws), 9).tolist()
        return rounded

    def free(self, node: int) -> list[float]:
        """How large a pod of one resource may still be, where no draw has a landing, and in the draws that have one."""
        sizes = range(2_001)
        slots = np.flatnonzero(self.draws.node == node)
        takes = [bool(self.headroom.takes(pod(size), np.array([node]))[0]) for size in sizes]
        in_slots = [self.headroom.slots_take(pod(size), self.draws.node[slots], slots) for size in sizes]
        counts = [sum(takes), *np.sum(in_slots, axis=0).tolist()]
        return [count - 1 for count in (counts[0], *sorted(set(counts[1:])))]


def pod(*load: float) -> Floats:
    return np.array(load, dtype=float)


# ---- sure landings


def test_a_sure_landing_leaves_the_source_and_fills_the_node() -> None:
    room = Room(pods=[[300]])
    room.move(0, A)
    assert (room.free(A), room.free(B)) == ([700], [1_000])
    assert room.headroom.excess(HOT) == [700]
    assert room.expected == [[1_700], [300], [0], [0]]


def test_a_node_may_be_filled_to_exactly_its_target_and_no_further() -> None:
    room = Room(0.3, pods=[[0.1]])
    room.move(0, A)
    assert room.headroom.takes(pod(0.2))[A]
    assert not room.headroom.takes(pod(0.2 + 1e-6))[A]


def test_the_goal_is_reached_at_the_target_and_not_before() -> None:
    room = Room(pods=[[999], [1]])
    room.move(0, A)
    assert not room.headroom.reached(HOT)
    room.move(1, A)
    assert room.headroom.reached(HOT)


# ---- landings that differ between the draws


def test_a_landing_counts_in_the_draws_that_have_it_and_in_no_other() -> None:
    room = Room(pods=[[600]])
    room.move(0, A, B)
    # where it didn't land the node is as free as before
    assert (room.free(A), room.free(B), room.free(C)) == ([1_000, 400], [1_000, 400], [1_000])
    assert room.expected == [[1_400], [300], [300], [0]]


def test_two_pods_in_turn_are_never_together_and_two_in_step_always_are() -> None:
    turns, steps = Room(pods=[[600], [300]]), Room(pods=[[600], [300]])
    for room, second in ((turns, (B, A)), (steps, (A, B))):
        room.move(0, A, B)
        room.move(1, *second)
        assert room.expected == [[1_100], [450], [450], [0]]
    assert turns.free(A) == turns.free(B) == [1_000, 400, 700]
    assert steps.free(A) == steps.free(B) == [1_000, 100]


def test_every_draw_keeps_its_own_sum() -> None:
    room = Room(pods=[[100], [10]])
    room.move(0, A, A, B, C)
    room.move(1, A, B, B, A)
    assert room.free(A) == [1_000, 890, 900, 990]
    assert room.free(B) == [1_000, 890, 990]
    assert room.free(C) == [1_000, 900]


def test_a_sure_landing_counts_in_every_draw_too() -> None:
    room = Room(pods=[[600], [50]])
    room.move(0, A, B)
    room.move(1, A)
    assert room.free(A) == [950, 350]
    assert room.free(B) == [1_000, 400]


def test_a_pod_that_leaves_a_node_frees_it_in_every_draw() -> None:
    room = Room(load=[[0], [500], [0], [0]], pods=[[400], [200]])
    room.move(0, A, B)
    room.move(1, C, source=A)
    assert room.free(A) == [700, 300]


def test_slots_of_closed_hot_and_unknown_nodes_take_nothing() -> None:
    room = Room(load=[[0], [0], [np.nan], [0]], closed=(A,), pods=[[1]])
    room.move(0, HOT, A, B, C)
    nodes = room.draws.node
    takes = room.headroom.slots_take(pod(0), nodes, np.arange(room.draws.size))
    assert {int(node): set(takes[nodes == node].tolist()) for node in (HOT, A, B, C)} == {
        HOT: {False}, A: {False}, B: {False}, C: {True},
    }  # fmt: skip


# ---- marks


def test_every_resource_counts_by_itself() -> None:
    room = Room([1_000, 10], pods=[[100, 8], [500, 1]])
    room.move(0, A)
    room.move(1, A, B)
    free = room.headroom
    assert free.takes(pod(900, 1))[[A, B]].tolist() == [True, True]
    assert free.takes(pod(901, 1))[[A, B]].tolist() == [False, True]
    assert free.takes(pod(1, 3))[[A, B]].tolist() == [False, True]
    slots = np.array([np.flatnonzero(room.draws.node == node)[0] for node in (A, B)])
    assert free.slots_take(pod(400, 1), np.array([A, B]), slots).tolist() == [True, True]
    assert free.slots_take(pod(401, 1), np.array([A, B]), slots).tolist() == [False, True]
    assert free.slots_take(pod(1, 2), np.array([A, B]), slots).tolist() == [False, True]


def test_a_resource_without_a_mark_is_not_judged() -> None:
    room = Room([1_000, np.nan], pods=[[1_000, 1e12]])
    assert room.headroom.takes(pod(1_000, 1e12))[A]
    assert not room.headroom.takes(pod(1_001, 0))[A]
    room.move(0, A, B)
    slot = np.array([0])
    assert room.headroom.slots_take(pod(0, 1e12), np.array([A]), slot).all()
    assert not room.headroom.slots_take(pod(1, 0), np.array([A]), slot).any()
    assert room.headroom.reached(HOT)


def test_a_node_without_any_mark_or_whose_load_is_not_known_takes_nothing() -> None:
    assert not Room(np.nan).headroom.takes(pod(0)).any()
    blind = Room(load=[[0], [np.nan], [0], [0]]).headroom
    assert blind.takes(pod(1)).tolist() == [False, False, True, True]


def test_a_closed_node_takes_nothing_and_is_no_landing_of_choice() -> None:
    room = Room(closed=(B,)).headroom
    assert room.takes(pod(1)).tolist() == [False, True, False, True]
    assert room.low.tolist() == [False, True, False, True]


def test_a_hot_node_takes_nothing_even_when_it_is_cooled() -> None:
    room = Room(pods=[[1_999]])
    room.move(0, A)
    assert room.headroom.reached(HOT)
    assert not room.headroom.takes(pod(0))[HOT]


def test_low_is_under_its_mark_in_every_resource_that_has_one() -> None:
    room = Room([1_000, 10], load=[[0, 0], [799, 7.9], [800, 7.9], [799, 8]])
    assert room.headroom.low.tolist() == [False, True, False, False]


def test_what_is_over_is_told_in_shares_of_the_node() -> None:
    # 2,000 of 2,000 there; target 1,000, high 1,200
    room = Room(pods=[[500]])
    assert room.headroom.over(HOT) == pytest.approx((0.4, 0.5))
    room.move(0, A, B)
    assert room.headroom.over(HOT) == pytest.approx((0.15, 0.25))
    room.move(0, A, B)
    assert room.headroom.over(HOT) == (0, 0)


# ---- nodes without marks, trying


def test_a_node_without_marks_is_a_landing_for_others_and_none_for_its_own_strategy() -> None:
    room = Room([[1_000.0], [1_000.0], [np.nan], [np.nan]], closed=(C,), pods=[[5_000]])
    free = room.headroom
    assert free.takes(pod(500.0)).tolist() == [False, True, False, False]
    assert free.takes(pod(500.0), strict=False).tolist() == [False, True, True, False]
    assert free.takes(pod(5_000.0), np.array([A, B]), strict=False).tolist() == [False, True]
    assert free.low.tolist() == [False, True, False, False]
    room.move(0, B, C)
    for strict in (True, False):
        takes = free.slots_take(pod(5_000.0), room.draws.node, np.arange(room.draws.size), strict=strict)
        assert {node: bool(each) for node, each in zip(room.draws.node.tolist(), takes, strict=True)} == {
            B: not strict, C: False,
        }  # fmt: skip


def test_the_load_that_comes_may_be_another_than_the_pods_own() -> None:
    one = Room(pods=[[300]])
    other = Room(pods=[[300]])
    other.headroom = TargetHeadroom(one.headroom.loads, np.zeros(4, dtype=bool), coming=np.array([[7.0]]))
    assert one.headroom.coming is one.headroom.loads.pod
    for room, left in ((one, 700), (other, 993)):
        room.move(0, A)
        assert room.headroom.excess(HOT) == [700]
        assert room.free(A) == [left]


def test_what_is_tried_is_undone_to_the_last_bit() -> None:
    loads = [[33.3], [11.1], [77.7], [0.1], [0.3], [5.5]]
    room, same = Room(pods=loads), Room(pods=loads)
    for each in (room, same):
        each.move(0, A, B)
        each.move(1, A, B, C)
    kept = _all_of_it(room)
    with room.headroom.tentatively(), room.draws.tentatively(lambda: 1):
        room.move(2, A)
        room.move(3, B, C, source=A)
        room.move(4, C, B, source=A)
        assert _all_of_it(room) != kept
    assert _all_of_it(room) == kept
    for each in (room, same):
        each.move(5, C, A, B)
        each.move(4, A, B, C)
    assert _all_of_it(room) == _all_of_it(same)


def _all_of_it(room: Room) -> object:
    headroom = room.headroom
    return headroom.expected(room.draws).tolist(), headroom.excess(HOT).tolist(), [room.free(at) for at in (A, B, C)]
