"""What a plan is made of, as its callers have it at hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Loads
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.reason import Refusal
from rebalancer.planner.landings.landings import CheckedLanding
from rebalancer.strategies.interface.view import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """A cluster with its findings."""

    snapshot: ClusterSnapshot
    found: Sequence[Findings]
    cpu_millicores: Floats
    """(pods,) the real CPU that moves are recorded with; NaN where unknown."""
    pools: Sequence[str]
    """(nodes,) names of the nodes' pools, empty for none."""
    base: Loads | None = None
    """The load that every target node is checked for, whichever strategy wants the move."""
    reserve: Loads | None = None
    """The memory that must stay available on every target node."""
    urgent: Bools | None = None
    """(nodes,) that don't wait; None = none."""


def never() -> bool:
    """No time limit."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningTime:
    """The time limit of a plan; by default none."""

    spent: Callable[[], bool] = never
    """Once it returns True, nothing more is planned."""
    share: Callable[[int], Callable[[], bool]] = lambda parts: never
    """Makes a limit of one of so many equal parts of the time that is left: when it is spent, the other strategies come
    first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedMove:
    """A move of a plan, as another plan repeats it."""

    pod: int
    checked: CheckedLanding | None
    """None for a finished pod, which has no replacement, and in a given plan, whose landings are looked for again."""
    taints: Mapping[int, str]
    """Node -> value of each soft taint that the move needs and no earlier one needed."""
    room_for: int | None = None
    """As in `Finding`."""


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
    """The moves of a simulated plan over the same snapshot, or of a given one, see `Script`."""
    known: Mapping[int, Refusal] = field(default_factory=dict)
    """Pod -> why the simulated plan refused it."""
