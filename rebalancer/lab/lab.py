"""One lab: the cluster, its HTTP server, and the simulation's thread."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn

from rebalancer.lab.app import build_app
from rebalancer.lab.clock import LabClock, SteppedClock
from rebalancer.lab.controlplane.cluster import Cluster
from rebalancer.lab.faults import Switchboard
from rebalancer.lab.loads.contention import ContentionModel
from rebalancer.lab.loads.truth import Truth
from rebalancer.lab.log import EventLog
from rebalancer.lab.prometheus.exposition import MetricsPage
from rebalancer.lab.prometheus.kube_state import KubeState
from rebalancer.lab.prometheus.past import Past
from rebalancer.lab.prometheus.real import BEFORE_SECONDS, real_prometheus
from rebalancer.lab.prometheus.series import SeriesBook
from rebalancer.lab.scenarios import scenario as scenarios
from rebalancer.lab.scenarios.scenario import Scenario

_SHORTEST_WAIT_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 1.0
_START_SECONDS = 10.0

_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: lab
clusters:
- name: lab
  cluster:
    server: {url}
contexts:
- name: lab
  context:
    cluster: lab
    user: lab
users:
- name: lab
  user: {user}
"""


class Lab:
    """A running practice cluster; a context manager. Make one with `Lab.start`."""

    def __init__(self, *, cluster: Cluster, token: str | None, prometheus_auth: str | None, seed: int) -> None:
        scenario, clock = cluster.scenario, cluster.clock
        self.cluster = cluster
        self.clock: LabClock = clock
        self.log: EventLog = cluster.log
        self.faults = Switchboard(seed=seed, clock=clock)
        self.origin = cluster.origin
        self.usage = cluster.usage
        self.contention = ContentionModel(self.usage)
        self.truth = Truth(history=cluster.history, clock=clock, window_seconds=scenario.rate_window_seconds)
        self.kube_state = KubeState(cluster.objects)
        self.metrics_page = MetricsPage(
            usage=self.usage, contention=self.contention, kube_state=self.kube_state, clock=clock, faults=self.faults
        )
        self.full_prometheus_url: str | None = None
        self.token = token
        self.prometheus_auth = prometheus_auth
        self.url = ""
        self.on_stop: set[Callable[[], None]] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None

    @classmethod
    def start(
        cls,
        scenario: Scenario | str = "demo",
        *,
        speed: float = 1.0,
        seed: int = 1,
        port: int = 0,
        token: str | None = None,
        prometheus_auth: str | None = None,
        start_time: float | None = None,
        stepped: bool = False,
    ) -> Self:
        """Build the cluster, serve it on a loopback port, and return when it answers.

        `token` is the bearer token that the Kubernetes API requires (the `kubernetes` package sends it; kubectl does so
        over TLS only, so not to the lab). `prometheus_auth` is the whole Authorization header that the Prometheus API
        requires (`Bearer ...`, `Basic ...`). `start_time` is the lab's first moment in seconds since the epoch, the
        real time when absent. `stepped`: its clock advances only in `sleep` (`SteppedClock`). Raises ScenarioError, and
        OSError when the port is taken.
        """
        spec = scenarios.load(scenario) if isinstance(scenario, str) else scenario
        clock = SteppedClock(start=start_time) if stepped else LabClock(speed=speed, start=start_time)
        cluster = Cluster(scenario=spec, clock=clock, seed=seed)
        if isinstance(clock, SteppedClock):
            clock.drive(cluster.step, cluster.lock)
        lab = cls(cluster=cluster, token=token, prometheus_auth=prometheus_auth, seed=seed)
        lab._serve(port)
        return lab

    @property
    def prometheus_url(self) -> str:
        """URL of the lab's Prometheus API."""
        return f"{self.url}/prometheus"

    @contextmanager
    def full_promql(self, folder: Path, *, past_seconds: float = 0.0) -> Iterator[None]:
        """Answer all of PromQL, through a real Prometheus that keeps its data in `folder` and ends with the context.

        It has `past_seconds` before the lab's start, and BEFORE_SECONDS at least. The lab runs at the speed of real
        time. Raises OSError when it does not start.
        """
        now = self.clock.now()

        before = Past(
            usage=self.usage,
            book=SeriesBook.of(self),
            kube_state=self.kube_state,
            since=now - past_seconds,
            until=now - BEFORE_SECONDS,
        )
        self.metrics_page.begin_at(now - BEFORE_SECONDS)
        with real_prometheus(self.url, folder, page=self.metrics_page.text, past=before.write, now=now) as url:
            self.full_prometheus_url = url
            try:
                yield
            finally:
                self.full_prometheus_url = None

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: streams end then."""
        return self._stopping.is_set()

    def _serve(self, port: int) -> None:
        # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer waits 40 ms for an ACK
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", port))
        except OSError:
            listening.close()
            raise
        self._socket = listening
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            build_app(self),
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            access_log=False,
            log_config=None,
            log_level="error",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        server = self._server = uvicorn.Server(config)
        self._threads = [
            threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="lab-http", daemon=True),
            threading.Thread(target=self._simulate, name="lab-simulation", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if time.monotonic() > deadline or not self._threads[0].is_alive():
                self.stop()
                raise OSError("the lab's HTTP server did not start")
            time.sleep(0.005)

    def _simulate(self) -> None:
        while not self.stopping:
            due = self.cluster.step()
            wait = _LONGEST_WAIT_SECONDS if due is None else (due - self.clock.now()) / self.clock.speed
            self.cluster.wait_for_change(min(max(wait, _SHORTEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS))

    def stop(self) -> None:
        """End streams, server and simulation. Safe to call twice."""
        self._stopping.set()
        self.cluster.wake()
        for wake in tuple(self.on_stop):
            wake()
        if self._server is not None:
            self._server.should_exit = True
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=10)
        if self._socket is not None:
            self._socket.close()

    def kubeconfig_text(self) -> str:
        """A kubeconfig with one context, `lab`."""
        user = f"{{token: {self.token}}}" if self.token else "{}"
        return _KUBECONFIG.format(url=self.url, user=user)

    def write_kubeconfig(self, path: Path | str) -> Path:
        """Write it, readable by its owner only."""
        target = Path(path)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self.kubeconfig_text())
        return target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
