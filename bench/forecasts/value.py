"""What acting on forecasts is worth: `make bench ONLY=value`.

Weeks of a cluster composed of recorded traces (`bench/replays/traces.py`), each replayed with policies/balanced.yaml
and nothing but `forecast.mode` changed. `REBALANCER_TRACES` names the folders of traces, separated by colons; a week
whose folders aren't among them is left out, with a line. Weeks that are not in WEEKS were never tuned on.

A relief ahead is the eviction of one or more pods from a node that isn't hot, in one cycle. It was a false alarm when
the node, with what its evicted pods used elsewhere, wouldn't have been hot within the forecast's 24 hours. Prints one
JSON object a line; exit code 1 when an aim is missed.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from bench.replays.traces import composed, folders_by_name, parser_of_weeks
from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.cycles.readings import Errors
from rebalancer.replay.cycles.run import PolicyRun, high_millicores
from rebalancer.replay.runner.job import Job, run_job
from rebalancer.replay.simulation.cluster import SimulatedCluster

BALANCED = Path(__file__).parents[2] / "policies" / "balanced.yaml"
HOURS_AIM, EVICTIONS_AIM, FALSE_ALARMS_AIM = 0.85, 1.2, 0.2
"""Of Act: the most hot node-hours and evictions, in units of those with Off; the largest share of false alarms."""


class Week(NamedTuple):
    """A composed recording."""

    folders: Sequence[str]
    seed: int

    @property
    def name(self) -> str:
        return f"{'+'.join(self.folders)}/{self.seed}"


WEEKS = (
    Week(("cpu", "azure-v1"), 22),
    Week(("bitbrains-2013-07",), 31),
    Week(("azure-v1",), 5),
    Week(("bitbrains-2013-07", "cpu"), 7),
)


def bench_policy(mode: str) -> RebalancerPolicy:
    """policies/balanced.yaml with a mode of forecasts."""
    document = yaml.safe_load(BALANCED.read_text(encoding="utf-8"))
    return RebalancerPolicy.model_validate({**document, "forecast": {"mode": mode}})


def measured(folders: Sequence[Path], seed: int, nodes: int, days: float, mode: str) -> dict[str, float]:
    """Figures of one run; in a process of its own. `mode` is that of forecasts, or `none`: without rebalancer."""
    policy = bench_policy("Off" if mode == "none" else mode)
    recording = composed(folders, nodes=nodes, days=days, seed=seed)
    high = {pool.name: pool.thresholds.high / 100 for pool in policy.pools if pool.thresholds is not None}
    clusters = []

    @contextmanager
    def compose(
        cluster: SimulatedCluster, slow: RebalancerPolicy, scheduler: SchedulerConfig, errors: Errors | None
    ) -> Iterator[PolicyRun]:
        clusters.append(cluster)
        with policy_run(cluster, slow, scheduler, errors) as run:
            yield run

    job = Job(policy=policy, mode="none" if mode == "none" else "policy", label=mode, high=high)
    run = run_job(job, recording, compose)
    figures = {"hot_node_hours": run.hot_node_minutes / 60, "evictions": float(len(run.evictions))}
    if mode == "Act":
        ahead = [each.at for each in run.cycles if each.trigger == Trigger.FORECAST]
        of_cycles = [each for each in run.evictions if each.at in ahead]
        reliefs = false_alarms(clusters[0], of_cycles, high_millicores(recording, policy, high))
        figures |= {"reliefs_ahead": float(len(reliefs)), "evictions_ahead": float(len(of_cycles))}
        figures |= {"false_alarms": float(np.mean(reliefs)) if reliefs else 0.0}
    return figures


def false_alarms(cluster: SimulatedCluster, evictions: Sequence[Eviction], high: Floats) -> list[bool]:
    """Whether each relief of a node ahead of its peak was in vain; see the module. `high` (nodes,) millicores."""
    recording, state = cluster.recording, cluster.state
    cpu, names = cluster.share * recording.nodes.cpu_capacity_millicores[:, None], recording.nodes.names
    row_of = {uid: row for row, uid in enumerate(state.pods.uids)}
    of_relief: dict[tuple[str, float], list[int]] = {}
    for each in evictions:
        of_relief.setdefault((each.node, each.at), []).append(int(state.pods.load[row_of[each.uid]]))
    found = []
    for (name, at), loads in of_relief.items():
        node, step = names.index(name), int((at - recording.start) // STEP_SECONDS)
        if cpu[node, max(step - 1, 0)] > high[node]:
            continue
        steps = range(step + 1, min(step + 1 + DAY_SECONDS // STEP_SECONDS, recording.steps))
        taken = np.array([state.loads.usage[CPU].at(np.array(loads), each).sum() for each in steps])
        found.append(not bool(np.any(cpu[node, steps.start : steps.stop] + taken > high[node])))
    return found


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    wanted = parser_of_weeks("value").parse_args()
    if not (folders := folders_by_name("value")):
        return 0
    weeks = [Week(tuple(folders), wanted.seed)] if wanted.seed is not None else WEEKS
    known = [week for week in weeks if set(week.folders) <= folders.keys()]
    for week in weeks:
        if week not in known:
            print(f"value: {week.name}: REBALANCER_TRACES names no such folders", file=sys.stderr)
    missed = False
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as workers:
        runs = {
            (week, mode): workers.submit(
                measured, [folders[each] for each in week.folders], week.seed, wanted.nodes, wanted.days, mode
            )
            for week in known
            for mode in ("none", "Off", "Act")
        }
        for week in known:
            none, off, act = (runs[week, mode].result() for mode in ("none", "Off", "Act"))
            figures: dict[str, tuple[float, float | None]] = {
                "hot_node_hours_without": (none["hot_node_hours"], None),
                **{f"{key}_off": (value, None) for key, value in off.items()},
                **{f"{key}_act": (value, None) for key, value in act.items() if key != "false_alarms"},
                "hours_act_to_off": (act["hot_node_hours"] / max(off["hot_node_hours"], 1e-9), HOURS_AIM),
                "evictions_act_to_off": (act["evictions"] / max(off["evictions"], 1.0), EVICTIONS_AIM),
                "false_alarms": (act["false_alarms"], FALSE_ALARMS_AIM),
            }
            for figure, (value, aim) in figures.items():
                holds = None if aim is None else value <= aim
                missed |= holds is False
                line: dict[str, Any] = {"bench": "value", "week": week.name, "nodes": wanted.nodes, "days": wanted.days}
                line |= {"figure": figure, "value": round(value, 3), "aim": aim, "holds": holds}
                print(json.dumps(line), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
