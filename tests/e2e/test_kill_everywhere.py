"""`kill -9` at every step from reserving to the end of a cycle: after the restart the ledger agrees with the cluster,
and no limit was exceeded. What happened is read from the lab's own log, the rows with nothing but SQL.
"""

import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.lab.log import Entry
from rebalancer.store import upgrade
from tests.e2e.programs import STEPS, Job, SharedClock, begin, end
from tests.programs.cli import policy_for, write_policy

SPEED = 60.0
WORKERS = 6
"""Stages at once: they mostly wait."""
RATE_WINDOW = 60.0
GRACE = 60.0
"""A call may be in progress for so long: see store/ledger/reconcile.py."""
LIMIT_WINDOW = 12 * 3600.0
"""12 real minutes: a slow run must not outlive it."""
CLUSTER_AT_MOST, NODE_AT_MOST, SERVICE_IN_FLIGHT = 3, 2, 1
CALL_SECONDS = 30.0
"""Real time from a reservation to the log's entry: the log's times may be closer together than the ledger's by it."""
RUN_SECONDS = 120.0
MOST_STEPS = 40
"""More than one run has: three evictions of 11 steps each, what the ledger denies, and begin and finish."""

LIMITS = {
    "cluster": {"evictions": [{"max": CLUSTER_AT_MOST, "per": "12h"}]},
    "node": {"evictions": [{"max": NODE_AT_MOST, "per": "12h"}]},
    "service": {"inFlight": SERVICE_IN_FLIGHT},
}
COOLDOWNS = {"node": "0s", "service": "0s", "serviceNode": "0s", "poolAfterScaleUp": "0s"}


class Stage:
    """A lab, a database, and one run after another."""

    def __init__(self, lab: Lab, folder: Path, *, empty: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.database = Path(shutil.copy(empty, folder / "rebalancer.db"))
        self.kubeconfig = lab.write_kubeconfig(folder / "kubeconfig")
        usage = policy_for(lab.prometheus_url)["usage"] | {"rateWindow": f"{RATE_WINDOW:g}s", "maxSampleAge": "30m"}
        self.policy = write_policy(
            folder, policy_for(lab.prometheus_url, usage=usage, limits=LIMITS, safety={"cooldowns": COOLDOWNS})
        )
        self.runs = 0

    def run(self, *, kill_at: int = 0) -> tuple[int | None, list[str]]:
        """(exit code, steps that were reached) of one run."""
        self.runs += 1
        trace = self.folder / f"trace-{self.runs}"
        trace.touch()
        clock = SharedClock(
            started_at=self.lab.clock.started_at, origin=self.lab.clock._origin, speed=self.lab.clock.speed
        )
        process = begin(
            Job(
                policy=self.policy,
                kubeconfig=self.kubeconfig,
                database=self.database,
                clock=clock,
                trace=trace,
                kill_at=kill_at,
            )
        )
        code = end(process, RUN_SECONDS)
        self._let_the_lease_run_out()
        return code, trace.read_text().splitlines()

    def _let_the_lease_run_out(self) -> None:
        """What 15 s without a renewal would do. Its transitions stay: the next holder's term is a newer one."""
        store = self.lab.cluster.store
        with self.lab.cluster.lock:
            lease = store.get("leases", "kube-system", "rebalancer")
            store.change("leases", lease, lambda new: new["spec"].update(holderIdentity=""))

    def rows(self, where: str) -> Counter[str]:
        """uid -> rows of the database's evictions."""
        with closing(sqlite3.connect(self.database)) as connection:
            return Counter(uid for (uid,) in connection.execute(f"SELECT uid FROM evictions WHERE {where}"))

    def one(self, query: str) -> object:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query).fetchone()[0]

    def evicted(self) -> list[Entry]:
        """By the lab's own account."""
        return list(self.lab.log.evictions(code=201))


COUNTED = "id IN (SELECT eviction FROM entries WHERE counted)"
UNCOUNTED_SCOPES = (
    "SELECT count(*) FROM (SELECT eviction FROM entries GROUP BY eviction HAVING count(DISTINCT counted) > 1)"
)


