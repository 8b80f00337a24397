"""What `rebalancer try` costs: `python -m bench try`.

A cluster of the lab with a week of samples in a real Prometheus, and the command as a process of its own: seconds until
its first page, seconds in all, and the most memory of its processes together. Prints one JSON object a line; exit code
1 when an aim is missed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rebalancer.lab import Lab, Scenario, node, scenario, workload
from rebalancer.lab.prometheus.past import Past
from rebalancer.lab.prometheus.series import SeriesBook
from rebalancer.model.measured.history import DAY_SECONDS
from tests.real.servers.prometheus import prometheus_server

NODES, PODS_A_NODE, DAYS = 100, 30, 7.0
CORES = 32
REPLICAS = 15
POOLS = ("general", "compute")
HOT_EVERY = 20
"""One node in so many has pods besides the others' that make it hot in the afternoon."""
AIMS = {"first_page_seconds": 60.0, "seconds": 240.0, "peak_mib": 1024.0}
AHEAD_SECONDS = 3600.0
"""Samples go on for so long, as writing them takes minutes."""
LOOK_SECONDS = 0.2
FIRST_PAGE = "the last 24h"
"""How the line begins that is printed after the first page."""


def the_cluster(nodes: int, days: float) -> Scenario:
    """Services with a day curve each, spread over the nodes of their pool. All pods are older than the samples."""
    names = [f"node-{number:03}" for number in range(nodes)]
    pools = {pool: [name for at, name in enumerate(names) if (at % 5 == 0) == (pool == POOLS[1])] for pool in POOLS}
    age = (days + 1.0) * DAY_SECONDS
    workloads = []
    for number in range(nodes * PODS_A_NODE // REPLICAS):
        pool = POOLS[number % 5 == 0]
        members = pools[pool]
        place: dict[str, int] = {}
        for replica in range(REPLICAS):
            name = members[(number * 7 + replica * 3) % len(members)]
            place[name] = place.get(name, 0) + 1
        curve = {"base": 0.35, "amplitude": 0.3, "peak_hour": float(10 + number % 8), "noise": 0.1}
        fields = {"cpu_request": "500m", "memory_request": "512Mi", "age_seconds": age}
        name = f"svc-{number:03}"
        workloads.append(
            workload(
                name, namespace=f"team-{number % 20}", place=place, cpu=curve, node_selector={"pool": pool}, **fields
            )
        )
    for number, name in enumerate(names[::HOT_EVERY]):
        pool = POOLS[0 if name in pools[POOLS[0]] else 1]
        heavy = {"base": 2.2, "amplitude": 0.4, "peak_hour": 15.0, "noise": 0.1}
        fields = {"cpu_request": "500m", "memory_request": "512Mi", "age_seconds": age}
        workloads.append(
            workload(f"heavy-{number}", place={name: 6}, cpu=heavy, node_selector={"pool": pool}, **fields)
        )
    machines = [
        node(name, cpu=CORES, memory="128Gi", pool=pool, labels={"pool": pool}, overhead_cores=1.0)
        for pool, members in pools.items()
        for name in members
    ]
    return scenario(nodes=machines, workloads=workloads)


@contextmanager
def prometheus_of(lab: Lab, days: float) -> Iterator[str]:
    """URL of a real Prometheus with the lab's last days."""
    since = lab.clock.now() - days * DAY_SECONDS
    lab.clock.sleep(AHEAD_SECONDS)
    book, until = SeriesBook.of(lab), lab.clock.now()
    past = Past(usage=lab.usage, book=book, kube_state=lab.kube_state, since=since, until=until)
    with prometheus_server([], fill=past.write) as server:
        yield server.url


@dataclass(slots=True)
class Memory:
    """The most memory that a process and its children have used together."""

    pid: int
    peak_mib: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Until `end`."""
        while not self._ended.wait(LOOK_SECONDS):
            self.peak_mib = max(self.peak_mib, sum(map(_mib, _family(self.pid))))

    def end(self) -> None:
        """Look no more."""
        self._ended.set()


def _family(pid: int) -> Iterator[int]:
    """The process, and the processes that it and they have started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # it has ended
            continue
        for child in children:
            yield from _family(int(child))


def _mib(pid: int) -> float:
    """Its memory; pages that several processes share count as parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def measured(url: str, lab: Lab, folder: Path, *, days: float, workers: int) -> dict[str, float]:
    """The figures of one run."""
    kubeconfig = lab.write_kubeconfig(folder / "kubeconfig")
    command = [sys.executable, "-m", "rebalancer", "try", "--prometheus", url, "--kubeconfig", str(kubeconfig)]
    command += [
        "--file",
        str(folder / "page.html"),
        "--since",
        f"{round(days * 1440)}m",
        "--workers",
        str(workers),
        "-o",
        "json",
    ]
    began, first, cpu = time.monotonic(), 0.0, _cpu_seconds()
    out = folder / "out.json"
    with out.open("w") as stdout:
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    memory = Memory(process.pid)
    watching = threading.Thread(target=memory.watch, daemon=True)
    watching.start()
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if line.startswith(FIRST_PAGE):
            first = time.monotonic() - began
    code = process.wait()
    seconds = time.monotonic() - began
    memory.end()
    watching.join()
    if code:
        raise RuntimeError(f"try ended with {code}: {''.join(said)}")
    before, after = json.loads(out.read_text())["runs"]
    return {
        "first_page_seconds": first or seconds,
        "seconds": seconds,
        "cpu_seconds": _cpu_seconds() - cpu,
        "peak_mib": memory.peak_mib,
        "hot_node_hours_before": before["hotNodeHours"],
        "hot_node_hours": after["hotNodeHours"],
        "evictions": after["evictions"],
    }


def _cpu_seconds() -> float:
    """Of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--nodes", type=int, default=NODES, help="with 30 pods each; without aims where another is given"
    )
    parser.add_argument("--days", type=float, default=DAYS, help="as --nodes")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    whole = (args.nodes, args.days) == (NODES, DAYS)
    aims: Mapping[str, float] = AIMS if whole else {}
    missed = False
    now = float(int(time.time()))
    with (
        tempfile.TemporaryDirectory(prefix="bench-try-") as folder,
        Lab.start(the_cluster(args.nodes, args.days), stepped=True, start_time=now) as lab,
        prometheus_of(lab, args.days) as url,
    ):
        found = measured(url, lab, Path(folder), days=args.days, workers=args.workers)
    for figure, value in found.items():
        aim = aims.get(figure)
        holds = None if aim is None else value <= aim
        missed |= holds is False
        line = {"bench": "try", "nodes": args.nodes, "days": args.days, "figure": figure, "unit": _unit(figure)}
        print(json.dumps({**line, "value": round(value, 2), "aim": aim, "holds": holds}), flush=True)
    return int(missed)


def _unit(figure: str) -> str:
    return "s" if figure.endswith("seconds") else "MiB" if figure.endswith("mib") else ""


if __name__ == "__main__":
    sys.exit(main())
