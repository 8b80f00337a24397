"""Jobs over one recording: the whole of it, or parts that are merged.

A run is one long sequence of cycles in Python, so it needs a process of its own. The recording is handed over once, not
once for each run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from rebalancer.cycle.context import NullProgress
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.replay.runner.job import Compose, Job, Mode
from rebalancer.replay.runner.merge import exceeded, merge
from rebalancer.replay.runner.split import Part, split
from rebalancer.replay.runner.workers import Task, Workers, run_tasks

SPLIT_NODES = 1_000
"""From so many nodes on, pools that share no nodes run apart. It is the same on every machine, as a run of parts
differs a little from one over the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs jobs."""

    workers: Workers
    compose: Compose
    progress: Progress = NullProgress()  # noqa: RUF009 - without state
    stopping: Callable[[], bool] = lambda: False
    split_nodes: int = SPLIT_NODES

    def run(self, jobs: Sequence[Job], recording: Recording) -> list[ReplayRun | None]:
        """(jobs,) the run of each over the recording; None for one that hadn't begun when `stopping` returned true.

        What policies are compared with comes first and is quick, so that an interrupted replay has it: the run as
        recorded, which finds out what the others have to know of the record, and then the one without rebalancer.

        From `split_nodes` on, pools that share no nodes are run apart and merged. Where they went over a limit
        together, the policy is run once more over the whole. Raises what a run raises.
        """
        parts: Sequence[Part] = ()
        if len(recording.nodes) >= self.split_nodes:
            made = split(recording, list({id(job.policy): job.policy for job in jobs}.values()))
            parts = made.parts
            if made.whole_because:
                self.progress.event(f"the whole cluster runs as one part: {made.whole_because}")
        runs: list[ReplayRun | None] = [None] * len(jobs)
        as_recorded: list[tuple[Job, frozenset[str]]] = []
        for mode in get_args(Mode):
            numbers = [number for number, job in enumerate(jobs) if job.mode == mode]
            informed = [_informed(jobs[number], as_recorded) for number in numbers]
            for number, run in zip(numbers, self._of_one_mode(informed, recording, parts), strict=True):
                runs[number] = run
                if mode == "recorded" and run is not None:
                    as_recorded.append((jobs[number], run.unsure))
        return runs

    def _of_one_mode(self, jobs: Sequence[Job], recording: Recording, parts: Sequence[Part]) -> list[ReplayRun | None]:
        """(jobs,) as `run`, of one mode."""
        if len(parts) < 2:
            return [each[0] for each in self._over(jobs, [recording])]
        runs = self._over(jobs, [part.recording for part in parts])
        merged = [None if None in each else merge([run for run in each if run], parts, recording) for each in runs]
        again = {
            at: what
            for at, (job, each) in enumerate(zip(jobs, runs, strict=True))
            if job.mode == "policy" and merged[at] and (what := exceeded([run for run in each if run], job.policy))
        }
        if again and not self.stopping():
            for what in dict.fromkeys(again.values()):
                self.progress.event(f"the pools together went over {what}: the whole cluster is run once more")
            # what was found out in parts is not quite that of the whole
            alone = [replace(jobs[at], unsure=None) for at in again]
            for at, (run,) in zip(again, self._over(alone, [recording]), strict=True):
                merged[at] = run or merged[at]
        return merged

    def _over(self, jobs: Sequence[Job], recordings: Sequence[Recording]) -> list[list[ReplayRun | None]]:
        """(jobs, recordings) the runs."""
        pairs = [(job, part) for job in range(len(jobs)) for part in range(len(recordings))]
        # one policy after the other, as one without all of its parts is left out of an interrupted replay
        pairs.sort(key=lambda each: (each[0], -len(recordings[each[1]].pods)))
        done = np.zeros((len(jobs), len(recordings)))
        hours = round((recordings[0].end - recordings[0].start) / 3600.0)

        def advance(task: int, fraction: float) -> None:
            job, part = pairs[task]
            done[job, part] = fraction
            self.progress.step(jobs[job].label, int(done[job].mean() * hours), hours)

        tasks = [Task(jobs[job], recordings[part]) for job, part in pairs]
        found = run_tasks(self.workers, tasks, self.compose, progress=advance, stopping=self.stopping)
        runs = dict(zip(pairs, found, strict=True))
        return [[runs[job, part] for part in range(len(recordings))] for job in range(len(jobs))]


def _informed(job: Job, as_recorded: Sequence[tuple[Job, frozenset[str]]]) -> Job:
    """The job with what the run as recorded has found out, where one simulated with the same scheduler and seed."""
    same = (unsure for each, unsure in as_recorded if (each.seed, each.scheduler) == (job.seed, job.scheduler))
    return replace(job, unsure=next(same, job.unsure))
