"""What is left of the hot node-hours of a week, by level of `planner.worth`: `make bench ONLY=week`.

The weeks of `bench/forecasts/value.py`, composed of recorded traces, each replayed with policies/balanced.yaml and
nothing but the level changed. The bound is what no eviction could have removed (`replay/comparison/bound.py`). Prints
one JSON object a line; exit code 1 when an aim is missed.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import yaml

from bench.forecasts.value import BALANCED, WEEKS, Week
from bench.replays.traces import composed, folders_by_name, parser_of_weeks
from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.reason import Reason
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.comparison.summary import summary_of
from rebalancer.replay.comparison.variants import Variant
from rebalancer.replay.runner.replay import replay

LEVELS = ("Minimal", "Conservative", "Balanced", "Active", "Aggressive")
SHIPPED = "Balanced"
FIRST_STEPS = 3
"""Of five minutes: until a load is measured over a whole rate window, stable, and relieved."""
BOUND_AIM, PRICE_AIM, BREAKER_AIM, SERVICE_AIM, CURVE_AIM = 1.25, 5.0, 0.03, 1.0, 1.1
"""At most: hot node-hours left, in units of the bound; evictions for each hot node-hour relieved; share of what is left
that our circuit breaker keeps; evictions of a service in a day, in units of its daily limit; what a level leaves, in
units of the level below it."""


class Figure(NamedTuple):
    """A figure of a week."""

    name: str
    value: float
    aim: float | None = None


def figures_of(recording: Recording) -> Iterator[Figure]:
    """Of one week."""
    document: dict[str, Any] = yaml.safe_load(BALANCED.read_text(encoding="utf-8"))
    levels = {each: RebalancerPolicy.model_validate({**document, "planner": {"worth": each}}) for each in LEVELS}
    made = replay(
        recording,
        levels[SHIPPED],
        [Variant(label=label, policy=policy, part="") for label, policy in levels.items()],
        compose=policy_run,
        scheduler_of=lambda policy: SchedulerConfig(),
        workers=os.cpu_count() or 1,
    )
    assert made is not None
    _, summary = summary_of(made, str)
    before, bound = summary.before.hot_node_hours, summary.bound.hot_node_hours
    yield Figure("hot_node_hours_without", before)
    yield Figure("bound", bound)
    runs, lines = {run.label: run for run in made.runs}, {line.label: line for line in summary.runs}
    below = before
    for label in LEVELS:
        left = lines[label].hot_node_hours
        yield Figure(f"hot_node_hours_{label}", left)
        yield Figure(f"evictions_{label}", lines[label].evictions)
        yield Figure(f"left_to_level_below_{label}", left / max(below, 1e-9), CURVE_AIM)
        below = left
    left = lines[SHIPPED].hot_node_hours
    yield Figure("left_in_first_minutes", first_minutes(runs[SHIPPED]) / max(left * 60.0, 1e-9))
    yield Figure("left_to_bound", left / max(bound, 1e-9), BOUND_AIM)
    yield Figure("evictions_for_an_hour", lines[SHIPPED].evictions / max(before - left, 1e-9), PRICE_AIM)
    breaker = [each for each in summary.of(SHIPPED).blocked if each.code == Reason.CIRCUIT_BREAKER_OPEN]
    kept = sum(each.hot_node_hours for each in breaker)
    yield Figure("kept_by_circuit_breaker", kept / max(left, 1e-9), BREAKER_AIM)
    yield Figure("most_of_a_service_to_limit", most_of_a_service(runs[SHIPPED]), SERVICE_AIM)


def first_minutes(run: ReplayRun) -> float:
    """Hot minutes in the first FIRST_STEPS of each time in which a node was hot."""
    hot = np.nan_to_num(run.hot_minutes)
    lasted = np.zeros(len(hot))
    minutes = 0.0
    for step in range(hot.shape[1]):
        lasted = np.where(hot[:, step] > 0, lasted + 1, 0)
        minutes += float(hot[lasted <= FIRST_STEPS, step].sum())
    return minutes


def most_of_a_service(run: ReplayRun) -> float:
    """Evictions of a service within 24 hours, at most, in units of its replicas then; services of one or two count as
    two."""
    most = 0.0
    for each in run.evictions:
        replicas = max(each.reserved.desired_before, 2)
        day = Counter(one.service for one in run.evictions if each.at - 86_400.0 < one.at <= each.at)
        most = max(most, day[each.service] / replicas)
    return most


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    wanted = parser_of_weeks("week").parse_args()
    if not (folders := folders_by_name("week")):
        return 0
    missed = False
    for week in [Week(tuple(folders), wanted.seed)] if wanted.seed is not None else WEEKS:
        if not set(week.folders) <= folders.keys():
            print(f"week: {week.name}: REBALANCER_TRACES names no such folders", file=sys.stderr)
            continue
        recording = composed(
            [folders[each] for each in week.folders], nodes=wanted.nodes, days=wanted.days, seed=week.seed
        )
        for figure in figures_of(recording):
            holds = None if figure.aim is None else figure.value <= figure.aim
            missed |= holds is False
            line: dict[str, Any] = {"bench": "week", "week": week.name, "nodes": wanted.nodes, "days": wanted.days}
            line |= {"figure": figure.name, "value": round(figure.value, 3), "aim": figure.aim, "holds": holds}
            print(json.dumps(line), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
