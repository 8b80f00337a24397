"""The groups of reasons in rates and reports: why a hot episode was missed, why a hot node was not relieved."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from rebalancer.model.reason.shields import lifted_by_trust


class Code(StrEnum):
    """A stable identifier with its sentence for people."""

    sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        """Members are written `NAME = code, sentence`; looked up by their code alone."""
        out = str.__new__(cls, code)
        out._value_, out.sentence = code, sentence
        return out


class MissReason(Code):
    """Why a hot episode was not discovered; `sentence` says it in words."""

    DAEMON_DOWN = "daemonDown", "no cycle ran while it was hot"
    """No cycle ran in the episode, or none for most of it."""
    NOT_COVERED = "notCovered", "it is in no pool of a strategy for hot nodes"
    NO_METRICS = "noMetrics", "its usage was missing or not plausible"
    """Also where the whole cycle was stopped for that."""
    STABILIZATION_WINDOW = "stabilizationWindow", "it was not hot for long enough, or an eviction from it was settling"
    BELOW_THRESHOLD = "belowThreshold", "the measured share stayed at or under the pool's high"
    """Alert or thresholds are less sensitive than the hot-node SLO, or computed otherwise."""
    NOT_EVALUATED = "notEvaluated", "cycles ran, but none evaluated it while it was hot"
    """Its alert never came, or the strategy's interval is longer than the episode."""
    NOT_READY = "notReady", "the node was not Ready"
    NODE_LEAVING = "nodeLeaving", "the node was being removed, drained or shut down"
    COOLS_BY_ITSELF = "coolsByItself", "a pod that made it hot was about to end"


class BlockedReason(Code):
    """Why nothing was evicted from a discovered node: the group of its refusals' codes."""

    GUARDS = "guards", "guards protect its pods"
    LISTS = "lists", "allow and deny lists keep its pods"
    LEVELS = "levels", "its pods' service levels forbid evictions"
    WINDOWS = "windows", "outside the change windows of its pods"
    LIMITS = "limits", "limits were used up"
    COOLDOWNS = "cooldowns", "cooldown, backoff, circuit breaker or a late replacement"
    """Also a recent move of the service in another cluster."""
    PAUSED = "paused", "evictions were paused"
    BUDGETS = "disruptionBudgets", "PodDisruptionBudgets had no room"
    NO_TARGET_NODE = "noTargetNode", "no suitable target node for the replacements"
    POOL_FULL = "poolFull", "no target node was under its low"
    SERVER = "serverRefused", "the API server refused"
    POOR_SELECTION = "poorSelection", "only the planner's own selection kept the candidates there"
    """Candidates that no rule kept might have cooled it: planning time used up, each too small alone but enough
    together, or left for others that did not go in the end."""
    INTERRUPTED = "interrupted", "the plan was broken off: the lease was lost, or the program was stopped"
    NO_CANDIDATES = "noCandidates", "no pod on it could be evaluated, or would have helped"
    DRY_RUN = "dryRun", "a dry run: nothing is evicted"


@dataclass(frozen=True, slots=True)
class Row:
    """The facts of one reason. `lifted_by` has no default, so no reason can be without it.

    `setting` is for a policy key that `lifted_by` does not name in braces.
    """

    group: BlockedReason | MissReason | None
    code: str
    sentence: str
    lifted_by: str
    setting: str = ""

    @property
    def lift(self) -> tuple[str, str]:
        """(what lifts the refusal, as text; the policy key that holds it)."""
        before, _, rest = self.lifted_by.partition("{")
        key, _, after = rest.partition("}")
        return before + key + after + lifted_by_trust(self.code), self.setting or key


class RowCode(Code):
    """A code with its facts.

    `group` is the blocked reason that refusals of a hot node's candidates count as, or the miss reason that the codes
    of nodes and cycles count as. None: the code is of other goals (removing pods, draining nodes), and explains nothing
    of a node that stayed hot.

    `lifted_by` is what lifts the refusal. "time: ..." says which time; it stands in `Refusal.next_at`. A refusal ends
    in the first cycle after what lifts it.

    `setting` is the policy key that holds the refusals: the one in braces in `lifted_by`, or the row's own. Empty: the
    cluster holds them.
    """

    group: BlockedReason | MissReason | None
    lifted_by: str
    setting: str

    def __new__(cls, row: Row | str) -> Self:
        """Members are written as rows; a code alone only looks a member up."""
        if not isinstance(row, Row):
            raise TypeError(f"{row} is written without what lifts it")
        out = str.__new__(cls, row.code)
        out._value_, out.sentence, out.group = row.code, row.sentence, row.group
        out.lifted_by, out.setting = row.lift
        return out
