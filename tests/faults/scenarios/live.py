"""A daemon in a cluster, with a proxy in front of each of its servers, and what goes wrong there.

A lane is a lab, its proxies and a daemon that is started again when it is killed, as the kubelet does. Where there is a
real API server the daemon talks to that one: it has the lab's objects, and the lab serves their usage.
"""

import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

from sqlalchemy import make_url

from rebalancer.lab import Lab
from tests.e2e.servers import DaemonProcess, alert_policy, daemon, evicted, until, warm_lab
from tests.faults.oracles import Call, disagreements, rows_of
from tests.faults.servers.commits import CommitProxy, commit_proxy
from tests.faults.servers.proxy import FaultProxy, ProxyFault, fault_proxy
from tests.real.servers.api_server import ApiServer, api_server

FAULT_SECONDS = 12.0
"""Longer than a lease lives without a renewal."""
LATE_SECONDS = 20.0
"""The longest wait of a watch."""
RECOVERY_SECONDS = 30.0
"""Of a fault that held: from its end to the first complete cycle of a ready leader."""
GIVEN_UP_SECONDS = 90.0
SETTLED_SECONDS = 120.0
INTERVAL = "10s"
"""The shortest that a policy may have."""
MANY = 1000
PAGE = b"<html><body>Sign in</body></html>"
NESTED = b"[" * 100_000


