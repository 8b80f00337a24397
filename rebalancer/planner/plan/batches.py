"""Batches: the findings in the order in which they are planned, those that are planned together as one.

Nodes to be cooled whose candidates have no order of their own are one batch, and so are the findings for one pending
pod; every other finding is one by itself.
Strategies come in their order. One that has used up its share of the time lets the others go first: thousands of
refused candidates of one strategy must not starve the others.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from rebalancer.model.decisions.plan import Finding, Goal
from rebalancer.model.reason import Refusal
from rebalancer.planner.candidates.jobs import Job, fewest, wanted_pods
from rebalancer.planner.plan.emptying import NodeDrainer
from rebalancer.planner.plan.room import RoomMaker
from rebalancer.planner.plan.screening import Screening
from rebalancer.planner.plan.script import Script
from rebalancer.planner.plan.state import PlanState
from rebalancer.strategies.interface.view import Findings


class Batches:
    """See the module. Jobs are made when their batch comes, so that guards are evaluated for these candidates only: for
    150,000 candidates they alone would exceed the planning time."""

    def __init__(
        self,
        state: PlanState,
        *,
        drainer: NodeDrainer,
        rooms: RoomMaker,
        screening: Screening,
        script: Script,
        share_of_time: Callable[[int], Callable[[], bool]],
    ) -> None:
        """`share_of_time` as in `PlanningTime`."""
        self._state, self._found = state, state.input.found
        self._drainer, self._rooms, self._screening, self._script = drainer, rooms, screening, script
        self._share_of_time = share_of_time
        self.stopped: Refusal | None = None
        """Why all candidates of the batches that are left are refused."""
        self.most_together = 0
        """The most nodes that are cooled together: with one the order of nodes makes no difference."""
        self.fewest = 0
        """Fewest evictions that could do what the findings ask for, whatever their landings."""
        self._left = self._each()

    def next_batch(self) -> list[Job]:
        """Empty at the end."""
        return next(self._left, [])

    def _each(self) -> Iterator[list[Job]]:
        late: list[tuple[int, list[Finding]]] = []
        for at, findings in enumerate(self._found):
            turn_is_over = self._share_of_time(sum(bool(each.findings) for each in self._found[at:]) or 1)
            if any(each.goal is Goal.ROOM for each in findings.findings):
                yield from self._rooms_of(findings, at, turn_is_over)
                continue
            for group in self._together(findings):
                self.most_together = max(self.most_together, len(group))
                if self.stopped is None and turn_is_over():
                    late.append((at, group))
                    continue
                jobs: list[Job] = []
                for number, finding in enumerate(group):
                    if number and self.stopped is None and turn_is_over():
                        late.append((at, group[number:]))
                        break
                    jobs += self._jobs(finding, at)
                if jobs:
                    yield jobs
        for at, group in late:
            if jobs := [job for each in group for job in self._jobs(each, at)]:
                yield jobs

    def _together(self, findings: Findings) -> Iterator[list[Finding]]:
        """A node that is being drained comes before one whose drain hasn't begun."""
        ordered = sorted(
            findings.findings, key=lambda each: not (each.goal is Goal.EMPTY and self._drainer.comes_first(each.node))
        )
        for together, group in groupby(ordered, key=lambda each: each.goal is Goal.COOL and not each.in_order):
            members = list(group)
            yield from [members] if together else [[each] for each in members]

    def _rooms_of(self, findings: Findings, at: int, turn_is_over: Callable[[], bool]) -> Iterator[list[Job]]:
        """The jobs that make room, one for a pending pod. `at` as in `_jobs`."""
        headroom, barred = self._state.landings.headrooms[at], list[list[Finding]]()
        for pod, group in groupby(findings.findings, key=lambda each: each.room_for):
            members = list(group)
            if self.stopped is not None and pod is not None:
                self._state.refused.setdefault(pod, self.stopped)
            elif (job := self._rooms.begin(members, headroom, turn_is_over)) is not None:
                yield [job]
            else:
                barred.append(members)
        # another pending pod that would have taken the room may have got its own meanwhile
        for members in barred if self._rooms.made else ():
            if self.stopped is None and (job := self._rooms.begin(members, headroom, turn_is_over)) is not None:
                yield [job]

    def _jobs(self, finding: Finding, at: int) -> list[Job]:
        """The job of the finding; none where its node is not processed now. `at`: index of its findings."""
        empties, refusal = finding.goal is Goal.EMPTY, self.stopped
        if empties and refusal is not None:
            self._drainer.leave(finding.node)
        elif empties:
            refusal = self._drainer.waits(finding.node, among=at, at_most=self._found[at].empty_at_most)
        if refusal is not None:
            for index in finding.candidates.tolist():
                self._state.refused.setdefault(index, refusal)
            return []
        moved = int(np.count_nonzero(self._state.moved[wanted_pods(finding)]))
        job = Job(finding=finding, headroom=self._state.landings.headrooms[at], moved=moved)
        self._screen(job)
        if job.cooled is not None:
            self.fewest += min(fewest(job, job.left), len(job.left))
        if empties and (stays := self._drainer.begin(job, among=at)) is not None:
            self._state.refused.update((pod.index, stays) for pod in job.left)
            job.left = []
        return [job]

    def _screen(self, job: Job) -> None:
        """Skip the candidates that the simulated plan refused, as long as its script holds."""
        known, refused, candidates = self._script.known, self._state.refused_before, job.finding.candidates
        still = [index for index in candidates[~self._state.moved[candidates]].tolist() if index not in refused]
        job.skipped = [index for index in still if index in known]
        self._state.refused.update((index, known[index]) for index in job.skipped)
        self._screening.screen(job, [index for index in still if index not in known])
