"""How the cost of each stage grows with the cluster: `python -m bench scale [--sizes 500,1000,2500,5000]`.

Clusters of 500 to 5,000 nodes with 30 pods each, served by another process: lists, watches, and the three usage
queries. For each size a fresh process lists everything and takes a snapshot (cold), and another one keeps a watch
cache and runs dry cycles of the product. Before each cycle 200 pods change, and ten nodes are hot: the same in every
size. Then nothing changes and no node is hot, and at 5,000 nodes 250 are hot. Prints one JSON object a line: CPU
seconds of each stage (user and system, all threads of the process), and the exponent k of cost = c n^k, fitted by
least squares to the logarithms. Exit code 1 when an aim is missed.
"""

import argparse
import contextlib
import json
import math
import queue
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.cluster.pages import synthetic_cluster
from bench.daemon.bench import BOOKMARK_SECONDS, PATIENCE_SECONDS, Backend, Handler, listen, rendered_items
from bench.lists.bench import SEED, WallClock, client_for, read_snapshot
from bench.plan.find_and_plan import bench_policy
from bench.plan.landing import PODS_PER_NODE
from rebalancer.cycle.context import CycleContext, NullProgress, NullRecords
from rebalancer.cycle.run import begin_report, execute_cycle
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.kube.watch.cache import WatchedCluster
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import Usage
from rebalancer.policy import RebalancerPolicy
from rebalancer.prometheus.readings.reader import PrometheusUsage

SIZES = (500, 1_000, 2_500, 5_000)
HOT_NODES, HOT_SHARE = 10, 0.85
CHANGES = 200
"""Pods that change between two cycles."""
CYCLES = 5
MANY_HOT, LARGE = 250, 5_000
"""With so many nodes or more, so many hot ones are measured too."""
COLD, CYCLE = "cold list and snapshot", "warm cycle with constant change"
IDLE, MANY = "warm cycle with nothing to do", f"warm cycle with {MANY_HOT} hot nodes"
AIMS: Mapping[str, float] = {COLD: 1.1, CYCLE: 0.3, IDLE: round(math.log10(5), 2)}
"""Stage -> largest exponent. That with nothing to do: a tenth of the cluster costs a fifth or more."""
AIM_SECONDS: Mapping[str, float] = {IDLE: 0.5, MANY: 2.5}
"""Stage -> most CPU seconds at any size."""

T = TypeVar("T")

# ---- the server


