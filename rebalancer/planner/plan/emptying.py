"""Drains nodes: all pods of a node leave, or none does.

Before the first pod leaves, the drain of the whole node is tried: the node cordoned, every candidate evicted and landed
with all earlier ones counted. Limits, windows and budgets that spread the evictions over several cycles don't bar it.
A drain doesn't begin while a pod of the node is protected, or while its budget doesn't allow even one disruption. Once
we have cordoned the node, the drain waits for conditions that pass: a budget used up by the pods that have just left, a
replacement that is not Ready yet.

The simulation decides which nodes are cordoned; the plan itself empties only those.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.cluster.steering import ours_cordoned
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner.candidates.jobs import Job, largest_first
from rebalancer.planner.plan.moves import MoveMaker
from rebalancer.planner.plan.screening import protected
from rebalancer.planner.plan.state import PlanState

BY_TIME = (Reason.WINDOW_CLOSED, Reason.TOO_YOUNG)
"""Refusals that end by time alone."""

PASSING = (*BY_TIME, Reason.NOT_READY, Reason.ROLLOUT_IN_PROGRESS, Reason.OWNER_NOT_HEALTHY)
"""Refusals that mostly end by themselves; our own evictions cause them too."""

SHOWN_HOLDERS = 5
"""Pods that are named besides the first of those that keep a node from being drained."""


class NodeDrainer:
    """See the module. One for each plan."""

    def __init__(
        self, state: PlanState, moves: MoveMaker, *, simulation: bool, out_of_time: Callable[[], bool]
    ) -> None:
        self._state, self._snapshot, self._landings = state, state.snapshot, state.landings
        self._moves, self._simulation, self._out_of_time = moves, simulation, out_of_time
        self._ours = ours_cordoned(state.snapshot.nodes)
        self._cordoned: Bools = self._landings.model.cordoned.copy()
        self._started: Counter[int] = Counter()
        """Index of findings -> how many of their nodes are being emptied."""
        self.worked_on: Bools = np.zeros(len(self._snapshot.nodes), dtype=np.bool_)
        """(nodes,) that are being emptied and must stay cordoned."""

    def comes_first(self, node: int) -> bool:
        """Whether its drain continues before other drains begin."""
        return bool(self._cordoned[node])

    def leave(self, node: int) -> None:
        """Plan nothing more for the node; a cordon stays until the next cycle."""
        self.worked_on[node] |= self._cordoned[node]

    def waits(self, node: int, *, among: int, at_most: int | None) -> Refusal | None:
        """Why the node is not processed now, whatever its pods. `among`: index of its findings; `at_most`: how many of
        these are emptied at a time."""
        cordoned = bool(self._cordoned[node])
        if not (cordoned or self._simulation):
            return Refusal.of(Reason.NOT_CORDONED)
        if at_most is not None and self._started[among] >= at_most:
            return Refusal.of(Reason.DRAIN_QUEUED, f"{at_most} at a time")
        if not cordoned and self._landings.receives[node]:
            # with this node cordoned the earlier replacements may fit nowhere
            return Refusal.of(Reason.DRAIN_QUEUED, "replacements of this plan may land on it")
        return None

    def begin(self, job: Job, *, among: int) -> Refusal | None:
        """Why the node is not emptied, or None: then `job.left` are the candidates, in the order of the simulation.
        `among` as in `waits`."""
        node = job.finding.node
        cordoned, pods = bool(self._cordoned[node]), self._to_go(job)
        if not pods and not cordoned:
            return None
        refusal = self._protected(job, pods)
        if refusal is None and not cordoned:
            refusal = self._nothing_now(job)
        if refusal is None:
            refusal = self._simulate_drain(job, pods)
        if refusal is not None:
            if refusal.code is Reason.PLANNING_TIMEOUT:
                self.leave(node)
            return refusal
        if not cordoned:
            self._landings.cordon(node)
            self._cordoned[node] = True
        self._started[among] += 1
        self.worked_on[node] = True
        place = {pod.index: at for at, pod in enumerate(pods)}
        job.left.sort(key=lambda pod: place.get(pod.index, len(place)))  # finished ones last
        job.to_go = {pod.index: pod for pod in pods}
        return None

    def end(self, job: Job) -> None:
        """Reserve headroom for the pods that couldn't leave yet, so that no other node is emptied into it."""
        for pod in job.to_go.values():
            landing = self._landings.of(pod, job.finding, job.headroom)
            if not isinstance(landing, Refusal):
                self._landings.count(pod, landing)

    def _to_go(self, job: Job) -> list[Pod]:
        """Every pod that has to leave the node, protected or not."""
        candidates = job.finding.candidates
        here = candidates[self._snapshot.active[candidates] & ~self._state.moved[candidates]]
        pods = [self._snapshot.pod(index) for index in here.tolist()]
        why = (protected(pod, job.finding, self._state.admission) for pod in pods)
        terminating = [each is not None and each.code is Reason.TERMINATING for each in why]
        return largest_first([pod for pod, ends in zip(pods, terminating, strict=True) if not ends], self._snapshot)

    def _protected(self, job: Job, pods: list[Pod]) -> Refusal | None:
        """Which pods can't leave, not even later, with the reason of the first."""
        held = [(pod, refusal) for pod in pods if (refusal := self._holds(job, pod)) is not None]
        if not held:
            return None
        others = [str(pod) for pod, _ in held[1:]]
        more = f" and {len(others) - SHOWN_HOLDERS} more" if len(others) > SHOWN_HOLDERS else ""
        return _because(*held[0], f"; held by {', '.join(others[:SHOWN_HOLDERS])}{more} too" if others else "")

    def _holds(self, job: Job, pod: Pod) -> Refusal | None:
        ours = bool(self._ours[job.finding.node])
        refusal = protected(pod, job.finding, self._state.admission)
        if refusal is not None and refusal.code not in (PASSING if ours else BY_TIME):
            return refusal
        return None if ours else self._state.budgets.refuses(pod, alone=True)

    def _nothing_now(self, job: Job) -> Refusal | None:
        """Why no pod may leave now: no node is cordoned only to wait."""
        refusal = Refusal.of(Reason.NODE_NOT_DRAINABLE, "none of its pods may be evicted now")
        for pod in reversed(job.left):
            move = self._moves.leave(job, pod)
            if isinstance(move, Eviction):
                return None
            refusal = move.refusal
        return refusal

    def _simulate_drain(self, job: Job, pods: list[Pod]) -> Refusal | None:
        """Why the replacements can't all land."""
        before = self._landings.soft_tainted
        with self._landings.as_if_cordoned(job.finding.node):
            refusal = self._lands_all(job, pods)
        if refusal is not None:
            self._landings.limit_soft_taints_to(before)
        return refusal

    def _lands_all(self, job: Job, pods: list[Pod]) -> Refusal | None:
        left = np.array([pod.index for pod in pods], dtype=np.int32)
        for at, pod in enumerate(pods):
            if self._out_of_time():
                return Refusal.of(Reason.PLANNING_TIMEOUT)
            landing = self._landings.of(pod, job.finding, job.headroom)
            if isinstance(landing, Refusal):
                return landing if landing.code is Reason.PLANNING_TIMEOUT else _because(pod, landing)
            if (needed := self._moves.needed(job, pod, landing.landing.nodes, left[at:])) is not None:
                return _because(pod, needed)
            self._landings.count(pod, landing)
        return None


def _because(pod: Pod, refusal: Refusal, others: str = "") -> Refusal:
    return Refusal.of(Reason.NODE_NOT_DRAINABLE, f"{pod}: {refusal.message}{others}", next_at=refusal.next_at)
