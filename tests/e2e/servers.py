"""Daemons as people run them: processes of the real command, in a lab that this process serves.

The lab has many warm nodes, `warm-1` to `warm-N`, at 65% of their CPU, each with a service of its own (`shop/svc-N`),
and cold ones to land on. The pool calls nothing hot under 90%, so nothing happens by itself; an alert for a warm node
at 60% moves exactly one pod off it. So each test takes nodes of its own from one lab, and counts by node.
"""

import json
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.lab.log import Entry
from tests.programs.cli import Running, begin, policy_for, write_policy

T = TypeVar("T")

TOKEN = "a token of the tests"
ALERT = "NodeHot"
CPUS, OVERHEAD_CORES, POD_CORES, PODS = 8, 0.3, 1.65, 3
POOL = {"name": "all", "selector": {}, "thresholds": {"high": 90, "target": 80, "low": 50}}
FULL = 0.75
PATIENCE_SECONDS = 60.0
"""Longer than anything here takes: no test measures how fast an event comes."""


def warm_lab(*, warm: int, cold: int = 6, full: int = 0, start_seconds: float = 1.0, **fields: Any) -> Lab:
    """Start one, at real speed: daemons go by the machine's clock. On so many of the cold nodes (`cold-1` to `cold-N`)
    real CPU is used up to the target without requests: each move needs soft taints on all of them."""
    nodes = [node(f"warm-{number}", cpu=CPUS, overhead_cores=OVERHEAD_CORES) for number in range(1, warm + 1)]
    nodes += [node(f"cold-{number}", cpu=CPUS, overhead_cores=OVERHEAD_CORES) for number in range(1, cold + 1)]
    services = [
        workload(
            f"svc-{number}",
            namespace="shop",
            place={f"warm-{number}": PODS},
            cpu_request="500m",
            memory_request="256Mi",
            cpu=POD_CORES,
        )
        for number in range(1, warm + 1)
    ]
    services += [
        workload(
            f"burner-{number}",
            kind="Pod",
            place={f"cold-{number}": 1},
            cpu_request="1m",
            memory_request="1Mi",
            cpu=FULL * CPUS - OVERHEAD_CORES,
        )
        for number in range(1, full + 1)
    ]
    made = scenario(nodes=nodes, workloads=services, start_seconds=start_seconds, stop_seconds=1.0, **fields)
    return Lab.start(made, speed=1.0)


def alert_policy(prometheus_url: str, **sections: Any) -> dict[str, Any]:
    """Only alerts set something off; `sections` replace top-level ones."""
    return policy_for(prometheus_url, **({"pools": [POOL], "alerts": {"rules": [{"alert": ALERT}]}} | sections))


def until(what: Callable[[], T | None], detail: Callable[[], str] = str, seconds: float = PATIENCE_SECONDS) -> T:
    """The first answer of `what` that is not empty; fails with the text of `detail` when none comes."""
    end = time.monotonic() + seconds
    while not (answer := what()):
        if time.monotonic() > end:
            raise AssertionError(f"it did not come true within {seconds:g} s\n{detail()}")
        time.sleep(0.05)
    return answer


def evicted(lab: Lab, *nodes: str) -> list[Entry]:
    """Evictions that the API server accepted, from these nodes (all when none is named)."""
    return [each for each in lab.log.evictions(code=201) if not nodes or each.node in nodes]


def held_by(lab: Lab, lease: str = "rebalancer") -> tuple[str, int]:
    """(holder, term) of a Lease; ("", 0) without one."""
    with lab.cluster.lock:
        for each in lab.cluster.store.sorted("leases"):
            if each["metadata"]["name"] == lease:
                return each["spec"].get("holderIdentity") or "", int(each["spec"]["leaseTransitions"])
    return "", 0


def tainted(lab: Lab, *nodes: str) -> set[str]:
    """Which of the nodes (all when none is named) carry our taint now."""
    return {
        each["metadata"]["name"]
        for each in lab.cluster.nodes()
        if any(taint["key"].startswith("rebalancer") for taint in each["spec"].get("taints") or ())
        and (not nodes or each["metadata"]["name"] in nodes)
    }


def delivery(*nodes: str, high: float | None = 60.0, target: float | None = 50.0, name: str = ALERT) -> dict[str, Any]:
    """What Alertmanager posts for alerts on these nodes."""
    marks = {"rebalancer_high": high, "rebalancer_target": target}
    alerts = [
        {
            "status": "firing",
            "labels": {"alertname": name, "node": each},
            "annotations": {key: f"{value:g}" for key, value in marks.items() if value is not None},
            "startsAt": datetime.now(UTC).isoformat(),
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "",
        }
        for each in nodes
    ]
    return {
        "version": "4",
        "groupKey": "{}",
        "status": "firing",
        "receiver": "rebalancer",
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager",
        "truncatedAlerts": 0,
        "alerts": alerts,
    }


