"""The plan so far: its moves, counted in everything that later ones depend on, and the refusals of other candidates.

A move counts as soon as it is accepted: in the budgets of PodDisruptionBudgets, in the load of the nodes and in the
placement model. An accepted move may turn out not to have happened. Then another plan takes the place of this one: it
begins with the progress of this one, counts the moves that did happen, and plans no refused pod again.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.moves.budgets import BudgetRoom
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.landing import Placed
from rebalancer.planner.landings.landings import CheckedLanding, Landings
from rebalancer.planner.plan.plan_input import PlanInput, PlannedMove


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProgress:
    """How far a plan of this cycle was, for the plan that takes its place."""

    moves: Sequence[PlannedMove] = ()
    """Those that happened, or may have, in their order."""
    landed: frozenset[int] = frozenset()
    """Pods of `moves` whose replacements are Ready."""
    refused: Mapping[int, Refusal] = field(default_factory=dict)
    """Pod -> why its move was refused after it was planned."""
    waited: int = 0
    """How often the plan has waited."""
    patience: float = math.inf
    """Seconds: the longest wait that is left."""
    screened: bool = True
    """Whether the plan has compared reliefs and prices of the candidates that are left."""


class PlanState:
    """See the module."""

    def __init__(
        self, plan_input: PlanInput, admission: EvictionAdmission, landings: Landings, progress: PlanProgress
    ) -> None:
        """Counts the moves of `progress`; they are counted in `admission` already."""
        self.input, self.snapshot = plan_input, plan_input.snapshot
        self.admission, self.landings = admission, landings
        self.budgets = BudgetRoom(admission.projection, apart=admission.first.applies)
        self.moved: Bools = np.zeros(len(self.snapshot.pods), dtype=np.bool_)
        """(pods,)"""
        self.placed: dict[int, Placed] = {}
        """Pod -> where its replacement lands."""
        self.planned: list[PlannedMove] = []
        """The moves in their order."""
        self.begun = len(progress.moves)
        """So many of them are of an earlier plan."""
        self._tainted = set(landings.chosen)
        """Nodes whose soft taints an earlier move needed, or that were there at first."""
        self._landed = set(progress.landed)
        """Pods whose replacements are Ready."""
        self.refused: dict[int, Refusal] = {}
        """Pod -> why it was refused last."""
        self._refused_later: dict[int, Refusal] = {}
        """Pod -> why its move was refused after it was planned."""
        self.refused_before: Mapping[int, Refusal] = progress.refused
        """Those of an earlier plan: they aren't planned again."""
        for each in progress.moves:
            if each.pod not in self._landed:
                self.budgets.take(self.snapshot.pod(each.pod))
            self._count(each.pod, each.checked)
            self.planned.append(each)
        for pod, refusal in progress.refused.items():
            self.refuse(pod, refusal)

    def accept(self, pod: int, checked: CheckedLanding | None, *, room_for: int | None = None) -> None:
        """Count a move. `checked`: its landing; None for a finished pod. `room_for` as in `Finding`."""
        chosen = self.landings.chosen
        new: dict[int, str] = {}
        if len(chosen) > len(self._tainted):  # none is removed once a move has needed it
            new = {node: value for node, value in chosen.items() if node not in self._tainted}
            self._tainted |= new.keys()
        self.budgets.take(self.snapshot.pod(pod))
        placed = self._count(pod, checked)
        if checked is not None and placed is not None:
            checked = replace(checked, landing=checked.landing.summary(), winners=placed.winners)
        self.planned.append(PlannedMove(pod=pod, checked=checked, taints=new, room_for=room_for))

    def _count(self, pod: int, checked: CheckedLanding | None) -> Placed | None:
        self.moved[pod] = True
        if checked is None:
            return None
        placed = self.placed[pod] = self.landings.count(self.snapshot.pod(pod), checked)
        return placed

    def refuse(self, pod: int, refusal: Refusal) -> None:
        """Its move was refused after it was planned."""
        self.refused[pod] = self._refused_later[pod] = refusal
        if refusal.code in (Reason.SERVER_BUDGET, Reason.SERVER_SEVERAL_BUDGETS):
            self.budgets.close(self.snapshot.pod(pod))

    def land(self, moves: Collection[Eviction]) -> None:
        """Their replacements are Ready: the budgets have recovered, and nodes take the next replacements."""
        self.landings.avoid_none()
        for move in moves:
            self.budgets.give_back(self.snapshot.pod(move.in_plan.pod_index))
            self._landed.add(move.in_plan.pod_index)

    def share(self, move: Eviction, other: Eviction) -> bool:
        """Whether the moves share a node, a service, a PodDisruptionBudget or an even group."""
        one, another = move.in_plan.pod_index, other.in_plan.pod_index
        return (
            move.in_plan.node_index == other.in_plan.node_index
            or move.service_identity == other.service_identity
            or move.service == other.service
            or self.budgets.shared(self.snapshot.pod(one), self.snapshot.pod(another))
            or self.landings.even.shared(one, another)
        )

    def progress(self, undone: Mapping[int, Refusal | None], *, waited: int, patience: float) -> PlanProgress:
        """`undone`: pod of an accepted move that did not happen after all -> why; None = it may be planned again."""
        refused = {pod: refusal for pod, refusal in undone.items() if refusal is not None}
        return PlanProgress(
            moves=tuple(each for each in self.planned if each.pod not in undone),
            landed=frozenset(self._landed),
            refused=self._refused_later | refused,
            waited=waited,
            patience=patience,
        )