class HotNodes(Backend):
    """A few hot nodes, as many in every size, and pods that change."""

    hot = HOT_NODES

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.watches: list[queue.SimpleQueue[list[bytes]]] = []
        self._pods = list(islice(rendered_items(directory, "pods"), CHANGES))
        self._bursts = 0

    def heat(self, hot: int) -> None:
        """So many nodes are hot from now on."""
        self.hot = hot
        self.usage = self._usage()

    def levels(self) -> dict[str, float]:
        """Share of its CPU that each node uses."""
        random = np.random.default_rng(SEED)
        level = {name: float(np.clip(random.normal(0.4, 0.05), 0.2, 0.55)) for name in self.nodes}
        step = max(1, len(level) // max(1, self.hot))
        return level | dict.fromkeys(list(level)[::step][: self.hot], HOT_SHARE)

    def burst(self) -> None:
        """Every watch of pods gets an update of each of the same pods: Ready, or no longer Ready."""
        self._bursts += 1
        lines = []
        for pod in self._pods:
            ready = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")
            ready["status"] = "False" if self._bursts % 2 else "True"
            lines.append(json.dumps({"type": "MODIFIED", "object": pod}, separators=(",", ":")).encode() + b"\n")
        for watch in self.watches:
            watch.put(lines)


class ChangingHandler(Handler):
    """Answers for both, and a POST to /burst and to /heat/<nodes>."""

    backend: HotNodes

    def do_POST(self) -> None:  # noqa: N802 - http.server's name
        if self.path == "/burst":
            self.backend.burst()
        elif self.path.startswith("/heat/"):
            self.backend.heat(int(self.path.rpartition("/")[2]))
        else:
            return super().do_POST()
        return self._say({}, 201)

    def _hold(self) -> None:
        if not self.path.partition("?")[0].endswith("/pods"):
            super()._hold()
            return
        changes: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
        self.backend.watches.append(changes)
        self.start_watch()
        with contextlib.suppress(OSError):
            self.send_bookmark()
            while True:
                try:
                    for line in changes.get(timeout=BOOKMARK_SECONDS):
                        self.send_chunk(line)
                except queue.Empty:
                    self.send_bookmark()
        self.close_connection = True


@contextmanager
def served(nodes: int) -> Iterator[int]:
    """A cluster of so many nodes in another process; the port."""
    with tempfile.TemporaryDirectory(prefix="scale-bench-") as name:
        synthetic_cluster(Path(name), pods=nodes * PODS_PER_NODE, nodes=nodes, seed=SEED)
        command = [sys.executable, "-m", "bench.daemon.scale", "--serve", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield int(server.stdout.readline())
            finally:
                server.kill()


# ---- the measured process


class Measured:
    """CPU seconds of calls, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, name: str, call: Callable[[], T]) -> T:
        """The call's result."""
        began = time.process_time()
        try:
            return call()
        finally:
            self.seconds[name] = time.process_time() - began


class Marks(dict[str, float]):
    """Stages of a cycle's report; `at` has the CPU seconds of the process at the end of each."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, float] = {}

    def __setitem__(self, stage: str, seconds: float) -> None:
        self.at[stage] = time.process_time()
        super().__setitem__(stage, seconds)


class Ports:
    """Cluster and usage of a dry cycle, measured; it writes nothing."""

    def __init__(self, cluster: WatchedCluster, usage: PrometheusUsage, measured: Measured) -> None:
        self._cluster, self._usage, self._measured = cluster, usage, measured

    def snapshot(self) -> ClusterSnapshot:
        """Of the watch cache."""
        return self._measured.of("warm snapshot", self._cluster.snapshot)

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """From Prometheus."""
        return self._measured.of("usage", lambda: self._usage.read(snapshot))

    def granted(self) -> bool:
        """Nodes may be patched."""
        return True


def policy_for(port: int) -> RebalancerPolicy:
    """`bench_policy` with the queries that the server knows; one sample is enough."""
    document = bench_policy().model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["usage"] = {
        "prometheus": {
            "url": f"http://127.0.0.1:{port}/prometheus",
            "nodeCPU": {"query": "node:cpu", "freshness": "node:time", "label": "node"},
            "podCPU": {"query": "pod:cpu"},
        },
        "stabilizationWindow": {"samples": 1, "duration": "0s"},
    }
    return RebalancerPolicy.model_validate(document)


def cold(port: int) -> dict[str, float]:
    """CPU seconds of listing everything and of the snapshot."""
    measured = Measured()
    pods = len(measured.of(COLD, lambda: read_snapshot(port)).pods)
    return {**measured.seconds, "pods": pods}


def warm(port: int) -> dict[str, float]:
    """CPU seconds of each stage of a warm cycle, medians over some; hot nodes and moves of the last."""
    clock, policy = WallClock(), policy_for(port)
    cluster = WatchedCluster(client=client_for(port), clock=clock)
    cluster.start()
    _until(cluster.synced)
    usage = PrometheusUsage(policy.usage, NullProgress(), stabilized=policy.threshold_resources)

    def cycles(*, changing: bool = False) -> dict[str, float]:
        # the first isn't warm
        rounds = [_cycle(port, policy, cluster, usage, changing=changing) for _ in range(1 + CYCLES)][1:]
        return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}

    found = cycles(changing=True)
    _post(port, "heat/0")
    found[IDLE] = cycles()[CYCLE]
    if len(cluster.snapshot().nodes) >= LARGE:
        _post(port, f"heat/{MANY_HOT}")
        found[MANY] = cycles()[CYCLE]
    cluster.stop()
    return found


def _post(port: int, path: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/{path}", b"{}", method="POST")).close()


def _cycle(
    port: int, policy: RebalancerPolicy, cluster: WatchedCluster, usage: PrometheusUsage, *, changing: bool
) -> dict[str, float]:
    began = time.process_time()
    stats = cluster.stats()["pods"]
    events = stats.events
    if changing:
        _post(port, "burst")
        _until(lambda: stats.events >= events + CHANGES)
    measured = Measured()
    measured.seconds["changes"] = time.process_time() - began
    ports = Ports(cluster, usage, measured)
    context = CycleContext(
        cluster=ports,  # type: ignore[arg-type]
        usage=ports,
        evictor=ports,  # type: ignore[arg-type]
        records=NullRecords(),
        ledger=None,
        lease=None,
        clock=WallClock(),
        progress=NullProgress(),
        soft_taint_controller=SoftTaintController(taints=ports),  # type: ignore[arg-type]
    )
    report = begin_report(context, policy, dry_run=True)
    marks = report.stages = Marks()
    began = time.process_time()
    execute_cycle(context, policy, report)
    ended = time.process_time()
    if report.stopped is not None:
        sys.exit(f"the cycle was stopped: {report.stopped.message}")
    of_ports = measured.seconds["warm snapshot"] + measured.seconds["usage"]
    return {
        **measured.seconds,
        "loads": marks.at["observe"] - began - of_ports,
        "find": marks.at["find"] - marks.at["observe"],
        "plan": marks.at["relieve"] - marks.at["find"],
        "report": ended - marks.at["relieve"],
        CYCLE: ended - began + measured.seconds["changes"],
        "hot": float(len(report.findings)),
        "moves": float(len(report.evictions)),
    }


def _until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not what():
        if time.monotonic() > end:
            sys.exit(f"not within {PATIENCE_SECONDS:g} s: the server has no more to send")
        time.sleep(0.01)


# ---- the figures


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """k of seconds = c sizes^k, by least squares in logarithms."""
    slope = np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-6)), 1)[0]
    return float(slope)


def _say(figure: str, value: float, unit: str, aim: float | None = None) -> bool:
    holds = None if aim is None else value <= aim
    shown = "" if aim is None else f"<= {aim:g}"
    line = {"bench": "scale", "figure": figure, "value": round(value, 3), "unit": unit, "aim": shown, "holds": holds}
    print(json.dumps(line), flush=True)
    return holds is not False


def _fresh(what: str, port: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.daemon.scale", "--child", what, "--port", str(port)]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of nodes, at least two")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=("cold", "warm"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        listen(ChangingHandler, HotNodes(args.serve))
        return 0
    if args.child:
        print(json.dumps(cold(args.port) if args.child == "cold" else warm(args.port)))
        return 0
    sizes = [int(each) for each in args.sizes.split(",")]
    if len(set(sizes)) < 2:
        parser.error("--sizes: a growth needs two sizes or more")
    cost: dict[str, list[float]] = {}
    held: list[bool] = []
    for nodes in sizes:
        with served(nodes) as port:
            found = _fresh("cold", port) | _fresh("warm", port)
        _say(f"pods, {nodes} nodes", found.pop("pods"), "pods")
        _say(f"hot nodes, {nodes} nodes", found.pop("hot"), "nodes")
        _say(f"moves planned, {nodes} nodes", found.pop("moves"), "pods")
        for stage, seconds in found.items():
            held.append(_say(f"{stage}, {nodes} nodes", seconds, "CPU s", AIM_SECONDS.get(stage)))
            cost.setdefault(stage, []).append(seconds)
    held += [
        _say(f"growth of {stage}", exponent(sizes, seconds), "exponent", AIMS.get(stage))
        for stage, seconds in cost.items()
        if len(seconds) == len(sizes)
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
