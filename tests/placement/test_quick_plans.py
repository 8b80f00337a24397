"""What is kept between questions changes no decision: a plan is the same as one that works everything out each time."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.draws.draws import Draws
from rebalancer.placement.landing.landing import Landing, Placed
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner import Planner
from rebalancer.planner.landings.landings import Landings, Replacement
from rebalancer.strategies import Findings
from tests.builders import a_model, planner_for, usage_of
from tests.placement.scenarios import CrowdedWorld, crowded_world

EVERY = 5
"""Of so many moves the server refuses one."""


class Forgetful:
    """A landing model that starts anew for each question, from the snapshot and all that happened since."""

    def __init__(self, world: CrowdedWorld, found: Sequence[Findings]) -> None:
        self._world, self._found = world, found
        self._happened: list[Callable[[PlacementModel], object]] = []
        self.closed = self._anew().closed

    def _anew(self) -> PlacementModel:
        model = a_model(self._world.snapshot, found=self._found, config=self._world.config)
        for each in self._happened:
            each(model)
        return model

    def landings(self, pod: Pod) -> Landing | Refusal:
        return self._anew().landings(pod)

    def winners(self, pod: Pod, landing: Landing) -> Rows:
        return self._anew().winners(pod, landing)

    @property
    def draws(self) -> Draws:
        return self._anew().draws

    def feasible(self, pod: Pod) -> Any:
        return self._anew().feasible(pod)

    def may_leave(self, pod: Pod) -> bool:
        return self._anew().may_leave(pod)

    def pending_takes(self, pod: Pod) -> Refusal | None:
        return self._anew().pending_takes(pod)

    def followers(self, pod: Pod, *where: Any, **leaving: Any) -> Any:
        return self._anew().followers(pod, *where, **leaving)

    def pull_bytes(self, pod: Pod, nodes: Any) -> float:
        return self._anew().pull_bytes(pod, nodes)

    def commit(self, pod: Pod, winners: Rows) -> Placed:
        placed = self._anew().commit(pod, winners)
        self._happened.append(lambda model: model.commit(pod, winners))
        return placed

    def steer(self, nodes: Sequence[int], *, away: bool = True) -> None:
        chosen = list(nodes)
        self._happened.append(lambda model: model.steer(chosen, away=away))


class SlowLandings(Landings):
    """Asks every node whether it takes the pod, also where the likely landings tell already."""

    def _refusal(self, new: Replacement, landing: Landing, risk: Floats) -> tuple[Refusal, bool]:
        found = super()._refusal(new, landing, risk)
        nowhere = self._nowhere(new, self._repairs(new))
        return found if nowhere is None else (nowhere, True)


def decisions(planner: Planner, world: CrowdedWorld) -> tuple[list[Any], list[Any], list[Any]]:
    """Moves with their landings, refusals, and what was counted: landings in each draw and planned loads."""
    moves: list[Any] = []
    placed: list[Any] = []
    while (move := planner.next_move()) is not None:
        checked = planner.moves.checked[move.in_plan.pod_index]
        landing = checked.landing
        columns = (landing.nodes, landing.shares, landing.slots, landing.slot_shares, checked.risk)
        moves.append((move, *(each.tolist() for each in columns)))
        if len(moves) % EVERY == 0 or planner.admission.reserve(move) is not None:
            planner.reject(move, Refusal.of(Reason.SERVER_BUDGET))
        else:
            planner.accept(move)
            placed.append([each.tolist() for each in planner.state.placed[move.in_plan.pod_index][1:]])
    loads = [planner.outcome.planned_load(each).tolist() for each in range(len(world.policy.strategies))]
    return moves, planner.outcome.refusals(), [*placed, *loads]


def both_plans(world: CrowdedWorld, *, soft_tainted: bool) -> tuple[Any, Any]:
    usage = usage_of(world.snapshot, world.nodes, world.pods)

    def options() -> dict[str, Any]:
        return {"config": world.config, **({"steering": world.steering()} if soft_tainted else {})}

    quick = planner_for(world.snapshot, usage, world.policy, **options())
    slow = planner_for(world.snapshot, usage, world.policy, **options())
    slow.state.landings.__class__ = SlowLandings
    forgetful: Any = Forgetful(world, quick.state.input.found)
    slow.state.landings.model = slow.placement = forgetful
    return decisions(quick, world), decisions(slow, world)


WORLDS = [(8, seed, False) for seed in (2, 3, 8, 9, 31, 38)] + [(15, seed, True) for seed in (0, 1, 4, 9, 12, 20)]


@pytest.mark.parametrize(("size", "seed", "soft_tainted"), WORLDS)
def test_a_plan_is_the_same_as_one_that_forgets_everything_between_questions(
    size: int, seed: int, soft_tainted: bool
) -> None:
    quick, slow = both_plans(crowded_world(seed, size), soft_tainted=soft_tainted)
    assert _plain(quick) == _plain(slow)


def test_a_plan_over_samples_is_the_same_as_one_that_forgets_everything_between_questions() -> None:
    quick, slow = both_plans(crowded_world(2, 120), soft_tainted=True)
    assert quick[0]
    assert _plain(quick) == _plain(slow)


def test_these_worlds_ask_for_many_sorts_of_answers() -> None:
    codes: set[Reason] = set()
    moves: list[Eviction] = []
    drawn = 0
    for size, seed, _ in WORLDS:
        world = crowded_world(seed, size)
        usage = usage_of(world.snapshot, world.nodes, world.pods)
        taken, refusals, _ = decisions(planner_for(world.snapshot, usage, world.policy, config=world.config), world)
        codes |= {each.code for each in refusals}
        moves += [each[0] for each in taken]
        drawn += sum(bool(slots) for _, _, _, slots, *_ in taken)
    assert len(moves) > 20
    assert sum(len(each.target_nodes) > 1 for each in moves) > 4
    assert drawn > 10
    assert codes >= {
        Reason.TARGET_NODE_WITHOUT_HEADROOM,
        Reason.TARGET_NODE_UNAVAILABLE,
        Reason.NO_NODE_WITH_HEADROOM,
        Reason.NO_TARGET_NODE,
        Reason.WOULD_RETURN_TO_NODE,
        Reason.PENDING_TAKES_ROOM,
        Reason.PLACEMENT_NOT_MODELLED,
    }


def _plain(story: tuple[list[Any], list[Any], list[Any]]) -> object:
    """NaN is not equal to itself; as text it is."""
    return repr(story)
