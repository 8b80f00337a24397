"""The planner: one move at a time, so that a move that is refused later is followed by the next best.

    while move := planner.next_move():
        ... admit, evict ...
        planner.accept(move)   or   planner.reject(move, refusal)

Findings are processed in their order. Nodes that are to be cooled are one problem: of all their candidates the largest
comes first, so that small pods don't take the landings that large ones need. A candidate must be admissible (guards,
budgets, limits), and its landing must hold (`landings`): with all earlier moves of the plan counted, its node stays at
or under its target. A finding ends when its goal is reached: the node is at its target (COOL), enough pods are gone
(REMOVE), or none is left (EMPTY, `emptying`). The plan is deterministic and independent of the order in which nodes and
pods are listed.

With `patience` a candidate that only a short wait bars is kept for later where it saves evictions: at the end of the
moves that may go now, `waits` says what is waited for, and `resume` goes on with what has become possible.

With a `SoftTaintBudget` the plan is a simulation: nodes that bar a landing get our soft taint, as far as the budget
goes, and nodes to be emptied are cordoned.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.moves.budgets import BudgetRoom
from rebalancer.model.cluster.snapshot import FAILED, SUCCEEDED, ClusterSnapshot, Pod
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Finding, Goal, Loads, PodRefusal
from rebalancer.model.notation.figures import percent
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.draws import seeded
from rebalancer.placement.landing import Placed, PlacementModel
from rebalancer.planner.choice import Begun, Choice, PlannedMove
from rebalancer.planner.emptying import NodeDrainer
from rebalancer.planner.jobs import Job, counted, excess, fewest, goal_reached, in_order, size, useless
from rebalancer.planner.landings import Judged, Landings
from rebalancer.planner.low_nodes import LowNodes
from rebalancer.planner.outcome import LANDING_REFUSALS, PlanOutcome
from rebalancer.planner.reach import may_go, unreachable
from rebalancer.planner.soft_taints import SoftTaintBudget
from rebalancer.strategies.interface.view import Findings

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


MAX_MISSES = 8
"""After so many candidates without a landing in a row the other hot nodes come first."""

NOISE = 0.35
"""Standard deviation of the logarithm of a random change of the order."""

FIRST = 1e3
"""More than any share of a node."""

MAX_WAITS = 4
"""How often a plan waits for its replacements."""


def _never() -> bool:
    return False


def _no_share(parts: int) -> Callable[[], bool]:
    return _never


class Planner:
    """See the module. Not thread-safe; one for each plan."""

    def __init__(  # noqa: PLR0915 - the state of a plan
        self,
        *,
        snapshot: ClusterSnapshot,
        placement: PlacementModel,
        found: Sequence[Findings],
        admission: EvictionAdmission,
        cpu_millicores: Floats,
        pools: Sequence[str],
        base: Loads | None = None,
        reserve: Loads | None = None,
        steering: SoftTaintBudget | None = None,
        out_of_time: Callable[[], bool] = _never,
        share_of_time: Callable[[int], Callable[[], bool]] = _no_share,
        patience: float = 0.0,
        urgent: Bools | None = None,
        choice: Choice | None = None,
        begun: Begun | None = None,
    ) -> None:
        """`placement` is the scheduler's view of the snapshot with no move counted yet, and this planner's until its
        `start_over`. `cpu_millicores` (pods,) is the real CPU that moves are recorded with; NaN where unknown. `pools`
        (nodes,) names of the nodes' pools, empty for none. `base` is the load that every target node is judged by,
        whichever strategy wants the move; `reserve` the memory that must stay available on it. `steering` makes the
        plan a simulation. Once `out_of_time` returns True, nothing more is planned. `share_of_time` makes a limit of
        one of so many equal parts of the time that is left: when it is spent, the other strategies come first.
        `patience` (seconds): the longest wait; nodes of `urgent` (nodes,) don't wait. `begun`: what is done already,
        and counted in `admission`."""
        self._snapshot = snapshot
        self.admission = admission
        self._cpu = cpu_millicores
        self._base = base
        self._pools = pools
        self._out_of_time, self._share_of_time = out_of_time, share_of_time
        self.placement = placement
        self._landings = Landings(
            snapshot=snapshot, model=placement, found=found, base=base, reserve=reserve, steering=steering
        )
        self._low_nodes = LowNodes(placement, pools=pools, names=snapshot.nodes.names)
        self._budgets = BudgetRoom(snapshot)
        self._moved: Bools = np.zeros(len(snapshot.pods), dtype=np.bool_)
        self._drainer = NodeDrainer(
            snapshot=snapshot,
            moved=self._moved,
            admission=admission,
            budgets=self._budgets,
            landings=self._landings,
            simulation=steering is not None,
            out_of_time=out_of_time,
        )
        self._refused: dict[int, Refusal] = {}
        self._judged: dict[int, Judged] = {}
        self._placed: dict[int, Placed] = {}
        self.outcome = PlanOutcome(
            snapshot=snapshot,
            found=found,
            headrooms=self._landings.headrooms,
            placement=placement,
            cpu_millicores=cpu_millicores,
            moved=self._moved,
            reasons=self._refused,
            placed=self._placed,
            base=base,
        )
        self._stopped: Refusal | None = None
        self._choice = choice or Choice()
        self._continues, self._begun = begun is not None, begun or Begun()
        self._patience = min(patience, self._begun.patience) if self._choice.patient else 0.0
        self._urgent = np.zeros(len(snapshot.nodes), dtype=np.bool_) if urgent is None else urgent
        self._script = deque(self._choice.script)
        self._failed = False
        """Whether a move of the script couldn't be made: then nothing that is known of the simulated plan holds."""
        self._script_waits: Refusal | None = None
        self.planned: list[PlannedMove] = []
        """The moves that were accepted."""
        self._tainted: set[int] = set(self._landings.chosen)
        self._waited = self._begun.waited
        self._landed: set[int] = set(self._begun.landed)
        """Pods of the plan whose replacements are Ready."""
        self._rejected: dict[int, Refusal] = dict(self._begun.refused)
        """Pod -> why its move was refused after it was planned."""
        self._why_waiting: dict[int, str] = {}
        """Pod -> what its move waits for."""
        self._parked: list[Job] = []
        self._queue: list[tuple[bool, float, int]] = []
        """Of the batch: (after the others, turn, index) of each job with candidates, the smallest first (`heapq`)."""
        self.most_together = 0
        """The most nodes that are cooled together: with one the order of nodes makes no difference."""
        self.landings_judged = 0
        """How many landings were judged."""
        self.fewest = 0
        """Fewest evictions that could do what the findings ask for, whatever their landings."""
        self._job: Job | None = None
        self._barred: Eviction | None = None
        """The move of the candidate that was judged last, where the limits refuse it whatever its landing."""
        self._noise: dict[str, float] = {}
        """Name of a pod -> random factor of its size."""
        self._repeat()
        self._batches = self._each_batch(found)
        self._batch: list[Job] = next(self._batches, [])

    # ---- the loop

    def next_move(self) -> Eviction | None:
        """The best move left that may be made now, or None. It is counted only when accepted."""
        while self._batch and self._script_waits is None:
            if self._out_of_time():
                self.stop(Refusal.of(Reason.PLANNING_TIMEOUT))
                return None
            self._job = self._next_job()
            if self._job is not None:
                if (move := self._try(self._job)) is not None:
                    return move
                continue
            for job in self._batch:
                if job.barred:
                    self._parked.append(job)
                else:
                    self._drainer.end(job)
            self._batch = next(self._batches, [])
        return None

    def accept(self, move: Eviction) -> None:
        """Count a move that happened, may have happened, or would happen in a real run."""
        self._moved[move.pod_index] = True
        self._budgets.take(self._snapshot.pod(move.pod_index))
        chosen = self._landings.chosen
        new: dict[int, str] = {}
        if len(chosen) > len(self._tainted):  # none is removed once a move has needed it
            new = {node: value for node, value in chosen.items() if node not in self._tainted}
            self._tainted |= new.keys()
        judged = None
        if move.target_nodes:  # a finished pod holds nothing and has no replacement
            judged = self._judged[move.pod_index]
            placed = self._land(move.pod_index, judged)
            judged = replace(judged, landing=judged.landing.summary(), winners=placed.winners)
        self.planned.append(PlannedMove(pod=move.pod_index, judged=judged, taints=new))
        if self._job is not None:
            self._job.taken += bool((counted(self._job.finding) == move.pod_index).any())
            self._job.to_go.pop(move.pod_index, None)
            self._job.sorted, self._job.misses = False, 0
        self._drop(move.pod_index)

    def reject(self, move: Eviction, refusal: Refusal) -> None:
        """Record why a move was refused after all; the next best follows."""
        self._refused[move.pod_index] = self._rejected[move.pod_index] = refusal
        self._fail()
        self._close_budget(move.pod_index, refusal)
        self._drop(move.pod_index)

    def depends(self, move: Eviction, other: Eviction) -> bool:
        """Whether the planned move may be another one, or none, if the `other` one doesn't happen after all: they share
        a node, a service, a PodDisruptionBudget or an even group, or the replacement may land on the node that the
        other one leaves."""
        judged = self._judged.get(move.pod_index)
        return (
            move.node_index == other.node_index
            or (judged is not None and move.target_nodes != () and other.node_index in judged.landing.nodes)
            or move.service_identity == other.service_identity
            or move.service == other.service
            or self._budgets.shared(self._snapshot.pod(move.pod_index), self._snapshot.pod(other.pod_index))
            or self._landings.even.shared(move.pod_index, other.pod_index)
        )

    def begun(self, undone: Mapping[int, Refusal | None]) -> Begun:
        """What is done, for a plan that takes the place of this one. `undone`: pod of an accepted move that did not
        happen after all -> why; None = it may be planned again."""
        return Begun(
            moves=tuple(each for each in self.planned if each.pod not in undone),
            landed=frozenset(self._landed),
            refused=self._rejected | {pod: refusal for pod, refusal in undone.items() if refusal is not None},
            waited=self._waited,
            patience=self._patience,
        )

    def _repeat(self) -> None:
        """Count what is done already."""
        for made in self._begun.moves:
            self._moved[made.pod] = True
            if made.pod not in self._landed:
                self._budgets.take(self._snapshot.pod(made.pod))
            if made.judged is not None:
                self._land(made.pod, made.judged)
            self.planned.append(made)
        for pod, refusal in self._rejected.items():
            self._refused[pod] = refusal
            self._close_budget(pod, refusal)

    def _land(self, pod: int, judged: Judged) -> Placed:
        placed = self._placed[pod] = self._landings.count(self._snapshot.pod(pod), judged)
        return placed

    def _close_budget(self, pod: int, refusal: Refusal) -> None:
        if refusal.code in (Reason.SERVER_BUDGET, Reason.SERVER_SEVERAL_BUDGETS):
            self._budgets.close(self._snapshot.pod(pod))

    def stop(self, refusal: Refusal) -> None:
        """End the plan: every candidate that is still undecided is refused with this reason."""
        self._stopped = refusal
        while self._batch:
            for job in self._batch:
                self._refused.update((pod.index, refusal) for pod in job.left)
                self._refused.update((pod, refusal) for pod in job.barred)
            self._batch = next(self._batches, [])
        for job in self._parked:
            self._refused.update((pod, refusal) for pod in job.barred)
        self._parked, self._script_waits = [], None

    def taints_of(self, move: Eviction) -> Mapping[str, str]:
        """Node -> value of the soft taints that must be there before the move."""
        names, script = self._snapshot.nodes.names, self._script
        if self._failed or not script or script[0].pod != move.pod_index:
            return {}
        return {names[node]: value for node, value in script[0].taints.items()}

    # ---- waiting

    @property
    def waits(self) -> Sequence[str]:
        """What the moves that are left wait for, at the end of those that may be made now."""
        if self._script_waits is not None:
            return [self._script_waits.message]
        return sorted({refusal.message for job in self._parked for _, refusal in job.barred.values()})

    @property
    def waits_until(self) -> float | None:
        """The earliest time at which a move that waits may be made by time alone (seconds since the epoch); None = no
        time is known."""
        refusals = [refusal for job in self._parked for _, refusal in job.barred.values()]
        if self._script_waits is not None:
            refusals = [self._script_waits]
        return min((each.next_at for each in refusals if each.next_at is not None), default=None)

    @property
    def waited(self) -> int:
        """How often the plan has waited."""
        return self._waited

    def resume(self, landed: Collection[Eviction], *, now: float = 0.0, counts: bool = True) -> None:
        """Go on with what waited, after the replacements of `landed` became Ready. `now`: seconds since the epoch; 0 =
        not known. `counts`: it is one of the plan's MAX_WAITS."""
        self.admission.landed(landed, now=now)
        for move in landed:
            self._budgets.give_back(self._snapshot.pod(move.pod_index))
            self._landed.add(move.pod_index)
        self._waited += counts
        if (waited := self._script_waits) is not None:
            self._script_waits = None
            self._why_waiting[self._script[0].pod] = waited.message
            return
        jobs, self._parked = self._parked, []
        for job in jobs:
            for pod, refusal in job.barred.values():
                self._why_waiting[pod.index] = refusal.message
            job.left += [pod for pod, _ in job.barred.values()]
            job.barred, job.awaited, job.sorted, job.misses = {}, [], False, 0
        self._batch = jobs

    def give_up(self) -> None:
        """Wait no more: what may go now takes the place of what waited."""
        self._patience = 0.0
        if self._script_waits is not None:
            self._fail()
        self.resume((), counts=False)

    def _drop(self, pod: int) -> None:
        if self._job is not None:
            self._job.left = [each for each in self._job.left if each.index != pod]
            self._job.barred.pop(pod, None)

    # ---- the result

    def refusals(self) -> list[PodRefusal]:
        """As in `PlanOutcome`."""
        return self.outcome.refusals()

    def planned_load(self, strategy: int = 0) -> Floats:
        """As in `PlanOutcome`."""
        return self.outcome.planned_load(strategy)

    @property
    def cordoned(self) -> Bools:
        """(nodes,) that are being emptied and must be cordoned; complete at the end of the plan."""
        return self._drainer.worked_on

    # ---- the findings

    def _each_batch(self, found: Sequence[Findings]) -> Iterator[list[Job]]:
        late: list[tuple[int, list[Finding]]] = []
        for at, findings in enumerate(found):
            turn_is_over = self._share_of_time(sum(bool(each.findings) for each in found[at:]) or 1)
            for batch in self._together(findings):
                self.most_together = max(self.most_together, len(batch))
                # thousands of refused candidates of one strategy must not starve the others
                if self._stopped is None and turn_is_over():
                    late.append((at, batch))
                    continue
                jobs: list[Job] = []
                for number, finding in enumerate(batch):
                    if number and self._stopped is None and turn_is_over():
                        late.append((at, batch[number:]))
                        break
                    jobs += self._work_on(finding, at, findings.empty_at_most)
                if jobs:
                    yield jobs
        for at, batch in late:
            if jobs := [job for each in batch for job in self._work_on(each, at, found[at].empty_at_most)]:
                yield jobs

    def _together(self, findings: Findings) -> Iterator[list[Finding]]:
        """Findings that are planned together: nodes to be cooled whose candidates have no order of their own."""
        ordered = sorted(findings.findings, key=self._order)
        for together, group in groupby(ordered, key=lambda each: each.goal is Goal.COOL and not each.in_order):
            members = list(group)
            yield from [members] if together else [[each] for each in members]

    def _work_on(self, finding: Finding, at: int, at_most: int | None) -> list[Job]:
        """`at`: index of its findings; `at_most`: how many of these are emptied at a time. Guards are evaluated for
        processed findings only: for 150,000 candidates they alone would exceed the planning time."""
        empties = finding.goal is Goal.EMPTY
        if (refusal := self._stopped) is not None:
            if empties:
                self._drainer.leave(finding.node)
        elif empties:
            refusal = self._drainer.waits(finding.node, among=at, at_most=at_most)
        if refusal is not None:
            for index in finding.candidates.tolist():
                self._refused.setdefault(index, refusal)
            return []
        taken = int(np.count_nonzero(self._moved[counted(finding)]))
        job = Job(finding=finding, headroom=self._landings.headrooms[at], taken=taken)
        self._sort_out(job)
        if job.cooled is not None:
            self.fewest += min(fewest(job, job.left), len(job.left))
        if empties:
            self._empty(job, among=at)
        return [job]

    def _order(self, finding: Finding) -> bool:
        """Sort key: the given order, but a node that is being drained before one whose draining hasn't begun."""
        return not (finding.goal is Goal.EMPTY and self._drainer.comes_first(finding.node))

    def _sort_out(self, job: Job) -> None:
        """Ask the candidates, but those that the simulated plan refused."""
        known = {} if self._failed else self._choice.known
        open_ = ~self._moved[job.finding.candidates]
        there = [index for index in job.finding.candidates[open_].tolist() if index not in self._begun.refused]
        job.spared = [index for index in there if index in known]
        self._refused.update((index, known[index]) for index in job.spared)
        self._ask(job, [index for index in there if index not in known])

    def _next_job(self) -> Job | None:
        """The job whose best candidate comes next."""
        if (job := self._scripted()) is not None:
            return job
        if not self._queue:
            self._queue = [(False, -math.inf, at) for at, job in enumerate(self._batch) if job.left]
        while self._queue:
            # a job's turn only gets later: it is looked at again where it comes first
            at = self._queue[0][2]
            job = self._batch[at]
            if job.left and not job.sorted:
                if (refusal := goal_reached(job)) is not None:
                    self._end(job, refusal)
                else:
                    job.left, job.sorted = in_order(job, self.admission), True
                    job.turn = self._turn(job)
            if not job.left:
                heapq.heappop(self._queue)
                continue
            key = (job.misses >= MAX_MISSES, job.turn, at)
            if key <= self._queue[0]:
                return job
            heapq.heapreplace(self._queue, key)
        return None

    def _scripted(self) -> Job | None:
        """The job of the script's next pod, with that pod first; None at the script's end, or with another batch."""
        while self._script and not self._failed:
            pod = self._script[0].pod
            job = self._job_of(pod)
            if job is None:
                return None
            left = [each for each in job.left if each.index == pod]
            if left:
                job.left = left + [each for each in job.left if each.index != pod]
                job.sorted = False
                return job
            if not self._moved[pod]:
                self._fail()
                return None
            self._script.popleft()
        return None

    def _job_of(self, pod: int) -> Job | None:
        """The job of the batch that has the pod among its candidates."""
        node = int(self._snapshot.pods.node[pod])
        return next(
            (job for job in self._batch if job.finding.node == node and (job.finding.candidates == pod).any()), None
        )

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

    def _end(self, job: Job, refusal: Refusal) -> None:
        """The goal is reached: no other candidate has to leave."""
        for pod in (*job.left, *(pod for pod, _ in job.barred.values())):
            self._refused.setdefault(pod.index, refusal)
        job.left, job.barred, job.awaited = [], {}, []

    def _empty(self, job: Job, *, among: int) -> None:
        """Empty the node as a whole, or not at all."""
        refusal = self._drainer.begin(
            job,
            among=among,
            may_go_now=lambda pod: None if isinstance(found := self._leaves(job, pod), Eviction) else found,
        )
        if refusal is not None:
            if refusal.code is Reason.PLANNING_TIMEOUT:
                self._drainer.leave(job.finding.node)
            self._refused.update((pod.index, refusal) for pod in job.left)
            job.left = []

    def _fail(self) -> None:
        """The script doesn't hold any more: what the simulated plan refused is asked again."""
        if self._failed:
            return
        self._failed = True
        for job in (*self._batch, *self._parked):
            self._ask_again(job)

    def _stays(self, job: Job, pod: Pod) -> Refusal | None:
        """Why the pod stays, whatever else is planned."""
        finding = job.finding
        stays = self.admission.stays(pod, pool=finding.pool, strategy=finding.strategy, broken=finding.broken)
        return stays or self._low_nodes.refuses(pod, finding, job.cooled)

    def _ask_again(self, job: Job) -> None:
        spared, job.spared = job.spared, []
        self._ask(job, spared, again=True)
        job.sorted = False
        self._queue = []

    def _ask(self, job: Job, candidates: Sequence[int], *, again: bool = False) -> None:
        """Keep those that no guard protects and whose move would help; none where `high` can't be reached.

        That is asked once, before the first move: later some of what may go has been moved or refused.
        """
        in_vain, able = useless(job), list[Pod]()
        for index in candidates:
            pod = self._snapshot.pod(index)
            stays = self._stays(job, pod)
            if may_go(stays):
                able.append(pod)
            refusal = stays or in_vain.get(index)
            if refusal is None:
                job.left.append(pod)
            else:
                self._refused[index] = refusal
        # what is spared has not been asked, but the simulated plan asked everything; so did the plan that was begun
        asked = again or bool(job.spared) or self._continues
        if job.left and not asked and (stay := unreachable(job, able, self.placement)):
            self._refused.update((pod.index, stay[pod.index]) for pod in job.left if pod.index in stay)
            job.left = [pod for pod in job.left if pod.index not in stay]

    def _try(self, job: Job) -> Eviction | None:
        """The move of the job's best candidate, or None where that is refused."""
        if (reached := goal_reached(job)) is not None:
            self._end(job, reached)
            return None
        if job.awaited and not (excess(job) > 0).any():
            self._postpone(job)
            return None
        pod = job.left[0]
        follows = not self._failed and bool(self._script) and self._script[0].pod == pod.index
        judged = self._judge(job, pod, self._script[0] if follows else None)
        if follows and isinstance(judged, Refusal):
            if self._may_wait(job, pod, judged):
                self._script_waits = judged
                return None
            self._fail()
        if isinstance(judged, Eviction):
            self._refused.pop(pod.index, None)
            judged.waits_for = self._why_waiting.get(pod.index, "")
            return judged
        job.left, job.sorted = job.left[1:], False
        job.misses += judged.code in LANDING_REFUSALS
        self._refused[pod.index] = judged
        if self._landings.sparing and judged.code in LANDING_REFUSALS:
            job.costly.append(pod)
        if not job.left and not job.barred and job.costly:
            # nothing else would do
            job.left, job.costly, job.last_try = job.costly, [], True
            return None
        if self._may_wait(job, pod, judged):
            job.barred[pod.index] = (pod, judged)
            del self._refused[pod.index]
            if self._saves_evictions(job, pod):
                # what is needed besides goes at once
                job.awaited.append(pod)
        if not job.left and job.barred:
            self._postpone(job)
        return None

    def _may_wait(self, job: Job, pod: Pod, refusal: Refusal) -> bool:
        """Whether only a short wait bars the candidate."""
        if not self._patience or self._waited >= MAX_WAITS or job.finding.urgent or self._urgent[job.finding.node]:
            return False
        if refusal.code is Reason.BUDGET_EXHAUSTED:
            return self._budgets.refuses(pod, alone=True) is None
        return self._barred is not None and self.admission.passes(self._barred, within=self._patience)

    def _saves_evictions(self, job: Job, pod: Pod) -> bool:
        """Whether waiting for this candidate, too, takes fewer evictions than going on without it."""
        if job.cooled is None:
            return False
        others = [*job.left, *job.awaited]
        return fewest(job, [*others, pod]) < fewest(job, others)

    def _postpone(self, job: Job) -> None:
        """Leave all candidates of the job until the wait is over."""
        why = next(iter(job.barred.values()))[1]
        for pod in job.left:
            job.barred[pod.index] = (pod, why)
        job.left = []

    def _judge(self, job: Job, pod: Pod, planned: PlannedMove | None = None) -> Eviction | Refusal:
        """The move of one candidate, or why it is refused now. `planned`: its landing is known."""
        finding, even = job.finding, job.finding.landing.even
        if even is not None and planned is None:
            enough = self._landings.even.enough(even, finding.node)
            if enough is not None:
                self._leaves(job, pod)
                return enough
        move = self._leaves(job, pod)
        if isinstance(move, Refusal):
            return move
        move.reason = _reason(job, pod)
        if pod.phase in (SUCCEEDED, FAILED):
            return move
        judged: Judged | Refusal
        if planned is not None and planned.judged is not None:
            self._landings.steer(list(planned.taints))
            judged = planned.judged
        else:
            self.landings_judged += 1
            judged = self._landings.of(
                pod, finding, job.headroom, few_taints=job.cooled is not None and not job.last_try
            )
        if isinstance(judged, Refusal):
            return judged
        self._judged[pod.index] = judged
        landing = judged.landing
        move.target_nodes = landing.shown(self._snapshot.nodes.names)
        move.target_pool = self._pools[int(landing.nodes[0])]
        move.pull_bytes = self._landings.model.pull_bytes(pod, landing.nodes)
        self.admission.scope(move)
        # again, with the target node known: limits of replacements may refuse it
        return self.admission.refuses(move) or move

    def _leaves(self, job: Job, pod: Pod) -> Eviction | Refusal:
        """The move of a candidate, or why the pod may not leave now, whatever its target node."""
        self._barred = None
        if (refusal := self._budgets.refuses(pod)) is not None:
            return refusal
        move = self._move(job, pod)
        if (refusal := self.admission.refuses(move)) is not None:
            self._barred = move
            return refusal
        return move

    def _move(self, job: Job, pod: Pod) -> Eviction:
        """The move of a candidate, without its reason and its target nodes."""
        finding, snapshot = job.finding, self._snapshot
        owner = int(snapshot.pods.owner[pod.index])
        service = snapshot.service_of(owner)
        assert service is not None  # the guards reject bare pods
        traits = self.admission.traits(pod)
        return self.admission.scope(
            Eviction(
                namespace=pod.namespace,
                pod=pod.name,
                uid=pod.uid,
                node=snapshot.nodes.names[finding.node],
                pool=finding.pool,
                service=service,
                strategy=finding.strategy,
                reason="",
                cpu_millicores=float(self._cpu[pod.index]),
                resource=job.resource,
                service_identity=traits.identity,
                level=traits.level,
                owner_uid=snapshot.owners[int(snapshot.top_owner[owner])].uid,
                cools=finding.goal is Goal.COOL,
                once=finding.goal is Goal.REMOVE and not finding.recurs,
                pod_index=pod.index,
                node_index=finding.node,
            )
        )


def _reason(job: Job, pod: Pod) -> str:
    """The finding's reason, with the relief where the goal is to cool."""
    finding, headroom = job.finding, job.cooled
    if headroom is None:
        return finding.reason
    parts = [
        f"{percent(each / whole)} {name}"
        for name, each, whole in zip(
            headroom.loads.resources, headroom.loads.relieved[pod.index], headroom.loads.room[finding.node], strict=True
        )
        if math.isfinite(each)
    ]
    return f"{finding.reason}; relieves the node of {', '.join(parts)}"
