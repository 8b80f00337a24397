"""A real kube-scheduler beside a real API server, for tests, and what it says of its decisions.

The scores stand in its log: `pkg/scheduler/schedule_one.go` writes one line for each plugin and node at verbosity 10.
A plugin without a score for a pod (its PreScore was Skip) writes none, and with a single feasible node nothing
is scored.
"""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import SkipTest

from tests.real.servers.api_server import ApiServer

START_SECONDS = 60.0
DECISION_SECONDS = 20.0
STOP_SECONDS = 20.0

_SCORE = re.compile(r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)')
_TOTAL = re.compile(r'"Calculated node\'s final score for pod" pod="([^"]+)" node="([^"]+)" score=(-?\d+)')
_ATTEMPT = re.compile(r'"Attempting to schedule pod" pod="([^"]+)"')
_BOUND = re.compile(
    r'"Successfully bound pod to node" pod="([^"]+)" node="([^"]+)" evaluatedNodes=(\d+) feasibleNodes=(\d+)'
)
_UNFIT = re.compile(r'"Unable to schedule pod; no fit; waiting" pod="([^"]+)" err="((?:[^"\\]|\\.)*)"')
_SEEN = re.compile(r'"(Update|Delete) event for scheduled pod" pod="([^"]+)"')


@dataclass(slots=True, kw_only=True)
class Decision:
    """One attempt at one pod (`namespace/name`)."""

    pod: str
    node: str | None = None
    """Where it was bound; None while undecided or when nothing fits."""
    message: str = ""
    """Why nothing fits."""
    evaluated: int = 0
    feasible: int = 0
    """Nodes that were looked at, and that passed the filters."""
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    """Plugin -> node -> normalised score times weight; empty with less than two feasible nodes."""
    totals: dict[str, int] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        return self.node is not None or bool(self.message)


class Scheduler:
    """A running kube-scheduler; its log is read as it grows."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("rb")
        self._rest = b""
        self._decisions: dict[str, Decision] = {}
        self._seen: set[tuple[str, str]] = set()

    def decision(self, pod: str) -> Decision:
        """Wait for the decision on `namespace/name`; raises TimeoutError."""
        until = time.monotonic() + DECISION_SECONDS
        while not ((found := self._decisions.get(pod)) and found.decided):
            self._wait(until, f"no decision on {pod}")
        return found

    def wait_for_event(self, kind: str, pod: str) -> None:
        """Wait until it has seen an Update or a Delete of a bound pod; raises TimeoutError."""
        until = time.monotonic() + DECISION_SECONDS
        while (kind, pod) not in self._seen:
            self._wait(until, f"{kind} of {pod} is not seen")

    def forget_events(self) -> None:
        """What was seen up to now doesn't count for the next `wait_for_event`."""
        self._read()
        self._seen.clear()

    def close(self) -> None:
        self._log.close()

    def _wait(self, until: float, complaint: str) -> None:
        if not self._read():
            if time.monotonic() > until:
                raise TimeoutError(complaint)
            time.sleep(0.002)

    def _read(self) -> bool:
        data = self._rest + self._log.read()
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))
        return bool(lines)

    def _take(self, line: str) -> None:
        if found := _SCORE.search(line):
            pod, plugin, node, score = found.groups()
            self._decisions[pod].scores.setdefault(plugin, {})[node] = int(score)
        elif found := _TOTAL.search(line):
            pod, node, score = found.groups()
            self._decisions[pod].totals[node] = int(score)
        elif found := _ATTEMPT.search(line):
            self._decisions[found[1]] = Decision(pod=found[1])
        elif found := _BOUND.search(line):
            decision = self._decisions[found[1]]
            decision.node, decision.evaluated, decision.feasible = found[2], int(found[3]), int(found[4])
        elif found := _UNFIT.search(line):
            self._decisions[found[1]].message = json.loads(f'"{found[2]}"')
        elif found := _SEEN.search(line):
            self._seen.add((found[1], found[2]))


def assets_with_scheduler() -> Path:
    """The folder of the programs; skips the test where KUBEBUILDER_ASSETS names none with all three."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent"))
    if not all((assets / name).exists() for name in ("etcd", "kube-apiserver", "kube-scheduler")):
        raise SkipTest("needs KUBEBUILDER_ASSETS to name a folder with kube-scheduler, kube-apiserver and etcd")
    return assets


def scheduler_version(assets: Path) -> str:
    """As it calls itself: v1.36.3."""
    version = subprocess.run([assets / "kube-scheduler", "--version"], capture_output=True, text=True, check=True)
    return version.stdout.split()[-1]


@contextmanager
def kube_scheduler(server: ApiServer, *, config: Mapping[str, Any] | None = None) -> Iterator[Scheduler]:
    """Start one on loopback. `config` is laid over its KubeSchedulerConfiguration."""
    assets = assets_with_scheduler()
    with tempfile.TemporaryDirectory(prefix="rebalancer-scheduler-") as name:
        folder = Path(name)
        kubeconfig = server.kubeconfig(folder / "kubeconfig")
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            # nodes are then looked at in order, and in the log they stand in order
            "parallelism": 1,
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
            **(config or {}),
        }
        (folder / "config.json").write_text(json.dumps(settings))
        port = _free_port()
        log = folder / "scheduler.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    str(assets / "kube-scheduler"),
                    f"--config={folder / 'config.json'}",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={port}",
                    f"--cert-dir={folder / 'certs'}",
                    f"--authentication-kubeconfig={kubeconfig}",
                    f"--authorization-kubeconfig={kubeconfig}",
                    # 10 everywhere would log every request in hexadecimal
                    "-v=3",
                    "--vmodule=schedule_one=10,eventhandlers=5",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        scheduler = Scheduler(log)
        try:
            _wait_until_ready(port, process, log)
            yield scheduler
        finally:
            scheduler.close()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Ready = its caches are filled. Its certificate is its own."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", timeout=5, context=context):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    raise RuntimeError(f"kube-scheduler doesn't start: {log.read_text(errors='replace')[-2000:]}")
