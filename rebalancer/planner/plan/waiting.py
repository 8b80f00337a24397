"""Candidates that only a short wait bars: they are kept for later where that saves evictions.

A replacement that is not Ready yet, spacing, a budget that this plan has used up: that passes within the patience of
the plan. Its candidates wait in their job until no other move may be made. Then `waits` is what the plan waits for;
with `resume` their jobs become a batch once more. So does the next move of a script: nothing else goes before it.
"""

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner.candidates.jobs import Job, fewest
from rebalancer.planner.plan.moves import Refused
from rebalancer.planner.plan.state import PlanState

MAX_WAITS = 4
"""How often a plan waits for its replacements."""


class Waiting:
    """See the module."""

    def __init__(self, state: PlanState, *, patience: float, waited: int) -> None:
        """`patience` (seconds): the longest wait. `waited`: how often an earlier plan of the cycle has waited."""
        self._state = state
        self.patience, self.waited = patience, waited
        self.jobs: list[Job] = []
        """Whose candidates wait, once their batch is done."""
        self.script: tuple[int, Refusal] | None = None
        """The pod of the script's next move, with what bars it, while that waits."""
        self.reasons: dict[int, str] = {}
        """Pod -> what it has waited for."""

    def may_wait(self, job: Job, pod: Pod, refused: Refused) -> bool:
        """Whether only a short wait bars the candidate."""
        if not self.patience or self.waited >= MAX_WAITS or job.finding.urgent:
            return False
        if (urgent := self._state.input.urgent) is not None and urgent[job.finding.node]:
            return False
        if refused.refusal.code is Reason.BUDGET_EXHAUSTED:
            return self._state.budgets.refuses(pod, alone=True) is None
        return refused.limited is not None and self._state.admission.passes(refused.limited, within=self.patience)

    def add(self, job: Job, pod: Pod, refusal: Refusal) -> None:
        """Let the candidate wait. Where waiting for it, too, takes fewer evictions than going on without it, the others
        only take what it leaves, and go at once."""
        job.waiting[pod.index] = (pod, refusal)
        if job.cooled is None:
            return
        others = [*job.left, *job.expected]
        if fewest(job, [*others, pod]) < fewest(job, others):
            job.expected.append(pod)

    @property
    def refusals(self) -> list[Refusal]:
        """What bars the moves that wait."""
        if self.script is not None:
            return [self.script[1]]
        return [refusal for job in self.jobs for _, refusal in job.waiting.values()]

    def resume(self) -> list[Job] | None:
        """The jobs of the candidates that waited; None where the script's next move did."""
        if self.script is not None:
            pod, refusal = self.script
            self.reasons[pod], self.script = refusal.message, None
            return None
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            self.reasons |= {pod.index: refusal.message for pod, refusal in job.waiting.values()}
            job.resume()
        return jobs
