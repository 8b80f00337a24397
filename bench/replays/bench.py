"""What a replay costs: `python -m bench replay`.

Two synthetic recordings (`bench/replays/cluster.py`), each replayed as recorded and then with the limits of
policies/balanced.yaml, as `rebalancer replay` does, but each run in a process of its own. Seconds are CPU seconds of
both runs, one after the other, which is what passes on free cores; the memory is that of both processes together.
Prints one JSON object a line; exit code 1 when an aim is missed.
"""

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.replays.cluster import POOLS, make
from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.runner.job import Job, Mode, run_job

BALANCED = Path(__file__).parents[2] / "policies" / "balanced.yaml"
SEED = 1
HOT_SHARE = 0.05
"""As in the large families of `make bench ONLY=plan`."""
LINEAR_AIM = 5.0
"""Most that four days of the simulated cluster may cost, in units of the first day."""


class Size(NamedTuple):
    """A recording, and its aims."""

    nodes: int
    pods: int
    days: int
    seconds: float
    peak_mib: float = 1536.0


SIZES = {"week": Size(100, 3_000, 7, seconds=60.0), "day": Size(1_000, 30_000, 1, seconds=120.0)}


def bench_policy() -> RebalancerPolicy:
    """policies/balanced.yaml with the pools of the recording."""
    document = yaml.safe_load(BALANCED.read_text(encoding="utf-8"))
    thresholds = document["pools"][0]["thresholds"]
    document["pools"] = [
        {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": thresholds} for name in POOLS
    ]
    return RebalancerPolicy.model_validate(document)


class _Marks:
    """CPU seconds at the end of each day of the recording."""

    def __init__(self) -> None:
        self.started = time.process_time()
        self.seconds: dict[int, float] = {}
        self._hours = 1

    def at(self, days: int) -> "_Marks":
        self._hours = days * 24
        return self

    def passed(self, done: float) -> None:
        """Called with the share that is done."""
        days = int(done * self._hours + 1e-6) // 24
        self.seconds.setdefault(days, time.process_time() - self.started)


def measure(size: Size, mode: Mode, unsure: frozenset[str] | None = None) -> dict[str, Any]:
    """One run; in a process of its own. `unsure`: what the run as recorded has found."""
    recording = make(size.nodes, size.pods, size.days, SEED, hot_share=HOT_SHARE)
    policy = bench_policy()
    high = {pool.name: pool.thresholds.high / 100 for pool in policy.pools if pool.thresholds is not None}
    marks = _Marks().at(size.days)
    job = Job(policy=policy, mode=mode, label=mode, high=high, unsure=unsure)
    run = run_job(job, recording, policy_run, passed=marks.passed)
    return {
        "cpu_seconds": time.process_time() - marks.started,
        "days": marks.seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "hot_node_hours": run.hot_node_minutes / 60,
        "evictions": len(run.evictions),
        "cycles": len(run.cycles),
        "unsure": run.unsure,
    }


def measured(size: Size) -> dict[str, float]:
    """The figures of both runs over a recording, one after the other."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        recorded = pool.submit(measure, size, "recorded").result()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        policy = pool.submit(measure, size, "policy", recorded["unsure"]).result()
    out = {
        "cpu_seconds": recorded["cpu_seconds"] + policy["cpu_seconds"],
        "peak_mib": recorded["peak_mib"] + policy["peak_mib"],
        "recorded_cpu_seconds": recorded["cpu_seconds"],
        "recorded_hot_node_hours": recorded["hot_node_hours"],
        "hot_node_hours": policy["hot_node_hours"],
        "evictions": policy["evictions"],
        "cycle_milliseconds": 1000 * policy["cpu_seconds"] / policy["cycles"],
    }
    if size.days >= 4:
        # cycles cost more on days with more hot nodes, so linear in time is the simulated cluster
        out["four_days_to_one"] = recorded["days"][4] / recorded["days"][1]
        out["policy_four_days_to_one"] = policy["days"][4] / policy["days"][1]
    return out


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(SIZES), help="one of the recordings")
    parser.add_argument("--nodes", type=int, help="of one recording of another size, with 30 pods each, without aims")
    parser.add_argument("--days", type=int, default=1, help="of that recording")
    args = parser.parse_args()
    missed = False
    sizes: Mapping[str, Size] = SIZES
    if args.nodes:
        sizes = {"own": Size(args.nodes, 30 * args.nodes, args.days, seconds=math.inf, peak_mib=math.inf)}
    for name, size in sizes.items():
        if args.only in (None, name):
            aims: Mapping[str, float] = {
                "cpu_seconds": size.seconds,
                "peak_mib": size.peak_mib,
                "four_days_to_one": LINEAR_AIM,
            }
            for figure, value in measured(size).items():
                aim = aims.get(figure)
                aim = None if aim == math.inf else aim
                holds = None if aim is None else value <= aim
                missed |= holds is False
                line = {"bench": "replay", "recording": name, "nodes": size.nodes, "pods": size.pods, "days": size.days}
                print(
                    json.dumps({**line, "figure": figure, "value": round(value, 3), "aim": aim, "holds": holds}),
                    flush=True,
                )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