def _answer(status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> ProxyFault:
    fields = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return ProxyFault(status=status, body=body, headers=tuple(fields.items()))


def _status(code: int, **headers: str) -> ProxyFault:
    body = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a fault","code":%d}' % code
    return _answer(code, body, **headers)


KINDS: Mapping[str, ProxyFault] = {
    "connections are reset": ProxyFault(reset=True),
    "half of the connections are reset": ProxyFault(reset=True, share=0.5),
    "no answer": ProxyFault(hang=True),
    "requests arrive, answers are lost": ProxyFault(reset=True, passed_on=True),
    "answers take 6 s": ProxyFault(delay_seconds=6.0),
    "answers take 30 s": ProxyFault(delay_seconds=30.0),
    "bodies are cut": ProxyFault(cut_after_bytes=20),
    "a byte a second": ProxyFault(drip_seconds=1.0),
    "500": _status(500),
    "503, Retry-After of an hour": _status(503, Retry_After="3600"),
    "429, Retry-After of an hour": _status(429, Retry_After="3600"),
    "an error whose body breaks off": ProxyFault(status=503, body=b"x" * 1000, cut_after_bytes=10),
    "401": _status(401),
    "403": _status(403),
    "404": _status(404),
    "410": _status(410),
    "login page, 200": _answer(200, PAGE, "text/html"),
    "login page, 200, request passed on": ProxyFault(status=200, body=PAGE, passed_on=True),
    "proxy's page, 500, request passed on": ProxyFault(status=500, body=PAGE, passed_on=True),
    "redirect to a login page": _answer(302, Location="/login"),
    "JSON that breaks off": _answer(200, b'{"kind":"List","items":[{"meta'),
    "JSON nested 100,000 deep": _answer(200, NESTED),
    "another document": _answer(200, b'{"kind":"Other"}'),
    "empty body": _answer(200),
}
SIDES: Mapping[str, str] = {
    "API server": "",
    "lists and watches": r"^GET /apis?/[^?]*/(pods|nodes)(\?|$)",
    "Lease": "/leases",
    "evictions": "/eviction",
    "Prometheus": "",
}
"""Name -> which requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The verdict on one fault."""

    name: str
    recovery_seconds: float
    """From the fault's end."""
    wrong: tuple[str, ...]
    """Empty where it held, apart from its time."""
    restarts: int = 0


@dataclass(slots=True, kw_only=True)
class Lane:
    """A lab with a daemon."""

    name: str
    folder: Path
    lab: Lab
    api: FaultProxy
    prometheus: FaultProxy
    real: ApiServer | None
    database: str
    stack: ExitStack
    kubeconfig: Path
    uids: set[str]
    """Of the real API server's pods at the start."""
    starts: int = 0
    alerts: int = 0
    tracebacks: list[str] = field(default_factory=list)
    """In the logs since the last fault."""
    running: DaemonProcess = field(init=False)

    def start(self) -> None:
        """Start the daemon, or start it again."""
        policy = alert_policy(
            f"{self.prometheus.url}/prometheus",
            strategies=[{"name": "LowNodeUtilization", "interval": INTERVAL}],
            guards={"minAge": "0s"},
            # nothing replaces the pods of an API server without controllers
            limits={"cluster": {"inFlight": MANY}, "replacements": {"perNode": MANY}},
            safety={
                "circuitBreaker": {"lateInPool": MANY, "lateInCluster": MANY},
                "cooldowns": {"newNode": "0s", "poolAfterScaleUp": "0s"},
            },
        )
        self.starts += 1
        made = daemon(
            self.folder,
            policy,
            self.kubeconfig,
            name=f"{self.folder.name}-{self.starts}",
            database=self.database,
            env={"POD_NAME": "rebalancer"},
        )
        self.running = self.stack.enter_context(made)

    def alert(self) -> None:
        """Ask for an eviction from another node."""
        self.alerts += 1
        self.running.alert(f"warm-{self.alerts}")

    def keep(self) -> None:
        """What the kubelet does."""
        if self.running.process.poll() is not None:
            self._find_traceback()
            self.start()

    def _find_traceback(self) -> None:
        log = self.running.log_file.read_text(errors="replace")
        if "Traceback" in log:
            self.tracebacks.append(log[log.index("Traceback") :][:1000])

    def clean_since(self, at: float) -> bool:
        """Whether a ready leader has ended a complete cycle after `at`, in seconds since the epoch."""
        self.keep()
        cycles = [each for each in self.running.events("cycle") if each["finished"] and each["stopped"] is None]
        newest = max((datetime.fromisoformat(each["timestamp"]).timestamp() for each in cycles), default=0.0)
        return newest > at and self.running.ready() and self.running.leads()

    def watches(self) -> bool:
        """Whether pods and nodes are watched."""
        return all(self.api.being_answered(rf"/{kind}\?.*watch=1") for kind in ("pods", "nodes"))

    def evictions(self) -> set[str]:
        """UIDs of pods that were evicted."""
        if self.real is None:
            return {each.uid for each in evicted(self.lab)}
        pods = self.real.call("GET", "/api/v1/namespaces/shop/pods")["items"]
        return self.uids - {each["metadata"]["uid"] for each in pods if "deletionTimestamp" not in each["metadata"]}

    def try_fault(
        self,
        name: str,
        begin: Callable[[], None],
        end: Callable[[], None],
        *,
        evicts: bool = False,
        ends: bool = False,
        seconds: float = FAULT_SECONDS,
        met: Callable[[], bool] = lambda: True,
    ) -> Outcome:
        """One fault, from one healthy state to the next. It lasts longer where nothing has `met` it.

        `evicts`: whether evictions are asked for meanwhile. `ends`: whether the process ends by the fault.
        """
        until(lambda: self.clean_since(0.0) and self.watches(), self.running.tail, GIVEN_UP_SECONDS)
        before, starts = self.evictions(), self.starts
        begin()
        over = time.monotonic() + seconds
        while (now := time.monotonic()) < over or (not met() and now < over + LATE_SECONDS):
            self.keep()
            time.sleep(0.2)
        evictions = self.evictions() - before
        end()
        ended, ended_at = time.monotonic(), time.time()
        wrong = []
        if evictions and not evicts:
            wrong.append(f"{len(evictions)} evictions")
        while not (self.clean_since(ended_at) and self.watches()) and time.monotonic() - ended < GIVEN_UP_SECONDS:
            time.sleep(0.1)
        took = time.monotonic() - ended
        if took >= GIVEN_UP_SECONDS:
            wrong.append(f"no recovery within {took:.0f} s: {self.running.get('/readyz?verbose')[1]}")
        if self.starts > starts and not ends:
            wrong.append("the process ended")
        self._find_traceback()
        wrong += self.tracebacks
        self.tracebacks.clear()
        return Outcome(name=name, recovery_seconds=took, wrong=tuple(wrong), restarts=self.starts - starts)

    def settled(self) -> Outcome:
        """Whether the ledger counts exactly what was evicted, once what is unknown has been reconciled."""
        began = time.monotonic()
        wrong: list[str] = ["never compared"]
        while wrong and time.monotonic() - began < SETTLED_SECONDS:
            self.keep()
            calls = [Call(cluster="test", at=0.0, uid=uid, service="", node="", term=0) for uid in self.evictions()]
            wrong = disagreements(calls, rows_of(self.database))
            time.sleep(1.0)
        name = f"{self.name}: the ledger agrees with the cluster on {len(self.evictions())} evictions"
        return Outcome(name=name, recovery_seconds=0.0, wrong=tuple(wrong))


@contextmanager
def a_lane(
    folder: Path, name: str, *, real: ApiServer | None = None, database: str = "", alerts: int = 0
) -> Iterator[Lane]:
    """`database` is the URL of a PostgreSQL whose schema is current; SQLite without one. `alerts`: how many there will
    be."""
    folder.mkdir()
    if not database:
        database = f"sqlite:///{folder / 'rebalancer.db'}"
    with ExitStack() as stack:
        lab = stack.enter_context(warm_lab(warm=max(alerts, 2), cold=max(6, alerts // 2)))
        uids = set() if real is None else copy_objects(lab, real)
        server = lab.url if real is None else real.url
        api = stack.enter_context(fault_proxy(server, ca_file=None if real is None else real.ca_file))
        prometheus = stack.enter_context(fault_proxy(lab.url))
        if real is None:
            config = lab.kubeconfig_text().replace(lab.url, api.url)
        else:
            config = real.kubeconfig(folder / "config").read_text().replace(real.url, api.url)
        (folder / "config").write_text(config)
        lane = Lane(
            name=name,
            folder=folder,
            lab=lab,
            api=api,
            prometheus=prometheus,
            real=real,
            database=database,
            stack=stack,
            kubeconfig=folder / "config",
            uids=uids,
        )
        lane.start()
        yield lane


def copy_objects(lab: Lab, real: ApiServer) -> set[str]:
    """Create the lab's nodes and pods in the API server, as Running; the pods' UIDs there."""
    with lab.cluster.lock:
        kinds = ("namespaces", "nodes", "replicasets", "pods")
        found = {kind: [dict(each) for each in lab.cluster.store.sorted(kind)] for kind in kinds}
    there = {each["metadata"]["name"] for each in real.call("GET", "/api/v1/namespaces")["items"]}
    owners: dict[str, str] = {}
    uids = set()
    for kind, objects in found.items():
        for each in objects:
            meta = each["metadata"]
            if kind == "namespaces" and meta["name"] in there:
                continue
            group = "/apis/apps/v1" if kind == "replicasets" else "/api/v1"
            path = f"{group}/namespaces/{meta['namespace']}/{kind}" if meta.get("namespace") else f"{group}/{kind}"
            kept = {name: meta[name] for name in ("name", "namespace", "labels", "annotations") if meta.get(name)}
            if kind == "pods":
                kept["ownerReferences"] = [
                    owner | {"uid": owners[owner["uid"]]} for owner in meta.get("ownerReferences", [])
                ]
            body = {**each, "metadata": kept}
            if kind == "pods":
                body["spec"] = {**each["spec"], "terminationGracePeriodSeconds": 0}
            made = real.call("POST", path, body)
            owners[meta["uid"]] = made["metadata"]["uid"]
            if "status" in each and kind != "namespaces":
                status = {**made, "status": each["status"]}
                real.call("PUT", f"{path}/{meta['name']}/status", status)
            if kind == "pods":
                uids.add(made["metadata"]["uid"])
    return uids


# ---- the lanes


def through_proxy(lane: Lane, side: str, kinds: Sequence[str]) -> Iterator[Outcome]:
    """Faults of one of SIDES."""
    proxy = lane.prometheus if side == "Prometheus" else lane.api
    evicts = side == "evictions"
    for kind in kinds:
        fault = replace(KINDS[kind], requests=SIDES[side])

        def begin(fault: ProxyFault = fault) -> None:
            proxy.begin(fault)
            if evicts:
                lane.alert()

        outcome = lane.try_fault(
            f"{side}: {kind}",
            begin,
            proxy.end,
            evicts=evicts,
            seconds=FAULT_SECONDS + fault.delay_seconds,
            met=lambda fault=fault: proxy.hits > 0 or fault.hang,
        )
        if proxy.hits == 0 and fault.share == 1.0 and not fault.hang:
            outcome = replace(outcome, wrong=(*outcome.wrong, "no request met the fault"))
        yield outcome


def of_process(lane: Lane) -> Iterator[Outcome]:
    """What happens to the daemon itself."""

    def send(number: signal.Signals) -> Callable[[], None]:
        return lambda: lane.running.signal(number)

    def kill_during_an_alert() -> None:
        lane.alert()
        lane.running.signal(signal.SIGKILL)

    def nothing() -> None:
        """The kubelet starts it again."""

    yield lane.try_fault("daemon: SIGKILL", send(signal.SIGKILL), nothing, ends=True)
    yield lane.try_fault("daemon: SIGKILL during an alert", kill_during_an_alert, nothing, evicts=True, ends=True)
    yield lane.try_fault("daemon: SIGTERM", send(signal.SIGTERM), nothing, ends=True)
    yield lane.try_fault("daemon: SIGSTOP and SIGCONT", send(signal.SIGSTOP), send(signal.SIGCONT))


def of_database(lane: Lane, proxy: CommitProxy) -> Iterator[Outcome]:
    """What happens to the database's connections."""

    def lose(what: Literal["commit", "answer"]) -> Callable[[], None]:
        def begin() -> None:
            proxy.lose = what
            lane.alert()

        return begin

    yield lane.try_fault("database: away", proxy.cut, proxy.mend)
    yield lane.try_fault("database: away for a minute", proxy.cut, proxy.mend, seconds=60.0)
    yield lane.try_fault("database: a commit is lost", lose("commit"), proxy.mend, evicts=True)
    yield lane.try_fault("database: the answer of a commit is lost", lose("answer"), proxy.mend, evicts=True)


def lanes(*, real: bool, postgres_url: str = "", only: re.Pattern[str]) -> list[Callable[[Path], Iterator[Outcome]]]:
    """Those with faults that match `only`, each to be called with a folder that doesn't exist yet. `real`: with an API
    server for each, and only those of its side.

    `postgres_url`: of a database whose schema is current; without one there are no faults of the database.
    """

    def side(name: str, kinds: Sequence[str], folder: Path) -> Iterator[Outcome]:
        with ExitStack() as stack:
            server = stack.enter_context(api_server()) if real else None
            alerts = len(kinds) if name == "evictions" else 0
            lane = stack.enter_context(a_lane(folder, name, real=server, alerts=alerts))
            yield from through_proxy(lane, name, kinds)
            if name == "API server" and only.search("API server: away for 90 s"):
                away = lane.try_fault(
                    "API server: away for 90 s",
                    lambda: lane.api.begin(ProxyFault(reset=True)),
                    lane.api.end,
                    seconds=90.0,
                )
                yield away
            yield lane.settled()

    def process(folder: Path) -> Iterator[Outcome]:
        with a_lane(folder, "daemon", alerts=2) as lane:
            yield from of_process(lane)
            yield lane.settled()

    def database(folder: Path) -> Iterator[Outcome]:
        port = make_url(postgres_url).port
        assert port is not None
        with commit_proxy(port) as proxy:
            url = make_url(postgres_url).set(port=proxy.port).render_as_string(hide_password=False)
            with a_lane(folder, "database", database=url, alerts=2) as lane:
                yield from of_database(lane, proxy)
                yield lane.settled()

    out: list[Callable[[Path], Iterator[Outcome]]] = []
    for name in SIDES:
        kinds = [kind for kind in KINDS if only.search(f"{name}: {kind}")]
        if kinds and not (real and name == "Prometheus"):
            out.append(partial(side, name, kinds))
    if not real and only.search("daemon"):
        out.append(process)
    if not real and postgres_url and only.search("database"):
        out.append(database)
    return out
