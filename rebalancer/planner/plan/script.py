"""The script of a plan: a simulated plan, which the real one repeats move by move.

A cycle simulates its plan before it applies soft taints. The real plan begins with the same moves in the same order,
with their landings as they were simulated, and skips what the simulation refused. The script fails with the first move
that can't be made: then nothing that is known of the simulation holds. What was skipped is checked, and the plan goes
on in an order of its own.
"""

from collections import deque
from collections.abc import Mapping

from rebalancer.model.reason import Refusal
from rebalancer.planner.candidates.jobs import Job
from rebalancer.planner.plan.plan_input import Choice, PlannedMove
from rebalancer.planner.plan.queue import JobQueue
from rebalancer.planner.plan.screening import Screening
from rebalancer.planner.plan.state import PlanState
from rebalancer.planner.plan.waiting import Waiting


class Script:
    """See the module. Empty for a plan that repeats none."""

    def __init__(
        self, choice: Choice, state: PlanState, *, queue: JobQueue, waiting: Waiting, screening: Screening
    ) -> None:
        self._moves, self._known, self._state = deque(choice.script), choice.known, state
        self._queue, self._waiting, self._screening = queue, waiting, screening
        self._failed = False

    @property
    def known(self) -> Mapping[int, Refusal]:
        """Pod -> why the simulation refused it; none once the script has failed."""
        return {} if self._failed else self._known

    def move_of(self, pod: int) -> PlannedMove | None:
        """The next move where it is this pod's."""
        first = self._moves[0] if self._moves and not self._failed else None
        return first if first is not None and first.pod == pod else None

    def room_for(self, pod: int) -> list[int] | None:
        """The pods that make room for a pending one in the simulation; None where it isn't known."""
        made = [] if self._failed else [each.pod for each in self._moves if each.room_for == pod]
        return made if made or pod in self.known else None

    def next_job(self) -> Job | None:
        """The job of the next move, with that pod first; None at the end, and where it is of another batch."""
        while self._moves and not self._failed:
            pod = self._moves[0].pod
            job = self._queue.job_of(pod)
            if job is None or job.put_first(pod):
                return job
            if not self._state.moved[pod]:
                self.fail()
                return None
            self._moves.popleft()
        return None

    def fail(self) -> None:
        """Go on without it."""
        if self._failed:
            return
        self._failed = True
        for job in (*self._queue.batch, *self._waiting.jobs):
            self._screening.screen_skipped(job)
        self._queue.begin(self._queue.batch)
