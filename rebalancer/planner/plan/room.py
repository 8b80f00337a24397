"""Makes room for pending pods: the fewest pods of one node leave it, or none does.

Each node that would take the pod if it had room is looked at, those that need the fewest moves first. The candidates
that no guard protects make the smallest sets whose room is enough. A set is tried as a whole: the node held by our soft
taint, every pod evicted within budgets and limits and landed elsewhere with all earlier moves counted, and at the end
the pending pod bound to the node, with no other pending pod before it. Then everything is undone; the set that needs
the fewest moves is the job. When one of its moves can't be made after all, another set is looked for, with the moves
that were made counted in.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.cluster.steering import ROOM
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Finding, Goal
from rebalancer.model.notation.figures import counted
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner.candidates.jobs import Job, largest_first, tie_key
from rebalancer.planner.candidates.sets import fewest_covering, smallest_sets
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.landings.targets import TargetHeadroom
from rebalancer.planner.plan.moves import MoveMaker, Refused
from rebalancer.planner.plan.screening import protected
from rebalancer.planner.plan.script import Script
from rebalancer.planner.plan.state import PlanState

MOST_TRIES = 12
"""Sets of one node that are tried."""

MAX_MISS = 0.01
"""Probability that the pending pod may not be bound to the node."""


class _Set(NamedTuple):
    """Pods of a node whose room is enough."""

    finding: Finding
    pods: list[Pod]
    """In the order in which they go."""


class _Failure(NamedTuple):
    """Why no set of a node's pods makes room."""

    refusal: Refusal
    tries: int = 0


