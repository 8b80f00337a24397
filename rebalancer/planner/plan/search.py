"""The best of several plans over the same snapshot.

Plans differ in the order of their candidates. Which is better is decided by, in this order: the nodes that stay over
`high`, by excess; the load that stays over the targets; the price of the evictions; the waits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.planner.plan.plan_input import Choice
from rebalancer.planner.plan.planner import Planner

RESTARTS = 4
"""Plans in a random order, after those in a fixed one."""

MAX_EFFORT = 1_000_000
"""Landings x nodes after which no other plan is begun. A number, not a time: the plan doesn't depend on the machine."""

NODE_EFFORT = 200
"""Nodes that a landing costs in any cluster."""


class Score(NamedTuple):
    """Smaller is better."""

    hot: int
    """Nodes that were to be cooled and stay over `high`."""
    over_high: float
    """Load over `high` on them, in shares of a node."""
    over_target: float
    """Load over `target` on all nodes that were to be cooled."""
    left: int
    """Findings of other goals that were not reached."""
    price: float
    """Sum of the evictions' prices."""
    evictions: int
    waits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A plan carried out in the model."""

    choice: Choice
    score: Score
    moves: tuple[Eviction, ...]
    planner: Planner

    @property
    def followed(self) -> Choice:
        """The order in which the plan is carried out."""
        planner = self.planner
        return replace(
            self.choice, script=tuple(planner.state.planned[planner.state.begun :]), known=planner.outcome.refused
        )


def carry_out(planner: Planner, choice: Choice) -> Simulated:
    """Accept every move that the limits allow, and wait for replacements as a real run would."""
    moves: list[Eviction] = []
    open_before = planner.admission.open_evictions
    in_flight: list[Eviction] = []
    waits = 0
    waited = False
    while True:
        move = planner.next_move()
        if move is None:
            if not planner.waits:
                break
            planner.admission.landed_earlier(open_before)
            open_before = ()
            planner.resume(in_flight, now=planner.waits_until or 0.0)
            in_flight, waited = [], True
            continue
        if (refusal := planner.admission.reserve(move)) is not None:
            planner.reject(move, refusal)
            continue
        planner.accept(move)
        moves.append(move)
        in_flight.append(move)
        # a wait in vain isn't one: the run that carries out the plan leaves it out
        waits, waited = waits + waited, False
    return Simulated(choice=choice, score=_score(planner, moves, waits), moves=tuple(moves), planner=planner)


def search(plan: Callable[[Choice], Planner], out_of_time: Callable[[], bool], *, patient: bool) -> Iterator[Simulated]:
    """Plans, each better than the one before. `plan` makes a planner before its first move; what an earlier one counted
    is undone then, so the caller keeps what it needs of each. `patient`: plans may wait."""
    best: Simulated | None = None
    effort, contested = 0, False
    for order in _orders():
        # a plan that never waited is the same without patience
        for choice in (order, replace(order, patient=False)) if patient else (order,):
            if best is not None and (out_of_time() or _is_perfect(best)):
                return
            planner = plan(choice)
            found = carry_out(planner, choice)
            if best is None or found.score < best.score:
                best = found
                yield found
            if not planner.waiting.waited:
                break
        # that of a plan without waits, so that patience takes no order away
        effort += planner.moves.landings_checked * (len(planner.cordoned) + NODE_EFFORT)
        if effort > MAX_EFFORT or planner.batches.most_together < 2:
            return
        contested |= planner.outcome.contested
        if order.by_node and not contested:
            return  # no landing was refused: what limits and guards leave doesn't depend on a random order


def _orders() -> Iterator[Choice]:
    yield Choice()
    yield Choice(by_node=True)
    for seed in range(1, RESTARTS + 1):
        yield Choice(noise=seed)


def _is_perfect(best: Simulated) -> bool:
    score = best.score
    return not (score.hot or score.over_target or score.left) and score.evictions <= best.planner.batches.fewest


def _score(planner: Planner, moves: list[Eviction], waits: int) -> Score:
    hot, over_high, over_target, left = planner.outcome.unreached()
    snapshot, admission = planner.state.snapshot, planner.admission
    price = sum(admission.price(snapshot.pod(move.in_plan.pod_index)).total for move in moves)
    return Score(hot, round(over_high, 6), round(over_target, 6), left, round(price, 6), len(moves), waits)
