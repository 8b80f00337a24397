"""Workers for the runs of a recording: an executor of `concurrent.futures`, and what goes between it and this process.

Threads, processes and the workers of a Dask cluster have this one interface, so their runs are followed and stopped by
the same code.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from rebalancer.model.errors import RebalancerError
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.replay.runner.job import Compose, Job, run_job

POLL_SECONDS = 0.2


class Channel:
    """Progress of tasks to the process that waits for them, and its order to stop back to them, within one process. Can
    be pickled where tasks run in others."""

    def __init__(self, values: Any) -> None:
        """`values`: 1.0 for the order to stop, and then what is done of each task, 0..1."""
        self._values = values

    def report(self, task: int, done: float) -> None:
        """`done`, 0..1, of a task."""
        self._values[task + 1] = done

    def fractions(self) -> list[float]:
        """(tasks,) what is done of each, 0..1. Raises ConnectError where there have been no workers for a time."""
        return list(self._values[1:])

    def stop(self) -> None:
        """Order all tasks to end where they are."""
        self._values[0] = 1.0

    def stopped(self) -> bool:
        """Whether they are ordered to."""
        return bool(self._values[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """What runs tasks."""

    executor: Executor
    channel: Callable[[int], Channel]
    """A channel for so many tasks."""
    share: Callable[[Recording], Any] = lambda recording: recording
    """What is submitted in place of a recording, so that it is handed over once; a task gets the recording."""


class Task(NamedTuple):
    """A job over a recording or one of its parts."""

    job: Job
    recording: Recording


@contextmanager
def this_process() -> Iterator[Workers]:
    """One thread, which runs one task after the other."""
    with ThreadPoolExecutor(1) as executor:
        yield Workers(executor=executor, channel=lambda tasks: Channel([0.0] * (tasks + 1)))


def open_workers(*, workers: int = 1, scheduler: str | None = None) -> AbstractContextManager[Workers]:
    """`workers` processes, with one this process; or the workers of the Dask scheduler at `scheduler`, such as
    `tls://10.0.0.1:8786`.

    Entering raises ConfigError where the extra `distributed` is not installed or the address can't be used,
    ConnectError where no scheduler answers; leaving raises RebalancerError where a worker ended before its run.
    """
    if scheduler is not None:
        from rebalancer.replay.runner.dask_cluster import dask_cluster

        return dask_cluster(scheduler)
    if workers > 1:
        from rebalancer.replay.runner.process_pool import process_pool

        return process_pool(workers)
    return this_process()


def run_tasks(
    workers: Workers,
    tasks: Sequence[Task],
    compose: Compose,
    *,
    progress: Callable[[int, float], None] = lambda _task, _done: None,
    stopping: Callable[[], bool] = lambda: False,
) -> list[ReplayRun | None]:
    """(tasks,) the run of each; None for one that hadn't begun when `stopping` returned true. `progress` is called with
    a task's index and what is done of it, 0..1. Raises the error of a task, and what the executor raises."""
    if stopping():
        return [None] * len(tasks)
    channel, shown = workers.channel(len(tasks)), [0.0] * len(tasks)
    shared = {key: workers.share(recording) for key, recording in {id(each): each for _, each in tasks}.items()}
    futures = [
        workers.executor.submit(run_task, job, shared[id(recording)], compose, number, channel)
        for number, (job, recording) in enumerate(tasks)
    ]
    try:
        while True:
            done, waiting = wait(futures, POLL_SECONDS, FIRST_EXCEPTION)
            if stopping():
                channel.stop()
            for number, fraction in enumerate(channel.fractions()):
                if fraction > shown[number]:
                    shown[number] = fraction
                    progress(number, fraction)
            if failed := next((error for each in futures if each in done and (error := each.exception())), None):
                raise failed
            if not waiting:
                return [each.result() for each in futures]
    finally:
        channel.stop()
        for each in futures:
            each.cancel()


def run_task(job: Job, recording: Recording, compose: Compose, number: int, channel: Channel) -> ReplayRun | None:
    """One task, wherever it runs; None where it is stopped before it begins.

    Raises RebalancerErrors of the run as they are, any other in one line.
    """
    if channel.stopped():
        return None
    try:
        report = partial(channel.report, number)
        return run_job(job, recording, compose, passed=report, stopping=channel.stopped)
    except RebalancerError:
        raise
    except Exception as error:
        raise RebalancerError(f"the run {job.label} failed: {type(error).__name__}: {error}") from error
