"""The planner: one move at a time, so that a move that is refused later is followed by the next best.

    while move := planner.next_move():
        ... admit, evict ...
        planner.accept(move)   or   planner.reject(move, refusal)

The findings come in batches (`batches`), one job each. The queue of a batch (`queue`) gives the job whose best
candidate comes next. A candidate must be admissible, and its landing must hold with all earlier moves of the plan
counted (`moves`). A job ends when its goal is reached: the node is at its target (COOL), enough pods are gone (REMOVE),
none is left (EMPTY, `emptying`), or a pending pod has its room (ROOM, `room`). The plan is deterministic and
independent of the order in which nodes and pods are listed.

A plan that has been simulated is repeated (`script`). With patience, a candidate that only a short wait bars is kept
for later (`waiting`). With a `SoftTaintBudget` the plan is a simulation: nodes that bar a landing get our soft taint,
as far as the budget goes, and nodes to be emptied are cordoned.
"""

from collections.abc import Collection, Mapping, Sequence

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner.candidates.jobs import Job, excess, goal_reached, wanted_pods
from rebalancer.planner.landings.landings import Landings
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.plan.batches import Batches
from rebalancer.planner.plan.emptying import NodeDrainer
from rebalancer.planner.plan.moves import MoveMaker, Refused
from rebalancer.planner.plan.outcome import LANDING_REFUSALS, PlanOutcome
from rebalancer.planner.plan.plan_input import Choice, PlanInput, PlanningTime
from rebalancer.planner.plan.queue import JobQueue
from rebalancer.planner.plan.room import RoomMaker
from rebalancer.planner.plan.screening import Screening
from rebalancer.planner.plan.script import Script
from rebalancer.planner.plan.state import PlanProgress, PlanState
from rebalancer.planner.plan.waiting import Waiting


