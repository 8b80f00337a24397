"""Several practice clusters that share a database, with two replicas each, in one process and one simulated time.

A replica is the daemon's leadership, ledger, records and cycle. A cycle runs in a thread that takes turns with the
fleet: while it waits, or is stopped in the middle of an eviction, time goes on for all others.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.adapters import make_context
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.kube.leader.leadership import Leadership
from rebalancer.kube.leader.lease import Sighting
from rebalancer.lab import Lab, workload
from rebalancer.model.errors import ConfigError, RebalancerError
from rebalancer.policy import RebalancerPolicy
from rebalancer.store.cycles.records import open_records
from tests.faults.fakes import (
    InterruptedClient,
    Killed,
    OneAttempt,
    Point,
    ReplicaClock,
    SteppedLock,
    WatchedLedger,
)
from tests.faults.oracles import Call
from tests.faults.scenarios.turns import Turns
from tests.faults.servers.commits import CommitProxy, commit_proxy
from tests.stories.readers import service_of
from tests.stories.scenarios.stage import NO_COOLDOWNS, START, a_machine, a_scenario, service, stories_policy

STEP_SECONDS = 5.0
"""The longest; replicas that wait for less time are not late."""
SHORTEST_STEP_SECONDS = 0.2
CYCLE_SECONDS = 40.0
QUICK_SECONDS = 10.0
FOLLOW_SECONDS = 10.0
RESTART_SECONDS = 10.0
NODES = 6
SERVICES = {"web": 5, "api": 4, "cart": 4, "search": 3, "mail": 3, "feed": 3}
WINDOW_SECONDS = 300.0
MOST_GLOBAL, MOST_CLUSTER, MOST_NODE = 10, 5, 3
SPACING_SECONDS = 5.0
STRICT: dict[str, Any] = {
    "global": {"evictions": [{"max": MOST_GLOBAL, "per": "5m"}]},
    "cluster": {"evictions": [{"max": MOST_CLUSTER, "per": "5m"}], "spacing": f"{SPACING_SECONDS:g}s"},
    "node": {"evictions": [{"max": MOST_NODE, "per": "5m"}]},
}
OPEN: dict[str, Any] = {"perCycle": 2, "node": {"evictions": [{"max": 100, "per": "5m"}]}}
HOT: tuple[Any, ...] = ({"name": "LowNodeUtilization"},)
OLD: tuple[Any, ...] = ({"name": "PodLifeTime", "args": {"maxPodLifeTime": "2m"}},)
"""Always finds something to evict."""


class Replica:
    """One replica's life, from its start to its end."""

    def __init__(self, fleet: "Fleet", cluster: "Cluster", name: str) -> None:
        """Raises RebalancerError where the database can't be reached."""
        self.fleet, self.cluster, self.name = fleet, cluster, name
        self.stack = ExitStack()
        self.stopped = False
        self.alive = True
        self._led = False
        self.turns: Turns | None = None
        """Of its cycle."""
        self.cycle_at = self._follow_at = self._renew_at = fleet.now()
        self.interruption: tuple[Point, Callable[[Replica], None]] | None = None
        self.clock = ReplicaClock(fleet.now, self.wait)
        self.lock: SteppedLock | None = None
        self._sighting = Sighting()
        self.client = InterruptedClient(cluster.kubeconfig, user_agent=f"rebalancer/soak {name}", at=self._at)
        self.stack.callback(self.client.close)
        try:
            self.records = open_records(url=fleet.url, cluster=cluster.name, clock=self.clock)
            self.stack.callback(self.records.close)
            self.ledger = WatchedLedger(
                engine=self.records._engine, cluster=cluster.name, clock=fleet, before_reserve=fleet.lost_now
            )
            self.leadership = Leadership(make_lock=self._make_lock, fence=self.ledger.fence)
            context = make_context(
                cluster.policy,
                Settings(database=fleet.url, kubeconfig=cluster.kubeconfig),
                self.client,
                self.clock,
                NullProgress(),
                self.stack,
                records=self.records,
                ledger=self.ledger,
                lease=self.leadership,
            )
        except BaseException:
            self.stack.close()
            raise
        self.context = replace(context, stopping=lambda: not self.leadership.holds())

    def _make_lock(self) -> SteppedLock:
        self.ledger.read_sequence()
        self.lock = SteppedLock(
            client=self.client,
            namespace="kube-system",
            name="rebalancer",
            identity=self.name,
            ledger_identity=self.records.ledger_identity(),
            last_term=self.ledger.last_term(),
            sequence=lambda: self.ledger.sequence,
            sighting=self._sighting,
            boot_time=self.fleet.now,
            wall_time=self.clock.now,
            pause=_not_now,
        )
        return self.lock

    def leads(self) -> bool:
        return self.leadership.holds()

    @property
    def term(self) -> int:
        return self.leadership.term or 0

    @property
    def busy(self) -> bool:
        return self.turns is not None

    def wait(self, seconds: float) -> None:
        """In a cycle: let time pass for everything else."""
        assert self.turns is not None
        self.turns.wait(self.fleet.now() + seconds)

    def step(self) -> None:
        """What its threads do now."""
        now = self.fleet.now()
        if self.turns is not None and now >= self.turns.due:
            self._go_on(self.turns)
        if self.stopped or not self.alive:
            return
        if self.leadership.term is not None and self.lock is not None and now >= self._renew_at:
            self._renew_at = now + STEP_SECONDS
            self.lock.renew()
        with suppress(RebalancerError):
            self.ledger.write_unwritten()  # as the thread of the gauges does, whoever leads
        if self.busy:
            return
        if self._led and not self.leads():
            self._led = False
            self.fleet.counts["stood by"] += 1
            self.leadership.stand_by()
            self.client.cut_off = False  # the partition ends, and the process is the same
        elif not self.leads():
            if now < self._follow_at:
                return
            self._follow_at = now + FOLLOW_SECONDS
            self.leadership.run(OneAttempt())  # type: ignore[arg-type]
            self._led = self.leads()
        elif now >= self.cycle_at:
            self.cycle_at = now + self.fleet.cycle_seconds
            self.turns = Turns(self._cycle)
            self._go_on(self.turns)

    def _go_on(self, turns: Turns) -> None:
        try:
            turns.resume()
        except Killed:
            self.turns = None
            self.end()
        if turns.over:
            self.turns = None

    def _cycle(self) -> None:
        try:
            report = run_cycle(self.context, self.cluster.policy, dry_run=False).report
            self.fleet.counts["cycles stopped" if report.stopped else "cycles"] += 1
        except RebalancerError:
            self.fleet.counts["cycles failed"] += 1

    def end(self) -> None:
        """The process is gone, with nothing released; the kubelet starts another one."""
        if not self.alive:
            return
        self.alive = False
        if self.turns is not None:
            with suppress(Killed):
                self.turns.kill()
        self.cluster.lost |= {each.uid for each in self.ledger.unwritten}
        self.stack.close()
        self.cluster.restart_at[self.name] = self.fleet.now() + RESTART_SECONDS

    def _at(self, point: Point, path: str) -> None:
        parts = path.split("/")
        pod = f"{parts[4]}/{parts[6]}"
        if point is Point.UNDER_WAY:
            self.fleet.counts["calls"] += 1
            self.fleet.counts["calls without a certain reservation"] += pod not in self.ledger.certain
        if self.interruption is not None and self.interruption[0] is point:
            (_, happen), self.interruption = self.interruption, None
            self.fleet.counts[f"interrupted: {point}"] += 1
            if point is Point.UNDER_WAY:
                self.cluster.late.add(self.cluster.uid_of(*pod.split("/")))
            happen(self)


