"""The queue of a batch: which job's best candidate comes next.

Nodes that are cooled together are one problem: of all their candidates the largest comes first, so that small pods
don't take the landings that large ones need. Jobs of other goals keep their order. A search for a better plan finishes
one node after the other instead, or changes the sizes at random.
"""

import heapq
import math
from collections.abc import Sequence

from rebalancer.model.reason import Refusal
from rebalancer.placement.draws.draws import seeded
from rebalancer.planner.candidates.jobs import Job, goal_reached, in_order, size
from rebalancer.planner.plan.plan_input import Choice
from rebalancer.planner.plan.state import PlanState

MAX_MISSES = 8
"""After so many candidates without a landing in a row the other hot nodes come first."""

NOISE = 0.35
"""Standard deviation of the logarithm of a random change of the order."""

FIRST = 1e3
"""More than any share of a node."""


class JobQueue:
    """See the module."""

    def __init__(self, state: PlanState, choice: Choice) -> None:
        self._state, self._choice = state, choice
        self.batch: Sequence[Job] = ()
        self._turns: list[tuple[bool, float, int]] = []
        """(after the others, turn, index) of each job with candidates, the smallest first (`heapq`)."""
        self._noise: dict[str, float] = {}
        """Name of a pod -> random factor of its size."""

    def begin(self, batch: Sequence[Job]) -> None:
        """Go on with another batch; with the same one after its candidates have changed."""
        self.batch, self._turns = batch, []

    def next_job(self) -> Job | None:
        """The job whose best candidate comes next, sorted; None at the end of the batch."""
        if not self._turns:
            self._turns = [(False, -math.inf, at) for at, job in enumerate(self.batch) if job.left]
        while self._turns:
            # a job's turn only gets later: it is looked at again where it comes first
            at = self._turns[0][2]
            job = self.batch[at]
            if job.left and not job.sorted:
                if (refusal := goal_reached(job)) is not None:
                    self.end(job, refusal)
                else:
                    job.left, job.sorted = in_order(job, self._state.admission), True
                    job.turn = self._turn(job)
            if not job.left:
                heapq.heappop(self._turns)
                continue
            key = (job.misses >= MAX_MISSES, job.turn, at)
            if key <= self._turns[0]:
                return job
            heapq.heapreplace(self._turns, key)
        return None

    def job_of(self, pod: int) -> Job | None:
        """The job of the batch that has the pod among its candidates."""
        node = int(self._state.snapshot.pods.node[pod])
        return next((job for job in self.batch if job.finding.node == node and pod in job.finding.candidates), None)

    def end(self, job: Job, refusal: Refusal) -> None:
        """The goal of the job is reached: no other candidate has to leave."""
        for pod in job.end():
            self._state.refused.setdefault(pod.index, refusal)

    def _turn(self, job: Job) -> float:
        first = -FIRST if job.finding.urgent else 0.0
        if job.cooled is None or self._choice.by_node:
            return first
        share = size(job)
        if self._choice.noise:
            share *= self._noise_of(job.left[0].name)
        return first - share

    def _noise_of(self, name: str) -> float:
        if name not in self._noise:
            self._noise[name] = math.exp(float(seeded(self._choice.noise, name).normal(0.0, NOISE)))
        return self._noise[name]
