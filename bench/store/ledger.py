"""Reservations per second of the ledger: `python -m bench.store.ledger [--seconds S]`.

On SQLite and on a real PostgreSQL (a fresh one, loopback), one process and four, measured side by side: in turns, each
on a ledger that holds what the turns before it left. A reservation is one as a policy with limits at every scope makes
it: eight scopes and twelve checks that all have room, committed; and each lands at once (a second, small transaction,
within the same time), because in a real ledger few are in flight. Every reservation locks the global scope, so four
processes share what the database does rather than multiply it. Both databases wait for the disk at each commit. Prints
one JSON object a line.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import Eviction, TargetNode, eviction_of
from rebalancer.model.decisions.limits import Check, Denied, Scope
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.store import SqlLedger, SqlRecords, open_engine, upgrade
from tests.real.servers.postgres import postgres_server

SECONDS, PROCESSES = 5.0, (1, 4)
AIM_PER_SECOND = 50.0
"""A cluster of 5,000 nodes evicts a few pods a minute; 50 a second leave room for a hundred such clusters."""
AIM_OF_FOUR = 200.0
"""Of four processes on PostgreSQL: SQLite is for one machine, clusters that share limits use PostgreSQL."""


class WallClock:
    """The Clock port on the machine's own time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def build(number: int, cluster: str) -> tuple[Eviction, list[Check]]:
    """An eviction and its checks, as a policy with all sections makes them."""
    service, node = f"service-{number % 200}", f"node-{number % 500}"
    identity = f"shop/{service}"
    scopes = [
        Scope("global", ""),
        Scope("cluster", cluster),
        Scope("pool", f"{cluster}/general"),
        Scope("node", f"{cluster}/{node}"),
        Scope("namespace", f"{cluster}/shop"),
        Scope("service", identity),
        Scope("serviceNode", f"{cluster}/{node}/{identity}"),
        Scope("landing", f"{cluster}/node-{number % 97}"),
    ]
    # as many as a policy may say, in a window so short that nothing is ever denied
    checks = [Check(scope=each, kind="rate", at_most=20, per_seconds=0.001) for each in scopes[:6]]
    checks += [Check(scope=each, kind="inFlight", at_most=20) for each in scopes[:6]]
    eviction = eviction_of(
        namespace="shop",
        pod=f"{service}-{number}",
        uid=f"{number:032x}",
        node=node,
        pool="general",
        service=Service(kind="Deployment", namespace="shop", name=service),
        service_identity=identity,
        strategy="LowNodeUtilization",
        reason="bench",
        cpu_millicores=500.0,
        level="gold",
        owner_uid="owner",
        target_nodes=(TargetNode("node-1", 1.0),),
        scopes=tuple(scopes),
        ready_before=3,
        desired_before=3,
        grace_seconds=30.0,
        deadline_at=time.time() + 600,
    )
    return eviction, checks


def work(url: str, name: str, seconds: float) -> None:
    """One process: reserve and land for `seconds`; prints how many, and the median milliseconds of reserving."""
    cluster = "bench"
    engine = open_engine(url, busy_timeout_seconds=30)
    ledger = SqlLedger(engine=engine, cluster=cluster)
    report = CycleReport(id=name, cluster=cluster, trigger=Trigger.MANUAL, dry_run=False, started_at=time.time())
    SqlRecords(engine=engine, cluster=cluster, clock=WallClock()).begin(report)
    print("ready", flush=True)
    sys.stdin.readline()
    took = []
    until = time.perf_counter() + seconds
    while (started := time.perf_counter()) < until:
        eviction, checks = build(len(took), cluster)
        answer = ledger.reserve(report, eviction, checks=checks, term=1)
        took.append(time.perf_counter() - started)
        if isinstance(answer, Denied):
            raise AssertionError(answer)
        ledger.landed(answer, at=time.time())
    engine.dispose()
    print(json.dumps({"reserved": len(took), "median_ms": statistics.median(took) * 1000}))


def measure(url: str, processes: int, seconds: float) -> tuple[float, float]:
    """(reservations per second, median milliseconds of one) of so many processes at once."""
    with ExitStack() as stack:
        started = []
        for number in range(processes):
            command = [sys.executable, "-m", "bench.store.ledger", "--worker", url, f"{time.time()}-{number}"]
            process = subprocess.Popen(
                [*command, "--seconds", str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a worker of the benchmark did not start")
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [json.loads(process.communicate(timeout=seconds * 10 + 60)[0]) for process in started]
    return sum(each["reserved"] for each in found) / seconds, statistics.median(each["median_ms"] for each in found)


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each turn")
    parser.add_argument("--worker", nargs=2, metavar=("URL", "NAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker, arguments.seconds)
        return 0
    missed = False
    with tempfile.TemporaryDirectory(prefix="ledger-bench-") as folder, postgres_server(durable=True) as server:
        urls = {"SQLite": f"sqlite:///{Path(folder) / 'ledger.db'}", "PostgreSQL": server.create_database("bench")}
        for url in urls.values():
            upgrade(url)
        for processes in PROCESSES:
            for name, url in urls.items():
                per_second, median_ms = measure(url, processes, arguments.seconds)
                of = f"{name}, {processes} process{'es' if processes > 1 else ''}"
                aim = AIM_OF_FOUR if (name, processes) == ("PostgreSQL", 4) else AIM_PER_SECOND
                holds = per_second >= aim
                missed |= not holds
                line = {"bench": "ledger", "figure": f"reservations, {of}", "value": round(per_second, 1)}
                print(json.dumps(line | {"unit": "1/s", "aim": aim, "holds": holds}), flush=True)
                line = {"bench": "ledger", "figure": f"median reservation, {of}", "value": round(median_ms, 2)}
                print(json.dumps(line | {"unit": "ms", "aim": None, "holds": True}), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