class Planner:
    """See the module. Not thread-safe; one for each plan."""

    def __init__(
        self,
        plan_input: PlanInput,
        *,
        placement: PlacementModel,
        admission: EvictionAdmission,
        steering: SoftTaintBudget | None = None,
        time: PlanningTime | None = None,
        patience: float = 0.0,
        choice: Choice | None = None,
        progress: PlanProgress | None = None,
    ) -> None:
        """`placement` is the scheduler's view of the snapshot with no move counted yet, and this planner's until its
        `start_over`. `steering` makes the plan a simulation. `patience` (seconds): the longest wait. `progress` of the
        plan that this one takes the place of; it is counted in `admission`."""
        snapshot, goes_on = plan_input.snapshot, progress is not None and progress.screened
        choice, progress, time = choice or Choice(), progress or PlanProgress(), time or PlanningTime()
        landings = Landings(
            snapshot=snapshot,
            model=placement,
            found=plan_input.found,
            base=plan_input.base,
            reserve=plan_input.reserve,
            steering=steering,
        )
        self.placement, self.admission, self._out_of_time = placement, admission, time.spent
        state = self.state = PlanState(plan_input, admission, landings, progress)
        self.outcome = PlanOutcome(state)
        self.moves = MoveMaker(state)
        self._drainer = NodeDrainer(state, self.moves, simulation=steering is not None, out_of_time=time.spent)
        patience = min(patience, progress.patience) if choice.patient else 0.0
        self.waiting = Waiting(state, patience=patience, waited=progress.waited)
        self._queue = JobQueue(state, choice)
        screening = Screening(state, goes_on=goes_on)
        self._script = Script(choice, state, queue=self._queue, waiting=self.waiting, screening=screening)
        self._rooms = RoomMaker(state, self.moves, script=self._script, steering=steering, out_of_time=time.spent)
        self.batches = Batches(
            state,
            drainer=self._drainer,
            rooms=self._rooms,
            screening=screening,
            script=self._script,
            share_of_time=time.share,
        )
        self._queue.begin(self.batches.next_batch())
        self._job: Job | None = None
        """Of the move that was made last."""

    # ---- the loop

    def next_move(self) -> Eviction | None:
        """The best move left that may be made now, or None. It is counted only when accepted."""
        while self._queue.batch and self.waiting.script is None:
            if self._out_of_time():
                self.stop(Refusal.of(Reason.PLANNING_TIMEOUT))
                return None
            self._job = self._script.next_job() or self._queue.next_job()
            if self._job is None:
                self._end_batch()
            elif (move := self._try(self._job)) is not None:
                return move
        return None

    def accept(self, move: Eviction) -> None:
        """Count a move that happened, may have happened, or would happen in a real run."""
        pod = move.in_plan.pod_index
        # a finished pod holds nothing and has no replacement
        room_for = None if self._job is None else self._job.finding.room_for
        self.state.accept(pod, self.moves.checked[pod] if move.target_nodes else None, room_for=room_for)
        if self._job is not None:
            self._job.moved += bool((wanted_pods(self._job.finding) == pod).any())
            self._job.to_go.pop(pod, None)
            self._job.sorted, self._job.misses = False, 0
            self._job.drop(pod)
            self._rooms.settle(self._job)

    def reject(self, move: Eviction, refusal: Refusal) -> None:
        """Record why a move was refused after all; the next best follows."""
        self._script.fail()
        self.state.refuse(move.in_plan.pod_index, refusal)
        if self._job is not None:
            self._job.drop(move.in_plan.pod_index)
            self._rooms.again(self._job, move.in_plan.pod_index)

    def depends(self, move: Eviction, other: Eviction) -> bool:
        """Whether the planned move may be another one, or none, if the `other` one doesn't happen after all: they share
        a node, a service, a PodDisruptionBudget or an even group, or the replacement may land on the node that the
        other one leaves."""
        checked = self.moves.checked.get(move.in_plan.pod_index) if move.target_nodes else None
        lands = checked is not None and other.in_plan.node_index in checked.landing.nodes
        return lands or self.state.share(move, other)

    def stop(self, refusal: Refusal) -> None:
        """End the plan: every candidate that is still undecided is refused with this reason."""
        self.batches.stopped = refusal
        while self._queue.batch:
            for job in self._queue.batch:
                self.state.refused.update((pod.index, refusal) for pod in job.left)
                self.state.refused.update((pod, refusal) for pod in job.waiting)
            self._queue.begin(self.batches.next_batch())
        for job in self.waiting.jobs:
            self.state.refused.update((pod, refusal) for pod in job.waiting)
        self.waiting.jobs, self.waiting.script = [], None

    def taints_of(self, move: Eviction) -> Mapping[str, str]:
        """Node -> value of the soft taints that must be there before the move."""
        repeated = self._script.move_of(move.in_plan.pod_index)
        names = self.state.snapshot.nodes.names
        return {} if repeated is None else {names[node]: value for node, value in repeated.taints.items()}

    # ---- waiting

    @property
    def waits(self) -> Sequence[str]:
        """What the moves that are left wait for, at the end of those that may be made now."""
        return sorted({each.message for each in self.waiting.refusals})

    @property
    def waits_until(self) -> float | None:
        """The earliest time at which a move that waits may be made by time alone (seconds since the epoch); None = no
        time is known."""
        return min((each.next_at for each in self.waiting.refusals if each.next_at is not None), default=None)

    def resume(self, landed: Collection[Eviction], *, now: float = 0.0, counts: bool = True) -> None:
        """Go on with what waited, after the replacements of `landed` became Ready. `now`: seconds since the epoch; 0 =
        not known. `counts`: it is one of the plan's MAX_WAITS."""
        self.admission.landed(landed, now=now)
        self.state.land(landed)
        self.waiting.waited += counts
        if (jobs := self.waiting.resume()) is not None:
            self._queue.begin(jobs)

    def give_up(self) -> None:
        """Wait no more: what may go now takes the place of what waited."""
        self.waiting.patience = 0.0
        if self.waiting.script is not None:
            self._script.fail()
        self.resume((), counts=False)

    # ---- the result

    @property
    def cordoned(self) -> Bools:
        """(nodes,) that are being emptied and must be cordoned; complete at the end of the plan."""
        return self._drainer.worked_on

    def progress(self, undone: Mapping[int, Refusal | None]) -> PlanProgress:
        """What is done, for a plan that takes the place of this one; `undone` as in `PlanState`."""
        return self.state.progress(undone, waited=self.waiting.waited, patience=self.waiting.patience)

    # ---- one step

    def _end_batch(self) -> None:
        for job in self._queue.batch:
            if job.waiting:
                self.waiting.jobs.append(job)
            else:
                self._drainer.end(job)
        self._queue.begin(self.batches.next_batch())

    def _try(self, job: Job) -> Eviction | None:
        """The move of the job's best candidate, or None where that is refused."""
        if (reached := goal_reached(job)) is not None:
            self._queue.end(job, reached)
            return None
        if job.expected and not (excess(job) > 0).any():
            job.postpone()
            return None
        pod = job.left[0]
        repeated = self._script.move_of(pod.index)
        move = self.moves.make(job, pod, repeated)
        if isinstance(move, Eviction):
            self.state.refused.pop(pod.index, None)
            move.waits_for = self.waiting.reasons.get(pod.index, "")
            return move
        if repeated is not None:
            if self.waiting.may_wait(job, pod, move):
                self.waiting.script = (pod.index, move.refusal)
                return None
            self._script.fail()
        self._pass_over(job, pod, move)
        return None

    def _pass_over(self, job: Job, pod: Pod, refused: Refused) -> None:
        """Go on with the job's other candidates."""
        refusal = refused.refusal
        by_landing = refusal.code in LANDING_REFUSALS
        job.left, job.sorted = job.left[1:], False
        job.misses += by_landing
        self.state.refused[pod.index] = refusal
        if job.finding.goal is Goal.ROOM:
            self._rooms.again(job, pod.index)
            return
        if by_landing and self.state.landings.needs_many_taints:
            job.tainting.append(pod)
        if not job.left and not job.waiting and job.tainting:
            # nothing else would do
            job.left, job.tainting, job.any_taints = job.tainting, [], True
            return
        if self.waiting.may_wait(job, pod, refused):
            self.waiting.add(job, pod, refusal)
            del self.state.refused[pod.index]
        if not job.left and job.waiting:
            job.postpone()
