"""How long nodes stay hot, by how long they have been: `make bench ONLY=remaining`.

Of the weeks of `bench/forecasts/value.py`, which levels and prices were tuned on, and of others of the same folders;
nothing is evicted. It tells what the horizon of a gain may depend on (ADR 29). Prints one JSON object a line: the mean
of the minutes that follow, and `times`, how often a node was hot for so long. There are no aims.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench.forecasts.value import WEEKS, Week, bench_policy
from bench.replays.traces import composed, folders_by_name, parser_of_weeks
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.recordings.recording import Recording
from rebalancer.policy.pools import fixed_high
from rebalancer.replay.cycles.run import high_millicores, measured

OTHERS = tuple(Week(week.folders, seed) for seed in range(201, 211) for week in WEEKS)
AGES = (5, 10, 20, 30, 60, 120)
"""Minutes that a node has been hot; each up to the next."""
STEP_MINUTES = round(STEP_SECONDS / 60.0)


def hot_times(recording: Recording) -> Floats:
    """(times,) minutes of each time in which a node was over the `high` of policies/balanced.yaml, in whole steps."""
    policy = bench_policy("Off")
    high = {pool.name: limit for pool in policy.pools if (limit := fixed_high(pool)) is not None}
    limits = high_millicores(recording, policy, high)
    share, _ = measured(recording, limits)
    return lengths(share > (limits / recording.nodes.cpu_capacity_millicores)[:, None])


def lengths(hot: Bools) -> Floats:
    """(times,) minutes of each row of steps in which a node was hot. `hot` (nodes, steps)."""
    edges = np.diff(np.pad(hot.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    begin, end = (np.nonzero(edges == each)[1] for each in (1, -1))
    minutes: Floats = STEP_MINUTES * (end - begin).astype(np.float64)
    return minutes


def remaining(times: Floats) -> Iterator[tuple[int, float | None, int]]:
    """(minutes so far, mean of the minutes that follow, times that lasted so long) for each of AGES, of `lengths`; None
    without one."""
    for age, end in zip(AGES, (*AGES[1:], np.inf), strict=True):
        lasted = times[times >= age]
        left = [
            minutes - so_far
            for minutes in lasted.tolist()
            for so_far in np.arange(age, min(minutes + 1, end), STEP_MINUTES).tolist()
        ]
        yield age, float(np.mean(left)) if left else None, len(lasted)


def main() -> int:
    """Measure and print."""
    wanted = parser_of_weeks("remaining").parse_args()
    if not (folders := folders_by_name("remaining")):
        return 0
    own = wanted.seed is not None
    groups: dict[str, Sequence[Week]] = (
        {"own": [Week(tuple(folders), wanted.seed)]} if own else {"tuned": WEEKS, "others": OTHERS}
    )
    for name, weeks in groups.items():
        known = [week for week in weeks if set(week.folders) <= folders.keys()]
        if len(known) < len(weeks):
            print(f"remaining: {name}: the folders of {len(known)} of {len(weeks)} weeks are there", file=sys.stderr)
        times = [np.zeros(0)]
        for week in known:
            named = [folders[each] for each in week.folders]
            times.append(hot_times(composed(named, nodes=wanted.nodes, days=wanted.days, seed=week.seed)))
        for age, mean, count in remaining(np.concatenate(times)):
            line: dict[str, Any] = {"bench": "remaining", "weeks": name, "number": len(known)}
            line |= {"figure": f"remaining_minutes_after_{age}", "times": count}
            print(json.dumps(line | {"value": None if mean is None else round(mean, 1)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