@contextmanager
def a_stage(folder: Path, *, empty: Path) -> Iterator[Stage]:
    """Two hot nodes of six: cooling them takes three evictions each, of which the limits allow three in all."""
    folder.mkdir()
    places = {
        "s1": ["node-1", "node-2", "node-3"],
        "s2": ["node-1", "node-2", "node-3"],
        "s3": ["node-1", "node-2", "node-4"],
        "s4": ["node-1", "node-2", "node-4"],
        "s5": ["node-1", "node-2", "node-5"],
        "s6": ["node-1", "node-2", "node-5"],
        "s7": ["node-1", "node-2", "node-6"],
    }
    cluster = scenario(
        nodes=[node(f"node-{number}", cpu=8) for number in range(1, 7)],
        workloads=[
            workload(name, namespace="shop", place=dict.fromkeys(place, 1), cpu_request="500m", cpu=1.0)
            for name, place in places.items()
        ],
        rate_window_seconds=RATE_WINDOW,
    )
    with Lab.start(cluster, speed=SPEED) as lab:
        yield Stage(lab, folder, empty=empty)


def most_in_any_window(times: Iterable[float], seconds: float) -> int:
    at = sorted(times)
    return max((sum(start <= one < start + seconds for one in at) for start in at), default=0)


def most_out_at_once(log: Iterable[Entry], service: str) -> int:
    """Of the service's pods: how many had to go at the same time, without a replacement that is Ready."""
    out = most = 0
    for entry in log:
        if service_of(entry) == service:
            out += {"terminating": 1, "ready": -1}.get(entry.event, 0)
            most = max(most, out)
    return most


def service_of(entry: Entry) -> str:
    return entry.name.rsplit("-", 2)[0]


def check_limits(stage: Stage) -> None:
    """From the lab's log alone."""
    evicted, window = stage.evicted(), LIMIT_WINDOW - CALL_SECONDS * SPEED
    assert most_in_any_window((each.at for each in evicted), window) <= CLUSTER_AT_MOST
    for name in {each.node for each in evicted}:
        assert most_in_any_window((each.at for each in evicted if each.node == name), window) <= NODE_AT_MOST
    for service in {service_of(each) for each in evicted}:
        assert most_out_at_once(stage.lab.log.entries(), service) <= SERVICE_IN_FLIGHT


def check_nothing_is_forgotten(stage: Stage) -> None:
    """At any moment, also right after the kill: what happened is counted, and in every scope of it."""
    counted = stage.rows(COUNTED)
    for each in stage.evicted():
        assert counted[each.uid] == 1, each
    assert stage.one(UNCOUNTED_SCOPES) == 0


def check_agreement(stage: Stage) -> None:
    """Once everything is reconciled: what is counted happened, what happened is counted, once."""
    happened = Counter(each.uid for each in stage.evicted())
    assert stage.rows(COUNTED) == happened
    assert stage.rows("outcome = 'evicted'") == happened
    assert stage.rows("outcome IN ('planned', 'unknown')") == Counter()


def restart(stage: Stage) -> None:
    """What follows a kill: a run at once, and one when all can be reconciled."""
    check_nothing_is_forgotten(stage)
    for wait in (0.0, GRACE + RATE_WINDOW):
        stage.lab.clock.sleep(wait)
        code, _ = stage.run()
        assert code == 0
        check_nothing_is_forgotten(stage)
        check_limits(stage)
    check_agreement(stage)
    # the limits were not only kept: what they allow was done
    assert len(stage.evicted()) >= CLUSTER_AT_MOST


def killed(folder: Path, *, empty: Path, kill_at: int) -> str | None:
    """Kill a run at this step, restart and check; the step's name, None where the run has fewer steps."""
    with a_stage(folder, empty=empty) as stage:
        code, steps = stage.run(kill_at=kill_at)
        assert code in (0, -signal.SIGKILL)
        assert len(steps) == kill_at or (code == 0 and len(steps) < kill_at)
        restart(stage)
    return steps[-1] if code else None


def test_killed_at_every_step_of_a_cycle(tmp_path: Path) -> None:
    upgrade(f"sqlite:///{tmp_path / 'empty.db'}")

    def at(number: int) -> str | None:
        return killed(tmp_path / f"step-{number}", empty=tmp_path / "empty.db", kill_at=number)

    with ThreadPoolExecutor(WORKERS) as pool:
        died_at = Counter(pool.map(at, range(1, MOST_STEPS + 1)))
    assert set(died_at) == STEPS | {None}
    assert died_at["evict: call answered"] == CLUSTER_AT_MOST
