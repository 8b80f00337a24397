"""Runs of a recording as tasks, wherever they run: what they do, how they report, and how they are stopped."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rebalancer.bootstrap.replay import Mode, run_recording
from rebalancer.model.errors import RebalancerError
from rebalancer.model.recording import Recording
from rebalancer.model.replay import ReplayRun
from rebalancer.model.scheduler import SchedulerConfig
from rebalancer.policy import RebalancerPolicy

POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run; the fields are those of `run_recording`."""

    policy: RebalancerPolicy
    mode: Mode
    label: str
    high: Mapping[str, float]
    seed: int = 0
    scheduler: SchedulerConfig | None = None
    unsure: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """A job over a recording or one of its parts."""

    job: Job
    recording: Recording


class Channel(Protocol):
    """Progress of tasks towards the process that waits for them, and the order to stop back to them. Can be pickled."""

    def report(self, task: int, done: float) -> None:
        """`done`, 0..1, of a task."""
        ...

    def stopped(self) -> bool:
        """Whether tasks should end where they are."""
        ...


class JobExecutor(Protocol):
    """Runs tasks."""

    def run(
        self, tasks: Sequence[Task], *, progress: Callable[[int, float], None], stopping: Callable[[], bool]
    ) -> list[ReplayRun | None]:
        """(tasks,) the run of each; None for one that hadn't begun when `stopping` returned true. `progress` is called
        with a task's index and what is done of it, 0..1.

        Raises the error of a task, or RebalancerError where a worker ended.
        """
        ...


def run_task(job: Job, recording: Recording, number: int, channel: Channel) -> ReplayRun | None:
    """One task, wherever it runs; None where it is stopped before it begins.

    Raises RebalancerErrors of the run as they are, any other in one line.
    """
    if channel.stopped():
        return None
    try:
        return run_recording(
            recording,
            job.policy,
            mode=job.mode,
            label=job.label,
            high=job.high,
            seed=job.seed,
            scheduler=job.scheduler,
            unsure=job.unsure,
            progress=_Reporter(channel, number),
            stopping=channel.stopped,
        )
    except RebalancerError:
        raise
    except Exception as error:
        raise RebalancerError(f"the run {job.label} failed: {type(error).__name__}: {error}") from error


class _Reporter:
    """`model.ports.Progress` of one task."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number

    def step(self, label: str, done: int, total: int | None) -> None:
        """The task's share."""
        self._channel.report(self._number, done / total if total else 0.0)

    def event(self, text: str) -> None:
        """Nothing: events are of a cluster that is not simulated."""


class InProcess:
    """Runs tasks in this process, one after the other."""

    def run(
        self, tasks: Sequence[Task], *, progress: Callable[[int, float], None], stopping: Callable[[], bool]
    ) -> list[ReplayRun | None]:
        """See JobExecutor."""
        channel = _Direct(progress, stopping)
        return [run_task(task.job, task.recording, number, channel) for number, task in enumerate(tasks)]


@dataclass(frozen=True)
class _Direct:
    report: Callable[[int, float], None]
    stopped: Callable[[], bool]


class Monitor(Protocol):
    """The other end of a channel."""

    def stop(self) -> None:
        """Order all tasks to end."""
        ...

    def fractions(self) -> Sequence[float]:
        """(tasks,) what is done of each, 0..1."""
        ...


def wait(
    futures: Sequence[Any],
    monitor: Monitor,
    *,
    progress: Callable[[int, float], None],
    stopping: Callable[[], bool],
) -> None:
    """Wait until all futures are done, or one has failed. Passes on progress, and the order to stop."""
    shown = [0.0] * len(futures)
    ordered = False
    while True:
        done = [future.done() for future in futures]
        if stopping() and not ordered:
            ordered = True
            monitor.stop()
        for number, fraction in enumerate(monitor.fractions()):
            if fraction > shown[number]:
                shown[number] = fraction
                progress(number, fraction)
        failed = any(ended and future.exception() is not None for ended, future in zip(done, futures, strict=True))
        if all(done) or failed:
            return
        time.sleep(POLL_SECONDS)


def result_of(future: Any) -> ReplayRun | None:
    """The result of a future; None of one that isn't done, as another one has failed."""
    if not future.done():
        future.cancel()
        return None
    result: ReplayRun | None = future.result()
    return result