def _not_now(_seconds: float) -> None:
    raise ConfigError("the lease looks expired: tried again at the next step")


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A lab with its replicas."""

    name: str
    lab: Lab
    policy: RebalancerPolicy
    kubeconfig: str
    random: random.Random
    replicas: list[Replica] = field(default_factory=list)
    restart_at: dict[str, float] = field(default_factory=dict)
    """Replica -> when it starts again."""
    calls: list[Call] = field(default_factory=list)
    late: set[str] = field(default_factory=set)
    """UIDs of pods whose eviction was on its way while its replica was interrupted."""
    lost: set[str] = field(default_factory=set)
    """UIDs of pods whose eviction's answer ended with its process, before the database could be written."""
    changes: list[tuple[float, str, int]] = field(default_factory=list)
    """(time, service, 1 for a pod that leaves and -1 for a replacement that is Ready)."""
    heats: int = 0

    def leader(self) -> Replica | None:
        return next((each for each in self.replicas if each.alive and not each.stopped and each.leads()), None)

    def uid_of(self, namespace: str, pod: str) -> str:
        with self.lab.cluster.lock:
            return str(self.lab.cluster.store.get("pods", namespace, pod)["metadata"]["uid"])

    def heat(self) -> None:
        """Another node is hot, by a pod that may not be evicted."""
        cluster = self.lab.cluster
        with cluster.lock:
            for pod in cluster.pods(namespace="heat"):
                cluster.store.remove("pods", "heat", pod["metadata"]["name"])
            self.heats += 1
            counts = Counter(pod["spec"].get("nodeName") for pod in cluster.pods(namespace="shop"))
            node = self.random.choice(sorted(str(name) for name, count in counts.items() if name and count > 1))
            missing = max(14.0 - counts[node], 1.0)
            burner = workload(f"burn-{self.heats}", namespace="heat", kind="Pod", place={node: 1}, cpu=missing)
            cluster.add_workload(burner)

    def harvest(self) -> None:
        """Read the lab's log, and empty it: it would grow for hours."""
        log = self.lab.log
        with log._lock:
            entries, log._entries = log._entries, []
        for each in entries:
            if each.event == "eviction" and each.code == 201 and not each.dry_run:
                self.calls.append(
                    Call(
                        cluster=self.name,
                        at=each.at,
                        uid=each.uid,
                        service=service_of(each),
                        node=each.node,
                        term=int(each.user_agent.rpartition(" term/")[2]),
                    )
                )
            if each.namespace == "shop" and each.event in ("terminating", "ready"):
                self.changes.append((each.at, service_of(each), 1 if each.event == "terminating" else -1))


