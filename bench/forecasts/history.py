"""What eight days of history cost: `python -m bench.forecasts.history [--pods N] [--nodes N] [--stored N]`.

A real Prometheus is filled with eight days of counters. A fresh process reads them into day blocks, asks for the last
hour as an hourly update does, and loads every day. Both processes' peaks of resident memory are shown. Apart from it,
days of 150,000 pods are written and loaded. Prints one JSON object a line; exit code 1 when an aim is missed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.plan.landing import a_cluster
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.cycle.context import NullProgress
from rebalancer.forecasting.history import DAYS, HistoryKeeper
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.prometheus.history.ranges import PrometheusHistory
from rebalancer.store.blocks import BlockStore
from tests.real.builders.prometheus_days import LongSeries, fill_days, hourly_rate
from tests.real.servers.prometheus import prometheus_server

PODS, NODES = 2_000, 100
PODS_IN_CLUSTER, PODS_OF_A_NODE = 150_000, 30
STEPS_IN_AN_HOUR = 12
DISK_AIM_MIB, OUR_PEAK_AIM_MIB, UPDATE_AIM_SECONDS = 1024.0, 400.0, 10.0


class _Counting(PrometheusHistory):
    """Counts what it asks."""

    asked = 0

    def spend(self) -> None:
        super().spend()
        self.asked += 1


def _series(pods: int, nodes: int, since: float) -> list[LongSeries]:
    out = []
    for index in range(pods):
        labels = {"namespace": f"n{index % 50}", "pod": f"web-{index}", "node": f"node-{index % nodes:05d}"}
        cores = hourly_rate(
            lambda hours, index=index: 0.1 + 0.05 * np.sin(hours / 24 * 2 * np.pi + index) ** 2,  # type: ignore[misc]
            since,
        )
        out.append(
            LongSeries(metric="container_cpu_usage_seconds_total", labels={**labels, "container": "app"}, values=cores)
        )
    for index in range(nodes):
        for mode in ("idle", "user", "system"):
            labels = {"instance": f"node-{index:05d}", "cpu": "0", "mode": mode}
            rate = hourly_rate(lambda hours: np.full(len(hours), 0.5), since)
            out.append(LongSeries(metric="node_cpu_seconds_total", labels=labels, values=rate))
    return out


def _child(url: str, folder: Path, nodes: int) -> dict[str, float]:
    usage = UsageSource.model_validate({"prometheus": {"url": url}})
    source = _Counting(usage, clock=SystemClock(), progress=NullProgress())
    blocks = BlockStore(folder, cluster="bench", source=source.identity)
    keeper = HistoryKeeper(source=source, blocks=blocks, clock=SystemClock())
    snapshot = a_cluster(nodes, rules=False)
    found = {"resident_before": _peak_mib("self")}
    began, cpu = time.perf_counter(), time.process_time()
    history = keeper.update(snapshot)
    found |= {"fill_seconds": time.perf_counter() - began, "fill_cpu": time.process_time() - cpu}
    found |= {"fill_queries": source.asked, "days": len(history.days), "notes": len(history.notes)}
    began = time.perf_counter()
    found["samples"] = sum(
        int(np.isfinite(day.pod_millicores).sum() + np.isfinite(day.node_millicores).sum()) for day in history.days
    )
    found["load_seconds"] = time.perf_counter() - began
    today = history.days[-1]
    blocks.save(replace(today, filled=max(today.filled - STEPS_IN_AN_HOUR, 0)))
    source.asked = 0
    began = time.perf_counter()
    keeper.update(snapshot)
    found |= {"update_seconds": time.perf_counter() - began, "update_queries": source.asked}
    found |= {"peak": _peak_mib("self"), "disk": _disk_mib(folder)}
    source.close()
    return found


def _large_days(folder: Path, count: int) -> dict[str, float]:
    """Days of the largest cluster, noisy as real ones are, written and loaded one by one."""
    random = np.random.default_rng(1)
    usual = random.gamma(1.2, 120.0, (count, 1)).astype(np.float32)
    noise = random.normal(1.0, 0.2, (1, SLOTS)).clip(0.2).astype(np.float32)
    pods = usual * noise * random.uniform(0.8, 1.25, (count, SLOTS)).astype(np.float32)
    store, save, load = BlockStore(folder, cluster="large", source="bench"), 0.0, 0.0
    for day in range(DAYS):
        block = DayBlock(
            day=day,
            pods=tuple(f"namespace-{index % 200}/deployment-{index}-5d4f8c7b9-x{day}abc" for index in range(len(pods))),
            pod_millicores=pods,
            nodes=tuple(f"node-{index}" for index in range(count // PODS_OF_A_NODE)),
            node_millicores=pods[: count // PODS_OF_A_NODE] * 60,
        )
        began = time.perf_counter()
        store.save(block)
        save += time.perf_counter() - began
        began = time.perf_counter()
        assert store.load(day) is not None
        load += time.perf_counter() - began
    return {"save": save / DAYS, "load": load / DAYS, "disk": _disk_mib(folder / "large")}


def _peak_mib(process: str) -> float:
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1024
    return float("nan")


def _disk_mib(folder: Path) -> float:
    return sum(each.stat().st_size for each in folder.rglob("*.day")) / 2**20


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--stored", type=int, default=PODS_IN_CLUSTER, help="pods of days that are only written")
    parser.add_argument("--child", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(_child(args.child, args.directory, args.nodes)))
        return 0
    with tempfile.TemporaryDirectory(prefix="history-bench-") as name:
        large = _large_days(Path(name), args.stored)
    missed = _say(f"{DAYS} days of {args.stored} pods on disk", large["disk"], "MiB", DISK_AIM_MIB)
    _say(f"write one day of {args.stored} pods", large["save"], "s")
    _say(f"load one day of {args.stored} pods", large["load"], "s")
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        print("history: not measured against Prometheus: prometheus and promtool are not installed")
        return int(missed)
    found = _with_prometheus(args.pods, args.nodes)
    if found["days"] < DAYS or found["notes"]:
        sys.exit(f"the fill is not whole: {found}")
    _say(f"samples in Prometheus, {args.pods} pods on {args.nodes} nodes", found["scraped"], "samples")
    _say("first fill of 8 days", found["fill_seconds"], "s")
    _say("first fill of 8 days", found["fill_cpu"], "CPU s")
    _say("first fill of 8 days", found["fill_queries"], "queries")
    _say("first fill of 8 days", found["samples"] / found["fill_queries"], "samples a query")
    _say("load of all days", found["load_seconds"], "s")
    missed |= _say("hourly update", found["update_seconds"], "s", UPDATE_AIM_SECONDS)
    _say("hourly update", found["update_queries"], "queries")
    _say("days on disk", found["disk"], "MiB")
    _say("our resident memory before", found["resident_before"], "MiB")
    missed |= _say("our peak of resident memory", found["peak"], "MiB", OUR_PEAK_AIM_MIB)
    _say("Prometheus' resident memory before", found["prometheus_before"], "MiB")
    _say("Prometheus' peak of resident memory", found["prometheus_peak"], "MiB")
    return int(missed)


def _with_prometheus(pods: int, nodes: int) -> dict[str, float]:
    """What a fresh process finds, and what its questions cost the server."""
    now = time.time()
    today = int(now // DAY_SECONDS)
    series = _series(pods, nodes, (today - DAYS) * DAY_SECONDS)
    scraped = 0

    def fill(data: Path) -> None:
        nonlocal scraped
        scraped = fill_days(data, series, days=range(today - DAYS, today + 1), until=now)

    with tempfile.TemporaryDirectory(prefix="history-bench-") as name, prometheus_server([], fill=fill) as server:
        before = _peak_mib(str(server.pid))
        child = [sys.executable, "-m", "bench.forecasts.history", "--child", server.url, "--directory", name]
        child += ["--nodes", str(nodes)]
        found = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
        costs = {"prometheus_before": before, "prometheus_peak": _peak_mib(str(server.pid)), "scraped": float(scraped)}
    return {**found, **costs}


def _say(figure: str, value: float, unit: str, aim: float | None = None) -> bool:
    """Print a figure; True when it misses its aim."""
    missed = aim is not None and not value < aim
    line = {
        "bench": "history",
        "figure": figure,
        "value": round(value, 3),
        "unit": unit,
        "aim": aim,
        "holds": not missed,
    }
    print(json.dumps(line), flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
