"""What the daemon's memory of a cluster costs: `python -m bench.lists.cache [--pods N] [--nodes N] [--events N]`.

150,000 synthetic pods over 5,000 nodes, the lists rendered beforehand, and a storm of updates, all served by another
process. A fresh process reads them into a `WatchedCluster`, takes snapshots, and absorbs the storm. Prints one JSON
object a line. Resident memory is the whole process's, Python and all libraries included.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.cluster.pages import synthetic_cluster
from bench.cluster.watch_server import GO
from bench.lists.bench import NODES_IN_CLUSTER, PODS_IN_CLUSTER, SEED, WallClock, client_for
from rebalancer.kube.watch.cache import WatchedCluster

EVENTS, SNAPSHOTS = 20_000, 5
EVENTS_AIM, SNAPSHOT_AIM_SECONDS, RESIDENT_AIM_MIB = 5_000.0, 1.0, 600.0


def _child(port: int, directory: Path, events: int) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    cluster = WatchedCluster(client=client_for(port), clock=WallClock())
    cluster.start()
    while not cluster.synced():
        time.sleep(0.05)
    found = {"sync_seconds": time.perf_counter() - began, "sync_cpu_seconds": time.process_time() - cpu}
    found["resident_mib"] = memory_mib("VmRSS")
    took = []
    for _ in range(SNAPSHOTS):
        began = time.perf_counter()
        pods = len(cluster.snapshot().pods)
        took.append(time.perf_counter() - began)
    found |= {"pods": pods, "snapshot_seconds": statistics.median(took), "resident_later_mib": memory_mib("VmRSS")}
    stats = cluster.stats()["pods"]
    (directory / GO).touch()
    while not stats.events:
        time.sleep(0.001)
    began, cpu, first = time.perf_counter(), time.process_time(), stats.events
    while stats.events < events:
        time.sleep(0.001)
    found["events_per_second"] = (events - first) / (time.perf_counter() - began)
    found["event_cpu_microseconds"] = (time.process_time() - cpu) / max(events - first, 1) * 1e6
    not_ready = int((~cluster.snapshot().pods.ready).sum())
    if not_ready != events:
        sys.exit(f"{not_ready} pods are not ready after {events} updates that say so")
    found["peak_mib"] = memory_mib("VmHWM")
    cluster.stop()
    return found


def memory_mib(field: str) -> float:
    """A field of this process's status; NaN where the system has none."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return float(line.split()[1]) / 1024
    return float("nan")


def _say(figure: str, value: float, unit: str, aim: str = "", holds: bool | None = None) -> None:
    line = {"bench": "cache", "figure": figure, "value": round(value, 3), "unit": unit, "aim": aim, "holds": holds}
    print(json.dumps(line), flush=True)


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS_IN_CLUSTER)
    parser.add_argument("--nodes", type=int, default=NODES_IN_CLUSTER)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--child", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(_child(args.child, args.directory, args.events)))
        return 0
    with tempfile.TemporaryDirectory(prefix="cache-bench-") as name:
        synthetic_cluster(Path(name), pods=args.pods, nodes=args.nodes, seed=SEED)
        command = [sys.executable, "-m", "bench.cluster.watch_server", name, str(args.events)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                port = int(server.stdout.readline())
                child = [sys.executable, "-m", "bench.lists.cache", "--child", str(port), "--directory", name]
                child += ["--events", str(args.events)]
                answer = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout
            finally:
                server.terminate()
    found = json.loads(answer)
    rate, snapshot, resident = found["events_per_second"], found["snapshot_seconds"], found["resident_mib"]
    _say("pods", found["pods"], "pods")
    _say("lists", found["sync_seconds"], "s")
    _say("lists", found["sync_cpu_seconds"], "CPU s")
    _say("resident after the lists", resident, "MiB", f"< {RESIDENT_AIM_MIB:g}", resident < RESIDENT_AIM_MIB)
    _say("resident after five snapshots", found["resident_later_mib"], "MiB")
    _say("snapshot", snapshot, "s", f"< {SNAPSHOT_AIM_SECONDS:g}", snapshot < SNAPSHOT_AIM_SECONDS)
    _say("pod updates absorbed", rate, "/s", f"> {EVENTS_AIM:g}", rate > EVENTS_AIM)
    _say("one pod update", found["event_cpu_microseconds"], "CPU us")
    _say("peak memory", found["peak_mib"], "MiB")
    return 0 if rate > EVENTS_AIM and snapshot < SNAPSHOT_AIM_SECONDS and resident < RESIDENT_AIM_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
