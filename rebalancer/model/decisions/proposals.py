"""Plans of the parts in `mode: Approve`: kept until they are approved, rejected or expired."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan_file import PlannedEviction
from rebalancer.model.notation.document import INLINE, LEFT_OUT, Instant, InstantOrNull, TextOrNull
from rebalancer.model.notation.figures import clock_time, counted


class ProposalState(StrEnum):
    """What became of a proposal."""

    PROPOSED = "Proposed"
    """It waits for an approval."""
    APPROVED = "Approved"
    """It is about to be carried out."""
    STARTED = "Started"
    """It is being carried out."""
    CARRIED_OUT = "CarriedOut"
    REJECTED = "Rejected"
    EXPIRED = "Expired"
    """It was not approved in time, or could not be carried out in time."""
    SUPERSEDED = "Superseded"
    """A later cycle has proposed another plan."""
    REFUSED = "Refused"
    """It was approved, and something had changed: nothing was evicted."""


OPEN = (ProposalState.PROPOSED, ProposalState.APPROVED)
"""States of the one proposal of a pool and strategy that may still be carried out."""

OVER = tuple(each for each in ProposalState if each not in (*OPEN, ProposalState.STARTED))
"""States that don't change any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedPlan:
    """The evictions of one strategy from one pool, and what they were planned by."""

    pool: str
    strategy: str
    policy_hash: str
    """SHA-256 of the policy's values."""
    evictions: tuple[PlannedEviction, ...]
    """In the order of the plan."""
    thresholds: Annotated[tuple[ThresholdOverride, ...], LEFT_OUT] = ()
    """Those of alerts for its nodes."""
    due: Annotated[Mapping[tuple[str, str], float], LEFT_OUT] = field(default_factory=dict)
    """(node, resource) of its nodes to be relieved ahead of its peak -> when it is hot (seconds since the epoch)."""

    def stands_for(self, later: "ProposedPlan", *, whole: bool, pods: Collection[str]) -> bool:
        """Whether it stays in place of a plan of a later cycle, which looked at the `whole` pool or at some of its
        nodes; `pods` are the UIDs of all that are there.

        Loads of alike pods differ a little from cycle to cycle, and then the other one is planned. So it stays while
        the later plan evicts as many pods from each node, and all pods of this one are still there. A pod of both must
        have a landing that this one shows, and be moved in the same way.
        """
        mine, theirs = (Counter(each.node for each in plan.evictions) for plan in (self, later))
        if self.policy_hash != later.policy_hash or (mine != theirs if whole else not theirs <= mine):
            return False
        shown = {each.uid: each for each in self.evictions}
        both = [(shown[move.uid], move) for move in later.evictions if move.uid in shown]
        return shown.keys() <= set(pods) and all(
            move.replacement_first == before.replacement_first
            and {target.node for target in move.target_nodes[:1]} <= {target.node for target in before.target_nodes}
            for before, move in both
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A plan that waits for an approval, or did."""

    id: str
    """Short, to be typed."""
    cluster: str
    state: ProposalState
    cycle: str
    """Id of the cycle that planned it."""
    run: str
    """Id of the cycle that carries it out."""
    proposed_at: Instant
    expires_at: Instant
    decided_by: TextOrNull = ""
    """Who approved or rejected it."""
    decided_at: InstantOrNull = None
    reason: TextOrNull = ""
    """Why it is not open any more; after it was carried out, which of its evictions were not made."""
    plan: Annotated[ProposedPlan, INLINE]

    @property
    def summary(self) -> str:
        """`3 evictions from pool a by LowNodeUtilization`."""
        return f"{counted(len(self.plan.evictions), 'eviction')} from pool {self.plan.pool} by {self.plan.strategy}"

    @property
    def closed(self) -> str:
        """Why it can't be approved, as a phrase: `it was rejected by ann at 12:00`."""
        state, about = self.state, f": {self.reason}" if self.reason else ""
        if state is ProposalState.SUPERSEDED:
            return self.reason
        if state is ProposalState.EXPIRED:
            return f"it expired at {clock_time(self.expires_at)}"
        if state is ProposalState.STARTED:
            return "it is being carried out"
        if state is ProposalState.PROPOSED:
            return "it waits for an approval"
        verb = {ProposalState.CARRIED_OUT: "carried out"}.get(state, state.lower())
        by = f" by {self.decided_by}" if state in (ProposalState.APPROVED, ProposalState.REJECTED) else ""
        at = f" at {clock_time(self.decided_at)}" if by and self.decided_at is not None else ""
        return f"it was {verb}{by}{at}{about}"
