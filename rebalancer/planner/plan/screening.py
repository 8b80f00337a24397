"""Screening: once, before a finding's first move, the candidates that can't go or wouldn't help are sorted out.

Guards, lists and levels protect a pod whatever else is planned; a pod may not relieve its node; and its relief may not
be worth its price. Later some of what may go has been moved or refused, so that is checked at the start alone.
"""

from collections.abc import Sequence

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.decisions.plan import Finding
from rebalancer.model.reason import Refusal
from rebalancer.planner.candidates.jobs import Job, relief_refusals
from rebalancer.planner.candidates.low_nodes import LowNodes
from rebalancer.planner.candidates.worth import may_go, not_worth
from rebalancer.planner.plan.state import PlanState


def protected(pod: Pod, finding: Finding, admission: EvictionAdmission) -> Refusal | None:
    """Why the pod may not be evicted for the finding, whatever else is planned."""
    return admission.stays(pod, pool=finding.pool, strategy=finding.strategy, broken=finding.broken)


class Screening:
    """See the module."""

    def __init__(self, state: PlanState, *, goes_on: bool) -> None:
        """`goes_on`: an earlier plan of the cycle, which this one continues, has compared reliefs and prices."""
        self._state, self._goes_on = state, goes_on
        placement, names = state.landings.model, state.snapshot.nodes.names
        self._low_nodes = LowNodes(placement, pools=state.input.pools, names=names)

    def screen(self, job: Job, candidates: Sequence[int]) -> None:
        """Add those that pass to the job."""
        able = self._sort_out(job, candidates)
        # the simulated plan has checked all candidates, the skipped ones included
        if not job.left or job.skipped or self._goes_on:
            return
        state = self._state
        admission = state.admission
        stay = not_worth(
            job,
            able,
            snapshot=state.snapshot,
            placement=state.landings.model,
            price=admission.price,
            worth=admission.worth,
        )
        if stay:
            self._state.refused.update((pod.index, stay[pod.index]) for pod in job.left if pod.index in stay)
            job.left = [pod for pod in job.left if pod.index not in stay]

    def screen_skipped(self, job: Job) -> None:
        """The same for the candidates that were skipped for a script that has failed."""
        skipped, job.skipped = job.skipped, []
        self._sort_out(job, skipped)
        job.sorted = False

    def _sort_out(self, job: Job, candidates: Sequence[int]) -> list[Pod]:
        """Refuse those that are protected or relieve nothing, add the others to the job; returns those that may go, now
        or later."""
        in_vain, able = relief_refusals(job), list[Pod]()
        for index in candidates:
            pod = self._state.snapshot.pod(index)
            stays = protected(pod, job.finding, self._state.admission)
            stays = stays or self._low_nodes.refuses(pod, job.finding, job.cooled)
            if may_go(stays):
                able.append(pod)
            refusal = stays or in_vain.get(index)
            if refusal is None:
                job.left.append(pod)
            else:
                self._state.refused[index] = refusal
        return able
