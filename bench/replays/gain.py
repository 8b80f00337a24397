"""What `Balanced` may ask of an eviction: `make bench ONLY=gain`.

Hot node-hours and evictions of weeks by the least gain of `planner.worth: Balanced`, side by side: of those of
`bench/forecasts/value.py`, which levels were tuned on, and of others. A least gain three times as high decides as a
horizon a third as long does (ADR 29). Prints one JSON object a line; there are no aims.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.forecasts.value import WEEKS, Week, measured
from bench.replays.traces import folders_by_name, parser_of_weeks
from rebalancer.planner.candidates.worth import LEAST_GAIN
from rebalancer.policy.schema.policy import Worth

LEVEL: Worth = "Balanced"
BITBRAINS, AZURE, CPU = "bitbrains-2013-07", "azure-v1", "cpu"
OTHERS = (
    Week((CPU, AZURE), 41),
    Week((BITBRAINS,), 441),
    Week((AZURE, BITBRAINS, CPU), 204),
    Week((BITBRAINS, CPU), 214),
    Week((AZURE, BITBRAINS), 215),
    Week((BITBRAINS,), 218),
    Week((BITBRAINS,), 224),
)
"""Those with heat that lasts, of the first that were drawn."""


def measured_with(least: float, folders: Sequence[Path], seed: int, nodes: int, days: float) -> dict[str, float]:
    """Hot node-hours and evictions of a week; in a process of its own."""
    LEAST_GAIN[LEVEL] = least
    return measured(folders, seed, nodes, days, "Observe")


def main() -> int:
    """Measure and print."""
    parser = parser_of_weeks("gain")
    parser.add_argument("--least", type=float, nargs="+", default=[0.5, LEAST_GAIN[LEVEL]])
    wanted = parser.parse_args()
    if not (folders := folders_by_name("gain")):
        return 0
    own = [Week(tuple(folders), wanted.seed)] if wanted.seed is not None else []
    groups: dict[str, Sequence[Week]] = {"own": own} if own else {"tuned": WEEKS, "others": OTHERS}
    known = {name: [each for each in weeks if set(each.folders) <= folders.keys()] for name, weeks in groups.items()}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as workers:
        runs = {
            (week, least): workers.submit(
                measured_with, least, [folders[each] for each in week.folders], week.seed, wanted.nodes, wanted.days
            )
            for weeks in known.values()
            for week in weeks
            for least in wanted.least
        }
        for name, weeks in known.items():
            sums: dict[str, float] = defaultdict(float)
            for week in weeks:
                for least in wanted.least:
                    for figure, value in runs[week, least].result().items():
                        sums[f"{figure}_{least:g}"] += value
                        show(name, week.name, f"{figure}_{least:g}", value)
            for figure, value in sums.items():
                show(name, "all", figure, value)
    return 0


def show(weeks: str, week: str, figure: str, value: float) -> None:
    """Print a line."""
    line: dict[str, Any] = {"bench": "gain", "weeks": weeks, "week": week}
    print(json.dumps({**line, "figure": figure, "value": round(value, 2)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
