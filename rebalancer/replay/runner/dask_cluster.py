"""The workers of a Dask cluster, on any number of machines, at one scheduler.

They need this version of rebalancer. A run uses one thread of Python, so `dask worker --nthreads 1` gives each its own
process.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError
from rebalancer.replay.runner.workers import Channel, Workers

CONNECT_SECONDS = 10.0
WITHOUT_WORKERS_SECONDS = 60.0
"""Workers that have left may come back for so long."""
MESSAGE_SECONDS = 1.0
"""A task sends its progress, and looks for the order to stop, so often at most."""


@contextmanager
def dask_cluster(scheduler: str) -> Iterator[Workers]:
    """The cluster of the scheduler at an address such as `tcp://10.0.0.1:8786`. Raises ConfigError where the extra
    `distributed` is not installed, ConnectError where no scheduler answers."""
    try:
        from distributed import Client, KilledWorker
    except ModuleNotFoundError:
        raise ConfigError(
            f"--dask {scheduler}: Dask is not installed: run `pip install 'kube-rebalancer[distributed]'`"
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
        try:
            yield Workers(
                executor=client.get_executor(pure=False),
                channel=lambda tasks: DaskChannel(f"rebalancer-replay-{uuid.uuid4().hex}", client, tasks),
                share=lambda recording: client.scatter(recording, hash=False),
            )
        except KilledWorker:
            raise RebalancerError("Dask workers ended before their runs did, for lack of memory perhaps") from None
        except ModuleNotFoundError as error:
            raise ConfigError(f"the Dask workers have no module {error.name}: install rebalancer on them") from None


class DaskChannel(Channel):
    """By a topic and an event of the scheduler, which have its name. Its values are what this process knows."""

    def __init__(self, name: str, client: Any = None, tasks: int = 0) -> None:
        """`client`: None on a worker, which has its own."""
        super().__init__([0.0] * (tasks + 1))
        self._name, self._client = name, client
        self._reported = self._looked = float("-inf")
        self._workers_at = time.monotonic()
        if client is not None:
            client.subscribe_topic(name, self._hear)

    def __reduce__(self) -> tuple[type["DaskChannel"], tuple[str]]:
        return DaskChannel, (self._name,)

    def _hear(self, event: tuple[float, tuple[int, float]]) -> None:
        super().report(*event[1])

    def report(self, task: int, done: float) -> None:
        """See Channel."""
        from distributed import get_worker

        if done >= 1.0 or time.monotonic() - self._reported >= MESSAGE_SECONDS:
            self._reported = time.monotonic()
            get_worker().log_event(self._name, (task, done))

    def fractions(self) -> list[float]:
        """See Channel."""
        now = time.monotonic()
        if now - self._looked >= MESSAGE_SECONDS:
            self._looked = now
            if self._client.scheduler_info()["workers"]:
                self._workers_at = now
            elif now - self._workers_at >= WITHOUT_WORKERS_SECONDS:
                raise ConnectError(
                    f"the Dask scheduler has had no workers for {now - self._workers_at:.0f} s: the replay ends; run "
                    "`dask worker SCHEDULER --nthreads 1` and the replay again"
                )
        return super().fractions()

    def stop(self) -> None:
        """See Channel."""
        from distributed import Event

        if not super().stopped():
            super().stop()
            Event(self._name, client=self._client).set()

    def stopped(self) -> bool:
        """See Channel."""
        from distributed import Event

        if not super().stopped() and time.monotonic() - self._looked >= MESSAGE_SECONDS:
            self._looked = time.monotonic()
            if Event(self._name).is_set():
                super().stop()
        return super().stopped()