@dataclass
class DaemonProcess:
    """One running daemon."""

    process: Running
    log_file: Path
    token: str
    url: str = ""

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log so far, one object a line; what is no JSON is a line `{"raw": ...}`."""
        return [_parsed(line) for line in self.log_file.read_text(errors="replace").splitlines()]

    def events(self, event: str) -> list[dict[str, Any]]:
        """The log's entries of one event."""
        return [each for each in self.log if each.get("event") == event]

    def tail(self) -> str:
        """The end of its log, for an error."""
        return self.log_file.read_text(errors="replace")[-4000:]

    def get(self, path: str) -> tuple[int, str]:
        """(status, body)."""
        return _ask(urllib.request.Request(f"{self.url}{path}"))

    def post(self, document: Mapping[str, Any], path: str = "/api/v1/alerts", token: str | None = None) -> int:
        """The status of the answer; 0 without one."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token or self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(document).encode(), headers, method="POST")
        return _ask(request)[0]

    def alert(self, *nodes: str, **marks: Any) -> None:
        """Post alerts for nodes, again until they are taken, as Alertmanager does after a 5xx."""
        body = delivery(*nodes, **marks)
        until(lambda: self.post(body) == 200, self.tail)

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all samples of a metric that have these labels; 0 without any."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.partition("{")[0].split()[0:1] == [name]]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(each in line for each in wanted))

    def ready(self) -> bool:
        """Whether /readyz says so."""
        return self.get("/readyz")[0] == 200

    def leads(self) -> bool:
        """Whether /readyz says so."""
        return "[+]lease ok: leader" in self.get("/readyz?verbose")[1]

    def signal(self, number: signal.Signals) -> None:
        """Send it."""
        self.process.send_signal(number)

    def ended(self, seconds: float = 15.0) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(seconds)

    def end(self) -> None:
        """See that it is gone."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"raw": line}


def _ask(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@contextmanager
def daemon(
    folder: Path,
    policy: Mapping[str, Any] | Path,
    kubeconfig: Path,
    *,
    name: str = "rebalancer",
    database: str = "",
    lease: str = "rebalancer",
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cold: bool = False,
    program: str = "",
) -> Iterator[DaemonProcess]:
    """Start a daemon on a free port; it listens when this returns, and is gone at the end. SQLite in the folder unless
    a `database` is named; a `lease` of another name lets two of them work in one lab without knowing each other. For
    `cold` and `program` see `begin`."""
    file = policy if isinstance(policy, Path) else write_policy(folder, policy, f"{name}.yaml")
    token = folder / "token"
    if not token.exists():
        token.write_text(TOKEN)
    settings = {
        "REBALANCER_LISTEN": "127.0.0.1:0",
        "REBALANCER_BEARER_TOKEN_FILE": str(token),
        "REBALANCER_DATABASE": database or f"sqlite:///{folder / name}.db",
        "REBALANCER_HISTORY_DIR": str(folder / "history"),
        "REBALANCER_LEASE_NAME": lease,
        "POD_NAME": name,
        **(env or {}),
    }
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = begin(
            *("run", "-f", file, "--kubeconfig", kubeconfig, *arguments),
            env={"HOME": str(folder), **settings},
            stderr=output.fileno(),
            cold=cold,
            program=program,
        )
    made = DaemonProcess(process=process, log_file=log, token=TOKEN)
    try:
        until(lambda: made.events("started") or process.poll() is not None, made.tail)
        started = made.events("started")
        assert started, made.tail()
        made.url = str(started[0]["address"])
        yield made
    finally:
        made.end()


@contextmanager
def leading(folder: Path, lab: Lab, policy: Mapping[str, Any] | None = None, **options: Any) -> Iterator[DaemonProcess]:
    """A daemon that leads in this lab. Without a `policy` it acts on alerts; `options` are those of `daemon`."""
    kubeconfig = lab.write_kubeconfig(folder / "config")
    with daemon(folder, policy or alert_policy(lab.prometheus_url), kubeconfig, **options) as running:
        until(running.leads, running.tail)
        yield running


class Cuttable:
    """A TCP proxy in front of a server on loopback: `cut` breaks every connection and takes no new ones, `swallow`
    takes everything and passes nothing on."""

    def __init__(self, server: str) -> None:
        """`server` is `http://127.0.0.1:PORT`."""
        self._port = int(server.rsplit(":", 1)[1])
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._whole = True
        self._silent = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """No connection gets through."""
        with self._lock:
            self._whole = False
            broken, self._open = self._open, set()
        for each in broken:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def swallow(self) -> None:
        """Whatever is sent is confirmed, as by a host that lives, and lost; nothing is answered."""
        self._silent = True

    def mend(self) -> None:
        """All do again."""
        with self._lock:
            self._whole, self._silent = True, False

    def close(self) -> None:
        """The end of it."""
        self.cut()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5.0)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if not self._whole:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._silent:
                    sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()
        with self._lock:
            self._open.discard(source)


@contextmanager
def cuttable(server: str) -> Iterator[Cuttable]:
    """Such a proxy."""
    proxy = Cuttable(server)
    try:
        yield proxy
    finally:
        proxy.close()


def kubeconfig_through(lab: Lab, proxy: Cuttable, path: Path) -> Path:
    """The lab's kubeconfig, with the proxy in between."""
    path.write_text(lab.kubeconfig_text().replace(lab.url, f"http://127.0.0.1:{proxy.port}"))
    return path
