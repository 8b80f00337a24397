"""What it costs to read a large cluster and plan over it: `python -m bench.lists.bench [--pods N] [--nodes N]`.

150,000 synthetic pods over 5,000 nodes, pages rendered beforehand and served by another process. Prints one JSON
object a line. CPU seconds are this process's own (user + system); the bare loop reads and decodes the same pages of
the same lists into the same records, and does nothing else. Our list pauses Python's garbage collector for each page;
the bare loop leaves it as it is, and once more, for comparison, runs with the collector off.
"""

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes.client import Configuration

from bench.cluster.pages import synthetic_cluster
from rebalancer.kube.client.auth import Credentials
from rebalancer.kube.client.client import ApiClient, Resource
from rebalancer.kube.snapshot import records
from rebalancer.kube.snapshot.lists import PAGE_SIZE
from rebalancer.kube.snapshot.owners import Workload
from rebalancer.kube.snapshot.snapshot import (
    BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    VOLUMES,
    WORKLOADS,
    KubeCluster,
)
from rebalancer.kube.snapshot.volumes import PersistentVolume
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.decoding import json_decoder

PODS_IN_CLUSTER, NODES_IN_CLUSTER, SEED, ROUNDS = 150_000, 5_000, 7, 3
RATIO_AIM, PEAK_AIM_MIB, PLAN_AIM_SECONDS = 1.5, 400.0, 1.0
RESOURCE_AIM = 1.25
"""Cost with two resources, in times of that with one."""
PLAN_WITH_MEMORY = "plan-with-memory"
EVERYTHING: tuple[tuple[Resource, type[Any]], ...] = (
    (NODES, records.Node),
    (NAMESPACES, records.Namespace),
    (PRIORITY_CLASSES, records.PriorityClass),
    (PODS, records.Pod),
    *((each, Workload) for each in WORKLOADS.values()),
    (VOLUMES, PersistentVolume),
    (BUDGETS, records.Budget),
)


class WallClock:
    """The Clock port on the machine's own time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@contextmanager
def served_cluster(*, pods: int, nodes: int, seed: int = SEED) -> Iterator[int]:
    """Render a cluster and serve it from another process; the port."""
    with tempfile.TemporaryDirectory(prefix="list-bench-") as name:
        synthetic_cluster(Path(name), pods=pods, nodes=nodes, seed=seed)
        command = [sys.executable, "-m", "bench.cluster.server", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield int(server.stdout.readline())
            finally:
                server.terminate()


def client_for(port: int) -> ApiClient:
    """A client for the served pages."""

    def load() -> Configuration:
        configuration = Configuration(host=f"http://127.0.0.1:{port}")
        configuration.proxy = None
        return configuration

    return ApiClient(credentials=Credentials(load), user_agent="rebalancer/bench")


def read_snapshot(port: int) -> ClusterSnapshot:
    """The full thing: list, project, put together."""
    return KubeCluster(client=client_for(port), clock=WallClock()).snapshot()


def bare_loop(port: int) -> int:
    """Read and decode every page, drop it; the number of items."""
    client, items = client_for(port), 0
    for each, kind in EVERYTHING:
        decoder = json_decoder(records.Page[kind])  # type: ignore[valid-type]
        query: dict[str, str | int] = {"limit": PAGE_SIZE}
        while True:
            page = decoder.decode(client.get(each.path(), query=query).data)
            items += len(page.items or ())
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
    return items


def _fresh(port: int, what: str) -> dict[str, float]:
    # A process of its own each: no round finds the memory of the one before.
    command = [sys.executable, "-m", "bench.lists.bench", "--child", what, "--port", str(port)]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return dict(answer)


def _child(what: str, port: int) -> None:
    started, wall = time.process_time(), time.perf_counter()
    more: dict[str, float] = {}
    if what == "bare-uncollected":
        gc.disable()
    if what.startswith("plan"):
        from bench.plan.find_and_plan import find_and_plan

        more = find_and_plan(read_snapshot(port), now=time.time(), with_memory=what == PLAN_WITH_MEMORY)
        done = int(more["moves"])
    else:
        done = len(read_snapshot(port).pods) if what == "full" else bare_loop(port)
    print(
        json.dumps(
            {
                **more,
                "items": done,
                "cpu_seconds": time.process_time() - started,
                "wall_seconds": time.perf_counter() - wall,
                "peak_mib": _peak_mib(),
            }
        )
    )


def _peak_mib() -> float:
    # The high-water mark of this process's own memory; ru_maxrss also remembers the parent that started it.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _say(figure: str, value: float, unit: str, aim: str = "", holds: bool | None = None) -> None:
    line = {"bench": "list", "figure": figure, "value": round(value, 3), "unit": unit, "aim": aim, "holds": holds}
    print(json.dumps(line), flush=True)


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS_IN_CLUSTER)
    parser.add_argument("--nodes", type=int, default=NODES_IN_CLUSTER)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--child", choices=("bare", "bare-uncollected", "full", "plan", PLAN_WITH_MEMORY), help=argparse.SUPPRESS
    )
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        _child(args.child, args.port)
        return 0
    began = time.perf_counter()
    with served_cluster(pods=args.pods, nodes=args.nodes) as port:
        _say("render", time.perf_counter() - began, "s")
        bare, uncollected, full, plans, with_memory = [], [], [], [], []
        for _ in range(args.rounds):
            bare.append(_fresh(port, "bare")["cpu_seconds"])
            full.append(_fresh(port, "full"))
            uncollected.append(_fresh(port, "bare-uncollected")["cpu_seconds"])
            plans.append(_fresh(port, "plan"))
            with_memory.append(_fresh(port, PLAN_WITH_MEMORY))
    cost = statistics.median(each["cpu_seconds"] for each in full)
    ratio = cost / statistics.median(bare)
    peak = max(each["peak_mib"] for each in full)
    _say("pods", full[0]["items"], "pods")
    _say("bare loop", statistics.median(bare), "CPU s")
    _say("list and snapshot", cost, "CPU s")
    _say("ratio to the bare loop", ratio, "x", f"<= {RATIO_AIM}", ratio <= RATIO_AIM)
    _say("ratio to the bare loop without collector", cost / statistics.median(uncollected), "x")
    _say("peak memory", peak, "MiB", f"<= {PEAK_AIM_MIB:g}", peak <= PEAK_AIM_MIB)
    planning = _planning(plans)
    resources = _planning(with_memory) / planning
    _say("hot nodes", plans[0]["hot"], "nodes")
    _say("candidates judged", plans[0]["refusals"] + plans[0]["moves"], "pods")
    _say("moves planned", plans[0]["moves"], "pods")
    _say("find and plan", planning, "CPU s", f"<= {PLAN_AIM_SECONDS:g}", planning <= PLAN_AIM_SECONDS)
    _say("with thresholds of memory", resources, "times", f"<= {RESOURCE_AIM:g}", resources <= RESOURCE_AIM)
    holds = ratio <= RATIO_AIM and peak <= PEAK_AIM_MIB and planning <= PLAN_AIM_SECONDS and resources <= RESOURCE_AIM
    return 0 if holds else 1


def _planning(children: list[dict[str, float]]) -> float:
    return statistics.median(each["find_seconds"] + each["plan_seconds"] for each in children)


if __name__ == "__main__":
    sys.exit(main())