@dataclass(slots=True, kw_only=True)
class Fleet:
    """All clusters, their time, and the database's faults. Implements `model.decisions.ports.Clock`, for the ledger."""

    url: str
    proxy: CommitProxy | None
    cycle_seconds: float
    direct_url: str
    """Without the proxy."""
    seen: set[str] = field(default_factory=set)
    """Names of the faults so far."""
    wrong: list[str] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    lose: str = ""
    """What the next reservation's commit loses: `commit`, `answer`, or nothing."""

    def now(self) -> float:
        return self.clusters[0].lab.clock.now()

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError("ledgers don't wait")

    def advance(self, seconds: float) -> None:
        """Let time pass in all labs, and for all replicas."""
        end = self.now() + seconds
        while (now := self.now()) < end:
            due = (each.turns.due for cluster in self.clusters for each in cluster.replicas if each.turns is not None)
            step = min(STEP_SECONDS, end - now, max(min(due, default=end) - now, SHORTEST_STEP_SECONDS))
            for cluster in self.clusters:
                cluster.lab.clock.sleep(step)
            for cluster in self.clusters:
                self._start(cluster)
                for replica in tuple(cluster.replicas):
                    replica.step()

    def _start(self, cluster: Cluster) -> None:
        for name, at in tuple(cluster.restart_at.items()):
            if at > self.now():
                continue
            try:
                replica = Replica(self, cluster, f"{name.partition('#')[0]}#{self.counts['starts']}")
            except RebalancerError:
                continue
            del cluster.restart_at[name]
            self.counts["starts"] += 1
            cluster.replicas = [*(each for each in cluster.replicas if each.alive), replica]

    def lost_now(self) -> str:
        """Called before each reservation."""
        lost, self.lose = self.lose, ""
        if lost:
            self.counts[f"lost: {lost} of a reservation"] += 1
        if lost and self.proxy is not None:
            self.proxy.lose = lost  # type: ignore[assignment]
            return ""
        return lost

    def calls(self) -> list[Call]:
        """Evictions so far, by cluster in the order of the calls."""
        for cluster in self.clusters:
            cluster.harvest()
        return [call for cluster in self.clusters for call in cluster.calls]

    def late(self) -> set[tuple[str, str]]:
        """(cluster, uid) of the pods whose call was on its way while its replica was interrupted."""
        return {(cluster.name, uid) for cluster in self.clusters for uid in cluster.late}

    def lost(self) -> set[tuple[str, str]]:
        """(cluster, uid) of the pods whose eviction's answer ended with its process."""
        return {(cluster.name, uid) for cluster in self.clusters for uid in cluster.lost}

    def changes(self) -> list[tuple[float, str, int]]:
        return [change for cluster in self.clusters for change in cluster.changes]


@contextmanager
def a_fleet(
    folder: Path, url: str, *, clusters: int, seed: int, quick: bool = False, through_proxy: bool = False
) -> Iterator[Fleet]:
    """`url` is the database's, whose schema is current; a PostgreSQL can be reached through a proxy. `quick`: cycles
    follow each other, and each evicts; otherwise a hot node is relieved within strict limits."""
    with ExitStack() as stack:
        proxy, direct_url = None, url
        if through_proxy:
            port = make_url(url).port
            assert port is not None
            proxy = stack.enter_context(commit_proxy(port))
            url = make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
        cycle_seconds = QUICK_SECONDS if quick else CYCLE_SECONDS
        fleet = Fleet(url=url, direct_url=direct_url, proxy=proxy, cycle_seconds=cycle_seconds)
        for number in range(clusters):
            name = f"c{number}"
            nodes = [a_machine(f"{name}-n{index}") for index in range(NODES)]
            services = []
            for offset, (each, pods) in enumerate(SERVICES.items()):
                place = Counter(f"{name}-n{(offset + index) % NODES}" for index in range(pods))
                services.append(service(each, dict(place), pdb={"max_unavailable": 1}))
            lab = stack.enter_context(
                Lab.start(a_scenario(nodes, *services), stepped=True, start_time=START, seed=seed + number)
            )
            # replicas of the fleet don't watch: what the lab keeps for watches would only grow
            lab.cluster.store._history_limit = 0
            policy = stories_policy(
                lab,
                cluster=name,
                limits=OPEN if quick else STRICT,
                strategies=list(OLD if quick else HOT),
                safety={"cooldowns": NO_COOLDOWNS, "crossCluster": {"separation": "0s"}},
            )
            cluster = Cluster(
                name=name,
                lab=lab,
                policy=RebalancerPolicy.model_validate(policy),
                kubeconfig=str(lab.write_kubeconfig(folder / f"{name}.config")),
                random=random.Random(f"{seed} {name}"),
            )
            cluster.restart_at = {f"{name}-a": 0.0, f"{name}-b": 0.0}
            fleet.clusters.append(cluster)
        try:
            yield fleet
        finally:
            for cluster in fleet.clusters:
                for replica in cluster.replicas:
                    replica.end()
