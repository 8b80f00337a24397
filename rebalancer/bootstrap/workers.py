"""Runs of a recording in parallel: in this process, in processes of this machine, or on a Dask cluster.

A run is one long sequence of cycles in Python, so it needs a process of its own. The recording is handed over once, not
once for each run: processes of this machine map one file, a Dask cluster keeps it on its workers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import get_args

import numpy as np

from rebalancer.bootstrap.process_pool import ProcessWorkers
from rebalancer.bootstrap.replay import Mode
from rebalancer.bootstrap.tasks import InProcess, Job, JobExecutor, Task
from rebalancer.cycle.context import NullProgress
from rebalancer.model.ports import Progress
from rebalancer.model.recording import Recording
from rebalancer.model.replay import ReplayRun
from rebalancer.replay.runner.merge import exceeded, merge
from rebalancer.replay.runner.split import Part, split

__all__ = ["SPLIT_NODES", "Job", "executor", "run_jobs"]

SPLIT_NODES = 1_000
"""From so many nodes on, pools that share no nodes run apart. It is the same on every machine, as a run of parts
differs a little from one over the whole."""


@contextmanager
def executor(*, workers: int = 1, scheduler: str | None = None) -> Iterator[JobExecutor]:
    """What runs tasks: `workers` processes, with one this process; or the workers of the Dask scheduler at `scheduler`,
    such as `tcp://10.0.0.1:8786`.

    Raises ConfigError where the extra `distributed` is not installed, ConnectError where no scheduler answers.
    """
    with ExitStack() as stack:
        if scheduler is not None:
            from rebalancer.bootstrap.dask_cluster import dask_cluster

            yield stack.enter_context(dask_cluster(scheduler))
        elif workers > 1:
            yield stack.enter_context(ProcessWorkers(workers))
        else:
            yield InProcess()


def run_jobs(
    jobs: Sequence[Job],
    recording: Recording,
    *,
    executor: JobExecutor,
    progress: Progress | None = None,
    stopping: Callable[[], bool] = lambda: False,
    split_nodes: int = SPLIT_NODES,
) -> list[ReplayRun | None]:
    """(jobs,) the run of each over the recording; None for one that hadn't begun when `stopping` returned true.

    What policies are compared with comes first and is quick, so that an interrupted replay has it: the run as recorded,
    which finds out what the others have to know of the record, and then the one without rebalancer.

    From `split_nodes` on, pools that share no nodes are run apart and merged. Where they went over a limit together,
    the policy is run once more over the whole. Raises what a run raises, and RebalancerError where a worker ended.
    """
    progress = progress or NullProgress()
    parts: Sequence[Part] = ()
    if len(recording.nodes) >= split_nodes:
        made = split(recording, list({id(job.policy): job.policy for job in jobs}.values()))
        parts = made.parts
        if made.whole_because:
            progress.event(f"the whole cluster runs as one part: {made.whole_because}")
    runs: list[ReplayRun | None] = [None] * len(jobs)
    as_recorded: list[tuple[Job, ReplayRun]] = []
    for mode in get_args(Mode):
        numbers = [number for number, job in enumerate(jobs) if job.mode == mode]
        if not numbers:
            continue
        informed = [_informed(jobs[number], as_recorded) for number in numbers]
        found = _run_of_one_mode(informed, recording, parts, executor, progress, stopping)
        for number, run in zip(numbers, found, strict=True):
            runs[number] = run
            if mode == "recorded" and run is not None:
                as_recorded.append((jobs[number], run))
    return runs


def _informed(job: Job, as_recorded: Sequence[tuple[Job, ReplayRun]]) -> Job:
    """The job with what the run as recorded has found out, where one simulated with the same scheduler and seed."""
    for other, run in as_recorded:
        same = (other.seed, other.scheduler) == (job.seed, job.scheduler)
        if same and (job.scheduler is not None or other.policy is job.policy):
            return replace(job, unsure=run.unsure)
    return job


def _run_of_one_mode(
    jobs: Sequence[Job],
    recording: Recording,
    parts: Sequence[Part],
    executor: JobExecutor,
    progress: Progress,
    stopping: Callable[[], bool],
) -> list[ReplayRun | None]:
    """(jobs,) as `run_jobs`, of one mode."""
    runs = _run_parts(jobs, recording, parts, executor, progress, stopping)
    if len(parts) < 2:
        return [each[0] for each in runs]
    merged = [None if None in each else merge([run for run in each if run], parts, recording) for each in runs]
    again = {
        at: what
        for at, (job, each) in enumerate(zip(jobs, runs, strict=True))
        if job.mode == "policy" and merged[at] and (what := exceeded([run for run in each if run], job.policy))
    }
    if again and not stopping():
        for what in dict.fromkeys(again.values()):
            progress.event(f"the pools together went over {what}: the whole cluster is run once more")
        # what was found out in parts is not quite that of the whole
        alone = [replace(jobs[at], unsure=None) for at in again]
        whole = _run_parts(alone, recording, (), executor, progress, stopping)
        for at, (run,) in zip(again, whole, strict=True):
            merged[at] = run or merged[at]
    return merged


def _run_parts(
    jobs: Sequence[Job],
    recording: Recording,
    parts: Sequence[Part],
    executor: JobExecutor,
    progress: Progress,
    stopping: Callable[[], bool],
) -> list[list[ReplayRun | None]]:
    """(jobs, parts) the runs; without parts those over the whole."""
    recordings = [part.recording for part in parts] if len(parts) > 1 else [recording]
    pairs = [(job, part) for job in range(len(jobs)) for part in range(len(recordings))]
    # one policy after the other, as one without all of its parts is left out of an interrupted replay
    pairs.sort(key=lambda each: (each[0], -len(recordings[each[1]].pods)))
    done = np.zeros((len(jobs), len(recordings)))
    hours = round((recording.end - recording.start) / 3600.0)

    def advance(task: int, fraction: float) -> None:
        job, part = pairs[task]
        done[job, part] = fraction
        progress.step(jobs[job].label, int(done[job].mean() * hours), hours)

    tasks = [Task(job=jobs[job], recording=recordings[part]) for job, part in pairs]
    runs = dict(zip(pairs, executor.run(tasks, progress=advance, stopping=stopping), strict=True))
    return [[runs[job, part] for part in range(len(recordings))] for job in range(len(jobs))]
