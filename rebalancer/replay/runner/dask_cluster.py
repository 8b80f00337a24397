"""The workers of a Dask cluster, on any number of machines, at one scheduler.

Dask's messages are pickles: a message may run any code in the scheduler, its workers and this process. A scheduler
without TLS asks for no credentials and shows none; with TLS both ends show a certificate. So without TLS only a
scheduler on this machine is used. Certificates come from Dask's own configuration, as for its other programs.

They need this version of rebalancer. A run uses one thread of Python, so `dask worker --nthreads 1` gives each its own
process.
"""

import ipaddress
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError
from rebalancer.replay.runner.workers import Channel, Workers

CERTIFICATES = (
    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"
)
CONNECT_SECONDS = 10.0
WITHOUT_WORKERS_SECONDS = 60.0
"""Workers that have left may come back for so long."""
MESSAGE_SECONDS = 1.0
"""A task sends its progress, and looks for the order to stop, so often at most."""


@contextmanager
def dask_cluster(scheduler: str) -> Iterator[Workers]:
    """The cluster of the scheduler at an address such as `tls://10.0.0.1:8786`. Raises ConfigError where the extra
    `distributed` is not installed and for an address or certificates that can't be used, ConnectError where no
    scheduler answers."""
    address, encrypted = _address(scheduler)
    try:
        from distributed import Client, KilledWorker, Security
    except ModuleNotFoundError:
        raise ConfigError(
            f"--dask {scheduler}: Dask is not installed: run `pip install 'kube-rebalancer[distributed]'`"
        ) from None
    security = Security(require_encryption=True) if encrypted else None
    if security is not None and not (security.tls_ca_file and security.tls_client_cert):
        raise ConfigError(f"--dask {scheduler}: no certificates: set {CERTIFICATES}")
    try:
        client = Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
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


def _address(scheduler: str) -> tuple[str, bool]:
    """(address with its scheme, whether it is encrypted) of a scheduler. Raises ConfigError for one without TLS on
    another machine."""
    try:
        parts = urlsplit(scheduler if "://" in scheduler else f"//{scheduler}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.scheme not in ("", "tcp", "tls"):
        raise ConfigError(f"--dask {scheduler}: expected an address such as tls://10.0.0.1:8786")
    if parts.scheme == "tls" or (not parts.scheme and not _is_loopback(host)):
        return f"tls://{parts.netloc}", True
    if not _is_loopback(host):
        raise ConfigError(
            f"--dask {scheduler}: a scheduler without TLS asks for no credentials, and its messages may run any code "
            f"here: start it with TLS, write tls://{parts.netloc}, and set {CERTIFICATES}; without TLS only a "
            "scheduler on this machine is used, such as tcp://127.0.0.1:8786"
        )
    return f"tcp://{parts.netloc}", False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
