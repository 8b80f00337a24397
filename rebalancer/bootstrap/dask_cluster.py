"""Runs of a recording on a Dask cluster: workers of any number of machines, at one scheduler.

The workers need this version of rebalancer. A run uses one thread of Python, so `dask worker --nthreads 1` gives each
its own process.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rebalancer.bootstrap.tasks import Task, result_of, run_task, wait
from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError
from rebalancer.model.replay import ReplayRun

CONNECT_SECONDS = 10.0
WITHOUT_WORKERS_SECONDS = 60.0
"""Workers that have left may come back for so long."""
MESSAGE_SECONDS = 1.0
"""A task sends its progress, and looks for the order to stop, so often at most."""


@contextmanager
def dask_cluster(scheduler: str) -> Iterator["DaskCluster"]:
    """The cluster of the scheduler at an address such as `tcp://10.0.0.1:8786`. Raises ConfigError where the extra
    `distributed` is not installed, ConnectError where no scheduler answers."""
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise ConfigError(
            f"--dask {scheduler}: Dask is not installed: run `pip install 'rebalancer[distributed]'`"
        ) from None
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConnectError(f"--dask {scheduler}: no Dask scheduler answers: {reason}") from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise ConnectError(
                f"--dask {scheduler}: the scheduler has no workers: run `dask worker {scheduler} --nthreads 1`"
            )
        yield DaskCluster(client)


class DaskCluster:
    """A `JobExecutor` over a connected client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(
        self, tasks: Sequence[Task], *, progress: Callable[[int, float], None], stopping: Callable[[], bool]
    ) -> list[ReplayRun | None]:
        """See JobExecutor."""
        from distributed import KilledWorker

        recordings = {id(task.recording): task.recording for task in tasks}
        scattered = dict(zip(recordings, self._client.scatter(list(recordings.values()), hash=False), strict=True))
        monitor = DaskMonitor(self._client, len(tasks))
        channel = DaskChannel(monitor.name)
        futures = [
            self._client.submit(run_task, task.job, scattered[id(task.recording)], number, channel, pure=False)
            for number, task in enumerate(tasks)
        ]
        try:
            wait(futures, monitor, progress=progress, stopping=stopping)
            return [result_of(future) for future in futures]
        except KilledWorker:
            raise RebalancerError("Dask workers ended before their runs did, for lack of memory perhaps") from None
        except ModuleNotFoundError as error:
            raise ConfigError(f"the Dask workers have no module {error.name}: install rebalancer on them") from None
        finally:
            monitor.close()


class DaskMonitor:
    """`Monitor` of the tasks of one run."""

    def __init__(self, client: Any, tasks: int) -> None:
        from distributed import Event

        self.name = f"rebalancer-replay-{uuid.uuid4().hex}"
        self._client, self._fractions = client, [0.0] * tasks
        self._workers_at = self._counted_at = time.monotonic()
        self._stop = Event(self.name, client=client)
        client.subscribe_topic(self.name, self._hear)

    def _hear(self, event: tuple[float, tuple[int, float]]) -> None:
        _, (task, done) = event
        self._fractions[task] = done

    def fractions(self) -> list[float]:
        """See Monitor. Raises ConnectError when there have been no workers for a time."""
        now = time.monotonic()
        if now - self._counted_at >= MESSAGE_SECONDS:
            self._counted_at = now
            if self._client.scheduler_info()["workers"]:
                self._workers_at = now
            elif now - self._workers_at >= WITHOUT_WORKERS_SECONDS:
                raise ConnectError(
                    f"the Dask scheduler has had no workers for {now - self._workers_at:.0f} s: the replay ends; run "
                    "`dask worker SCHEDULER --nthreads 1` and the replay again"
                )
        return list(self._fractions)

    def stop(self) -> None:
        """See Monitor."""
        self._stop.set()

    def close(self) -> None:
        """Tasks that still run end."""
        self._stop.set()
        self._client.unsubscribe_topic(self.name)


class DaskChannel:
    """The channel of a task on a worker."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reported = self._looked = float("-inf")
        self._ordered = False

    def report(self, task: int, done: float) -> None:
        """See Channel."""
        from distributed import get_worker

        if done >= 1.0 or time.monotonic() - self._reported >= MESSAGE_SECONDS:
            self._reported = time.monotonic()
            get_worker().log_event(self._name, (task, done))

    def stopped(self) -> bool:
        """See Channel."""
        from distributed import Event

        if not self._ordered and time.monotonic() - self._looked >= MESSAGE_SECONDS:
            self._looked = time.monotonic()
            self._ordered = bool(Event(self._name).is_set())
        return self._ordered
