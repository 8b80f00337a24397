"""The order of a plan's candidates, and the moves of a simulated plan that another one repeats."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rebalancer.model.reason import Refusal
from rebalancer.planner.landings import Judged


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedMove:
    """A move of a simulated plan."""

    pod: int
    judged: Judged | None
    """None for a finished pod, which has no replacement."""
    taints: Mapping[int, str]
    """Node -> value of each soft taint that the move needs and no earlier one needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a plan chooses between candidates of different nodes."""

    by_node: bool = False
    """The hottest node is finished before the next begins."""
    noise: int = 0
    """Seed of a random change of the order; 0 = none."""
    patient: bool = True
    """Whether the plan may wait."""
    script: Sequence[PlannedMove] = ()
    """A simulated plan over the same snapshot, with the soft taints that were there at first: its moves come first, in
    this order, and as long as each can be made their landings are what they were."""
    known: Mapping[int, Refusal] = field(default_factory=dict)
    """Pod -> why the simulated plan refused it; it isn't asked again as long as the script holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """How far a plan of this cycle was, for the plan that takes its place: one of its moves that it had counted did not
    happen."""

    moves: Sequence[PlannedMove] = ()
    """Those that happened, or may have, in their order."""
    landed: frozenset[int] = frozenset()
    """Pods of `moves` whose replacements are Ready."""
    refused: Mapping[int, Refusal] = field(default_factory=dict)
    """Pod -> why its move was refused after it was planned. It isn't planned again."""
    waited: int = 0
    """How often the plan has waited."""
    patience: float = math.inf
    """Seconds: the longest wait that is left."""