class RoomMaker:
    """See the module. One for each plan."""

    def __init__(
        self,
        state: PlanState,
        moves: MoveMaker,
        *,
        script: Script,
        steering: SoftTaintBudget | None,
        out_of_time: Callable[[], bool],
    ) -> None:
        self._state, self._snapshot, self._landings = state, state.snapshot, state.landings
        self._model, self._moves, self._script = state.landings.model, moves, script
        self._steering, self._out_of_time, self._turn_is_over = steering, out_of_time, out_of_time
        self._failed: set[int] = set()
        """Pods whose moves could not be made after all."""
        self.made = False
        """Whether any room is made."""
        for findings in state.input.found:
            for pod, node in sorted(findings.rooms.items()):
                if self._model.fits_on(waiting := self._snapshot.pod(pod), node):
                    self._model.settle(waiting, node)

    def begin(
        self, findings: Sequence[Finding], headroom: TargetHeadroom | None, turn_is_over: Callable[[], bool]
    ) -> Job | None:
        """The job that makes room for the pod of these findings; None where none is made, or nothing has to be moved
        any more. `turn_is_over`: other strategies come first now."""
        self._turn_is_over = turn_is_over
        pod = self._snapshot.pod(_waiting(findings[0]))
        if (made := self._script.room_for(pod.index)) is not None:
            found = self._repeated(findings, made)
        else:
            found = self._best(pod, findings, headroom)
        if isinstance(found, Refusal):
            self._state.refused[pod.index] = found
            # its candidates are many: those of the most promising node say why
            for index in findings[0].candidates.tolist():
                self._state.refused.setdefault(index, found)
            return None
        self._state.refused.pop(pod.index, None)
        self.made = True
        if found is None:
            return None
        self._hold(found.finding.node)
        enough = Refusal.of(Reason.ENOUGH_EVICTED, f"{counted(len(found.pods), 'other')} for {pod}")
        leaving = {each.index for each in found.pods}
        for index in found.finding.candidates.tolist():
            if index not in leaving:
                self._state.refused.setdefault(index, enough)
        return Job(finding=found.finding, headroom=headroom, left=found.pods)

    def again(self, job: Job, failed: int) -> None:
        """After a move that can't be made: the job gets other moves that make room with those that were made, or none.
        Does nothing for other goals. `failed`: the pod of that move."""
        if job.finding.goal is not Goal.ROOM:
            return
        self._failed.add(failed)
        waiting = self._snapshot.pod(_waiting(job.finding))
        found = self._on(waiting, job.finding, job.headroom, most=_most(job.finding))
        job.sorted = False
        if isinstance(found, _Failure):
            self._state.refused.update((pod.index, found.refusal) for pod in (waiting, *job.end()))
        else:
            job.left = found.pods

    def settle(self, job: Job) -> None:
        """Count the pending pod as bound, once all moves for it are made."""
        if job.finding.goal is Goal.ROOM and not job.left:
            waiting = self._snapshot.pod(_waiting(job.finding))
            if self._model.fits_on(waiting, job.finding.node):
                self._model.settle(waiting, job.finding.node)

    # ---- the choice

    def _repeated(self, findings: Sequence[Finding], made: Sequence[int]) -> _Set | Refusal | None:
        """The set of the simulated plan."""
        pods = [self._snapshot.pod(pod) for pod in made]
        finding = next((each for each in findings if pods and each.node == pods[0].node), None)
        if finding is None:
            return self._script.known.get(_waiting(findings[0]))
        return _Set(finding, pods)

    def _best(self, pod: Pod, findings: Sequence[Finding], headroom: TargetHeadroom | None) -> _Set | Refusal | None:
        begun = [each.pod for each in self._state.planned if each.room_for == pod.index]
        if begun:  # an earlier plan of the cycle has made moves for it
            node = self._snapshot.pod(begun[0]).node
            findings = [each for each in findings if each.node == node] or findings
            if self._model.fits_on(pod, node):
                self._model.settle(pod, node)
                return None
        if (refusal := self._needless(pod)) is not None:
            return refusal
        best: _Set | None = None
        failed: list[_Failure] = []
        for fewest, finding in self._by_fewest(pod, findings):
            if best is not None and fewest >= len(best.pods):
                break
            most = _most(finding) if best is None else len(best.pods) - 1
            found = self._on(pod, finding, headroom, most=most)
            if isinstance(found, _Set):
                best = found
                continue
            failed.append(found)
            if found.refusal.code is Reason.PLANNING_TIMEOUT:
                break
        if best is not None or not failed:
            return best or _none("no node would take it if pods left")
        return max(failed, key=lambda each: each.tries > 0).refusal

    def _needless(self, pod: Pod) -> Refusal | None:
        """Why nothing has to be moved for the pod, or nothing is known of it."""
        feasible = self._model.feasible(pod)
        if isinstance(feasible, Refusal):
            return feasible
        names = self._snapshot.nodes.names
        if feasible.any():
            node = min(np.flatnonzero(feasible).tolist(), key=names.__getitem__)
            return _none(f"{names[node]} has room for it")
        if (free := self._model.fits_without_terminating(pod)) is not None:
            return _none(f"{names[free]} has room for it once its terminating pods are gone")
        return None

    def _by_fewest(self, pod: Pod, findings: Sequence[Finding]) -> list[tuple[int, Finding]]:
        """(least number of moves, finding) of the nodes that would take the pod, the fewest first."""
        admitted, out = self._model.admitted(pod), []
        for at, finding in enumerate(findings):
            candidates = finding.candidates[~self._state.moved[finding.candidates]]
            if admitted[finding.node] and len(candidates):
                lacking = self._model.lacking(pod, finding.node)
                sizes = self._model.kinds.requested(candidates.astype(np.int64), list(lacking))
                fewest = fewest_covering(np.array(list(lacking.values())), sizes)
                out.append((max(fewest, 1), at, finding))
        return [(fewest, finding) for fewest, _, finding in sorted(out, key=lambda each: each[:2])]

    def _on(self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None, *, most: int) -> _Set | _Failure:
        """The smallest set on one node, or why there is none."""
        name, (able, stays) = self._snapshot.nodes.names[finding.node], self._able(finding)
        lacking, rows = self._model.lacking(pod, finding.node), np.array([each.index for each in able], dtype=np.int64)
        need, sizes = np.array(list(lacking.values())), self._model.kinds.requested(rows, list(lacking))
        fewest = fewest_covering(need, sizes)
        if not able or fewest > len(able):
            return _Failure(_none(f"{name}: {stays or 'all that may leave it leave too little'}"))
        if fewest > most:
            return _Failure(_none(f"{name}: it would take {counted(fewest, 'move')}, at most {most} are made"))
        prices = np.array([self._state.admission.price(each).total for each in able])
        sets = smallest_sets(need, sizes, alike=self._model.kinds.numbers_of(rows), prices=prices, most=most)
        job, tries, stuck = Job(finding=finding, headroom=headroom), 0, dict[int, bool]()
        first = _none(f"{name}: {counted(most, 'move')} are too few")
        for each in sets:
            if self._out_of_time() or self._turn_is_over():
                return _Failure(Refusal.of(Reason.PLANNING_TIMEOUT), tries)
            if any(stuck.get(at) for at in each):
                continue
            chosen = largest_first([able[at] for at in each], self._snapshot)
            refusal = self._try(job, pod, chosen)
            if refusal is None:
                return _Set(finding, chosen)
            first = first if tries else replace(refusal, code=Reason.NO_ROOM_MADE, message=_text(name, refusal))
            if len(each) > 1:
                stuck |= {at: self._can_not_leave(job, able[at]) for at in each if at not in stuck}
            tries += 1
            if tries >= MOST_TRIES:
                break
        return _Failure(first, tries)

    def _able(self, finding: Finding) -> tuple[list[Pod], str]:
        """The candidates that may leave, and why the first of the others may not."""
        state, able, why = self._state, list[Pod](), ""
        for index in finding.candidates.tolist():
            if state.moved[index] or index in self._failed:
                continue
            pod = self._snapshot.pod(index)
            stays = state.refused_before.get(index) or protected(pod, finding, state.admission)
            if stays is None:
                able.append(pod)
            else:
                why = why or f"{pod}: {stays.message}"
        return sorted(able, key=tie_key), why

    # ---- a trial

    def _try(self, job: Job, pod: Pod, leaving: Sequence[Pod]) -> Refusal | None:
        """Why these pods don't make room; everything that is counted is undone."""
        admission, budgets, made = self._state.admission, self._state.budgets, list[Eviction]()
        node = job.finding.node
        with self._landings.tentatively(), budgets.tentatively():
            try:
                if (refusal := self._hold(node)) is not None:
                    return refusal
                for at, each in enumerate(leaving):
                    move = self._moves.make(job, each, None)
                    if isinstance(move, Refused):
                        return _because(each, move.refusal)
                    if (refusal := admission.reserve(move)) is not None:
                        return _because(each, refusal)
                    made.append(move)
                    budgets.take(each)
                    self._landings.count(each, self._moves.checked[each.index])
                    last = at == len(leaving) - 1
                    if (refusal := self._model.rivals(pod, node, earlier=last)) is not None:
                        return refusal
                return self._not_bound(pod, node)
            finally:
                for move in reversed(made):
                    admission.cancel_reservation(move)

    def _can_not_leave(self, job: Job, pod: Pod) -> bool:
        """Whether the pod can't leave even alone."""
        with self._landings.tentatively():
            self._hold(job.finding.node)
            return isinstance(self._moves.make(job, pod, None), Refused)

    def _not_bound(self, pod: Pod, node: int) -> Refusal | None:
        """Why the pending pod would not be bound to the node now."""
        landing = self._model.landings(pod)
        if isinstance(landing, Refusal):
            return landing
        share = float(landing.shares[landing.nodes == node].sum())
        if share < 1.0 - MAX_MISS:
            return Refusal.of(Reason.NO_TARGET_NODE, f"the pending pod with a probability of {1.0 - share:.0%}")
        return None

    def _hold(self, node: int) -> Refusal | None:
        """Let a soft taint hold the room, or why the budget of soft taints doesn't allow that. Without soft taints the
        room isn't held."""
        if self._model.has_soft_taint(node) or self._steering is None:
            return None
        new = self._steering.take([node], why=ROOM)
        self._model.steer(new or ())
        if new is not None:
            return None
        refusal = Refusal(code=Reason.NO_ROOM_MADE, message="no more nodes may have the soft taint that would hold it")
        return self._steering.limits(refusal, [node])


def _waiting(finding: Finding) -> int:
    assert finding.room_for is not None
    return finding.room_for


def _most(finding: Finding) -> int:
    """Moves that the pod is worth."""
    return len(finding.candidates) if finding.wanted is None else finding.wanted


def _none(detail: str) -> Refusal:
    return Refusal.of(Reason.NO_ROOM_MADE, detail)


def _text(node: str, refusal: Refusal) -> str:
    return f"{Reason.NO_ROOM_MADE.sentence}: {node}: {refusal.message}"


def _because(pod: Pod, refusal: Refusal) -> Refusal:
    return replace(refusal, message=f"{pod}: {refusal.message}")
